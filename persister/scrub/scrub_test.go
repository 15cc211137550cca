package scrub_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
	"agentstream/schema/redact/redacttest"
)

// planted are events in each field of which a text may be; @ is it, within a JSON string.
var planted = []struct{ typ, payload string }{
	{schema.TypeSessionCreated, `{"title":"t @","metadata":{"note":"@"},"tags":["x"],"agent":{"id":"a"}}`},
	{schema.TypeCommandMessage, `{"message_id":"u1","content":[{"type":"text","text":"say @ now"}]}`},
	{schema.TypeMessageStart, `{"message_id":"m1","role":"assistant","model":"model @"}`},
	{schema.TypeReasoningDelta, `{"text":"think @","index":0}`},
	{schema.TypeTextDelta, `{"text":"told @ so","index":1}`},
	{schema.TypeMessageEnd, `{"message_id":"m1","content":[{"type":"text","text":"@"}],"usage":{"input_tokens":3}}`},
	{schema.TypeToolStart, `{"call_id":"c1","tool":"tool @","input":{"@":["@"],"deep":{"a":{"b":"@"}}}}`},
	{schema.TypeToolOutputDelta, `{"call_id":"c1","text":"out @"}`},
	{schema.TypeToolEnd, `{"call_id":"c1","ok":true,"output":{"password":"hunter2","text":"@"}}`},
	{schema.TypeInputRequested, `{"request_id":"r1","prompt":"may I @?","options":["@","no"]}`},
	{schema.TypePlanProposal, `{"plan":{"id":"p","steps":[{"id":"1","title":"@"}]}}`},
	{schema.TypeStateValues, `{"values":{"key":"@"}}`},
	{schema.TypeProgress, `{"message":"@"}`},
	{schema.TypeSessionUpdated, `{"title":"again @"}`},
	{"custom.note", `{"anything":{"at":["all @"]}}`},
	{schema.TypeTurnEnd, `{"stop_reason":"stopped @"}`},
	{schema.TypeRunLifecycle, `{"state":"running","reason":"because @"}`},
}

// plant returns the packs of a run with a secret in every field, and divided over deltas of the run and of a child.
func plant(key schema.RunKey, s redacttest.Secret, rng *rand.Rand, state schema.RunState) (*persistertest.Writer, []schema.Pack) {
	w := persistertest.NewWriter(key, "20260105")
	within, _ := json.Marshal(s.Text)
	text := string(within[1 : len(within)-1])
	packs := []schema.Pack{w.Pack("", persistertest.Lifecycle(schema.StateRunning))}
	for _, p := range planted {
		packs = append(packs, w.Pack("", persistertest.Event(p.typ, strings.ReplaceAll(p.payload, "@", text))))
		packs = append(packs, w.Texts("", 2))
	}
	for _, child := range []string{"", "kid"} {
		packs = append(packs, w.Pack(child, persistertest.Event(schema.TypeMessageStart, `{"message_id":"m2`+child+`","role":"assistant"}`)))
		for rest := "is " + s.Text + " so"; rest != ""; {
			n := min(1+rng.IntN(9), len(rest))
			piece, _ := json.Marshal(rest[:n])
			packs = append(packs, w.Pack(child, persistertest.Event(schema.TypeTextDelta, `{"text":`+string(piece)+`,"index":0}`)))
			rest = rest[n:]
		}
		packs = append(packs, w.Pack(child, persistertest.Event(schema.TypeMessageEnd, `{"message_id":"m2`+child+`"}`)))
	}
	if state != "" {
		packs = append(packs, w.Pack("", persistertest.Event(schema.TypeRunLifecycle,
			fmt.Sprintf(`{"state":%q,"reason":"ends %s"}`, state, text))))
	}
	return w, packs
}

