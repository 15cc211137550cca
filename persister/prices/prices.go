package prices

import (
	"bytes"
	_ "embed" // for the list that ships
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// List is the prices of one file.
type List struct {
	Source string // of the file: its name
	Prices []Price
}

// Price is what one model costs from a day on, in US dollars per million tokens.
type Price struct {
	Model      string  `json:"-"`           // * is anything
	From       string  `json:"from"`        // YYYY-MM-DD, in UTC
	Input      float64 `json:"input"`       // tokens that no cache had
	Output     float64 `json:"output"`      // with those of reasoning
	CacheRead  float64 `json:"cache_read"`  // input that a cache had
	CacheWrite float64 `json:"cache_write"` // input that was put into a cache
}

// shipped is the name of the file of Default.
const shipped = "prices-2026-09-28.json"

//go:embed prices-2026-09-28.json
var shippedFile []byte

// Default returns the list that ships with the program.
func Default() (List, error) { return Parse(shipped, shippedFile) }

// Load reads a file; "" is the list that ships, "none" has no price.
func Load(path string) (List, error) {
	switch path {
	case "":
		return Default()
	case "none":
		return List{Source: "none"}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return List{}, err
	}
	return Parse(filepath.Base(path), data)
}

// file is the form of a file.
type file struct {
	Date     string             `json:"date"`
	Currency string             `json:"currency"`
	Sources  []string           `json:"sources"`
	Note     string             `json:"note"`
	Models   map[string][]Price `json:"models"`
}

// Parse reads a file of a name. The error says which entry is wrong.
func Parse(name string, data []byte) (List, error) {
	var f file
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return List{}, fmt.Errorf("prices %s: %w", name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return List{}, fmt.Errorf("prices %s: something follows the object", name)
	}
	if f.Currency != "USD" {
		return List{}, fmt.Errorf("prices %s: currency is %q, only USD is known", name, f.Currency)
	}
	if err := checkDay(f.Date); err != nil {
		return List{}, fmt.Errorf("prices %s: date: %w", name, err)
	}
	list := List{Source: name}
	for _, model := range slices.Sorted(maps.Keys(f.Models)) {
		for i, p := range f.Models[model] {
			p.Model = model
			if err := p.check(); err != nil {
				return List{}, fmt.Errorf("prices %s: %s, entry %d: %w", name, model, i+1, err)
			}
			if slices.ContainsFunc(list.Prices, func(o Price) bool { return o.Model == model && o.From == p.From }) {
				return List{}, fmt.Errorf("prices %s: %s has two prices from %s on", name, model, p.From)
			}
			list.Prices = append(list.Prices, p)
		}
	}
	return list, nil
}

func (p *Price) check() error {
	if p.Model == "" || len(p.Model) > 200 {
		return errors.New("the name has not 1 to 200 bytes")
	}
	for _, n := range []float64{p.Input, p.Output, p.CacheRead, p.CacheWrite} {
		if n < 0 || n > 1e6 || math.IsNaN(n) {
			return fmt.Errorf("%v is no price per million tokens", n)
		}
	}
	return checkDay(p.From)
}

func checkDay(day string) error {
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		return fmt.Errorf("%q is not a day, as 2026-01-31", day)
	}
	return nil
}
