//go:build !race

package edge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// Whatever comes together, the answers and the run are what they would be one by one.
func TestTakeTogetherIsOneByOne(t *testing.T) {
	const rounds = 300
	refused, merged := 0, 0
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		h := newHouse(t)
		s := h.taker()
		var posts []producers.Post
		next := 1 // about what an own seq must be
		for range 2 + rnd.IntN(12) {
			p, n := randomPost(rnd, next)
			posts = append(posts, p)
			next += n
		}
		together := s.Take(t.Context(), runOf("together"), posts, nil)
		for i := range posts {
			one := s.Take(t.Context(), runOf("single"), posts[i:i+1], nil)[0]
			if got, want := fate(together[i]), fate(one); got != want {
				t.Fatalf("seed %d, post %d %s: %s, alone %s", seed, i, posts[i].Body, got, want)
			}
			if one.Refusal != nil {
				refused++
			}
		}
		if a, b := h.texts("together"), h.texts("single"); a != b {
			t.Fatalf("seed %d:\n%s\nalone\n%s", seed, a, b)
		}
		if h.packs("together") < h.packs("single") {
			merged++
		}
		if err := h.stop(); err != nil {
			t.Fatal(err)
		}
	}
	if refused < rounds || merged < rounds/2 {
		t.Errorf("only %d refused, %d stored in fewer packs: this proves nothing", refused, merged)
	}
}

// TestServerKeepsItsContract asks every route in every way in which the contract says that it answers.
func TestServerKeepsItsContract(t *testing.T) {
	k := &talk{t: t, c: readContract(t)}
	h := k.house()
	h.store("ended", schematest.Named("plain"), 5)
	table := rows(t)
	k.refusals(h, table)
	k.faults(h, table)
	k.reads(h)
	k.operates()
	k.writes(h)
	k.publishes(h)
	k.large(h)
	k.commands(h)
	k.limits(table)
	k.calls(h, table)
	if err := k.c.kept(); err != nil {
		t.Error(err)
	}
	t.Logf("%d requests, %d statuses and codes", len(k.said), len(k.c.seen))
	k.changed()
}

