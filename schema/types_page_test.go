package schema_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentstream/schema"
)

// TestTypesAreDocumented holds the table of docs/dialects/native.md to the catalogue: each type has one row, with the
// fields that its schema requires and an example that fits it.
func TestTypesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/dialects/native.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([^|]+) \\| [^|]+ \\| `({[^`]*})` \\|$")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = append(rows[m[1]], m[2], m[3])
	}
	for _, info := range schema.Types() {
		got := rows[info.Name]
		delete(rows, info.Name)
		if len(got) != 2 {
			t.Errorf("%s has %d rows", info.Name, len(got)/2)
			continue
		}
		var body struct{ Required []string }
		if err := json.Unmarshal([]byte(info.Schema), &body); err != nil {
			t.Fatal(err)
		}
		want := "–"
		if len(body.Required) > 0 {
			want = "`" + strings.Join(body.Required, "`, `") + "`"
		}
		if got[0] != want {
			t.Errorf("%s requires %s, the page has %s", info.Name, want, got[0])
		}
		checkExample(t, info, got[1])
	}
	for name := range rows {
		t.Errorf("%s is no type", name)
	}
}

// checkExample holds an example to the schema of its type.
func checkExample(t *testing.T, info schema.TypeInfo, example string) {
	t.Helper()
	text, err := jsonschema.UnmarshalJSON(strings.NewReader(info.Schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(info.Name, text); err != nil {
		t.Fatal(err)
	}
	form, err := compiler.Compile(info.Name)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(example))
	if err != nil {
		t.Fatalf("%s: %v", info.Name, err)
	}
	if err := form.Validate(value); err != nil {
		t.Errorf("%s: %v", info.Name, err)
	}
}
