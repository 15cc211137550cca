package ends

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"agentstream/edge/dialect"
	"agentstream/internal/testkit/sentence"
	"agentstream/producers"
	"agentstream/schema"
)

// TestRowsAreSentences: every row of the table says one thing, to a person.
func TestRowsAreSentences(t *testing.T) {
	for _, r := range dialect.Reasons() {
		if err := sentence.Check(OutcomeOf(r).Message); err != nil {
			t.Errorf("%s: %v", r, err)
		}
	}
}

// TestProblemsAreSentences: whatever way an error has come, its client is told what is wrong, once, and not the way.
func TestProblemsAreSentences(t *testing.T) {
	ways := map[string]func(error) error{
		"as it is":     func(err error) error { return err },
		"by a package": func(err error) error { return fmt.Errorf("producers: append to acme/run: %w", err) },
		"by three": func(err error) error {
			return fmt.Errorf("natskit: keep a blob of acme/run: %w", fmt.Errorf("body: read: %w", fmt.Errorf("ws: %w", err)))
		},
		"in a batch":   func(err error) error { return &schema.BatchError{Line: 3, Err: err} },
		"after a part": func(err error) error { return &producers.PartialError{Stored: 2, Of: 4, Err: err} },
		"in part, inner": func(err error) error {
			return fmt.Errorf("producers: x: %w", &producers.PartialError{Stored: 2, Of: 4, Err: err})
		},
		"of a field":    func(err error) error { return &FieldError{Field: "/payload", Err: err} },
		"at a position": func(err error) error { return &PositionError{Last: 7, Err: err} },
	}
	for name, s := range sentinels {
		facts := map[string]error{"alone": s.err, "with a fact": fmt.Errorf("three are given: %w", s.err),
			"refused": dialect.Refuse(s.err, "three are given")}
		for fact, err := range facts {
			for way, by := range ways {
				whole := by(err)
				p := Problem(ReasonOf(whole), whole)
				if err := sentence.Check(p.Message); err != nil {
					t.Errorf("%s %s %s: %v", name, fact, way, err)
				}
				if strings.Contains(p.Message, "acme/run") {
					t.Errorf("%s %s %s: %q", name, fact, way, p.Message)
				}
			}
		}
	}
	over := fmt.Errorf("natskit: keep a blob of acme/run: %w", &LimitError{What: "bytes a second"})
	if p := Problem(ReasonOf(over), over); p.Message != "more bytes a second than this tenant may send" {
		t.Errorf("%q", p.Message)
	}
	class := fmt.Errorf("%w: %w", dialect.ErrBadRequest, errors.New("it rains"))
	if p := Problem(ReasonOf(class), class); p.Message != "bad request: it rains" {
		t.Errorf("%q", p.Message)
	}
}

// TestClipKeepsCharacters cuts texts of characters of one to four bytes, at every place.
func TestClipKeepsCharacters(t *testing.T) {
	for _, c := range []string{"x", "é", "я", "∞", "😀", "é", "👩‍👩‍👧"} {
		for before := range 8 {
			got := Clip(strings.Repeat("a", before) + strings.Repeat(c, maxMessage+1))
			if !utf8.ValidString(got) || len(got) > maxMessage+len("…") || !strings.HasSuffix(got, "…") {
				t.Errorf("%q after %d: %q", c, before, got)
			}
		}
	}
	if got := Clip("short"); got != "short" {
		t.Errorf("%q", got)
	}
}