// TestViewsKeepTheContract: every frame of every view of every scenario is an event of the JSON
// Schemas.
func TestViewsKeepTheContract(t *testing.T) {
	k := &talk{t: t, c: readContract(t)}
	h := k.house(func(c *edge.Config) { c.Catalog = family{} })
	types := map[string]int{}
	merged := 0
	see := func(name, line string) {
		if err := k.c.instance("events/any.schema.json", line); err != nil {
			t.Errorf("%s: %v\n%.500s", name, err, line)
		}
		var e struct {
			Type     string
			FirstSeq *int `json:"first_seq"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if types[e.Type]++; e.FirstSeq != nil {
			merged++
		}
	}
	for i, s := range append(schematest.All(), schematest.Generate(1000, 9)) {
		run := fmt.Sprintf("run_%d", i)
		if s.Name == "children" {
			run = "run" // whose children are known
		}
		h.store(run, s, 6)
		queries := []string{"", "?bundle=true"}
		if len(s.Events) < 1500 {
			queries = append(queries, "?detail=full", "?child=-&nested=true", "?types=message.*")
		}
		if i == 0 {
			queries = append(queries, "?speed=1000")
		}
		for _, query := range queries {
			a := h.ask("GET", runsPath+"/{run}/stream", run, query, "")
			lines, err := eventsIn("text/event-stream", a.body)
			if err != nil || len(lines) == 0 {
				t.Fatalf("%s%s: %d, %v", s.Name, query, a.status, err)
			}
			for _, line := range lines {
				see(s.Name+query, line)
			}
		}
		for _, path := range []string{"/replay.jsonl", "/snapshot", "/events"} {
			h.ask("GET", runsPath+"/{run}"+path, run, "", "")
		}
		h.begun(run, see)
	}
	for _, child := range []string{schematest.ChildA, schematest.ChildB, schematest.Grandchild} {
		for _, path := range []string{"/stream", "/snapshot"} {
			h.ask("GET", runsPath+"/{run}"+path, child, "", "")
		}
	}
	if types["run.snapshot"] == 0 || types["delta.bundle"] == 0 || merged < 100 || len(types) < 15 {
		t.Errorf("%d merged, %v", merged, types)
	}
}

// TestContractIsValid holds the document to OpenAPI 3.1, and its codes to the table of ends.
func TestContractIsValid(t *testing.T) {
	c := readContract(t)
	if err := c.doc.Validate(t.Context()); err != nil || !c.doc.IsOpenAPI31OrLater() {
		t.Errorf("version %s: %v", c.doc.OpenAPI, err)
	}
	ids := map[string]bool{}
	for _, item := range c.doc.Paths.Map() {
		for _, op := range item.Operations() {
			if op.OperationID == "" || op.Summary == "" || ids[op.OperationID] {
				t.Errorf("operation %q %q", op.OperationID, op.Summary)
			}
			ids[op.OperationID] = true
		}
	}
	used := string(contractYAML(t))
	for kind, names := range map[string][]string{
		"responses": slices.Collect(maps.Keys(c.doc.Components.Responses)), "parameters": slices.Collect(maps.Keys(c.doc.Components.Parameters)),
		"headers": slices.Collect(maps.Keys(c.doc.Components.Headers)), "schemas": slices.Collect(maps.Keys(c.doc.Components.Schemas)),
	} {
		for _, name := range names {
			if !strings.Contains(used, "#/components/"+kind+"/"+name+"'") {
				t.Errorf("%s %s is used nowhere", kind, name)
			}
		}
	}
}

// TestFilteredPages: whatever is asked for, in whatever order and size of pages, all pages together
// are exactly what the filter shows.
func TestFilteredPages(t *testing.T) {
	h := newHouse(t)
	runs := map[string][]string{}
	for _, s := range []schematest.Scenario{schematest.Named("children"), schematest.Named("parallel-tools"), schematest.Named("hostile"), schematest.Generate(3000, 9)} {
		runs[s.Name] = schematest.Lines(h.fill(s.Name, s, 5))
	}
	for run, lines := range runs {
		for _, f := range []struct {
			query           string
			children, types []string
			nested          bool
		}{
			{"", nil, nil, false}, {"&types=*", nil, nil, false}, {"&types=text.delta", nil, []string{"text.delta"}, false},
			{"&types=tool.*,message.end", nil, []string{"tool.*", "message.end"}, false}, {"&types=custom.nothing", nil, []string{"custom.nothing"}, false},
			{"&child=-", []string{"-"}, nil, false}, {"&child=" + schematest.ChildA, []string{schematest.ChildA}, nil, false},
			{"&nested=true&child=" + schematest.ChildA, []string{schematest.ChildA}, nil, true},
			{"&child=-," + schematest.ChildB + "&types=run.lifecycle&types=text.delta", []string{"-", schematest.ChildB}, []string{"run.lifecycle", "text.delta"}, false},
		} {
			want := filtered(t, lines, f.children, f.types, f.nested)
			for _, limit := range []int{1, 3, 100, 1000} {
				if limit == 1 && len(lines) > 1000 {
					continue
				}
				if got, _ := h.walk(run, f.query, false, limit); !slices.Equal(got, want) {
					t.Fatalf("%s%s, pages of %d: %d events, want %d", run, f.query, limit, len(got), len(want))
				}
				got, _ := h.walk(run, f.query+"&order=desc", true, limit)
				if slices.Reverse(got); !slices.Equal(got, want) {
					t.Fatalf("%s%s downwards, pages of %d: %d events, want %d", run, f.query, limit, len(got), len(want))
				}
			}
		}
	}
}

// TestPageLooksAtSoMuch: a filter that shows next to nothing costs a bounded walk, and the pages get
// there all the same.
func TestPageLooksAtSoMuch(t *testing.T) {
	const events, scan = 45_000, 20_000
	h := newHouse(t)
	s := schematest.Generate(events, 4)
	s.Events[10].Type, s.Events[10].Payload = "custom.rare", json.RawMessage(`{}`)
	s.Events[30_000].Type, s.Events[30_000].Payload = "custom.rare", json.RawMessage(`{}`)
	h.fill("long", s, 500)
	last := schema.Seq(events)
	var after []schema.Seq
	for at := schema.Seq(0); at < last; {
		p := h.events("long", "?types=custom.rare&after="+at.String())
		at = *p.NextAfter
		after = append(after, at)
		if *p.HasMore != (at < last) {
			t.Fatalf("at %d: more %v", at, *p.HasMore)
		}
	}
	if !slices.Equal(after, []schema.Seq{scan, 2 * scan, last}) {
		t.Errorf("upwards: %v", after)
	}
	// The two and the run's end.
	if got, pages := h.walk("long", "&types=custom.rare", false, 10); len(got) != 3 || pages != 3 {
		t.Errorf("upwards: %d events in %d pages", len(got), pages)
	}
	if got, pages := h.walk("long", "&types=custom.rare&order=desc", true, 10); len(got) != 3 || pages != 3 {
		t.Errorf("downwards: %d events in %d pages", len(got), pages)
	}
}

// TestPageBytes: a page of large events is cut, upwards and downwards, and loses nothing.
func TestPageBytes(t *testing.T) {
	h := newHouse(t)
	for i := range 20 {
		if a := h.do("POST", "/v1/agent/runs/fat/events", fmt.Sprintf(`{"type":"custom.n","payload":{"n":%d,"text":%q}}`, i, strings.Repeat("x", 400<<10))); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	want, upPages := h.walk("fat", "", false, 1000)
	got, pages := h.walk("fat", "&order=desc", true, 1000)
	if slices.Reverse(got); len(want) != 20 || !slices.Equal(got, want) || pages != 2 || upPages != 2 {
		t.Errorf("%d events in %d pages downwards, %d in %d upwards", len(got), pages, len(want), upPages)
	}
	if a := h.do("GET", "/v1/agent/runs/fat/events?limit=1000&order=desc", ""); len(a.body) > 5<<20 {
		t.Errorf("%d bytes", len(a.body))
	}
}

// A snapshot of 100,000 deltas is folded once: what an edge has read costs a small part of that again, also behind one
// event more. What is asked of it is 2 s from a cold edge and 200 ms from a warm one, on a quiet machine.
func TestSnapshotOf100000(t *testing.T) {
	const deltas = 100_000
	k := testkit.NATS(t)
	first, app := natsNode(t, k)
	text := fillDeltas(t, app, schema.RunKey{Tenant: "acme", Run: "run"}, deltas)
	get := func(ts *httptest.Server) (string, time.Duration) {
		began := time.Now()
		a := (&house{t: t, url: ts.URL, client: http.DefaultClient}).do("GET", "/v1/agent/runs/run/snapshot", "")
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return a.body, time.Since(began)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	body, cold := get(first)
	runtime.GC()
	runtime.ReadMemStats(&after)
	var got struct {
		Messages []struct{ Blocks []struct{ Text string } }
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Messages[0].Blocks[0].Text != text {
		t.Fatalf("%v: another text", err)
	}
	_, warm := get(first)
	e := schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"one more","index":0}`)}
	if _, err := app.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: "run"}, []schema.Event{e}, producers.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	_, advanced := get(first)
	t.Logf("%d deltas, %d bytes: cold %v, warm %v, one event later %v; allocated %d KiB, kept %d KiB", deltas, len(body), cold, warm, advanced,
		(after.TotalAlloc-before.TotalAlloc)>>10, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10)
	if warm > cold/2 || advanced > cold/2 {
		t.Errorf("folded again: cold %v, warm %v, advanced %v", cold, warm, advanced)
	}
	began := time.Now()
	a := (&house{t: t, url: first.URL, client: http.DefaultClient}).do("POST", "/v1/agent/runs/run/pause", "")
	t.Logf("a command behind it: %v", time.Since(began))
	if a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestExportOfALongRun: 50,000 events go out compressed and come back whole, while what the server
