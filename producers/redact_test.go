package producers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/redact/redacttest"
)

// rules opens a file of rules, and returns what was counted.
func rules(t *testing.T, text string) (*redact.File, map[string]int, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	f, err := redact.Open(redact.FileConfig{Path: path, Every: time.Nanosecond,
		Found: func(_, rule string, n int) { found[rule] += n }})
	if err != nil {
		t.Fatal(err)
	}
	return f, found, path
}

// linesOf returns the lines of a run.
func linesOf(t *testing.T, log *memory.Log) (lines []byte) {
	t.Helper()
	for p, err := range log.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, p.Body...)
	}
	return lines
}

// textOf joins the texts of deltas.
func textOf(t *testing.T, lines []byte) string {
	t.Helper()
	var b strings.Builder
	for line := range schema.Lines(lines) {
		var e struct{ Payload struct{ Text string } }
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		b.WriteString(e.Payload.Text)
	}
	return b.String()
}

func piece(s string) schema.Event {
	q, _ := json.Marshal(s)
	return schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":` + string(q) + `,"index":0}`)}
}

// cut divides a text into deltas of so many bytes or less.
func cut(rng *rand.Rand, text string, most int) (events []schema.Event) {
	for len(text) > 0 {
		n := min(1+rng.IntN(most), len(text))
		events = append(events, piece(text[:n]))
		text = text[n:]
	}
	return events
}

