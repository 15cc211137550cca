package sink

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentstream/tap"
)

// lines writes each event as one line of JSON: the event with its tenant as the first member. A file is rotated by
// size.
type lines struct {
	path string // "": out is the standard output
	most int64  // bytes of a file; 0: no bound
	keep int    // older files; 0: all

	mu   sync.Mutex
	out  io.Writer
	file *os.File
	size int64
	buf  []byte
}

func openLines(_ context.Context, u *url.URL, o Options) (tap.Receiver, error) {
	if u.Scheme == "stdout" {
		if o.Stdout == nil {
			return nil, errors.New("there is no standard output")
		}
		return &lines{out: o.Stdout}, checkQuery(u.Query())
	}
	q := u.Query()
	if err := checkQuery(q, "rotate", "keep"); err != nil {
		return nil, err
	}
	path := cmp.Or(u.Opaque, u.Path)
	if path == "" || u.Host != "" {
		return nil, errors.New("want file:PATH or file:///PATH")
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return nil, err
	}
	l := &lines{path: path}
	if text := q.Get("rotate"); text != "" {
		mib, err := strconv.ParseInt(strings.TrimSuffix(text, "MiB"), 10, 64)
		if err != nil || mib < 1 || mib > 1<<20 {
			return nil, fmt.Errorf("rotate %.20q: want a size such as 64MiB", text)
		}
		l.most = mib << 20
	}
	if text := q.Get("keep"); text != "" {
		if l.keep, err = strconv.Atoi(text); err != nil || l.keep < 1 {
			return nil, fmt.Errorf("keep %.20q: want a number of files", text)
		}
	}
	return l, l.open()
}

// open opens the file, and removes what a crash has left of a line.
func (l *lines) open() error {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	size, err := wholeLines(f)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		_, err = f.Seek(size, io.SeekStart)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.out, l.size = f, f, size
	return nil
}

// wholeLines returns the size of a file up to its last line feed.
func wholeLines(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 64<<10)
	for end := info.Size(); end > 0; {
		n := min(int64(len(buf)), end)
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}

// Write implements tap.Receiver. The batch is on the disk when it returns.
func (l *lines) Write(_ context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path != "" && l.file == nil {
		if err := l.open(); err != nil {
			return nil, err
		}
	}
	l.buf = l.buf[:0]
	for i := range batch {
		l.buf = append(batch[i].WithTenant(l.buf), '\n')
	}
	n, err := l.out.Write(l.buf)
	l.size += int64(n)
	if cap(l.buf) > mostBuffer {
		l.buf = nil
	}
	if err == nil && l.file != nil {
		err = l.file.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, l.drop())
	}
	if l.most > 0 && l.size >= l.most {
		return nil, l.rotate()
	}
	return nil, nil
}

// mostBuffer is the largest buffer that is used again, in bytes.
const mostBuffer = 4 << 20

// drop closes the file after a failure: it is opened again at its last whole line.
func (l *lines) drop() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file, l.out = nil, nil
	return f.Close()
}

// rotate renames the file by the time, and removes the oldest.
func (l *lines) rotate() error {
	err := l.drop()
	if err == nil {
		err = os.Rename(l.path, l.path+"."+time.Now().UTC().Format("20060102T150405.000000000"))
	}
	if err != nil || l.keep == 0 {
		return err
	}
	older, err := filepath.Glob(escapeGlob(l.path) + ".[0-9]*T*")
	if err != nil {
		return err
	}
	slices.Sort(older)
	for _, path := range older[:max(0, len(older)-l.keep)] {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// escapeGlob returns a pattern that matches a path alone.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// Close implements tap.Receiver.
func (l *lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drop()
}