// fill gives a world runs of all kinds: running, with an object, of which the rows have left the tables, that went on
// afterwards, that have expired; with blobs and dead letters. It returns them, and the lines that the archive has of each.
func (w *world) fill(list []redacttest.Secret) (keys []schema.RunKey, was map[schema.RunKey][]string) {
	w.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	blobs, err := natskit.NewBlobs(w.server.Dial(w))
	if err != nil {
		w.Fatal(err)
	}
	was = make(map[schema.RunKey][]string)
	var later []*persistertest.Writer
	add := func(kind string, i int, s redacttest.Secret, state schema.RunState) (schema.RunKey, *persistertest.Writer) {
		key := schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("%s_%d", kind, i)}
		wr, packs := plant(key, s, rng, state)
		content := fmt.Appendf(nil, `{"output":%q,"more":%q}`, s.Text, strings.Repeat("x", 3000))
		blob, _, err := blobs.Put(w.Context(), key, "application/json", schema.BlobPieces(content))
		if err != nil {
			w.Fatal(err)
		}
		if state == "" {
			packs = append(packs, wr.Pack("", persistertest.Event(schema.TypeToolEnd, `{"call_id":"c9","ok":true,"blob_ref":"`+blob.Ref+`"}`)))
		}
		w.put(packs...)
		if err := w.store.PutDeadLetters(w.Context(), []persister.DeadLetter{letter(key, i, s.Text)}); err != nil {
			w.Fatal(err)
		}
		keys = append(keys, key)
		return key, wr
	}
	for i, s := range list {
		switch i % 4 {
		case 0:
			key, wr := add("cold", i, s, schema.StateDone)
			w.archived(key)
			if i%8 == 0 {
				later = append(later, wr)
			}
		case 1:
			add("expired", i, s, schema.StateError)
		}
	}
	w.pass()
	for _, wr := range later {
		text, _ := json.Marshal("go on with " + list[0].Text)
		w.put(wr.Pack("", persistertest.Event(schema.TypeCommandMessage, `{"content":`+string(text)+`}`)))
	}
	for i, s := range list {
		switch i % 4 {
		case 2:
			key, _ := add("warm", i, s, schema.StateDone)
			w.archived(key)
		case 3:
			add("running", i, s, "")
		}
	}
	for _, key := range keys {
		was[key] = w.lines(key)
	}
	return keys, was
}

// compare checks that the lines of a run are those of before but for what is hidden: the same numbers, ids, times and types.
func (w *world) compare(key schema.RunKey, was []string) {
	w.Helper()
	now := w.lines(key)
	if len(now) != len(was) {
		w.Fatalf("%s has %d events, had %d", key, len(now), len(was))
	}
	var fold schema.Fold
	for i := range now {
		a, err := schema.DecodeLine([]byte(was[i]))
		if err != nil {
			w.Fatal(err)
		}
		b, err := schema.DecodeLine([]byte(now[i]))
		if err != nil {
			w.Fatal(err)
		}
		if a.Seq != b.Seq || a.ID != b.ID || a.TS != b.TS || a.Type != b.Type || a.ChildID != b.ChildID {
			w.Errorf("%s: %s is now %s", key, was[i], now[i])
		}
		if changed := was[i] != now[i]; changed != strings.Contains(now[i], `"redacted":[`) {
			w.Errorf("%s: changed %v, but the event says otherwise: %s", key, changed, now[i])
		}
		fold.Add(&b)
		if fold.LastID() != b.ID {
			w.Errorf("%s: the fold does not take %s", key, now[i])
		}
	}
}

// TestScrub: of secrets in every field and place nothing is left, all else is as it was, and a second time does nothing.
func TestScrub(t *testing.T) {
	both(t, func(w *world) {
		list := redacttest.Secrets(7)
		keys, was := w.fill(list)
		if leaks := w.leaks(list); len(leaks) < 3*len(list) {
			w.Fatalf("nothing is planted: %q", leaks)
		}
		for _, key := range keys {
			if _, err := w.scrub(w.config(), key); err != nil {
				w.Fatal(err)
			}
		}
		if err := w.store.Vacuum(w.Context()); err != nil {
			w.Fatal(err)
		}
		if leaks := w.leaks(list); len(leaks) > 0 {
			w.Errorf("found: %q", leaks)
		}
		for _, key := range keys {
			w.compare(key, was[key])
			if d, err := w.scrub(w.config(), key); err != nil || d.Any() {
				w.Errorf("%s: a second time: %+v, %v", key, d, err)
			}
		}
	})
}

