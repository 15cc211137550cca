package stream

import (
	"errors"
	"testing"
	"time"

	"agentstream/schema"
)

func sample() *cursor {
	at := time.Date(2026, 2, 28, 10, 0, 0, 123456789, time.UTC)
	return &cursor{log: 7, places: []spot{
		{}, {position: 12, stored: at}, {position: 5, stored: at.Add(-time.Hour), partial: 9, through: 41},
		{position: 99, stored: at, archive: &archived{run: "run_1", seq: 3, since: at.Add(-time.Minute), cut: true}},
		{stored: at},
	}}
}

func TestCursor(t *testing.T) {
	c := sample()
	got, err := parse(c.String())
	if err != nil || got.String() != c.String() || *got.places[3].archive != *c.places[3].archive ||
		got.places[2] != c.places[2] {
		t.Fatal(got, err)
	}
	for _, bad := range []string{"", "x", "AQAAAAEB", c.String()[1:], c.String() + "AA", "AQAAAAH_____Dw"} {
		if _, err := parse(bad); !errors.Is(err, schema.ErrBadCursor) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestLater(t *testing.T) {
	early, late := sample(), sample()
	late.places[0].position = 8
	late.places[3].archive = nil
	early.places[1].position = 13
	both := sample()
	both.places[0], both.places[1], both.places[3] = late.places[0], early.places[1], late.places[3]
	for _, pair := range [][2]*cursor{{early, late}, {late, early}} {
		got, err := Later(pair[0].String(), pair[1].String())
		if err != nil || got != both.String() {
			t.Error(got, err)
		}
	}
	other := sample()
	other.log = 8
	if got, err := Later(early.String(), other.String()); err != nil || got != other.String() {
		t.Error(got, err)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(sample().String())
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse(text)
		if err != nil {
			return
		}
		again, err := parse(c.String())
		if err != nil || again.String() != c.String() {
			t.Fatal(text, err)
		}
	})
}
