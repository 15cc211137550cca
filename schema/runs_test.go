package schema_test

import (
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"agentstream/schema"
)

func TestRunCursor(t *testing.T) {
	for _, at := range []time.Time{
		time.Date(2026, 2, 28, 23, 59, 59, 123456789, time.UTC), time.Unix(0, 0).UTC(), time.Unix(-1, 5).UTC(),
		time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
	} {
		c := schema.RunCursor{Started: at, ID: "run_1-A"}
		got, err := schema.ParseRunCursor(c.String())
		if err != nil || !got.Started.Equal(at) || got.ID != c.ID {
			t.Errorf("%v came back as %v, %v", c, got, err)
		}
		if strings.Trim(c.String(), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			t.Errorf("%q needs escaping in a URL", c)
		}
	}
	if c, err := schema.ParseRunCursor(""); err != nil || !c.IsZero() || c.String() != "" {
		t.Errorf("the empty cursor is %v, %v", c, err)
	}
	token := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	good := schema.RunCursor{Started: time.Unix(7, 0), ID: "r"}.String()
	for _, bad := range []string{
		"0", "17", "garbage", good + "=", good + "A", good[1:], " " + good, strings.Repeat("A", 5000),
		token("2.7.0.r"), token("1.7.0."), token("1.7.0.a.b"), token("1.7.0.-"), token("1.7.0.é"), token("1.7.0.r\x00"),
		token("1.07.0.r"), token("1.+7.0.r"), token("1.7.-1.r"), token("1.7.1000000000.r"), token("1.x.0.r"),
		token("1.99999999999999999999.0.r"), token("1.9223372036854775807.0.r"), token("1.-9223372036854775808.0.r"),
	} {
		if c, err := schema.ParseRunCursor(bad); !errors.Is(err, schema.ErrBadCursor) {
			t.Errorf("%.60q is read as %v, %v", bad, c, err)
		}
	}
}

func TestUsage(t *testing.T) {
	for payload, want := range map[string]string{
		`{"message_id":"m"}`: `{}`,
		`{"usage":{}}`:       `{}`,
		`{"usage":null}`:     `{}`,
		`{"usage":[1,2]}`:    `{}`,
		`{"usage":7}`:        `{}`,
		`{"usage":{"input_tokens":3,"output_tokens":0}}`:      `{"input_tokens":3,"output_tokens":0}`,
		`{"usage":{"b":1,"a":2,"b":3}}`:                       `{"a":2,"b":3}`,
		`{"usage":{"a":1},"usage":{"a":2}}`:                   `{"a":2}`,
		`{"usage":{"a":-1,"b":-0,"c":1.0,"d":1e3,"e":"5"}}`:   `{}`,
		`{"usage":{"deep":{"a":1},"list":[1],"no":null}}`:     `{}`,
		`{"usage":{"a":9223372036854775807}}`:                 `{"a":9223372036854775807}`,
		`{"usage":{"a":9223372036854775808}}`:                 `{}`,
		`{"usage":{"":1,"a b":2,"\u0000":3,"é":4,"x.y-z":5}}`: `{"x.y-z":5}`,
		`{"u\u0073age":{"\u0061":1}}`:                         `{"a":1}`,
		`{"input":{"usage":{"a":1}}}`:                         `{}`,
	} {
		if got := schema.UsageOf([]byte(payload)).String(); got != want {
			t.Errorf("%s: %s, want %s", payload, got, want)
		}
	}
	a, b := schema.Usage{"x": 1, "max": math.MaxInt64 - 1}, schema.Usage{"x": 2, "y": 3, "max": 5}
	if got := a.Plus(b).String(); got != `{"max":9223372036854775807,"x":3,"y":3}` || a["x"] != 1 || b["x"] != 2 {
		t.Errorf("%s from %v and %v", got, a, b)
	}
	if got := schema.Usage(nil).Plus(nil); got != nil || got.Plus(a).String() != a.String() {
		t.Errorf("%v", got)
	}
	if got := schema.ParseUsage(a.String()); got.String() != a.String() {
		t.Errorf("%v", got)
	}
	var many strings.Builder
	for i := range 1000 {
		many.WriteString(`,"k` + schema.Seq(i).String() + `":1`)
	}
	if got := schema.UsageOf([]byte(`{"usage":{` + many.String()[1:] + `}}`)); len(got) != schema.MaxUsageNames ||
		len(got.Plus(schema.Usage{"z": 1})) != schema.MaxUsageNames {
		t.Errorf("%d names", len(got))
	}
}

func TestCutReason(t *testing.T) {
	long := strings.Repeat("é", schema.MaxReason)
	if got := schema.CutReason("a" + long); len(got) != schema.MaxReason-1 || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
	if got := schema.CutReason(long); len(got) != schema.MaxReason || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
	if got := schema.CutReason("why"); got != "why" {
		t.Error(got)
	}
}
