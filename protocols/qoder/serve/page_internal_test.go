package serve

import (
	"errors"
	"testing"

	"agentstream/edge/protocol"
	"agentstream/schema"
)

// FuzzToken reads anything as a page: what is taken is what was made.
func FuzzToken(f *testing.F) {
	made := window{scope: "events", desc: true, back: true}
	f.Add(made.token("12.3"))
	f.Add("MWFmMS4wLjEyMzQ")
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		w := window{scope: "events", page: token}
		if err := w.open(""); err != nil {
			if !errors.Is(err, schema.ErrBadCursor) {
				t.Fatal(err)
			}
			return
		}
		if again := w.token(w.page); again != token {
			t.Errorf("%q is %q", token, again)
		}
		if s, err := protocol.ParseOffset(w.page); err == nil && s.String() != w.page {
			t.Errorf("%q is %v", w.page, s)
		}
	})
}
