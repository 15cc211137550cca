package scrub_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/persister/persistertest"
	"agentstream/persister/scrub"
	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/redact/redacttest"
	"agentstream/schema/seal"
)

// keyService derives keys from a text.
type keyService string

func (k keyService) Derive(_ context.Context, tenant string, version int, label string) ([]byte, int, error) {
	h := hmac.New(sha256.New, fmt.Appendf(nil, "%s %s", k, tenant))
	h.Write([]byte(label))
	return h.Sum(nil), max(version, 1), nil
}

// sealWorld is a world with runs of which a part is sealed, and rules that match in each of the sealed parts.
type sealWorld struct {
	*world
	keys   *seal.Keys
	secret redacttest.Secret
	runs   []schema.RunKey
	within []string                 // a part of each sealed line, and of each sealed blob
	blobs  map[schema.RunKey]string // refs
	letter []byte                   // the body of a dead letter with a sealed line
}

// sealPack seals the events of a pack.
func (s *sealWorld) sealPack(p schema.Pack) schema.Pack {
	s.Helper()
	sealer, err := s.keys.Sealer(s.Context(), p.Key.Tenant)
	if err != nil {
		s.Fatal(err)
	}
	var body []byte
	for line := range schema.Lines(p.Body) {
		e, err := schema.DecodeLine(line)
		if err != nil {
			s.Fatal(err)
		}
		begin := len(body)
		if body, err = sealer.AppendNumbered(body, &e, []byte(e.ID), e.TS, e.RunID, e.Seq); err != nil {
			s.Fatal(err)
		}
		text := body[begin:]
		if !seal.IsSealed(text) {
			s.Fatalf("it is not sealed: %s", text)
		}
		s.within = append(s.within, string(text[len(text)-20:len(text)-8]))
		body = append(body, '\n')
	}
	p.Body = body
	return p
}

// add stores a run: its first lines are in the clear, some with the secret where that is to be found, the rest is sealed.
func (s *sealWorld) add(run string, state schema.RunState, inClear bool) schema.RunKey {
	s.Helper()
	key := schema.RunKey{Tenant: "acme", Run: run}
	clear := redacttest.Secret{Text: "nothing"}
	if inClear {
		clear = s.secret
	}
	w, packs := plant(key, clear, rand.New(rand.NewPCG(1, 2)), "")
	blob := s.sealBlob(key)
	text, _ := json.Marshal(s.secret.Text)
	for _, p := range []schema.Pack{
		w.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":`+string(text)+`}`),
			persistertest.Event(schema.TypeToolEnd, `{"call_id":"c1","ok":true,"blob_ref":"`+blob+`"}`)),
		w.Pack("kid", persistertest.Event("custom.x", `{"any":`+string(text)+`}`)),
		w.Pack("", persistertest.Event(schema.TypeRunLifecycle, fmt.Sprintf(`{"state":%q,"reason":%s}`, state, text))),
	} {
		packs = append(packs, s.sealPack(p))
	}
	s.put(packs...)
	s.runs = append(s.runs, key)
	s.blobs[key] = blob
	return key
}

// sealBlob stores a sealed blob of a run.
func (s *sealWorld) sealBlob(key schema.RunKey) string {
	s.Helper()
	blobs, err := natskit.NewBlobs(s.server.Dial(s))
	if err != nil {
		s.Fatal(err)
	}
	content := fmt.Appendf(nil, `{"output":%q,"of":%q,"more":%q}`, s.secret.Text, key.Run, strings.Repeat("x", 40_000))
	typ, pieces, err := s.keys.SealBlob(s.Context(), key, "application/json", schema.BlobPieces(content))
	if err != nil {
		s.Fatal(err)
	}
	blob, _, err := blobs.Put(s.Context(), key, typ, pieces)
	if err != nil {
		s.Fatal(err)
	}
	part := regexp.MustCompile(`[A-Za-z0-9]{4}`).Find(s.blob(key, blob.Ref))
	if part == nil {
		s.Fatal("no letters in 40 KB of noise")
	}
	s.within = append(s.within, string(part))
	return blob.Ref
}

// blob returns what the log has of a blob.
func (s *sealWorld) blob(key schema.RunKey, ref string) (content []byte) {
	s.Helper()
	blob, pieces, err := s.log.Blob(s.Context(), key, ref)
	if err != nil || !schema.IsSealedBlob(blob.Type) {
		s.Fatalf("%+v, %v", blob, err)
	}
	for piece, err := range pieces {
		if err != nil {
			s.Fatal(err)
		}
		content = append(content, piece...)
	}
	return content
}

// chance makes rules that hide the secret, and what happens to be in what is sealed.
func (s *sealWorld) chance() {
	s.Helper()
	text := `{"*":{"rules":[{"name":"secret","known":["provider-keys"]}`
	for i, part := range s.within {
		pattern, _ := json.Marshal(regexp.QuoteMeta(part))
		text += fmt.Sprintf(`,{"name":"chance-%d","pattern":%s}`, i, pattern)
	}
	book, err := redact.Parse([]byte(text + "]}}"))
	if err != nil {
		s.Fatal(err)
	}
	s.rules = book.Of("acme")
}

// logged returns the messages of the log of a run.
func (s *sealWorld) logged(key schema.RunKey) (all []string) {
	s.Helper()
	for m, err := range s.log.Messages(s.Context(), key, math.MaxInt64) {
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, string(m.Body))
	}
	return all
}

