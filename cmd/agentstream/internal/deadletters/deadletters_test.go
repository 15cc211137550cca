package deadletters

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/archivetest"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// deadletters runs the commands as kong does.
func deadletters(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var d Cmd
	parser, err := kong.New(&d)
	if err != nil {
		t.Fatal(err)
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		return "", "", err
	}
	var out, errs bytes.Buffer
	for _, s := range []*cli.Streams{&d.List.Streams, &d.Retry.Streams, &d.Drop.Streams} {
		*s = cli.Streams{Out: &out, Err: &errs}
	}
	kctx.Bind(slog.New(slog.DiscardHandler))
	kctx.BindTo(t.Context(), (*context.Context)(nil))
	err = kctx.Run()
	return out.String(), errs.String(), err
}

// refusing is a store that refuses some lines.
type refusing struct{ persister.Store }

func (s refusing) Transfer(ctx context.Context, t *persister.Transfer) (persister.Result, error) {
	for i := range t.Chunks {
		for j := range t.Chunks[i].Rows {
			if bytes.Contains(t.Chunks[i].Rows[j].Line, []byte("REFUSE ME")) {
				return persister.Result{}, fmt.Errorf("%w: told so", persister.ErrPoison)
			}
		}
	}
	return s.Store.Transfer(ctx, t)
}

// poison publishes documents of every kind that cannot be stored, among those that can.
type poison struct {
	t   *testing.T
	log *testkit.Server

	published int
	good      map[schema.RunKey][]byte // what must be stored
	reasons   map[string]int           // of what must not
	refused   map[schema.RunKey][]byte // runs whose refused line would be stored: all of them
}

func (p *poison) put(pack schema.Pack, header map[string][]string, body []byte) {
	p.t.Helper()
	if header == nil {
		header = pack.Headers()
	}
	if _, err := p.log.JS.PublishMsg(p.t.Context(),
		&nats.Msg{Subject: schema.Subject(pack.Key, pack.Child, p.log.Partitions), Header: header, Data: body}); err != nil {
		p.t.Fatal(err)
	}
	p.published++
}

// kinds is the number of kinds of documents.
const kinds = 11

// document publishes the ith; of its run, lines around the bad one must be stored.
func (p *poison) document(i int) {
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d_%d", i%kinds, i)}, "20260228")
	pack := w.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"before"}`),
		persistertest.Event(schema.TypeTextDelta, `{"text":"REPLACE"}`),
		persistertest.Event(schema.TypeTextDelta, `{"text":"after"}`))
	lines := bytes.SplitAfter(pack.Body, []byte{'\n'})
	line := bytes.TrimSuffix(lines[1], []byte{'\n'})
	replace := func(old, by string) []byte { return bytes.Replace(line, []byte(old), []byte(by), 1) }
	event := func(bad []byte, reason string) {
		p.put(pack, nil, bytes.Join([][]byte{lines[0], bad, {'\n'}, lines[2]}, nil))
		p.good[w.Key] = append(bytes.Clone(lines[0]), lines[2]...)
		p.reasons[reason]++
	}
	message := func(header map[string][]string, body []byte) {
		p.put(pack, header, body)
		p.reasons[persister.ReasonBadMessage]++
	}
	switch i % kinds {
	case 0:
		event([]byte(`{"id":"\x1b[2J`), persister.ReasonBadEvent)
	case 1:
		event(replace(`"run_id":"`, `"run_id":"x`), persister.ReasonBadEvent)
	case 2:
		event(replace(`"child_id":null`, `"child_id":"kid"`), persister.ReasonBadEvent)
	case 3:
		event(replace(`"seq":2`, `"seq":3`), persister.ReasonBadEvent)
	case 4:
		refused := replace("REPLACE", "REFUSE ME")
		event(refused, persister.ReasonRefused)
		p.refused[w.Key] = bytes.Join([][]byte{lines[0], refused, {'\n'}, lines[2]}, nil)
	case 5:
		p.put(pack, nil, pack.Body)
		p.good[w.Key] = pack.Body
		p.put(pack, nil, bytes.Replace(pack.Body, []byte("REPLACE"), []byte("other"), 1))
		p.reasons[persister.ReasonConflict]++
	case 6:
		message(map[string][]string{}, []byte("\x00\xff\xfe no pack \x1b]0;title\a"))
	case 7: // a body as large as the log takes
		random := rand.New(rand.NewPCG(uint64(i), 1))
		body := make([]byte, 1<<20-1024)
		for i := range body {
			body[i] = byte(random.Uint32())
		}
		message(nil, body)
	case 8:
		message(map[string][]string{schema.HeaderSeq: {"-1"}, schema.HeaderCount: {strings.Repeat("9", 40)},
			"X-odd_~!": {strings.Repeat("h", 30<<10), "\xff\x80"}, "empty": {""}}, pack.Body)
	case 9: // one line too many
		message(nil, append(bytes.Clone(pack.Body), "{}\n"...))
	case 10:
		event(bytes.Repeat([]byte("x"), 900<<10), persister.ReasonBadEvent)
	}
}

