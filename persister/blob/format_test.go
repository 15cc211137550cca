package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var key = schema.RunKey{Tenant: "acme", Run: "run_1"}

// lying is a store with one object, which the test sets.
type lying struct {
	data []byte
}

func (l *lying) Put(context.Context, string, io.Reader) error          { return ErrExists }
func (l *lying) Delete(context.Context, string) error                  { return nil }
func (l *lying) List(context.Context, string) iter.Seq2[Object, error] { return nil }

func (l *lying) Read(_ context.Context, _ string, offset, length int64) ([]byte, int64, error) {
	size := int64(len(l.data))
	if offset < 0 {
		offset = max(0, size-length)
	}
	offset = min(offset, size)
	return slices.Clone(l.data[offset:min(size, offset+length)]), size, nil
}

// encode writes packs with frames of about frame bytes.
func encode(t testing.TB, frame int, packs ...schema.Pack) ([]byte, *Index) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, packs[0].Key, schema.Head{Day: packs[0].Head.Day})
	if err != nil {
		t.Fatal(err)
	}
	w.frame = frame
	for _, p := range packs {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	ix, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), ix
}

func body(packs []schema.Pack) (b []byte) {
	for _, p := range packs {
		b = append(b, p.Body...)
	}
	return b
}

func readsOf(t testing.TB, s ObjectStore) *reads {
	t.Helper()
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	return &reads{store: s, codec: c, timeout: time.Minute}
}

// all reads an object whole, frame by frame.
func all(ctx context.Context, r *reads, name string) ([]byte, error) {
	o, err := r.open(ctx, name)
	if err != nil {
		return nil, err
	}
	var got []byte
	c := newCursor(o)
	for after := o.index.First - 1; after < o.index.Last; {
		page, err := c.page(ctx, after, schema.MaxSeq)
		if err != nil {
			return nil, err
		}
		for _, l := range page {
			got = append(append(got, l.Body...), '\n')
			after = l.Seq
		}
	}
	return got, o.verify(ctx)
}

// TestPlainZstd: whoever has zstd and nothing else gets the lines, of every scenario.
func TestPlainZstd(t *testing.T) {
	tool, _ := exec.LookPath("zstd")
	for _, s := range append(schematest.All(), schematest.Generate(3000, 7)) {
		packs := schematest.Packs(schema.RunKey{Tenant: key.Tenant, Run: schematest.Root}, s, 5)
		data, ix := encode(t, 4<<10, packs...)
		dec, err := zstd.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(dec)
		dec.Close()
		if err != nil || !bytes.Equal(got, body(packs)) {
			t.Errorf("%s: %d bytes of %d came, %v", s.Name, len(got), len(body(packs)), err)
		}
		if got, err = all(t.Context(), readsOf(t, &lying{data}), Name(packs[0].Key, ix.Day, ix.Last)); err != nil ||
			!bytes.Equal(got, body(packs)) {
			t.Errorf("%s: by the index %d bytes of %d came, %v", s.Name, len(got), len(body(packs)), err)
		}
		if tool == "" {
			continue
		}
		cmd := exec.Command(tool, "-dc")
		cmd.Stdin = bytes.NewReader(data)
		if got, err := cmd.Output(); err != nil || !bytes.Equal(got, body(packs)) {
			t.Errorf("%s: zstd -dc gives %d bytes of %d, %v", s.Name, len(got), len(body(packs)), err)
		}
	}
}