// TestAppenderRedacts: what the rules find reaches no log by an append, in given, planned and first events, in one event or
// divided. A repeat under a key is recognised, whatever the rules are by then. What was given is not changed.
func TestAppenderRedacts(t *testing.T) {
	for seed := range uint64(6) {
		for _, s := range redacttest.Secrets(seed) {
			log := memory.New()
			file, found, path := rules(t, redacttest.Rules)
			app, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: new(memoryKeys), Redact: file})
			if err != nil {
				t.Fatal(err)
			}
			first := schema.Event{Type: "session.created", Payload: []byte(`{"title":` + quoted(s.Text) + `}`)}
			given := append([]schema.Event{{Type: "command.message", Payload: []byte(`{"content":` + quoted(s.Text) + `}`)}},
				cut(rand.New(rand.NewPCG(seed, 1)), "is "+s.Text+" so", 9)...)
			before := string(given[0].Payload)
			opt := producers.AppendOptions{IdempotencyKey: "k", First: []schema.Event{first}}
			receipt, err := app.Append(t.Context(), key, given, opt)
			if err != nil || string(given[0].Payload) != before {
				t.Fatal(err, string(given[0].Payload))
			}
			plan := func(context.Context, schema.Head, []schema.Event) ([]schema.Event, error) { return given[:1], nil }
			if _, err := app.Append(t.Context(), key, nil, producers.AppendOptions{Plan: plan, Whole: true}); err != nil {
				t.Fatal(err)
			}
			lines := linesOf(t, log)
			if leak := redacttest.Leak(lines, []redacttest.Secret{s}); leak != nil {
				t.Fatalf("%s: %s", s.Kind, lines)
			}
			if text := textOf(t, lines); text != "is [redacted:"+s.Rule+"] so" {
				t.Fatalf("%s: %q", s.Kind, text)
			}
			if n := bytes.Count(lines, []byte(`"redacted":[{"rule":"`+s.Rule+`","count":`)); n < 4 || found[s.Rule] != 3 {
				t.Fatalf("%s: %d events are marked, %v counted: %s", s.Kind, n, found, lines)
			}
			if err := os.WriteFile(path, []byte(`{}`), 0o600); err != nil {
				t.Fatal(err)
			}
			again, err := app.Append(t.Context(), key, given, opt)
			if err != nil || !again.Replayed || again.First != receipt.First || again.Last != receipt.Last {
				t.Fatalf("%s: %+v, %v; want %+v", s.Kind, again, err, receipt)
			}
		}
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// TestAppendsThatDivide: a secret with a known beginning that comes in appends of its own is hidden from where it is
// known on, and nothing of what is around it is.
func TestAppendsThatDivide(t *testing.T) {
	for seed := range uint64(6) {
		for _, s := range redacttest.Secrets(seed) {
			if s.Rule == "card" || s.Rule == "own" {
				continue // nothing is known of these before they are whole
			}
			log := memory.New()
			file, _, _ := rules(t, redacttest.Rules)
			app, err := producers.NewAppender(producers.AppenderConfig{Log: log, Redact: file})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range cut(rand.New(rand.NewPCG(seed, 2)), "is "+s.Text+" so", 9) {
				if _, err := app.Append(t.Context(), key, []schema.Event{e}, producers.AppendOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			lines := linesOf(t, log)
			text := textOf(t, lines)
			if redacttest.Leak([]byte(text), []redacttest.Secret{s}) != nil ||
				!strings.HasPrefix(text, "is ") || !strings.HasSuffix(text, " so") || len(text) > 60 {
				t.Fatalf("%s: %q", s.Kind, text)
			}
		}
	}
}

// TestPublisherHoldsBack: of a secret that a publisher sends in deltas, as a model does, nothing reaches the log, also of
// cards and of rules with a beginning of their own.
func TestPublisherHoldsBack(t *testing.T) {
	for seed := range uint64(6) {
		for _, s := range redacttest.Secrets(seed) {
			synctest.Test(t, func(t *testing.T) {
				log := memory.New()
				file, found, _ := rules(t, redacttest.Rules)
				pub, err := producers.New(producers.Config{Log: log, Key: key, Redact: file})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range cut(rand.New(rand.NewPCG(seed, 3)), "is "+s.Text+" so", 9) {
					if err := pub.Send(t.Context(), e); err != nil {
						t.Fatal(err)
					}
					time.Sleep(20 * time.Millisecond)
				}
				if err := pub.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if text := textOf(t, linesOf(t, log)); text != "is [redacted:"+s.Rule+"] so" || found[s.Rule] != 1 {
					t.Fatalf("%s: %q, %v", s.Kind, text, found)
				}
			})
		}
	}
}

// TestHeldTextIsStored: what is held back is stored after a quarter of a second, and at once when somebody waits for it or
// the publisher is closed. Without rules nothing is held.
func TestHeldTextIsStored(t *testing.T) {
	const text = "the key begins with sk-a"
	for name, test := range map[string]struct {
		rules string
		wait  func(*testing.T, *producers.Publisher)
		took  time.Duration
	}{
		"time": {redacttest.Rules, func(*testing.T, *producers.Publisher) { time.Sleep(time.Second); synctest.Wait() },
			250 * time.Millisecond},
		"flush": {redacttest.Rules, func(t *testing.T, p *producers.Publisher) { expectNil(t, p.Flush(t.Context())) }, 0},
		"close": {redacttest.Rules, func(t *testing.T, p *producers.Publisher) { expectNil(t, p.Close(t.Context())) }, 0},
		"more":  {redacttest.Rules, func(t *testing.T, p *producers.Publisher) { expectNil(t, p.Send(t.Context(), piece(" and"))) }, 0},
		"none":  {`{}`, func(*testing.T, *producers.Publisher) {}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := memory.New()
			file, _, _ := rules(t, test.rules)
			began := time.Now()
			var at time.Duration
			pub, err := producers.New(producers.Config{Log: log, Key: key, Redact: file,
				Hooks: producers.Hooks{Stored: func(int, int, time.Duration) { at = time.Since(began) }}})
			if err != nil {
				t.Fatal(err)
			}
			expectNil(t, pub.Send(t.Context(), piece(text)))
			synctest.Wait()
			if held := len(linesOf(t, log)) == 0; held != (name != "none") {
				t.Errorf("%s: held %v", name, held)
			}
			test.wait(t, pub)
			synctest.Wait()
			if got := textOf(t, linesOf(t, log)); !strings.HasPrefix(got, text) || at != test.took {
				t.Errorf("%s: %q after %v, want %v", name, got, at, test.took)
			}
			expectNil(t, pub.Close(t.Context()))
		})
	}
}

func expectNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPublishedTogetherRedacted: events of one call stay in one pack, and get one receipt, when rules make them longer.
func TestPublishedTogetherRedacted(t *testing.T) {
	log := memory.New()
	file, _, _ := rules(t, `{"*":{"rules":[{"name":"a-rule-with-a-long-name","pattern":"[ab]"}]}}`)
	pub, err := producers.New(producers.Config{Log: log, Key: key, Redact: file, PackBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	var events []schema.Event
	for range 40 {
		events = append(events, piece("abababab"))
	}
	receipt, err := pub.Append(t.Context(), events...)
	if err != nil || receipt.First != 1 || receipt.Last != 40 {
		t.Fatal(receipt, err)
	}
	packs := 0
	for _, err := range log.Since(t.Context(), key, 0) {
		expectNil(t, err)
		packs++
	}
	if packs != 1 {
		t.Errorf("%d packs", packs)
	}
	expectNil(t, pub.Close(t.Context()))
}
