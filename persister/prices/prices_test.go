package prices_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/persister/prices"
)

// TestShippedList: the list that ships is well formed, names its day, and has a price of every kind of token.
func TestShippedList(t *testing.T) {
	list, err := prices.Default()
	if err != nil || !strings.Contains(list.Source, "20") || len(list.Prices) < 20 {
		t.Fatalf("%d prices of %q, %v", len(list.Prices), list.Source, err)
	}
	for _, p := range list.Prices {
		if p.Input <= 0 || p.Output < p.Input || p.CacheRead <= 0 || p.CacheRead > p.Input || p.CacheWrite < p.Input {
			t.Errorf("%+v", p)
		}
	}
}

// TestFilesAreChecked: an error says what is wrong, and where.
func TestFilesAreChecked(t *testing.T) {
	const good = `{"date":"2026-01-31","currency":"USD","models":{"m-*":[{"from":"2026-01-01","input":1,"output":2}]}}`
	for text, wrong := range map[string]string{
		good:                                   "",
		good + `{}`:                            "follows",
		good[:30]:                              "unexpected EOF",
		`[]`:                                   "array",
		"":                                     "EOF",
		strings.Replace(good, "USD", "EUR", 1): `"EUR"`,
		strings.Replace(good, "2026-01-31", "31.1.26", 1):                               "date",
		strings.Replace(good, "2026-01-01", "2026-02-30", 1):                            "m-*, entry 1",
		strings.Replace(good, `"input":1`, `"input":-1`, 1):                             "no price",
		strings.Replace(good, `"input"`, `"inptu"`, 1):                                  "inptu",
		strings.Replace(good, "m-*", "", 1):                                             "1 to 200",
		strings.Replace(good, `}]`, `},{"from":"2026-01-01","input":9,"output":9}]`, 1): "two prices",
	} {
		_, err := prices.Parse("f.json", []byte(text))
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", text, err, wrong)
		}
	}
	path := filepath.Join(t.TempDir(), "own.json")
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := prices.Load(path); err != nil || list.Source != "own.json" || len(list.Prices) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := prices.Load("none"); err != nil || len(list.Prices) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := prices.Load(path + "x"); err == nil {
		t.Error("a file that is not there is read")
	}
}
