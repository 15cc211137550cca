package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"
	"unicode/utf8"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/schema"
)

// letterJSON is a dead letter as one line of JSON. Text that JSON holds byte by byte is text; other bytes
// are base64 in the fields whose names end in so.
type letterJSON struct {
	ID         string              `json:"id"`
	Reason     string              `json:"reason"`
	Detail     string              `json:"detail"`
	Tenant     string              `json:"tenant,omitempty"`
	Run        string              `json:"run,omitempty"`
	Seq        schema.Seq          `json:"seq,omitempty"`
	Stream     string              `json:"stream"`
	Position   uint64              `json:"position"`
	Subject    string              `json:"subject"`
	Headers    map[string][]string `json:"headers,omitempty"`
	Headers64  []byte              `json:"headers_base64,omitempty"`
	Size       int                 `json:"size"`
	Body       *string             `json:"body,omitempty"`
	Body64     []byte              `json:"body_base64,omitempty"`
	StoredAt   time.Time           `json:"buried_at"`
	Tries      int                 `json:"tries"`
	TriedAt    *time.Time          `json:"tried_at,omitempty"`
	LastError  string              `json:"last_error,omitempty"`
	Stored     *string             `json:"stored,omitempty"`       // show: the line that is stored at this place
	StoredNote string              `json:"stored_error,omitempty"` // show: why that is not known
}

// letterToJSON leaves out a body that is nil: it was not asked for.
func letterToJSON(l *deadletter.Stored) letterJSON {
	j := letterJSON{
		ID: l.Name, Reason: l.Reason, Detail: l.Detail, Tenant: l.Key.Tenant, Run: l.Key.Run, Seq: l.Seq, Stream: l.Stream,
		Position: l.Position, Subject: l.Subject, Size: l.Size, StoredAt: l.Since, Tries: l.Tries, LastError: l.Error,
	}
	if !l.Tried.IsZero() {
		j.TriedAt = &l.Tried
	}
	if headers := l.HeaderBytes(); utf8.Valid(headers) {
		j.Headers = l.Header
	} else {
		j.Headers64 = headers
	}
	switch {
	case l.Body == nil:
	case utf8.Valid(l.Body):
		text := string(l.Body)
		j.Body = &text
	default:
		j.Body64 = l.Body
	}
	return j
}

func (j *letterJSON) letter() (l deadletter.Stored, err error) {
	if _, err := deadletter.IDs([]string{j.ID}); err != nil {
		return l, fmt.Errorf("id: %w", err)
	}
	l = deadletter.Stored{Name: j.ID, Size: j.Size, Since: j.StoredAt, Tries: j.Tries, Error: j.LastError, DeadLetter: persister.DeadLetter{
		Stream: j.Stream, Position: j.Position, Seq: j.Seq, Key: schema.RunKey{Tenant: j.Tenant, Run: j.Run}, Subject: j.Subject,
		Header: j.Headers, Body: j.Body64, Reason: j.Reason, Detail: j.Detail,
	}}
	if j.Headers64 != nil {
		l.Header = persister.ParseHeaderBytes(j.Headers64)
	}
	switch {
	case j.Body != nil && j.Body64 != nil:
		return l, errors.New("body and body_base64 are both there")
	case j.Body != nil:
		l.Body = []byte(*j.Body)
	case j.Body64 == nil:
		return l, errors.New("there is no body")
	}
	return l, nil
}

// writeDeadLetter writes one line.
func writeDeadLetter(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// maxLetterLine bounds a line of a file: a message of the log in base64, and what is said about it.
const maxLetterLine = 96 << 20

// readDeadLetters hands the letters of a file to fn in pages. An error names the line.
func readDeadLetters(r io.Reader, fn func([]deadletter.Stored) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLetterLine)
	var page []deadletter.Stored
	size, number := 0, 0
	for lines.Scan() {
		number++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var j letterJSON
		err := json.Unmarshal(lines.Bytes(), &j)
		if err == nil {
			var l deadletter.Stored
			l, err = j.letter()
			page = append(page, l)
			size += len(l.Body)
		}
		if err != nil {
			return fmt.Errorf("line %d: not a dead letter: %w", number, err)
		}
		if len(page) == letterPage || size >= letterPageBytes {
			if err := fn(page); err != nil {
				return err
			}
			page, size = nil, 0
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", number+1, err)
	}
	if len(page) == 0 {
		return nil
	}
	return fn(page)
}

// DeadLettersExportCmd writes dead letters as lines of JSON.
type DeadLettersExportCmd struct {
	DeadLetterStoreFlags
	DeadLetterFilter
	IDs    []string `arg:"" optional:"" name:"id" help:"Letters to export; none: all that the filters name."`
	Output string   `name:"output" short:"o" help:"File to write, which must not be there yet; - is the standard output." default:"-" placeholder:"FILE"`
}

// Run writes them. The letters stay.
func (c *DeadLettersExportCmd) Run(ctx context.Context, log *slog.Logger) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	if len(c.IDs) > 0 && !c.empty() {
		return errors.New("letters are named, or chosen by filters; not both")
	}
	s, closeStore, err := c.open(ctx, log)
	if err != nil {
		return err
	}
	defer closeStore()
	if len(c.IDs) > 0 {
		if q.Names, err = lettersNamed(ctx, s, c.IDs); err != nil {
			return err
		}
	}
	if c.Output == "-" {
		_, err = exportDeadLetters(ctx, s, q, c.out())
		if errors.Is(err, syscall.EPIPE) {
			return nil // the reader of our output has seen enough
		}
		return err
	}
	// A body may be anybody's text: the file is its owner's alone, and no file is written over.
	f, err := os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	n, err := exportDeadLetters(ctx, s, q, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("--output: after %d letters: %w", n, err)
	}
	fmt.Fprintf(c.err(), "agentstream: %d dead letters in %s\n", n, c.Output)
	return nil
}

func exportDeadLetters(ctx context.Context, s deadLetterArchive, q deadletter.Query, out io.Writer) (n int, err error) {
	w := bufio.NewWriter(out)
	err = eachPage(ctx, s, q, func(page []deadletter.Stored) error {
		for i := range page {
			if err := writeDeadLetter(w, letterToJSON(&page[i])); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	return n, err
}
