package proxy

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"agentstream/adapters/redact"
	"agentstream/schema"
)

// FuzzRequests: no request harms what is recorded of it, and what is said of it is fit for the log.
func FuzzRequests(f *testing.F) {
	apis := []api{messages, chat, responses, generate}
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[]},{"type":"text","text":"\ud83d"},{"type":"image","source":{}}]}]}`,
		`{"input":[{"type":"x_output","call_id":"c1","output":7},{"role":"user","content":"a"}],"previous_response_id":"r"}`, `{"input":"x"}`,
		`{"contents":{"parts":[{"text":"a"},{"functionResponse":{"name":"t","response":{"error":1}}},{}]}}`,
		`{"messages":[{"role":"function","name":"t"},{"role":"tool","tool_call_id":"c1"},{"role":"user","content":null}]}`, "{", "\x00", "[{}]", `{"messages":[[]]}`,
	} {
		for i := range apis {
			f.Add(uint8(i), body)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, body string) {
		c := &call{p: &Proxy{}, run: &run{named: true}, lane: &lane{}, api: apis[int(kind)%len(apis)], mint: "X",
			filter: redact.Of(nil, &url.URL{})}
		remember := func(events ...schema.Event) {
			c.run.rememberStored(c, events, c.run.past.through+1, c.run.past.through+schema.Seq(len(events)))
		}
		call := func(id string) schema.Event {
			return schema.Event{Type: schema.TypeToolStart, Payload: []byte(`{"call_id":"` + id + `","tool":"t"}`)}
		}
		remember(schema.Event{Type: schema.TypeModelStart, Payload: []byte(`{"call_id":"m"}`)}, call("c1"), call("c2"))
		for range 2 { // the second time, much of it is known
			open := false
			q := &question{c: c}
			q.parse([]byte(body))
			events, _ := c.beginning(q, nil)
			remember(events...)
			for _, e := range events {
				if err := e.Prepare("run_1"); err != nil {
					t.Fatalf("%v: %s %.200s", err, e.Type, e.Payload)
				}
				if e.Type == schema.TypeMessageStart || e.Type == schema.TypeMessageEnd {
					if open == (e.Type == schema.TypeMessageStart) {
						t.Fatalf("%s out of place", e.Type)
					}
					open = !open
				}
			}
			if open {
				t.Fatal("a message is open")
			}
		}
	})
}

// TestSpool holds the buffer to a model: what is read is a beginning of what was written, what is not
// read is counted, and all memory comes back.
func TestSpool(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		total := &budget{most: int64(rng.IntN(200 << 10))}
		s := newSpool(&budget{most: int64(1 + rng.IntN(120<<10)), of: total})
		var written, read []byte
		buf := make([]byte, 1+rng.IntN(40<<10))
		for range rng.IntN(60) {
			if rng.IntN(3) > 0 {
				b := make([]byte, rng.IntN(20<<10))
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
				s.write(b)
				written = append(written, b...)
			} else if n, _ := s.next(buf); n > 0 {
				read = append(read, buf[:n]...)
			}
			if total.used.Load() > total.most || s.room.used.Load() > s.room.most {
				t.Fatal("over the bound")
			}
		}
		if rng.IntN(2) == 0 {
			s.finish(nil)
			for {
				n, err := s.read(t.Context(), buf)
				if read = append(read, buf[:n]...); err != nil {
					break
				}
			}
		}
		s.close("given up")
		lost, _, _, _ := s.fate()
		if !bytes.HasPrefix(written, read) || int64(len(read))+lost != int64(len(written)) {
			t.Fatalf("seed %d: %d written, %d read, %d lost", seed, len(written), len(read), lost)
		}
		if total.used.Load() != 0 || s.room.used.Load() != 0 {
			t.Fatalf("seed %d: %d bytes are still held", seed, total.used.Load())
		}
	}
}

// TestSpoolWaits: a reader waits for bytes, and no longer than its context lasts.
func TestSpoolWaits(t *testing.T) {
	s := newSpool(&budget{most: 1 << 20})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(5*time.Millisecond, func() { s.write([]byte("a")) })
	buf := make([]byte, 10)
	if n, err := s.read(ctx, buf); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	time.AfterFunc(5*time.Millisecond, func() { cancel(why) })
	if _, err := s.read(ctx, buf); !errors.Is(err, why) {
		t.Fatal(err)
	}
}

// TestFaultsStayHere: a recorder that panics costs its own call's record and nothing else.
func TestFaultsStayHere(t *testing.T) {
	broken := func(context.Context, schema.RunKey) (Sink, error) { panic("broken") }
	c := &call{lane: &lane{}, filter: redact.Of(nil, &url.URL{}),
		p: &Proxy{cfg: Config{Requests: RequestsNone, Open: broken}}}
	c.run = newRun(c.p, schema.RunKey{}, false)
	if err := c.safely(t.Context()); !errors.Is(err, errFault) {
		t.Error(err)
	}
}