// holds for them stays small. It prints what each coding does to them.
func TestExportOfALongRun(t *testing.T) {
	h := newHouse(t)
	packs := h.fill("long", schematest.Generate(50_000, 8), 100)
	var want bytes.Buffer
	for i := range packs {
		want.Write(packs[i].Body)
	}
	for _, coding := range []string{"identity", "gzip", "zstd"} {
		req := h.request("GET", "/v1/agent/runs/long/replay.jsonl", "")
		req.Header.Set("Accept-Encoding", coding)
		begun := time.Now()
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var before, now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		counted := &countingReader{r: resp.Body}
		dec, err := decoder(resp.Header.Get("Content-Encoding"), counted)
		if err != nil {
			t.Fatal(err)
		}
		rest, buf, most := want.Bytes(), make([]byte, 64<<10), uint64(0)
		for i := 0; ; i++ {
			n, err := dec.Read(buf)
			if n > len(rest) || !bytes.Equal(buf[:n], rest[:n]) {
				t.Fatalf("%s: differs at byte %d", coding, want.Len()-len(rest))
			}
			if rest = rest[n:]; err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", coding, err)
			}
			if i%32 == 0 {
				runtime.GC()
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapInuse)
			}
		}
		resp.Body.Close()
		if len(rest) > 0 {
			t.Errorf("%s: %d bytes are missing", coding, len(rest))
		}
		grown := int64(most) - int64(before.HeapInuse)
		t.Logf("%s: %d events, %d bytes as %d (%.1f %%) in %v; heap grown by %d KiB", coding, 50_000, want.Len(), counted.n,
			100*float64(counted.n)/float64(want.Len()), time.Since(begun).Round(time.Millisecond), grown>>10)
		if coding != "identity" && counted.n > int64(want.Len())/4 {
			t.Errorf("%s makes %d bytes of %d", coding, counted.n, want.Len())
		}
		if grown > 12<<20 { // both ends of the connection, the encoder and the decoder
			t.Errorf("%s: heap grew by %d bytes", coding, grown)
		}
	}
}