// TestMadeAsFromTheBeginning: all that is made of events is as in a store that got the events as they are now.
func TestMadeAsFromTheBeginning(t *testing.T) {
	list := redacttest.Secrets(9)
	both(t, func(w *world) {
		rng := rand.New(rand.NewPCG(5, 6))
		var keys []schema.RunKey
		for i, s := range list {
			key := schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d", i)}
			_, packs := plant(key, s, rng, []schema.RunState{"", schema.StateDone}[i%2])
			w.put(packs...)
			keys = append(keys, key)
		}
		var packs []schema.Pack
		for _, key := range keys {
			if _, err := w.scrub(w.config(), key); err != nil {
				w.Fatal(err)
			}
			for p, err := range w.reader().Packs(w.Context(), key, 0, schema.MaxSeq) {
				if err != nil {
					w.Fatal(err)
				}
				packs = append(packs, p)
			}
		}
		now := w.dump(w.made...)
		both(w.T, func(fresh *world) {
			if !slices.Equal(fresh.made, w.made) {
				return // of the other kind
			}
			fresh.put(packs...)
			if want := fresh.dump(fresh.made...); want != now {
				a, b := strings.Split(now, "\n"), strings.Split(want, "\n")
				for i := range min(len(a), len(b)) {
					if a[i] != b[i] {
						fresh.Fatalf("is   %s\nwant %s", a[i], b[i])
					}
				}
				fresh.Fatalf("%d rows, want %d", len(a), len(b))
			}
		})
	})
}

// TestHeld: a run under a legal hold stays as it is, unless it is to be changed too.
func TestHeld(t *testing.T) {
	both(t, func(w *world) {
		list := redacttest.Secrets(1)[:1]
		key := schema.RunKey{Tenant: "acme", Run: "run"}
		_, packs := plant(key, list[0], rand.New(rand.NewPCG(1, 1)), schema.StateDone)
		w.put(packs...)
		if _, err := w.store.AddHold(w.Context(), key, "case 7"); err != nil {
			w.Fatal(err)
		}
		was := w.lines(key)
		if _, err := w.scrub(w.config(), key); !errors.Is(err, persister.ErrHeld) {
			w.Fatalf("under a hold: %v", err)
		}
		if !slices.Equal(was, w.lines(key)) {
			w.Error("it was changed under a hold")
		}
		cfg := w.config()
		cfg.HeldToo = true
		if d, err := w.scrub(cfg, key); err != nil || d.Changed == 0 {
			w.Fatalf("also under a hold: %+v, %v", d, err)
		}
		w.compare(key, was)
	})
}

var errCut = errors.New("cut here")

// cuts ends the work before or after its nth step.
type cuts struct{ left int }

func (c *cuts) step(do func() error) error {
	if c.left--; c.left == 0 {
		return errCut
	}
	err := do()
	if c.left--; c.left == 0 && err == nil {
		return errCut
	}
	return err
}

// cut lets the steps that change something of a configuration end at one of them.
func cut(cfg scrubConfig, n int) (scrubConfig, *cuts) {
	c := &cuts{left: n}
	cfg.Store = cutStore{cfg.Store, c}
	cfg.Letters = cutLetters{cfg.Letters, c}
	cfg.Objects = cutObjects{cfg.Objects, c}
	cfg.Log = cutLog{cfg.Log, c}
	cfg.Blobs = cutBlobs{cfg.Blobs, c}
	return cfg, c
}

// TestCutAnywhere: work that is cut at any step, and done again, ends as work that was not.
func TestCutAnywhere(t *testing.T) {
	list := redacttest.Secrets(11)[6:11]
	var whole string
	both(t, func(w *world) {
		keys, was := w.fill(list)
		steps := 0
		for n := 1; ; n += 1 + n/8 {
			cfg, c := cut(w.config(), n)
			var err error
			for _, key := range keys {
				if _, err = w.scrub(cfg, key); err != nil {
					break
				}
			}
			if err != nil && !errors.Is(err, errCut) {
				w.Fatal(err)
			}
			for _, key := range keys { // all is readable at any moment
				if now := w.lines(key); len(now) != len(was[key]) {
					w.Fatalf("cut at %d: %s has %d events, had %d", n, key, len(now), len(was[key]))
				}
			}
			if c.left > 0 {
				break
			}
			steps++
		}
		if steps < 5 {
			w.Fatalf("cut %d times", steps)
		}
		if err := w.store.Vacuum(w.Context()); err != nil {
			w.Fatal(err)
		}
		if leaks := w.leaks(list); len(leaks) > 0 {
			w.Errorf("found: %q", leaks)
		}
		var all strings.Builder
		for _, key := range keys {
			w.compare(key, was[key])
			all.WriteString(strings.Join(stripIDs(w.lines(key)), "\n"))
		}
		if whole != "" && all.String() != whole {
			w.Error("the stores end with other lines")
		}
		whole = all.String()
	})
}

// stripIDs takes what differs between two fillings out of lines.
func stripIDs(lines []string) (out []string) {
	for _, line := range lines {
		_, rest, _ := strings.Cut(line, `"ts":`)
		out = append(out, rest)
	}
	return out
}
