package archive

import (
	"strings"
	"testing"
)

// TestNameOfWhoGivesACommand: a name is a short line of text, whatever was typed or set in the environment.
func TestNameOfWhoGivesACommand(t *testing.T) {
	for given, want := range map[string]string{
		"eve":                       "eve",
		"Zoë of the night shift":    "Zoë of the night shift",
		" a\x1b[2Jb\nc\u202ed\xff ": "a [2Jb c d",
		strings.Repeat("ë", 1000):   strings.Repeat("ë", 128),
	} {
		if got := (&AuditFlags{By: given}).by(); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
	if got := (&AuditFlags{By: "\x00\n"}).by(); got == "" || strings.ContainsAny(got, "\x00\n") {
		t.Errorf("a name of nothing that is printed: %q", got)
	}
}