func small(t testing.TB) (data []byte, ix *Index, want []byte) {
	t.Helper()
	w := persistertest.NewWriter(key, "20260228")
	packs := []schema.Pack{
		w.Pack("", persistertest.Lifecycle(schema.StateRunning),
			persistertest.Event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`)),
		w.Texts("", 5), w.Texts("kid", 5), w.Texts("", 5),
		w.Pack("", persistertest.Lifecycle(schema.StateDone)),
	}
	data, ix = encode(t, 600, packs...)
	if len(ix.Frames) < 3 {
		t.Fatalf("only %d frames", len(ix.Frames))
	}
	return data, ix, body(packs)
}

// TestCorruption flips every bit, cuts at every place and adds bytes: the damage is said, by name, and
// nothing of it is given out.
func TestCorruption(t *testing.T) {
	data, ix, want := small(t)
	name := Name(key, ix.Day, ix.Last)
	l := &lying{data}
	r := readsOf(t, l)
	if got, err := all(t.Context(), r, name); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the undamaged object: %v", err)
	}
	refused := func(what string, at int) {
		t.Helper()
		_, err := all(t.Context(), r, name)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Fatalf("%s %d of %d: %v", what, at, len(data), err)
		}
	}
	for i := range data {
		for bit := range 8 {
			l.data = bytes.Clone(data)
			l.data[i] ^= 1 << bit
			refused("bit of byte", i)
		}
	}
	for n := range data {
		l.data = data[:n]
		refused("cut at", n)
		l.data = data[n+1:]
		refused("beginning cut at", n)
	}
	l.data = append(bytes.Clone(data), 0)
	refused("one more byte", 0)
	l.data = append([]byte{0}, data...)
	refused("one byte before", 0)
	l.data = nil
	refused("empty", 0)
}

// TestOtherRun: an object under a name that is not its own is not taken for it.
func TestOtherRun(t *testing.T) {
	data, ix, _ := small(t)
	r := readsOf(t, &lying{data})
	for _, name := range []string{
		Name(schema.RunKey{Tenant: "globex", Run: key.Run}, ix.Day, ix.Last),
		Name(schema.RunKey{Tenant: key.Tenant, Run: "run_2"}, ix.Day, ix.Last),
		Name(key, "20260301", ix.Last), Name(key, ix.Day, ix.Last+1),
	} {
		if _, err := r.open(t.Context(), name); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIndexChecks: an index with correct checksums and impossible contents.
func TestIndexChecks(t *testing.T) {
	data, ix, _ := small(t)
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Index){
		"version": func(ix *Index) { ix.Version = 2 }, "tenant": func(ix *Index) { ix.Tenant = "../x" }, "day": func(ix *Index) { ix.Day = "2026" },
		"no frames": func(ix *Index) { ix.Frames = ix.Frames[:1]; ix.Frames[0].First = 2 },
		"hole":      func(ix *Index) { ix.Frames[1].First++ }, "overlap": func(ix *Index) { ix.Frames[1].At-- },
		"large": func(ix *Index) { ix.Frames[0].Bytes = maxFrame + 1 }, "negative": func(ix *Index) { ix.Frames[0].Size = -1 },
		"sum": func(ix *Index) { ix.Bytes++ }, "events": func(ix *Index) { ix.Events++ },
		"digest": func(ix *Index) { ix.SHA256 = "00" }, "last": func(ix *Index) { ix.Last++ },
	} {
		bad := *ix
		bad.Frames = slices.Clone(ix.Frames)
		change(&bad)
		tail, err := tailOf(&bad, c)
		if err != nil {
			t.Fatal(err)
		}
		l := &lying{append(bytes.Clone(data[:ix.data()]), tail...)}
		if _, err := readsOf(t, l).openTail(t.Context(), "x"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, key := range []schema.RunKey{key, {Tenant: "a-b_C", Run: strings.Repeat("x", schema.MaxRunID)}} {
		name := Name(key, "20260228", 17)
		if k, day, last, err := ParseName(name); err != nil || k != key || day != "20260228" || last != 17 {
			t.Errorf("%s: %v %s %d %v", name, k, day, last, err)
		}
		for _, base := range []string{FolderBase, "s3://bucket/", "s3://bucket/some/where/", "file:///old/place/"} {
			if got, last, err := nameIn(base+name, key); err != nil || got != name || last != 17 {
				t.Errorf("%s: %s %d %v", base, got, last, err)
			}
		}
		if _, _, err := nameIn(FolderBase+name, schema.RunKey{Tenant: "other", Run: key.Run}); err == nil {
			t.Error("a URI of another tenant is taken")
		}
	}
	for _, bad := range []string{"", "a/b", "../20260228/run.1.jsonl.zst", "a/20260228/../run.1.jsonl.zst",
		"a/20260228/run.jsonl.zst", "a/20260228/run.0.jsonl.zst",
		"a/20260228/run.01.jsonl.zst", "a/20260228/run.1.jsonl", "/a/20260228/run.1.jsonl.zst",
		"a/2026022/run.1.jsonl.zst", "a/20260228/r\x00.1.jsonl.zst",
		"a/20260228/run.1.2.jsonl.zst", "a/20260228/.1.jsonl.zst", `a\20260228\run.1.jsonl.zst`} {
		if _, _, _, err := ParseName(bad); err == nil {
			t.Errorf("%q is taken for a name", bad)
		}
		f, err := OpenFolder(filepath.Join(t.TempDir(), "x"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Put(t.Context(), bad, strings.NewReader("x")); err == nil {
			t.Errorf("%q is put", bad)
		}
	}
}

// FuzzOpen: whatever lies at the end of an object, it is an index that holds or an error.
func FuzzOpen(f *testing.F) {
	data, ix, _ := small(f)
	f.Add(data)
	f.Add(data[ix.data():])
	f.Add([]byte(footerMagic))
	c, err := newCodec()
	if err != nil {
		f.Fatal(err)
	}
	name := Name(key, ix.Day, ix.Last)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &reads{store: &lying{data}, codec: c, timeout: time.Minute}
		got, err := all(t.Context(), r, name)
		if err == nil && int64(len(got)) < int64(ix.Last) {
			t.Fatalf("%d bytes are %d events", len(got), ix.Last)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("not said to be damage: %v", err)
		}
	})
}

// FuzzIndex: an index whose check sums hold, because somebody made them.
func FuzzIndex(f *testing.F) {
	data, ix, _ := small(f)
	c, err := newCodec()
	if err != nil {
		f.Fatal(err)
	}
	foot, err := parseFooter(data, int64(len(data)))
	if err != nil {
		f.Fatal(err)
	}
	text, err := c.decode(data[ix.data()+skippableHeader:][:foot.coded], foot.text)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		l := &lying{append(bytes.Clone(data[:ix.data()]), sealIndex(c, text, ix.data())...)}
		r := &reads{store: l, codec: c, timeout: time.Minute}
		o, err := r.openTail(t.Context(), "x")
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		_ = o.verify(t.Context())
		_, _ = newCursor(o).page(t.Context(), o.index.First-1, schema.MaxSeq)
		_ = o.index.before(o.index.Last)
	})
}