// sealedLetter stores a dead letter of a run of which two lines are sealed and two are not.
func (s *sealWorld) sealedLetter(key schema.RunKey) {
	s.Helper()
	w := persistertest.NewWriter(key, "20260106")
	line := bytes.TrimSuffix(s.sealPack(w.Texts("", 1)).Body, []byte("\n"))
	s.letter = slices.Concat([]byte("no event: "+s.secret.Text+"\n"), line, []byte("\nneither: "+s.secret.Text+"\n"), line)
	l := persister.DeadLetter{Key: key, Stream: "AGENT_0", Position: 1, Subject: "agent.0.x", Body: s.letter,
		Reason: "line", Detail: "of it"}
	whole := l
	whole.Position, whole.Body = 2, line
	if err := s.store.PutDeadLetters(s.Context(), []persister.DeadLetter{l, whole}); err != nil {
		s.Fatal(err)
	}
}

func (s *sealWorld) checkLetters(key schema.RunKey) {
	s.Helper()
	q := deadletter.Query{Tenant: key.Tenant, Run: key.Run, Limit: 9, Bodies: true}
	list, err := s.store.FindDeadLetters(s.Context(), q)
	if err != nil || len(list) != 2 {
		s.Fatalf("%d letters, %v", len(list), err)
	}
	want := strings.ReplaceAll(string(s.letter), s.secret.Text, "[redacted:secret]")
	line := strings.Split(want, "\n")[1]
	for i := range list {
		if got := string(list[i].Body); got != want && got != line {
			s.Errorf("a dead letter is now %s", got)
		}
	}
}

// TestSealedStays: where rules match in what is sealed, by chance, lines in rows, objects and the log, blobs and dead letters
// are the same bytes afterwards, can be opened, and are counted; what is beside them in the clear is hidden.
func TestSealedStays(t *testing.T) {
	both(t, func(w *world) {
		of, err := seal.ParseTenants([]string{"acme"})
		if err != nil {
			w.Fatal(err)
		}
		s := &sealWorld{world: w, blobs: map[schema.RunKey]string{}, secret: redacttest.Secrets(7)[0]}
		if s.keys, err = seal.New(seal.Config{Service: keyService("x"), Tenants: of}); err != nil {
			w.Fatal(err)
		}
		cold := s.add("cold", schema.StateDone, true)
		w.archived(cold)
		s.add("expired", schema.StateError, true)
		w.pass()
		warm := s.add("warm", schema.StateDone, true)
		w.archived(warm)
		s.add("running", schema.StateRunning, true)
		only := s.add("only", schema.StateRunning, false)
		s.sealedLetter(only)
		s.chance()

		was, logged := map[schema.RunKey][]string{}, map[schema.RunKey][]string{}
		contents := map[schema.RunKey][]byte{}
		for _, key := range s.runs {
			was[key], logged[key], contents[key] = w.lines(key), s.logged(key), s.blob(key, s.blobs[key])
			s.checkMatch(was[key], contents[key])
		}
		for i := range 2 {
			for _, key := range s.runs {
				d, err := w.scrub(w.config(), key)
				want := scrub.Sealed{Events: 4, Blobs: 1}
				if key == only {
					want.Letters = 2
				}
				if err != nil || d.Sealed != want || i == 1 && d.Any() || i == 0 && key != only && d.Blobs+d.Changed+d.Messages == 0 {
					w.Errorf("%s, time %d: %+v, %v", key, i+1, d, err)
				}
				s.checkSealed(was[key], w.lines(key))
				if !bytes.Equal(contents[key], s.blob(key, s.blobs[key])) {
					w.Errorf("%s: the blob has changed", key)
				}
			}
			if !slices.Equal(was[only], w.lines(only)) || !slices.Equal(logged[only], s.logged(only)) {
				w.Error("a run with nothing in the clear has changed")
			}
			s.checkLetters(only)
			for _, key := range []schema.RunKey{cold, warm} {
				s.checkObject(key, contents[key])
			}
		}
		if err := w.store.Vacuum(w.Context()); err != nil {
			w.Fatal(err)
		}
		if leaks := w.leaks([]redacttest.Secret{s.secret}); len(leaks) > 0 {
			w.Errorf("found: %q", leaks)
		}
	})
}

// checkMatch checks that the rules match in each sealed line and in the blob.
func (s *sealWorld) checkMatch(lines []string, content []byte) {
	s.Helper()
	for _, line := range lines {
		if _, hits := s.rules.Text(line); seal.IsSealed([]byte(line)) && len(hits) == 0 {
			s.Fatalf("no rule matches in %s", line)
		}
	}
	c := redact.NewContent(s.rules)
	if c.Add(content); len(c.Hits) == 0 {
		s.Fatal("no rule matches in the blob")
	}
}

// checkSealed checks that sealed lines are as they were, and can be opened, and that the others have no secret.
func (s *sealWorld) checkSealed(was, now []string) {
	s.Helper()
	if len(was) != len(now) {
		s.Fatalf("%d lines, were %d", len(now), len(was))
	}
	for i := range now {
		if !seal.IsSealed([]byte(was[i])) {
			if strings.Contains(now[i], s.secret.Core) {
				s.Errorf("not hidden: %s", now[i])
			}
			continue
		}
		if _, err := s.keys.OpenLine(s.Context(), "acme", []byte(now[i])); err != nil || now[i] != was[i] {
			s.Errorf("%s is now %s, %v", was[i], now[i], err)
		}
	}
}

// checkObject checks that the object of a blob is what the log has.
func (s *sealWorld) checkObject(key schema.RunKey, want []byte) {
	s.Helper()
	_, pieces, err := s.reader().Blob(s.Context(), key, s.blobs[key])
	if err != nil {
		s.Fatal(err)
	}
	var content []byte
	for piece, err := range pieces {
		if err != nil {
			s.Fatal(err)
		}
		content = append(content, piece...)
	}
	if !bytes.Equal(content, want) {
		s.Errorf("%s: the object of the blob has changed", key)
	}
}
