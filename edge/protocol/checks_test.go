package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// validator returns the check that always asks the validator.
func validator(t testing.TB) (careful func(typ string, payload []byte) error) {
	t.Helper()
	checks, err := compilePayloadChecks(schema.Types())
	if err != nil {
		t.Fatal(err)
	}
	return func(typ string, payload []byte) error {
		if checks.byType[typ] == nil {
			return nil
		}
		return checks.validate(typ, payload)
	}
}

// What is taken without asking the validator is what the validator takes: payloads put together from the
// names that a type knows and values that are right, nearly right and wrong.
func TestSureIsNeverWrong(t *testing.T) {
	careful := validator(t)
	types := schema.Types()
	values := []string{
		`"x"`, `""`, `"\u0000"`, `"a\"b"`, `0`, `-0`, `-1`, `7`, `1.0`, `-1.5`, `1e3`, `1E-3`,
		`123456789012345678901234567890`, `true`, `false`, `null`,
		`{}`, `{"id":"a","title":"b"}`, `{"id":"p","steps":[]}`,
		`{"id":"p","steps":[{"id":"s","title":"t","intent":"write","est_tools":["a"]}]}`,
		`{"id":"p","steps":[{"id":"s"}]}`, `{"id":"p","steps":[{"id":"s","title":"t","intent":"nap"}]}`,
		`{"id":"p","steps":[1]}`, `[]`, `[1,"a"]`, `["a","b"]`, `[{}, {}]`,
		`"done"`, `"plan"`, `"user"`, `"running"`, `"d\u006fne"`, ` "spaced" `,
	}
	names := map[string]bool{"other": true, `call\u005fid`: true}
	for _, info := range types {
		for _, part := range strings.FieldsFunc(info.Schema, func(r rune) bool { return r == '"' }) {
			if len(part) > 1 && strings.Trim(part, "abcdefghijklmnopqrstuvwxyz_") == "" {
				names[part] = true
			}
		}
	}
	var all []string
	for n := range names {
		all = append(all, n)
	}
	sure := 0
	rapid.Check(t, func(t *rapid.T) {
		info := rapid.SampledFrom(types).Draw(t, "type")
		own := []string{}
		for _, n := range all {
			if strings.Contains(info.Schema, `"`+n+`"`) {
				own = append(own, n)
			}
		}
		own = append(own, "other", `call\u005fid`)
		var fields []string
		for range rapid.IntRange(0, 5).Draw(t, "fields") {
			fields = append(fields, fmt.Sprintf(`"%s" : %s`, rapid.SampledFrom(own).Draw(t, "name"),
				rapid.SampledFrom(values).Draw(t, "value")))
		}
		payload := []byte("{" + strings.Join(fields, ",") + "}")
		if sure, _ := schema.SurelyConforms(info.Name, payload); !sure {
			return
		}
		sure++
		if err := careful(info.Name, payload); err != nil {
			t.Fatalf("%s %s is surely right, but: %v", info.Name, payload, err)
		}
	})
	if sure == 0 && !testing.Short() { // of the few that -short draws, none may be
		t.Error("nothing was ever sure")
	}
}

// What producers really send is known without the validator, or the short way is for nothing.
func TestUsualPayloadsAreSure(t *testing.T) {
	careful := validator(t)
	asked, control := 0, 0
	for _, s := range schematest.All() {
		for _, e := range s.Events {
			info, err := schema.Lookup(e.Type)
			if err != nil || !info.Control || strings.HasPrefix(e.Type, "custom.") {
				continue
			}
			control++
			if sure, _ := schema.SurelyConforms(e.Type, e.Payload); !sure {
				asked++
			} else if err := careful(e.Type, e.Payload); err != nil {
				t.Errorf("%s %s: %v", e.Type, e.Payload, err)
			}
		}
	}
	if control == 0 || asked*10 > control {
		t.Errorf("the validator was asked for %d of %d control events", asked, control)
	}
}

// BenchmarkCheck holds a usual control event to its schema.
func BenchmarkCheck(b *testing.B) {
	checks, err := compilePayloadChecks(schema.Types())
	if err != nil {
		b.Fatal(err)
	}
	e := schema.Event{Type: schema.TypeToolEnd,
		Payload: []byte(`{"call_id":"toolu_01","ok":true,"output":{"files":["a.go","b.go"],"n":2},"duration_ms":12.5}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := checks.check(&e); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDataIsChecked: data.delta is held to its fields like control events, and names the field that is wrong.
func TestDataIsChecked(t *testing.T) {
	checks, err := compilePayloadChecks(schema.Types())
	if err != nil {
		t.Fatal(err)
	}
	for payload, wrong := range map[string]string{
		`{"media_type":"image/png","data":"aGk="}`:                           "",
		`{"media_type":"image/png","data":"","index":0,"name":"a","more":1}`: "",
		``:                            "/payload",
		`{}`:                          "/payload",
		`{"data":"aGk="}`:             "media_type",
		`{"media_type":"image/png"}`:  "data",
		`{"media_type":"a","data":7}`: "/payload/data",
		`{"media_type":"a","data":"","index":-1}`: "/payload/index",
	} {
		e := schema.Event{Type: schema.TypeDataDelta, Payload: []byte(payload)}
		_, err := checks.check(&e)
		if (err == nil) != (wrong == "") || err != nil &&
			(!errors.Is(err, schema.ErrMalformed) || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %v", payload, err)
		}
	}
	good := schema.Event{Type: schema.TypeDataDelta, Payload: []byte(`{"media_type":"image/png","data":"aGk="}`)}
	if n := testing.AllocsPerRun(100, func() { _, _ = checks.check(&good) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
