package dialect_test

import (
	"errors"
	"net/url"
	"reflect"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

type decoded struct {
	Run, Text string
	After     schema.Seq
	Limit     int
	Await     bool
	Types     []string
	hidden    string
}

func TestDecode(t *testing.T) {
	in := dialect.Input{
		Query: url.Values{"text": {"q"}, "after": {"7"}, "limit": {"-3"}, "await": {""}, "types": {"a", "b"}, "run": {"q"}, "hidden": {"x"}, "other": {"x", "y"}},
		Body:  []byte(`{"text":"b","run":"b","unknown":{}}`), Path: map[string]string{"run": "p"},
	}
	var got decoded
	if err := in.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if want := (decoded{Run: "p", Text: "b", After: 7, Limit: -3, Await: true, Types: []string{"a", "b"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for query, body := range map[string]string{
		"after=x": "", "after=9223372036854775808": "", "run=a&run=b": "", "await=perhaps": "", "await=&await=": "",
		"": "{", "a=1": `[]`, "a=2": `{"run":7}`, "a=3": ``, "a=4": `{"after":"1"}`,
	} {
		q, _ := url.ParseQuery(query)
		in := dialect.Input{Query: q}
		if query == "" || query[0] == 'a' && query[1] == '=' {
			in.Body = []byte(body)
		}
		if err := in.Decode(new(decoded)); !errors.Is(err, dialect.ErrBadRequest) && !errors.Is(err, schema.ErrBadCursor) {
			t.Errorf("%q %q: %v", query, body, err)
		}
	}
}
