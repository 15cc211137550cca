package redact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"agentstream/schema"
)

// FileConfig is where rules are kept.
type FileConfig struct {
	Path   string
	Every  time.Duration    // how often the file is looked at, at most; default 1 s
	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // nil discards
	// Found is called with what was hidden in events that are stored; nil is off.
	Found func(tenant, rule string, count int)
}

// File keeps the rules of a file in force, and takes a change over by itself. The rules that were good stay when the
// file cannot be read: that must not let secrets through. A nil File has no rules.
type File struct {
	cfg  FileConfig
	next atomic.Int64 // time of the next look, Unix nanoseconds
	busy atomic.Bool  // somebody looks
	now  atomic.Pointer[inForce]
}

// inForce is what was read last.
type inForce struct {
	book   *Book
	sum    [sha256.Size]byte
	info   os.FileInfo // of the file; nil: it must be read again
	broken error       // why the newest file could not be read
}

// Open reads the file. The error wraps ErrRules when it holds something else than rules.
func Open(cfg FileConfig) (*File, error) {
	cfg.Every = cmp.Or(cfg.Every, time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &File{cfg: cfg}
	first := f.read(inForce{})
	if first.broken != nil {
		return nil, first.broken
	}
	f.now.Store(first)
	f.next.Store(cfg.Now().Add(cfg.Every).UnixNano())
	return f, nil
}

// Of returns the rules of a tenant that are in force, nil where nothing is to be hidden.
func (f *File) Of(tenant string) *Rules {
	if f == nil {
		return nil
	}
	f.look()
	return f.now.Load().book.Of(tenant)
}

// Count reports what was hidden in events that are stored.
func (f *File) Count(tenant string, list []Hit) {
	if f == nil || f.cfg.Found == nil {
		return
	}
	for _, h := range list {
		if h.Count > 0 {
			f.cfg.Found(tenant, h.Rule, h.Count)
		}
	}
}

// Check reports whether the newest file could be read, for readiness.
func (f *File) Check(context.Context) error {
	if f == nil {
		return nil
	}
	f.look()
	return f.now.Load().broken
}

// look reads the file when it has changed, at most once in a while, and by one goroutine alone: no append waits for it.
func (f *File) look() {
	now := f.cfg.Now()
	if now.UnixNano() < f.next.Load() || !f.busy.CompareAndSwap(false, true) {
		return
	}
	defer f.busy.Store(false)
	f.next.Store(now.Add(f.cfg.Every).UnixNano())
	before := f.now.Load()
	after := f.read(*before)
	if b := after.broken; b != nil && (before.broken == nil || before.broken.Error() != b.Error()) {
		f.cfg.Logger.Error("redact: the file of rules cannot be read; the rules that were read before stay in force",
			"err", b)
	}
	if after.broken == nil && after.sum != before.sum {
		f.cfg.Logger.Info("redact: file of rules read again", "tenants", len(after.book.tenants))
	}
	f.now.Store(after)
}

// settled is the age from which a file's time distinguishes it from later states: clocks of file systems are coarse.
const settled = 2 * time.Second

// read reads the file, unless it is as it was.
func (f *File) read(before inForce) *inForce {
	next := &before
	next.broken = next.reload(f.cfg.Path)
	return next
}

// reload reads the file of rules. What was read before stays when that fails.
func (n *inForce) reload(path string) error {
	before := n.info
	n.info = nil
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("redact: file of rules: %w", err)
	}
	if before != nil && os.SameFile(info, before) && info.ModTime().Equal(before.ModTime()) && info.Size() == before.Size() {
		n.info = before
		return n.broken
	}
	text, err := readBounded(path)
	if err != nil {
		return fmt.Errorf("redact: file of rules: %w", err)
	}
	if time.Since(info.ModTime()) > settled {
		n.info = info
	}
	sum := sha256.Sum256(text)
	if n.book != nil && sum == n.sum {
		return nil
	}
	book, err := Parse(text)
	if err != nil {
		return fmt.Errorf("redact: file of rules %s: %w", path, err)
	}
	n.book, n.sum = book, sum
	return nil
}

// Load reads the rules of a file, once. The error wraps ErrRules when it holds something else.
func Load(path string) (*Book, error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("redact: file of rules: %w", err)
	}
	return Parse(text)
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxFile+1))
}

// Output hides in the output of a tool, which is to be kept apart from its event, what the rules of a tenant find. It
// returns the field of the event's envelope that says so, nil where nothing was found. It counts.
func (f *File) Output(tenant string, output []byte) (kept, field []byte) {
	kept, list := f.Of(tenant).Value(schema.TypeToolEnd, output)
	if len(list) == 0 {
		return output, nil
	}
	f.Count(tenant, list)
	return kept, addField(nil, list)
}
