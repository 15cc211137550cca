package persistertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/schema"
)

// ofLine returns the dead letter of one line of a pack.
func ofLine(p schema.Pack, line int, body []byte, reason string) persister.DeadLetter {
	return persister.DeadLetter{Stream: "AGENT_0", Position: p.Head.Stored, Seq: p.First + schema.Seq(line), Key: p.Key,
		Subject: schema.Subject(p.Key, p.Child, 1), Header: p.Headers(), Body: body, Reason: reason, Detail: "as it was"}
}

// ofPack returns the dead letter of a whole message.
func ofPack(p schema.Pack, body []byte) persister.DeadLetter {
	return persister.DeadLetter{Stream: "AGENT_0", Position: p.Head.Stored, Key: p.Key,
		Subject: schema.Subject(p.Key, p.Child, 1),
		Header:  p.Headers(), Body: body, Reason: persister.ReasonBadMessage, Detail: "as it was"}
}

func line(p schema.Pack, i int) []byte { return bytes.Split(p.Body, []byte{'\n'})[i] }

func without(p schema.Pack, i int) []byte {
	lines := bytes.SplitAfter(p.Body, []byte{'\n'})
	return bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil)
}

// appendWithout stores a pack as the persister does when one of its lines is set aside.
func (s *deadLetterSuite) appendWithout(p schema.Pack, i int) {
	s.Helper()
	chunks, err := persister.Chunks(p)
	if err != nil {
		s.Fatal(err)
	}
	chunks[0].Rows = append(append([]persister.Row{}, chunks[0].Rows[:i]...), chunks[0].Rows[i+1:]...)
	if _, err := s.tables().Append(s.Context(), chunks); err != nil {
		s.Fatal(err)
	}
}

// redrive redrives all dead letters and returns the outcomes by position.
func (s *deadLetterSuite) redrive() map[uint64]deadletter.Outcome {
	s.Helper()
	deadLetters := s.query(deadletter.Query{Bodies: true})
	outcomes, err := deadletter.Redrive(s.Context(), s.redriver, deadLetters...)
	if err != nil || len(outcomes) != len(deadLetters) {
		s.Fatalf("%d outcomes of %d letters, %v", len(outcomes), len(deadLetters), err)
	}
	out := make(map[uint64]deadletter.Outcome)
	for i, l := range deadLetters {
		if outcomes[i].Name != l.Name {
			s.Fatalf("outcome %d is of another letter", i)
		}
		out[l.Position] = outcomes[i]
	}
	return out
}

// redriveRefused: a refused row is stored as soon as the store accepts it, and once.
func (s *deadLetterSuite) redriveRefused() {
	accept := s.refuse("POISON")
	w := NewWriter(key, day)
	a := w.Pack("", Event(schema.TypeTextDelta, `{"text":"a"}`), messageEnd(`{"n":5}`),
		Event(schema.TypeTextDelta, `{"text":"POISON"}`), Event(schema.TypeTextDelta, `{"text":"b"}`))
	b := w.Texts("kid", 2)
	s.appendWithout(a, 2)
	s.append(b)
	s.putDeadLetters(ofLine(a, 2, line(a, 2), persister.ReasonRefused))
	for i := range 2 {
		if got := s.redrive()[a.Head.Stored]; got.Error == "" || len(got.Became) != 0 {
			s.Fatalf("%+v", got)
		}
		l := s.query(deadletter.Query{})
		if len(l) != 1 || l[0].Tries != i+1 || l[0].Error == "" || l[0].Detail != "as it was" ||
			l[0].Reason != persister.ReasonRefused {
			s.Fatalf("%+v", l)
		}
	}
	accept()
	if got := s.redrive()[a.Head.Stored]; got.Error != "" || got.Rows != 1 {
		s.Fatalf("%+v", got)
	}
	s.counts(deadletter.Query{}, map[string]int{})
	s.same(key, a, b)
	s.head(key, "kid", headOf(b))
	s.wantUsage(acme, `{"n":5}`)
	// A dead letter that is there again, because its message came again, finds its row.
	s.putDeadLetters(ofLine(a, 2, line(a, 2), persister.ReasonRefused))
	s.redrive()
	s.counts(deadletter.Query{}, map[string]int{})
	s.same(key, a, b)
}

