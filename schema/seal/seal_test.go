package seal_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentstream/schema"
	"agentstream/schema/schematest"
	"agentstream/schema/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a key service in memory.
type service struct {
	mu       sync.Mutex
	versions map[string]int
	secret   string
	err      error
	asked    int
}

func (s *service) Derive(_ context.Context, tenant string, version int, label string) ([]byte, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	switch newest := s.versions[tenant]; {
	case s.err != nil:
		return nil, 0, s.err
	case newest == 0 || version > newest:
		return nil, 0, fmt.Errorf("test: %w", schema.ErrKeyGone)
	case version == 0:
		version = newest
	}
	h := hmac.New(sha256.New, fmt.Appendf(nil, "%s %s %d", s.secret, tenant, version))
	h.Write([]byte(label))
	return h.Sum(nil), version, nil
}

func (s *service) set(tenant string, version int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[tenant], s.err = version, err
}

func newKeys(t testing.TB, tenants ...string) (*seal.Keys, *service) {
	t.Helper()
	of, err := seal.ParseTenants(tenants)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{versions: map[string]int{"acme": 1, "globex": 1}}
	k, err := seal.New(seal.Config{Service: s, Tenants: of})
	if err != nil {
		t.Fatal(err)
	}
	return k, s
}

// sealPack seals the events of a scenario as one pack, and returns it as it would be without.
func sealPack(t testing.TB, k *seal.Keys, key schema.RunKey, events []schema.Event) (sealed, plain schema.Pack) {
	t.Helper()
	s, err := k.Sealer(t.Context(), key.Tenant)
	if err != nil || s == nil {
		t.Fatalf("%v, %v", s, err)
	}
	plain = schema.Pack{Key: key, First: 1, Count: len(events)}
	sealed = plain
	for i := range events {
		e := &events[i]
		id, ts := []byte(schematest.EventID(schema.Seq(i+1))), "2026-11-28T10:00:00.000Z"
		plain.Body = append(e.AppendNumbered(plain.Body, id, ts, key.Run, schema.Seq(i+1)), '\n')
		begin := len(sealed.Body)
		if sealed.Body, err = s.AppendNumbered(sealed.Body, e, id, ts, key.Run, schema.Seq(i+1)); err != nil {
			t.Fatal(err)
		}
		if n := len(sealed.Body) - begin; n > seal.Size(e) {
			t.Errorf("%s: %d bytes, Size says %d", e.Type, n, seal.Size(e))
		}
		sealed.Body = append(sealed.Body, '\n')
	}
	return sealed, plain
}

func scenarios() []schematest.Scenario {
	return append(schematest.All(), schematest.Generate(600, 4), schematest.Telling(7))
}

// TestOpenedIsWhatItWas: opened packs have the bytes that they would have without encryption; sealed lines are lines of the
// log with the same envelope, and hold no text of a payload.
func TestOpenedIsWhatItWas(t *testing.T) {
	k, _ := newKeys(t, "*")
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	for _, s := range scenarios() {
		sealed, plain := sealPack(t, k, key, s.Events)
		got, err := k.Open(t.Context(), sealed)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		if !bytes.Equal(got.Body, plain.Body) {
			t.Fatalf("%s: opened is another", s.Name)
		}
		was := slices.Collect(schema.Lines(plain.Body))
		for i, line := range slices.Collect(schema.Lines(sealed.Body)) {
			e, err := schema.DecodeLine(line)
			before, _ := schema.DecodeLine(was[i])
			if err != nil || !seal.IsSealed(line) {
				t.Fatalf("%s: %v: %s", s.Name, err, line)
			}
			if e.ID != before.ID || e.Type != before.Type || e.ChildID != before.ChildID || e.Seq != before.Seq ||
				!slices.Equal(e.Path, before.Path) || e.TS != before.TS {
				t.Fatalf("%s: the envelope is another: %s", s.Name, line)
			}
			if r, err := schema.ScanLine(line); err != nil || !bytes.Equal(r.Payload(), e.Payload) {
				t.Fatalf("%s: not in the form of the log: %v", s.Name, err)
			}
			if bytes.ContainsAny(line, " \\") {
				t.Fatalf("%s: a text is readable: %s", s.Name, line)
			}
			if one, err := k.OpenLine(t.Context(), "acme", line); err != nil || !bytes.Equal(one, was[i]) {
				t.Fatalf("%s: %v: %s", s.Name, err, one)
			}
		}
	}
}

