package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"agentstream/internal/cputime"
)

func TestQuickAgreesOnRandomTexts(t *testing.T) {
	pieces := []string{`{`, `}`, `[`, `]`, `,`, `:`, `"`, `\`, `\"`, `\u00e9`, `"type"`, `"text.delta"`, `"payload"`,
		`{"text":"x"}`, `"a"`, ` `, "\n", "1", "-", ".", "e", "0", "true", "null", "é", "\xff", "\x01"}
	rapid.Check(t, func(t *rapid.T) {
		data := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 24).Draw(t, "pieces"), ""))
		good := utf8.Valid(data) && json.Valid(data)
		if quick := Valid(data, 128); quick != good {
			t.Fatalf("%q: quick says %v, the standard library %v", data, quick, good)
		}
	})
}

// TestEscapesCostLittle: a text of nothing but escapes takes time in proportion to its length. A search that
// begins anew at each escape would take minutes here.
func TestEscapesCostLittle(t *testing.T) {
	for _, piece := range []string{`\"`, `\\`, `\n`, `\u0000`} {
		data := []byte(`"` + strings.Repeat(piece, 1<<20) + `"`)
		took := cputime.Of(func() {
			if !Valid(data, 1) || SkipString(data, 0) != len(data) {
				t.Errorf("%s: refused", piece)
			}
		})
		if took > 20*time.Second {
			t.Errorf("%s: %v for %d bytes", piece, took, len(data))
		}
	}
}