// redriveBad: a dead letter that cannot be read stays as it is, with the reason.
func (s *deadLetterSuite) redriveBad() {
	w := NewWriter(key, day)
	p := w.Texts("", 5)
	replaced := func(old, by string) []byte { return bytes.Replace(line(p, 2), []byte(old), []byte(by), 1) }
	bad := []persister.DeadLetter{
		ofLine(p, 2, []byte("{"), persister.ReasonBadEvent),
		ofLine(p, 2, nil, persister.ReasonBadEvent),
		ofLine(p, 2, replaced(`"run_id":"run_1"`, `"run_id":"run_2"`), persister.ReasonBadEvent),
		ofLine(p, 2, replaced(`"seq":3`, `"seq":4`), persister.ReasonBadEvent),
		ofLine(p, 2, replaced(`"child_id":null`, `"child_id":"kid"`), persister.ReasonBadEvent),
		ofLine(p, 2, replaced(`"payload":{`, "\"payload\":{\n"), persister.ReasonBadEvent),
		ofLine(p, 9, replaced(`"seq":3`, `"seq":10`), persister.ReasonBadEvent),
		ofLine(p, 2, bytes.Repeat([]byte("\x00\xff"), 1<<19), persister.ReasonBadEvent),
		ofPack(p, []byte("no pack")),
		ofPack(p, without(p, 2)),
		{Stream: "S", Seq: 3, Body: line(p, 2), Reason: persister.ReasonBadEvent},
		{Stream: "S", Subject: "s", Body: p.Body, Reason: persister.ReasonBadMessage,
			Header: map[string][]string{"\xff": {"\x00"}}},
	}
	for name, v := range map[string]string{schema.HeaderCount: "99999999999999999999", schema.HeaderSeq: "-1",
		schema.HeaderDay: "20260230", schema.HeaderLane: "x/y"} {
		for _, l := range []persister.DeadLetter{ofLine(p, 2, line(p, 2), persister.ReasonBadEvent), ofPack(p, p.Body)} {
			l.Header = p.Headers()
			l.Header[name] = []string{v}
			bad = append(bad, l)
		}
	}
	for i := range bad {
		bad[i].Position = uint64(i)
	}
	good := ofLine(p, 1, line(p, 1), persister.ReasonBadEvent)
	good.Position = uint64(len(bad))
	s.putDeadLetters(append(bad, good)...)
	for i, got := range s.redrive() {
		if wrong := got.Error != ""; wrong != (i < uint64(len(bad))) || len(got.Became) > 0 {
			s.Fatalf("letter %d: %+v", i, got)
		}
	}
	deadLetters := s.query(deadletter.Query{Bodies: true})
	if len(deadLetters) != len(bad) {
		s.Fatalf("%d letters are left of %d", len(deadLetters), len(bad))
	}
	for _, l := range deadLetters {
		if want := bad[l.Position]; !bytes.Equal(l.Body, want.Body) || l.Reason != want.Reason || l.Tries != 1 ||
			l.Error == "" {
			s.Fatalf("%+v", l)
		}
	}
	if _, body := s.read(key, 1, all); !bytes.Equal(body, append(bytes.Clone(line(p, 1)), '\n')) {
		s.Fatalf("stored: %s", body)
	}
}

// redriveMessages: a whole message that can be read now is stored, and its bad lines are dead letters of their own.
func (s *deadLetterSuite) redriveMessages() {
	w := NewWriter(key, day)
	a, b := w.Texts("", 3), w.Texts("kid", 4)
	broken := bytes.Replace(b.Body, line(b, 2), []byte(`{"half":`), 1)
	s.putDeadLetters(ofPack(a, a.Body), ofPack(b, broken))
	out := s.redrive()
	if got := out[a.Head.Stored]; got.Error != "" || got.Rows != 3 {
		s.Fatalf("%+v", got)
	}
	if got := out[b.Head.Stored]; got.Error != "" || len(got.Became) != 1 ||
		got.Became[0].Reason != persister.ReasonBadEvent || got.Became[0].Seq != b.First+2 {
		s.Fatalf("%+v", got)
	}
	s.counts(deadletter.Query{}, map[string]int{persister.ReasonBadEvent: 1})
	if l := s.query(deadletter.Query{Bodies: true})[0]; string(l.Body) != `{"half":` || l.Position != b.Head.Stored {
		s.Fatalf("%+v", l)
	}
	s.head(key, "", headOf(b))
}

// redriveConflicts: a try never changes stored rows.
func (s *deadLetterSuite) redriveConflicts() {
	w, forger := NewWriter(key, day), NewWriter(key, day)
	a, forged := w.Texts("", 3), forger.Pack("", Event(schema.TypeTextDelta, `{"text":"other"}`),
		Event(schema.TypeTextDelta, `{"text":"another"}`))
	s.append(a)
	s.putDeadLetters(ofLine(forged, 0, line(forged, 0), persister.ReasonConflict),
		ofLine(forged, 1, line(forged, 1), persister.ReasonRefused))
	deadLetters := s.query(deadletter.Query{Bodies: true})
	outcomes, err := deadletter.Redrive(s.Context(), s.redriver, deadLetters...)
	if err != nil {
		s.Fatal(err)
	}
	for i, l := range deadLetters {
		if l.Reason == persister.ReasonConflict && outcomes[i].Error == "" || l.Reason == persister.ReasonRefused &&
			len(outcomes[i].Became) != 1 {
			s.Fatalf("%s: %+v", l.Reason, outcomes[i])
		}
	}
	s.counts(deadletter.Query{}, map[string]int{persister.ReasonConflict: 2})
	s.same(key, a)
	for _, l := range s.query(deadletter.Query{}) {
		if l.Seq == 1 && l.Tries != 1 {
			s.Fatalf("%+v", l)
		}
	}
	// A dead letter with the stored content is no conflict.
	s.putDeadLetters(ofLine(a, 2, line(a, 2), persister.ReasonConflict))
	s.redrive()
	s.counts(deadletter.Query{}, map[string]int{persister.ReasonConflict: 2})
}

