package postgres

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"agentstream/internal/testkit"
)

func TestJSONBHolds(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true, `{"a":"\u0001"}`: true, `{"a":"\u0000"}`: false, `{"\u0000":1}`: false, `{"a":"\\u0000"}`: true,
		`{"a":"\\\u0000"}`: false,
		`"\ud800"`:         false, `"\udc00"`: false, `"\ud83d\ude00"`: true, `"\ud83d x"`: false, `"\ud83d\\de00"`: false,
		`"\uD83D\uDE00\uDE00"`: false, `"\ud83d\n"`: false,
		`1e400`: true, `1E+1001`: false, `-1e-999`: false, `-1e-990`: true, `1e99999999999999999999`: false,
		`[1,2.5,-0]`:              true,
		strings.Repeat("9", 1000): true, strings.Repeat("9", 1001): false, `"1e999999"`: true, `"`: false, `"\u00`: false,
	} {
		if got := jsonbHolds([]byte(text)); got != want {
			t.Errorf("%.40s: %v", text, got)
		}
	}
}

// TestJSONBHoldsAgreesWithServer makes texts at random from the parts that matter and asks the
// server: it must accept every text for which jsonbHolds reports true.
func TestJSONBHoldsAgreesWithServer(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), testkit.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	parts := []string{`\u0000`, `\u0001`, `\ud800`, `\udbff`, `\udc00`, `\uDFFF`, `\\`, `\"`, `\n`, `\/`, `u0000`,
		`d800`, "é", "😀", "\u007f", "x"}
	numbers := []string{"0", "-0", "1.50", "1e5", "1E-5", "1e999", "1e1000", "123456789012345678901234567890.5",
		"1e-16383", "1e131072"}
	rnd := rand.New(rand.NewPCG(3, 4))
	held, refused := 0, 0
	for range 3000 {
		var b strings.Builder
		b.WriteString(`{"a":"`)
		for range rnd.IntN(6) {
			b.WriteString(parts[rnd.IntN(len(parts))])
		}
		b.WriteString(`","n":` + numbers[rnd.IntN(len(numbers))] + `}`)
		text := b.String()
		if !json.Valid([]byte(text)) {
			t.Fatalf("the test makes no JSON: %s", text)
		}
		_, err := conn.Exec(t.Context(), `select $1::text::jsonb`, text)
		holds := jsonbHolds([]byte(text))
		if holds && err != nil {
			t.Fatalf("jsonb does not hold %s: %v", text, err)
		}
		if holds {
			held++
		}
		if err != nil {
			refused++
		}
	}
	if held < 500 || refused < 500 {
		t.Fatalf("%d held, %d refused by the server: the test does not reach both", held, refused)
	}
}

func FuzzJSONBHolds(f *testing.F) {
	f.Add([]byte(`{"a":"\ud83d\ude00","n":-1.5e10}`))
	f.Fuzz(func(t *testing.T, text []byte) { jsonbHolds(text) }) // never panics, whatever it is given
}