// missing says how many runs are not stored as they must be.
func missing(t *testing.T, s archive.DeadLetters, want map[schema.RunKey][]byte) (n int) {
	t.Helper()
	for key, body := range want {
		var got []byte
		for after := schema.Seq(0); after < 3; after++ { // a walk ends at a hole
			for p, err := range s.Packs(t.Context(), key, after, after+1) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p.Body...)
			}
		}
		if !bytes.Equal(got, body) {
			n++
		}
	}
	return n
}

// persistAll runs a persister until it has stored as many messages as were published, and returns how many
// transactions that took.
func persistAll(t *testing.T, log *testkit.Server, store persister.Store,
	publish func() (messages int)) (transactions int) {
	t.Helper()
	queues, err := natsjs.Queues(t.Context(), log.JS, natsjs.Config{Wait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan int, 10_000)
	p, err := persister.New(persister.Config{
		Queues: queues, Store: store, Alone: true, Linger: 100 * time.Millisecond,
		Hooks: persister.Hooks{Stored: func(_ string, s persister.Stored) { stored <- s.Messages }},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	left := publish()
	for late := time.After(180 * time.Second); left > 0; {
		select {
		case n := <-stored:
			left -= n
			transactions++
		case <-late:
			t.Errorf("%d messages are not stored after 180 s", left)
			left = 0
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return transactions
}

// TestHostileLog: 200 documents that nobody can store, of every kind, on a real log. All around them is
// stored at once; exactly they are dead letters, with the right reason; and what was refused is stored when
// it is tried again (fault 16).
func TestHostileLog(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { hostileLog(t, archivetest.SQLiteStore(t)) })
	t.Run("postgres", func(t *testing.T) { hostileLog(t, archivetest.PostgresStore(t)) })
}

func hostileLog(t *testing.T, f archivetest.Filled) {
	s := f.Store.(archive.DeadLetters)
	p := &poison{t: t, log: testkit.NATS(t), good: map[schema.RunKey][]byte{}, reasons: map[string]int{},
		refused: map[schema.RunKey][]byte{}}
	const documents = 200
	transactions := persistAll(t, p.log, refusing{f.Store}, func() int {
		for i := range documents {
			w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("good_", i)}, "20260228")
			pack := w.Texts("", 3)
			p.put(pack, nil, pack.Body)
			p.good[w.Key] = pack.Body
			p.document(i)
		}
		return p.published
	})
	if n := missing(t, s, p.good); n > 0 {
		t.Fatalf("%d runs are not stored as they must be", n)
	}
	t.Logf("%d runs and %d dead letters are stored in %d transactions", len(p.good), documents, transactions)
	counts, err := s.CountDeadLetters(t.Context(), deadletter.Query{})
	if err != nil || fmt.Sprint(counts) != fmt.Sprint(p.reasons) {
		t.Fatalf("letters %v, want %v (%v)", counts, p.reasons, err)
	}
	exact(t, s)
	retryHostile(t, f, p)
}

// exact checks that every letter has the reason of its kind.
func exact(t *testing.T, s archive.DeadLetters) {
	t.Helper()
	err := eachPage(t.Context(), s, deadletter.Query{}, func(page []deadletter.Stored) error {
		for _, l := range page {
			want := persister.ReasonBadMessage
			switch kind, _, _ := strings.Cut(strings.TrimPrefix(l.Key.Run, "run_"), "_"); kind {
			case "0", "1", "2", "3", "10":
				want = persister.ReasonBadEvent
			case "4":
				want = persister.ReasonRefused
			case "5":
				want = persister.ReasonConflict
			}
			if l.Reason != want || (l.Seq == 2) != (want != persister.ReasonBadMessage) {
				t.Errorf("%s seq %d: %s (%s), want %s", l.Key, l.Seq, l.Reason, l.Detail, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// retryHostile tries all: what only the store's mood kept out is stored, all else stays.
func retryHostile(t *testing.T, f archivetest.Filled, p *poison) {
	t.Helper()
	s := f.Store.(archive.DeadLetters)
	all := 0
	for _, n := range p.reasons {
		all += n
	}
	args := func(args ...string) []string { return append(args, f.Args...) }
	refused := p.reasons[persister.ReasonRefused]
	out, _, err := deadletters(t, args("retry", "--all", "--dry-run")...)
	if want := fmt.Sprintf("%d tried: %d would be stored, 0 would be letters of another kind, %d stay\n", all, refused,
		all-refused); out != want || err == nil {
		t.Fatalf("%q, want %q (%v)", out, want, err)
	}
	if n := missing(t, s, p.refused); n != refused {
		t.Fatalf("a dry run has stored %d lines", refused-n)
	}
	out, errs, err := deadletters(t, args("retry", "--all")...)
	if want := fmt.Sprintf("%d tried: %d stored, 0 letters of another kind, %d stay\n", all, refused,
		all-refused); out != want || err == nil || !strings.Contains(errs, "and ") {
		t.Fatalf("%q, want %q (%v) %s", out, want, err, errs)
	}
	if n := missing(t, s, p.refused); n > 0 {
		t.Fatalf("%d refused lines are not stored", n)
	}
	delete(p.reasons, persister.ReasonRefused)
	if counts, err := s.CountDeadLetters(t.Context(), deadletter.Query{}); err != nil ||
		fmt.Sprint(counts) != fmt.Sprint(p.reasons) {
		t.Fatalf("letters %v, want %v (%v)", counts, p.reasons, err)
	}
	for key := range p.refused {
		delete(p.good, key)
	}
	if n := missing(t, s, p.good); n > 0 {
		t.Fatalf("%d runs have changed", n)
	}
	if out, _, err := deadletters(t, args("retry", "--reason", "refused")...); err != nil ||
		!strings.HasPrefix(out, "0 tried") {
		t.Fatalf("%q, %v", out, err)
	}
	retryInVain(t, f, all-refused)
}

// retryInVain: letters that stay are whole, and another try changes nothing but their number of tries.
func retryInVain(t *testing.T, f archivetest.Filled, want int) {
	t.Helper()
	s := f.Store.(archive.DeadLetters)
	whole := func(tries int) (n int) {
		err := eachPage(t.Context(), s, deadletter.Query{}, func(page []deadletter.Stored) error {
			for i := range page {
				l := &page[i]
				if fmt.Sprintf("%x", l.ID()) != l.Name || l.Tries != tries || len(l.Body) != l.Size {
					t.Fatalf("letter %s has changed: %d tries, %d bytes of %d", l.Name, l.Tries, len(l.Body), l.Size)
				}
			}
			n += len(page)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := whole(1); n != want {
		t.Fatalf("%d letters, want %d", n, want)
	}
	out, _, err := deadletters(t, append([]string{"retry", "--all"}, f.Args...)...)
	if w := fmt.Sprintf("%d tried: 0 stored, 0 letters of another kind, %d stay\n", want, want); out != w || err == nil {
		t.Fatalf("%q, want %q (%v)", out, w, err)
	}
	if n := whole(2); n != want {
		t.Fatalf("%d letters after a vain try, want %d", n, want)
	}
}

// deadLetters returns a store with one letter of a conflict, one that can be mended, and one that is no text.
func deadLetters(t *testing.T, f archivetest.Filled) (conflict, broken, binary persister.DeadLetter) {
	t.Helper()
	w, forger := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"},
		"20260228"), persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	stored, other := w.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"stored"}`)), forger.Pack("",
		persistertest.Event(schema.TypeTextDelta, `{"text":"other \u202e"}`))
	chunks, err := persister.Chunks(stored)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.Append(t.Context(), chunks); err != nil {
		t.Fatal(err)
	}
	next := w.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"next"}`))
	of := func(p schema.Pack, body []byte, reason string) persister.DeadLetter {
		return persister.DeadLetter{Stream: "AGENT_0", Position: uint64(p.First), Seq: p.First, Key: p.Key,
			Subject: schema.Subject(p.Key, "", 1), Header: p.Headers(),
			Body: body, Reason: reason, Detail: "why \x1b[31m"}
	}
	conflict = of(other, bytes.TrimSuffix(other.Body, []byte("\n")), persister.ReasonConflict)
	broken = of(next, bytes.Replace(bytes.TrimSuffix(next.Body, []byte("\n")), []byte(`"next"}`), []byte(`"next"`), 1),
		persister.ReasonBadEvent)
	binary = persister.DeadLetter{Stream: "AGENT_0", Position: 9, Subject: "s\x1b[0m",
		Header: map[string][]string{"X": {"\xff\x1b"}},
		Body:   append([]byte("\x1b[2J\xff\x00"), bytes.Repeat([]byte{0x9b, 'x'}, 1<<19)...),
		Reason: persister.ReasonBadMessage, Detail: "no pack"}
	if err := f.Store.PutDeadLetters(t.Context(), []persister.DeadLetter{conflict, broken, binary}); err != nil {
		t.Fatal(err)
	}
	return conflict, broken, binary
}

func eachStore(t *testing.T, test func(t *testing.T, f archivetest.Filled)) {
	t.Run("sqlite", func(t *testing.T) { test(t, archivetest.SQLiteStore(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, archivetest.PostgresStore(t)) })
}

func TestDeadLettersList(t *testing.T) { eachStore(t, listDeadLetters) }

func listDeadLetters(t *testing.T, f archivetest.Filled) {
	_, _, binary := deadLetters(t, f)
	do := func(args ...string) string {
		t.Helper()
		out, errs, err := deadletters(t, append(args, f.Args...)...)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if strings.ContainsAny(out+errs, "\x1b\u202e\x9b\x00") || strings.Contains(out, "\xff") {
			t.Fatalf("%q prints what acts on a terminal: %.300q", args, out)
		}
		return out + errs
	}
	list := do("list")
	for _, want := range []string{"conflict", "bad_event", "bad_message", "acme/run_1", "1.0 MB", "s␛[0m", "why ␛[31m",
		"1 bad_event, 1 bad_message, 1 conflict"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list lacks %q:\n%s", want, list)
		}
	}
	if got := do("list", "--reason", "conflict", "--tenant", "acme", "--run", "run_1", "--since", "1h", "--stream",
		"AGENT_0"); strings.Count(got, "\n") != 3 {
		t.Errorf("%s", got)
	}
	if got := do("list", "--limit", "1"); !strings.Contains(got, "1 of 3") || !strings.Contains(got, "--limit 0") {
		t.Errorf("%s", got)
	}
	if got := do("list", "--before", "1h"); strings.Count(got, "\n") != 1 {
		t.Errorf("%s", got)
	}
	id := fmt.Sprintf("%x", binary.ID())
	var j letterJSON
	out, _, err := deadletters(t, append([]string{"list", "--json", "--reason", "bad_message"}, f.Args...)...)
	if err != nil || json.Unmarshal([]byte(out), &j) != nil || j.ID != id || j.Size != len(binary.Body) ||
		j.Subject != binary.Subject || !bytes.Equal(j.Headers64, binary.HeaderBytes()) {
		t.Errorf("%v %.300s", err, out)
	}
	for _, args := range [][]string{{"drop", ""}, {"drop", "xyz"}, {"drop", strings.Repeat("0", 64)},
		{"list", "--limit", "-1"}, {"list", "--since", "never"},
		{"list", "--reason", "mood"}, {"drop"}, {"drop", "--all"}, {"drop", "--all", "--yes"},
		{"drop", id, "--all", "--reason", "conflict"},
		{"retry"}, {"retry", "--all", "--reason", "conflict"}, {"retry", id, "--reason", "conflict"}, {"retry", "xyz"}} {
		if out, _, err := deadletters(t, append(args, f.Args...)...); err == nil || out != "" &&
			!strings.HasPrefix(out, "0 tried") {
			t.Errorf("%q: %v, %q", args, err, out)
		}
	}
	if n, _ := total(mustCount(t, f)); n != 3 {
		t.Errorf("%d letters are left", n)
	}
}

func mustCount(t *testing.T, f archivetest.Filled) map[string]int {
	t.Helper()
	counts, err := f.Store.(archive.DeadLetters).CountDeadLetters(t.Context(), deadletter.Query{})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

func TestDeadLettersDrop(t *testing.T) { eachStore(t, dropDeadLetters) }

// dropDeadLetters: letters are dropped by their reason, or by the beginnings of their ids.
func dropDeadLetters(t *testing.T, f archivetest.Filled) {
	_, broken, binary := deadLetters(t, f)
	out, _, err := deadletters(t, append([]string{"drop", "--all", "--reason", "conflict"}, f.Args...)...)
	if err == nil || !strings.Contains(out, "would drop 1: 1 conflict") || len(mustCount(t, f)) != 3 {
		t.Fatalf("%v %s", err, out)
	}
	for _, args := range [][]string{{"drop", "--all", "--reason", "conflict", "--yes"},
		{"drop", fmt.Sprintf("%x", binary.ID())[:8]}, {"drop", fmt.Sprintf("%x", broken.ID())}} {
		if out, _, err := deadletters(t, append(args, f.Args...)...); err != nil || out != "dropped 1\n" {
			t.Fatalf("%v %s", err, out)
		}
	}
	if counts := mustCount(t, f); len(counts) != 0 {
		t.Fatalf("%v", counts)
	}
}

// TestDeadLettersOpens: what is not there is not made.
func TestDeadLettersOpens(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"list"}, {"list", "--data", dir}, {"list", "--data", filepath.Join(dir, "none")},
		{"list", "--postgres", "postgres://u@/d?host=" + dir}} {
		if _, _, err := deadletters(t, args...); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
