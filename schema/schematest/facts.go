package schematest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentstream/schema"
)

// Facts are what a run holds, by which readers of it are compared: each a lane, an id and what else counts. Their
// order means nothing.
type Facts struct {
	Messages, Calls, Results, Questions, Children []string
	Plan                                          string
	Usage                                         schema.Usage
}

// String returns the facts, one per line, in an order of their own.
func (f Facts) String() string {
	var b strings.Builder
	for _, list := range []struct {
		name string
		of   []string
	}{{"message", f.Messages}, {"call", f.Calls}, {"result", f.Results}, {"question", f.Questions},
		{"child", f.Children}} {
		for _, fact := range slices.Sorted(slices.Values(list.of)) {
			fmt.Fprintf(&b, "%s %s\n", list.name, fact)
		}
	}
	fmt.Fprintf(&b, "plan %s\nusage %s\n", f.Plan, f.Usage)
	return b.String()
}

// Fact writes one: the lane, the id and more.
func Fact(child, id string, more ...any) string {
	return fmt.Sprint(cmp.Or(child, "-"), "/", id) + fmt.Sprint(more...)
}

// FactsOf returns those that a fold has. Messages of people are not among them.
func FactsOf(f *schema.Fold) (facts Facts) {
	for _, m := range f.Messages {
		if m.Role != "user" {
			facts.Messages = append(facts.Messages, Fact(m.Child, m.ID))
		}
	}
	for _, c := range f.Calls {
		facts.Calls = append(facts.Calls, Fact(c.Child, c.ID))
		if c.Done {
			facts.Results = append(facts.Results, Fact(c.Child, c.ID, " ", c.OK))
		}
	}
	for _, in := range f.Inputs {
		facts.Questions = append(facts.Questions, Fact(in.Child, in.ID))
	}
	for _, c := range f.Children {
		facts.Children = append(facts.Children, c.ID)
	}
	if f.Plan != nil {
		facts.Plan = f.Plan.ID + " " + f.Plan.Decision
	}
	for _, name := range f.Usage.Total.Names() {
		if facts.Usage == nil {
			facts.Usage = schema.Usage{}
		}
		facts.Usage[name] = f.Usage.Total.Get(name)
	}
	return facts
}

// Summary returns the snapshot of a fold without what only says where in the log something stands, and without
// starts that nothing has come for.
func Summary(f *schema.Fold) string {
	var v any
	_ = json.Unmarshal(f.AppendSnapshot(nil), &v) // it is JSON
	b, _ := json.MarshalIndent(withoutPlaces(v), "", " ")
	return string(b)
}

func withoutPlaces(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			if strings.HasSuffix(name, "seq") || name == "last_id" || name == "last_ts" || name == "starts" ||
				name == "state_ts" {
				delete(v, name)
			} else {
				v[name] = withoutPlaces(v[name])
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutPlaces(v[i])
		}
	}
	return v
}

// Has reports whether all of other is among the facts, but for what nobody has named.
func (f Facts) Has(other Facts) bool {
	lists := func(f Facts) [][]string { return [][]string{f.Messages, f.Calls, f.Results, f.Questions, f.Children} }
	for i, list := range lists(other) {
		count := map[string]int{}
		for _, fact := range lists(f)[i] {
			id, _, _ := strings.Cut(fact, " ")
			count[id]++
		}
		for _, fact := range list {
			id, _, _ := strings.Cut(fact, " ")
			if count[id]--; count[id] < 0 && !strings.HasSuffix(id, "/") {
				return false
			}
		}
	}
	return true
}

// Differences returns the lines of two texts that are not in the other one.
func Differences(got, want string) string {
	var b strings.Builder
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, side := range []struct {
		mark      string
		all, less []string
	}{{"+", g, w}, {"-", w, g}} {
		count := map[string]int{}
		for _, line := range side.less {
			count[line]++
		}
		for _, line := range side.all {
			if count[line]--; count[line] < 0 {
				fmt.Fprintf(&b, "%s %s\n", side.mark, line)
			}
		}
	}
	return b.String()
}
