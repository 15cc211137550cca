package native

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden has one file per scenario: the events of the log above the rule, the frames below, with the names that
// ?event=type gives them. Data
// that is a line of the log, byte for byte, is written as that line's number.
func TestGolden(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range schematest.All() {
		t.Run(s.Name, func(t *testing.T) {
			packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run_golden"}, s, 4)
			var got bytes.Buffer
			lines := make(map[string]int)
			for i, line := range schematest.Lines(packs) {
				fmt.Fprintln(&got, line)
				lines[line] = i + 1
			}
			fmt.Fprintln(&got, strings.Repeat("-", 80))
			for _, f := range project(t, dialect.Request{Form: form{named: true}.key()}, packs) {
				data := string(f.Data)
				if n := lines[data]; n > 0 {
					data = fmt.Sprintf("= line %d", n)
				}
				fmt.Fprintf(&got, "event %s, id %s, data %s\n", f.Event, f.Token, data)
			}
			path := filepath.Join("testdata", s.Name+".golden")
			seen[path] = true
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (go test -update writes it)", err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s: %s", path, firstDifference(got.String(), string(want)))
			}
		})
	}
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !seen[f] {
			t.Errorf("%s belongs to no scenario", f)
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\ngot  %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// project returns all frames.
func project(t *testing.T, req dialect.Request, packs []schema.Pack) []dialect.Frame {
	t.Helper()
	p := Dialect{}.Projector(req)
	var out dialect.Frames
	for i := range packs {
		for r, err := range packs[i].Records(0) {
			if err == nil {
				err = p.Project(&out, r)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return out.List
}

func TestProjectDoesNotAllocate(t *testing.T) {
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run"}, schematest.ByName("plain"), 100)
	p := Dialect{}.Projector(dialect.Request{})
	var out dialect.Frames
	allocs := testing.AllocsPerRun(100, func() {
		for r, err := range packs[0].Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			_ = p.Project(&out, r)
			out.Reset()
		}
	})
	if allocs > 4 { // of the iterators, not per record
		t.Errorf("%v allocations for %d records", allocs, packs[0].Count)
	}
}

func in(run, query string, headers ...string) dialect.Input {
	q, _ := url.ParseQuery(query)
	h := make(http.Header)
	for i := 0; i+1 < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return dialect.Input{Stream: "run", Path: map[string]string{"run": run}, Query: q, Header: h}
}

func TestOpen(t *testing.T) {
	const id = "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, tt := range []struct {
		name string
		in   dialect.Input
		want dialect.Request
		err  error
	}{
		{"nothing", in("r", ""), dialect.Request{Run: "r"}, nil},
		{"empty", in("r", "after=&detail=", "Last-Event-ID", ""), dialect.Request{Run: "r"}, nil},
		{"query", in("r", "after=7"), dialect.Request{Run: "r", Cursor: dialect.Cursor{Seq: 7}}, nil},
		{"header", in("r", "", "Last-Event-ID", "7"), dialect.Request{Run: "r", Cursor: dialect.Cursor{Seq: 7}}, nil},
		{"header wins", in("r", "after=3", "last-event-id", "7"),
			dialect.Request{Run: "r", Cursor: dialect.Cursor{Seq: 7}}, nil},
		{"start, said", in("r", "after=3", "Last-Event-ID", "0"), dialect.Request{Run: "r"}, nil},
		{"leading zeros", in("r", "after=007"), dialect.Request{Run: "r", Cursor: dialect.Cursor{Seq: 7}}, nil},
		{"largest", in("r", "after=9007199254740991"),
			dialect.Request{Run: "r", Cursor: dialect.Cursor{Seq: schema.MaxSeq}}, nil},
		{"event id", in("r", "", "Last-Event-ID", id), dialect.Request{Run: "r", Cursor: dialect.Cursor{ID: id}}, nil},
		{"detail", in("r", "detail=full"), dialect.Request{Run: "r", Detail: dialect.DetailFull}, nil},
		{"detail in a header", in("r", "", "Detail", "full"), dialect.Request{Run: "r", Detail: dialect.DetailFull}, nil},
		{"bad run", in("a.b", ""), dialect.Request{}, schema.ErrBadID},
		{"no run", in("", ""), dialect.Request{}, schema.ErrBadID},
		{"garbage", in("r", "after=x"), dialect.Request{}, schema.ErrBadCursor},
		{"negative", in("r", "after=-1"), dialect.Request{}, schema.ErrBadCursor},
		{"beyond a float", in("r", "after=9007199254740992"), dialect.Request{}, schema.ErrBadCursor},
		{"garbage in the header, good query", in("r", "after=1", "Last-Event-ID", "x"), dialect.Request{},
			schema.ErrBadCursor},
		{"bad event id", in("r", "after=evt_a.b"), dialect.Request{}, schema.ErrBadCursor},
		{"twice", in("r", "after=1&after=2"), dialect.Request{}, schema.ErrBadCursor},
		{"bad detail", in("r", "detail=some"), dialect.Request{}, dialect.ErrBadRequest},
	} {
		got, err := Dialect{}.Open(tt.in)
		if tt.err == nil {
			tt.want.Stream = "run"
		}
		if !reflect.DeepEqual(got, tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%s: %+v, %v, want %+v, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// FuzzOpen holds that whatever a request brings is either refused by a known sentinel or means exactly
// what it says: a number is that number, an id is that id, and only nothing and zero are the start.
func FuzzOpen(f *testing.F) {
	f.Add("run", "after=1&detail=full", "2")
	f.Add("a.b", "after=-1", "")
	f.Add("r", "after=evt_x", "evt_")
	f.Add("r", "after=%00", "\x00")
	f.Fuzz(func(t *testing.T, run, query, header string) {
		i := in(run, query)
		if header != "" {
			i.Header.Set("Last-Event-ID", header)
		}
		req, err := Dialect{}.Open(i)
		if err != nil {
			if !errors.Is(err, schema.ErrBadID) && !errors.Is(err, schema.ErrBadCursor) &&
				!errors.Is(err, dialect.ErrBadRequest) {
				t.Fatalf("refused by %v", err)
			}
			if !reflect.DeepEqual(req, dialect.Request{}) {
				t.Fatalf("a refusal gives %+v", req)
			}
			return
		}
		if schema.ValidRunID(req.Run) != nil || req.Run != run {
			t.Fatalf("run %q of %q", req.Run, run)
		}
		said := header
		if said == "" {
			said = i.Query.Get("after")
		}
		c := req.Cursor
		switch {
		case c.ID != "":
			if c.ID != said || c.Seq != 0 || schema.ValidEventID(c.ID) != nil {
				t.Fatalf("cursor %+v of %q", c, said)
			}
		case c.Seq != 0:
			if strings.TrimLeft(said, "0") != c.Seq.String() {
				t.Fatalf("cursor %+v of %q", c, said)
			}
		case strings.Trim(said, "0") != "":
			t.Fatalf("%q is taken for the start", said)
		}
	})
}