// crash is a store whose process dies before its nth call.
type crash struct {
	store deadletter.Redriver
	left  int
}

var errCrash = errors.New("crash")

func (c *crash) die() error {
	if c.left--; c.left < 0 {
		return errCrash
	}
	return nil
}

func (c *crash) Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error) {
	if err := c.die(); err != nil {
		return persister.Result{}, err
	}
	return c.store.Append(ctx, chunks)
}

func (c *crash) PutDeadLetters(ctx context.Context, deadLetters []persister.DeadLetter) error {
	if err := c.die(); err != nil {
		return err
	}
	return c.store.PutDeadLetters(ctx, deadLetters)
}

func (c *crash) DropDeadLetters(ctx context.Context, names []string) (int, error) {
	if err := c.die(); err != nil {
		return 0, err
	}
	return c.store.DropDeadLetters(ctx, names)
}

func (c *crash) NoteTries(ctx context.Context, failed []deadletter.FailedTry) error {
	if err := c.die(); err != nil {
		return err
	}
	return c.store.NoteTries(ctx, failed)
}

// redriveCrash: at every point at which the process may die, a line is a row or in a dead letter, or both.
func (s *deadLetterSuite) redriveCrash() {
	for n := range 6 {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: fmt.Sprint("run_", n)}, day)
		p := w.Texts("", 4)
		broken := bytes.Replace(p.Body, line(p, 3), []byte("{"), 1)
		message, text := ofPack(p, broken), ofLine(p, 1, []byte("{"), persister.ReasonBadEvent)
		s.putDeadLetters(message, text)
		mine := deadletter.Query{Run: w.Key.Run, Bodies: true}
		_, err := deadletter.Redrive(s.Context(), &crash{s.redriver, n}, s.query(mine)...)
		if calls := 4; (err == nil) != (n >= calls) || err != nil && !errors.Is(err, errCrash) {
			s.Fatalf("a crash before call %d: %v", n, err)
		}
		kept := s.query(mine)
		_, rows := s.read(w.Key, 0, all)
		whole := len(kept) > 0 && strings.Contains(fmt.Sprintf("%q", bodies(kept)), fmt.Sprintf("%q", broken))
		if !whole && (bytes.Count(rows, []byte("\n")) != 3 || len(kept) != 2) {
			s.Fatalf("a crash before call %d has lost something: %d letters, rows %s", n, len(kept), rows)
		}
		for range 2 {
			if _, err := deadletter.Redrive(s.Context(), s.redriver, s.query(mine)...); err != nil {
				s.Fatal(err)
			}
		}
		s.counts(deadletter.Query{Run: w.Key.Run}, map[string]int{persister.ReasonBadEvent: 2})
		if _, rows := s.read(w.Key, 0, all); !bytes.Equal(rows, without(p, 3)) {
			s.Fatalf("rows %s", rows)
		}
	}
}

func bodies(deadLetters []deadletter.Stored) (out [][]byte) {
	for i := range deadLetters {
		out = append(out, deadLetters[i].Body)
	}
	return out
}

// redriveChanged: a dead letter that was edited to a valid event removes the original one. One that was edited to
// another invalid event does not.
func (s *deadLetterSuite) redriveChanged() {
	w := NewWriter(key, day)
	p := w.Texts("", 2)
	s.append(w.Texts("", 1))
	s.putDeadLetters(ofLine(p, 0, []byte("{"), persister.ReasonBadEvent), ofPack(p, []byte("no pack")))
	for _, l := range s.query(deadletter.Query{}) {
		l.Body = []byte("also bad")
		if l.Seq == 0 {
			l.Body = bytes.Replace(p.Body, line(p, 1), []byte("{"), 1)
		}
		out, err := deadletter.Redrive(s.Context(), s.redriver, l)
		if err != nil || out[0].Error == "" || len(out[0].Became) > 0 {
			s.Fatalf("%+v, %v", out, err)
		}
	}
	s.counts(deadletter.Query{}, map[string]int{persister.ReasonBadEvent: 1, persister.ReasonBadMessage: 1})
	for _, l := range s.query(deadletter.Query{}) {
		l.Body = line(p, 0)
		if l.Seq == 0 {
			l.Body = p.Body
		}
		if out, err := deadletter.Redrive(s.Context(), s.redriver, l); err != nil || out[0].Error != "" {
			s.Fatalf("%+v, %v", out, err)
		}
	}
	s.counts(deadletter.Query{}, map[string]int{})
	if packs, _ := s.read(key, 0, all); len(packs) != 1 || packs[0].Count != 3 {
		s.Fatalf("%+v", packs)
	}
}
