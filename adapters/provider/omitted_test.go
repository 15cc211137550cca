package provider

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentstream/internal/cputime"
)

// TestOmitted: what is too large leaves out its largest members, says which and how many, and takes no
// longer than its bytes do.
func TestOmitted(t *testing.T) {
	var wide Fields
	for i := range 200_000 {
		wide = append(wide, Field{fmt.Sprintf("m%d", i), Number(i)})
	}
	wide = append(wide, Field{"large", Quote(strings.Repeat("x", 2<<20))})
	var b []byte
	if took := cputime.Of(func() { b = fit(wide, "before", 7) }); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	all, ok := Parse(b)
	if !ok || Problem(b) != "" || len(b) > maxPayload || len(b) < maxPayload/2 {
		t.Fatalf("%d bytes, %s", len(b), Problem(b))
	}
	names := Elements(all.Get("omitted"))
	if len(names) != maxOmitted || string(names[0]) != `"before"` || string(names[1]) != `"large"` ||
		all.Get("m9") == nil {
		t.Errorf("%d are named: %.100s", len(names), all.Get("omitted"))
	}
	if got, want := string(all.Get("omitted_members")), fmt.Sprint(len(wide)-(len(all)-3)+1); got != want {
		t.Errorf("%s members are missing, want %s", got, want)
	}
}