// TestUnsealedIsLeft: what is not sealed is returned as it is, also in a pack with sealed lines, and where texts look like it.
func TestUnsealedIsLeft(t *testing.T) {
	k, s := newKeys(t, "acme")
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	e := schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"\"$sealed\":\"1.$\"}}, or .$"}`)}
	line := append(e.AppendNumbered(nil, []byte(schematest.EventID(1)), "2026-11-28T10:00:00.000Z", "run_1", 1), '\n')
	p := schema.Pack{Key: key, First: 1, Count: 1, Body: line}
	got, err := k.Open(t.Context(), p)
	if err != nil || !bytes.Equal(got.Body, line) || s.asked != 0 {
		t.Errorf("%v, asked %d: %s", err, s.asked, got.Body)
	}
	if seal.HasForm(e.Payload) {
		t.Error("a text has the form of what is sealed")
	}
	if !seal.HasForm([]byte(`{"a":1,"$sealed":"1.1.2026-11.x.y.z.$"}`)) {
		t.Error("what has the form is not seen")
	}
	var none *seal.Keys
	sealed, _ := sealPack(t, k, key, schematest.ByName("plain").Events)
	if got, err := none.Open(t.Context(), sealed); err != nil || !bytes.Equal(got.Body, sealed.Body) {
		t.Error("no keys change a pack")
	}
	for _, tenant := range []string{"globex", "_audit-acme"} {
		if s, err := k.Sealer(t.Context(), tenant); s != nil || err != nil {
			t.Errorf("%s is sealed: %v", tenant, err)
		}
	}
}

// TestNothingCanBeMoved: a sealed line that was changed anywhere, or is read as that of another tenant, run, type or number,
// is not opened.
func TestNothingCanBeMoved(t *testing.T) {
	k, _ := newKeys(t, "*")
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	events := []schema.Event{{Type: schema.TypeToolEnd, TurnID: "t1", Payload: []byte(`{"call_id":"c1","ok":true,"output":"a text"}`)}}
	sealed, _ := sealPack(t, k, key, events)
	line := bytes.TrimSuffix(sealed.Body, []byte("\n"))
	if _, err := k.OpenLine(t.Context(), "globex", line); !errors.Is(err, schema.ErrKeyGone) && !errors.Is(err, schema.ErrBadPack) {
		t.Errorf("another tenant: %v", err)
	}
	for _, change := range [][2]string{{`"run_1"`, `"run_2"`}, {`"seq":1`, `"seq":2`}, {"tool.end", "tool.run"},
		{`"c1"`, `"c2"`}, {`"t1"`, `"t2"`}, {"true", "false"}, {`"child_id":null`, `"child_id":"kid"`}} {
		if moved := bytes.Replace(line, []byte(change[0]), []byte(change[1]), 1); bytes.Equal(moved, line) {
			t.Fatalf("%s is not in %s", change[0], line)
		} else if _, err := k.OpenLine(t.Context(), "acme", moved); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("%s: %v", change[1], err)
		}
	}
	at := bytes.Index(line, []byte("$sealed"))
	for i := at + 11; i < len(line)-5; i++ {
		moved := bytes.Clone(line)
		if moved[i]++; moved[i] == '"' {
			continue
		}
		if got, err := k.OpenLine(t.Context(), "acme", moved); err == nil {
			t.Fatalf("byte %d of %s can be changed: %s", i, line, got)
		}
	}
}

// TestKeysOfMonths: each month has a key of its own, older ones are found, and a key is asked for once in its life.
func TestKeysOfMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := newKeys(t, "acme")
		key := schema.RunKey{Tenant: "acme", Run: "run_1"}
		events := schematest.ByName("plain").Events
		var packs, plain []schema.Pack
		for range 3 {
			for range 20 {
				a, b := sealPack(t, k, key, events)
				packs, plain = append(packs, a), append(plain, b)
			}
			time.Sleep(31 * 24 * time.Hour)
		}
		if s.asked != 3 {
			t.Errorf("the key service was asked %d times", s.asked)
		}
		months := map[string]bool{}
		for i, p := range packs {
			value := string(p.Body[bytes.Index(p.Body, []byte(`$sealed":"`))+10:])
			months[strings.Split(value, ".")[2]] = true
			if got, err := k.Open(t.Context(), p); err != nil || !bytes.Equal(got.Body, plain[i].Body) {
				t.Fatalf("pack %d: %v", i, err)
			}
		}
		if len(months) != 3 {
			t.Errorf("months %v", months)
		}
		s.set("acme", 2, nil) // rotated
		time.Sleep(6 * time.Minute)
		rotated, was := sealPack(t, k, key, events)
		if !bytes.Contains(rotated.Body, []byte(`$sealed":"1.2.`)) {
			t.Error("new content is not of the new version")
		}
		for i, p := range append(packs, rotated) {
			if got, err := k.Open(t.Context(), p); err != nil || !bytes.Equal(got.Body, append(plain, was)[i].Body) {
				t.Fatalf("after the rotation, pack %d: %v", i, err)
			}
		}
	})
}

// TestDeletedKeyEnds: what a deleted key has sealed is readable for as long as keys are remembered, and not after; a key that
// is made anew does not open it. A service that is away is an error of its own.
func TestDeletedKeyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := newKeys(t, "acme")
		key := schema.RunKey{Tenant: "acme", Run: "run_1"}
		sealed, _ := sealPack(t, k, key, schematest.ByName("plain").Events)
		s.set("acme", 1, fmt.Errorf("test: %w", schema.ErrUnavailable))
		time.Sleep(4 * time.Minute)
		if _, err := k.Open(t.Context(), sealed); err != nil {
			t.Errorf("a service that is away for minutes: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := k.Open(t.Context(), sealed); !errors.Is(err, schema.ErrUnavailable) || errors.Is(err, schema.ErrKeyGone) {
			t.Errorf("a service that is away: %v", err)
		}
		s.set("acme", 0, nil)
		time.Sleep(2 * time.Second)
		if _, err := k.Open(t.Context(), sealed); !errors.Is(err, schema.ErrKeyGone) {
			t.Errorf("a deleted key: %v", err)
		}
		if _, err := k.Sealer(t.Context(), "acme"); !errors.Is(err, schema.ErrKeyGone) {
			t.Errorf("to store after that: %v", err)
		}
		if err := k.Check(t.Context(), "acme"); !errors.Is(err, schema.ErrKeyGone) {
			t.Errorf("Check: %v", err)
		}
		if err := k.Check(t.Context(), "globex"); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		s.set("acme", 1, nil)
		s.secret = "another"
		time.Sleep(time.Minute)
		if _, err := k.Open(t.Context(), sealed); !errors.Is(err, schema.ErrKeyGone) {
			t.Errorf("a key that was made anew: %v", err)
		}
		if err := k.Check(t.Context(), "acme"); err != nil {
			t.Errorf("Check of the new key: %v", err)
		}
	})
}

// TestManyAskOnce: of many who want a key at once one asks the service, and all of them can leave.
func TestManyAskOnce(t *testing.T) {
	k, s := newKeys(t, "*")
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if _, err := k.Sealer(t.Context(), "acme"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if s.asked != 1 {
		t.Errorf("asked %d times", s.asked)
	}
}

func collect(pieces iter.Seq2[[]byte, error]) (all []byte, err error) {
	for piece, err := range pieces {
		if err != nil {
			return all, err
		}
		all = append(all, piece...)
	}
	return all, nil
}

// TestBlobs: blobs of every size come back as they were, keep their ref, and cannot be cut, moved or changed.
func TestBlobs(t *testing.T) {
	k, s := newKeys(t, "acme")
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	const chunk, piece = 64 << 10, schema.BlobPiece
	for _, n := range []int{0, 1, chunk - 1, chunk, chunk + 1, piece - 200, piece - 1, piece, piece + 1, 3*piece + 7} {
		content := bytes.Repeat([]byte("planted "), n/8+1)[:n]
		mediaType, pieces, err := k.SealBlob(t.Context(), key, "text/plain; charset=utf-8", schema.BlobPieces(content))
		if err != nil || !schema.IsSealedBlob(mediaType) || strings.Contains(mediaType, "plain") {
			t.Fatalf("%q, %v", mediaType, err)
		}
		sum := schema.NewBlobSum(mediaType)
		var stored []byte
		for p, err := range pieces {
			if err != nil || len(stored)%piece != 0 {
				t.Fatalf("%d: pieces: %v", n, err)
			}
			stored = append(stored, p...)
			sum.Write(p)
		}
		if sum.Ref() != schema.BlobRef(sha256.Sum256(content)) {
			t.Errorf("%d: ref %q", n, sum.Ref())
		}
		if bytes.Contains(stored, []byte("planted")) {
			t.Errorf("%d: the content is readable", n)
		}
		open := func(key schema.RunKey, b []byte) ([]byte, error) {
			blob, pieces, err := k.OpenBlob(t.Context(), key, schema.Blob{Ref: sum.Ref(), Type: mediaType, Size: int64(len(b))},
				schema.BlobPieces(b))
			if err != nil {
				return nil, err
			}
			got, err := collect(pieces)
			if err == nil && (blob.Size != int64(len(got)) || blob.Type != "text/plain; charset=utf-8") {
				err = fmt.Errorf("%+v of %d bytes", blob, len(got))
			}
			return got, err
		}
		if got, err := open(key, stored); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%d: %v, %d bytes", n, err, len(got))
		}
		if _, err := open(schema.RunKey{Tenant: "acme", Run: "run_2"}, stored); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("%d: in another run: %v", n, err)
		}
		for _, at := range []int{0, (len(stored) - schema.SealedTail) / 2, len(stored) - schema.SealedTail - 1} {
			changed := bytes.Clone(stored)
			changed[at]++
			if _, err := open(key, changed); !errors.Is(err, schema.ErrBadPack) {
				t.Errorf("%d: changed at %d: %v", n, at, err)
			}
			cut := schema.NewBlobSum(mediaType)
			cut.Write(changed)
			if cut.Ref() != "" {
				t.Errorf("%d: the sum does not see a change at %d", n, at)
			}
		}
		if n > 0 {
			if _, err := open(key, stored[:len(stored)-1]); !errors.Is(err, schema.ErrBadPack) {
				t.Errorf("%d: cut: %v", n, err)
			}
		}
	}
	if typ, _, err := k.SealBlob(t.Context(), schema.RunKey{Tenant: "globex", Run: "r"}, "a/b", nil); typ != "a/b" || err != nil {
		t.Errorf("of another tenant: %q, %v", typ, err)
	}
	s.set("acme", 0, nil)
}

// FuzzOpen: whatever a line is, it is opened, refused or left, and no reader fails otherwise.
func FuzzOpen(f *testing.F) {
	k, _ := newKeys(f, "*")
	sealed, _ := sealPack(f, k, schema.RunKey{Tenant: "acme", Run: "run_1"}, schematest.ByName("plain").Events[:2])
	for line := range schema.Lines(sealed.Body) {
		f.Add(line)
	}
	f.Add([]byte(`.$"}}`))
	f.Add([]byte(`"$sealed":".$"}}`))
	f.Add([]byte(`{"id":"evt_1","$sealed":"1.1.2026-11.AAAAAA.AAAAAAAAAAAAAAAAAAAAAA..$"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		_, err := k.OpenLine(context.Background(), "acme", line)
		if err != nil && !errors.Is(err, schema.ErrBadPack) && !errors.Is(err, schema.ErrKeyGone) {
			t.Errorf("%v", err)
		}
		p := schema.Pack{Key: schema.RunKey{Tenant: "acme", Run: "run_1"}, First: 1, Body: append(line, '\n')}
		_, _ = k.Open(context.Background(), p)
	})
}

// BenchmarkSeal and BenchmarkOpen are what an event costs more, beside BenchmarkPlain.
func BenchmarkSeal(b *testing.B)  { benchmark(b, true, false) }
func BenchmarkOpen(b *testing.B)  { benchmark(b, true, true) }
func BenchmarkPlain(b *testing.B) { benchmark(b, false, false) }

func benchmark(b *testing.B, sealed, open bool) {
	k, _ := newKeys(b, "acme")
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	for name, payload := range map[string]string{"delta": `{"text":"word and","index":0}`,
		"output": `{"call_id":"c1","ok":true,"output":"` + strings.Repeat("a line of text ", 273) + `"}`} {
		b.Run(name, func(b *testing.B) {
			e := schema.Event{Type: schema.TypeTextDelta, Payload: []byte(payload)}
			events := slices.Repeat([]schema.Event{e}, 16)
			id, ts := []byte(schematest.EventID(1)), "2026-11-28T10:00:00.000Z"
			var body []byte
			p, _ := sealPack(b, k, key, events)
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				switch body = body[:0]; {
				case open:
					if _, err := k.Open(b.Context(), p); err != nil {
						b.Fatal(err)
					}
				case sealed:
					s, _ := k.Sealer(b.Context(), "acme")
					for i := range events {
						body, _ = s.AppendNumbered(body, &events[i], id, ts, "run_1", schema.Seq(i+1))
					}
				default:
					for i := range events {
						body = events[i].AppendNumbered(body, id, ts, "run_1", schema.Seq(i+1))
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/event")
		})
	}
}
