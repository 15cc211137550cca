//go:build !race

package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge/edgetest"
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
		h := edgetest.NewHouse(t)
		s := serverBeside(h)
		var posts []producers.Post
		next := 1 // about what an own seq must be
		for range 2 + rnd.IntN(12) {
			p, n := randomPost(rnd, next)
			posts = append(posts, p)
			next += n
		}
		together := s.StorePosts(t.Context(), edgetest.RunOf("together"), posts, nil)
		for i := range posts {
			one := s.StorePosts(t.Context(), edgetest.RunOf("single"), posts[i:i+1], nil)[0]
			if got, want := fate(together[i]), fate(one); got != want {
				t.Fatalf("seed %d, post %d %s: %s, alone %s", seed, i, posts[i].Body, got, want)
			}
			if one.Refusal != nil {
				refused++
			}
		}
		if a, b := textsOf(h, "together"), textsOf(h, "single"); a != b {
			t.Fatalf("seed %d:\n%s\nalone\n%s", seed, a, b)
		}
		if packsOf(h, "together") < packsOf(h, "single") {
			merged++
		}
		if err := h.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if refused < rounds || merged < rounds/2 {
		t.Errorf("only %d refused, %d stored in fewer packs: this proves nothing", refused, merged)
	}
}

// TestFilteredPages: whatever is asked for, in whatever order and size of pages, all pages together
// are exactly what the filter shows.
func TestFilteredPages(t *testing.T) {
	h := edgetest.NewHouse(t)
	runs := map[string][]string{}
	for _, s := range []schematest.Scenario{schematest.ByName("children"), schematest.ByName("parallel-tools"),
		schematest.ByName("hostile"), schematest.Generate(3000, 9)} {
		runs[s.Name] = schematest.Lines(h.Fill(s.Name, s, 5))
	}
	for run, lines := range runs {
		for _, f := range []struct {
			query           string
			children, types []string
			nested          bool
		}{
			{"", nil, nil, false}, {"&types=*", nil, nil, false}, {"&types=text.delta", nil, []string{"text.delta"}, false},
			{"&types=tool.*,message.end", nil, []string{"tool.*", "message.end"}, false},
			{"&types=custom.nothing", nil, []string{"custom.nothing"}, false},
			{"&child=-", []string{"-"}, nil, false}, {"&child=" + schematest.ChildA, []string{schematest.ChildA}, nil, false},
			{"&nested=true&child=" + schematest.ChildA, []string{schematest.ChildA}, nil, true},
			{"&child=-," + schematest.ChildB + "&types=run.lifecycle&types=text.delta",
				[]string{"-", schematest.ChildB}, []string{"run.lifecycle", "text.delta"}, false},
		} {
			want := filtered(t, lines, f.children, f.types, f.nested)
			for _, limit := range []int{1, 3, 100, 1000} {
				if limit == 1 && len(lines) > 1000 {
					continue
				}
				if got, _ := walk(h, run, f.query, false, limit); !slices.Equal(got, want) {
					t.Fatalf("%s%s, pages of %d: %d events, want %d", run, f.query, limit, len(got), len(want))
				}
				got, _ := walk(h, run, f.query+"&order=desc", true, limit)
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
	h := edgetest.NewHouse(t)
	s := schematest.Generate(events, 4)
	s.Events[10].Type, s.Events[10].Payload = "custom.rare", json.RawMessage(`{}`)
	s.Events[30_000].Type, s.Events[30_000].Payload = "custom.rare", json.RawMessage(`{}`)
	h.Fill("long", s, 500)
	last := schema.Seq(events)
	var after []schema.Seq
	for at := schema.Seq(0); at < last; {
		p := listEvents(h, "long", "?types=custom.rare&after="+at.String())
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
	if got, pages := walk(h, "long", "&types=custom.rare", false, 10); len(got) != 3 || pages != 3 {
		t.Errorf("upwards: %d events in %d pages", len(got), pages)
	}
	if got, pages := walk(h, "long", "&types=custom.rare&order=desc", true, 10); len(got) != 3 || pages != 3 {
		t.Errorf("downwards: %d events in %d pages", len(got), pages)
	}
}

// TestPageBytes: a page of large events is cut, upwards and downwards, and loses nothing.
func TestPageBytes(t *testing.T) {
	h := edgetest.NewHouse(t)
	for i := range 20 {
		if a := h.Do("POST", "/v1/agent/runs/fat/events",
			fmt.Sprintf(`{"type":"custom.n","payload":{"n":%d,"text":%q}}`, i, strings.Repeat("x", 400<<10))); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	want, upPages := walk(h, "fat", "", false, 1000)
	got, pages := walk(h, "fat", "&order=desc", true, 1000)
	if slices.Reverse(got); len(want) != 20 || !slices.Equal(got, want) || pages != 2 || upPages != 2 {
		t.Errorf("%d events in %d pages downwards, %d in %d upwards", len(got), pages, len(want), upPages)
	}
	if a := h.Do("GET", "/v1/agent/runs/fat/events?limit=1000&order=desc", ""); len(a.Body) > 5<<20 {
		t.Errorf("%d bytes", len(a.Body))
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
		a := (&edgetest.House{T: t, URL: ts.URL, Client: http.DefaultClient}).Do("GET", "/v1/agent/runs/run/snapshot", "")
		if a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		return a.Body, time.Since(began)
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
	if _, err := app.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: "run"}, []schema.Event{e},
		producers.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	_, advanced := get(first)
	t.Logf("%d deltas, %d bytes: cold %v, warm %v, one event later %v; allocated %d KiB, kept %d KiB", deltas,
		len(body), cold, warm, advanced,
		(after.TotalAlloc-before.TotalAlloc)>>10, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10)
	if warm > cold/2 || advanced > cold/2 {
		t.Errorf("folded again: cold %v, warm %v, advanced %v", cold, warm, advanced)
	}
	began := time.Now()
	a := (&edgetest.House{T: t, URL: first.URL, Client: http.DefaultClient}).Do("POST", "/v1/agent/runs/run/pause", "")
	t.Logf("a command behind it: %v", time.Since(began))
	if a.Status != 202 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// TestExportOfALongRun: 50,000 events go out compressed and come back whole, while what the server
// holds for them stays small. It prints what each coding does to them.
func TestExportOfALongRun(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := h.Fill("long", schematest.Generate(50_000, 8), 100)
	var want bytes.Buffer
	for i := range packs {
		want.Write(packs[i].Body)
	}
	for _, coding := range []string{"identity", "gzip", "zstd"} {
		req := h.Request("GET", "/v1/agent/runs/long/replay.jsonl", "")
		req.Header.Set("Accept-Encoding", coding)
		begun := time.Now()
		resp, err := h.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var before, now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		counted := &edgetest.CountingReader{R: resp.Body}
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
		t.Logf("%s: %d events, %d bytes as %d (%.1f %%) in %v; heap grown by %d KiB", coding, 50_000, want.Len(), counted.N,
			100*float64(counted.N)/float64(want.Len()), time.Since(begun).Round(time.Millisecond), grown>>10)
		if coding != "identity" && counted.N > int64(want.Len())/4 {
			t.Errorf("%s makes %d bytes of %d", coding, counted.N, want.Len())
		}
		if grown > 12<<20 { // both ends of the connection, the encoder and the decoder
			t.Errorf("%s: heap grew by %d bytes", coding, grown)
		}
	}
}
