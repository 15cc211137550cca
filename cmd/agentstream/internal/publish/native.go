package publish

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// nativeEvents reads NDJSON, JSON arrays, or JSON objects printed over several lines, as a stream. Bytes
// within events are not touched.
func nativeEvents(ctx context.Context, p *publishing, in *opened, out emit) error {
	lines := &lineReader{r: bufio.NewReader(in)}
	array, err := lines.isArray()
	if err != nil {
		return &badInput{in.name, 0, err}
	}
	dec := json.NewDecoder(lines)
	if array {
		if _, err := dec.Token(); err != nil {
			return &badInput{in.name, 0, err}
		}
	}
	for !array || dec.More() { // of a list that is cut short there is no more either
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) && !array {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if errors.Is(err, io.EOF) { // after a comma
				err = io.ErrUnexpectedEOF
			}
			row := lines.next(dec.InputOffset())
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				row = lines.line(syntax.Offset)
			}
			return &badInput{in.name, row, err}
		}
		end := dec.InputOffset()
		it := item{file: in.name, row: lines.line(end - int64(len(raw)))}
		lines.forget(end)
		if it.line, it.at, err = p.prepare(raw); err != nil {
			return &badInput{in.name, it.row, err}
		}
		if err := out(it); err != nil {
			return err
		}
	}
	return p.listEnd(ctx, in, lines, dec)
}

// listEnd looks for the end of a list, and for nothing behind it.
func (p *publishing) listEnd(ctx context.Context, in *opened, lines *lineReader, dec *json.Decoder) error {
	_, err := dec.Token()
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("something follows the list of events")
	} else if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &badInput{in.name, lines.line(dec.InputOffset()), err}
}

// badInput is where a file cannot be read. All of them are malformed, for whoever sends it.
type badInput struct {
	file string
	row  int // from 1; 0 where nobody knows
	err  error
}

func (e *badInput) Error() string {
	if e.row == 0 {
		return fmt.Sprintf("%s: %v", e.file, e.err)
	}
	if errors.Is(e.err, schema.ErrMalformed) {
		return fmt.Sprintf("%s:%d: %s: %v", e.file, e.row, schema.CodeMalformed, e.err)
	}
	return fmt.Sprintf("%s:%d: %s: %v: %v", e.file, e.row, schema.CodeMalformed, schema.ErrMalformed, e.err)
}

func (e *badInput) Unwrap() error { return e.err }

// prepare makes an event a line that the server takes. It looks at nothing that the server judges
// except the size, which also bounds what is sent.
func (p *publishing) prepare(raw json.RawMessage) (line []byte, at time.Time, err error) {
	if raw[0] != '{' {
		return nil, at, fmt.Errorf("not an object: %w", schema.ErrMalformed)
	}
	slim, _ := schema.Move(raw) // the server moves a large output into a blob; what is left must be an event
	if len(slim) > schema.MaxEventBytes {
		return nil, at, fmt.Errorf("%d bytes, %d allowed: %w", len(slim), schema.MaxEventBytes, schema.ErrTooLarge)
	}
	if bytes.IndexByte(raw, '\n') >= 0 || bytes.IndexByte(raw, '\r') >= 0 {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return nil, at, fmt.Errorf("%w: %w", schema.ErrMalformed, err)
		}
		raw = b.Bytes()
	}
	if p.cmd.Child != "" {
		raw = withChild(raw, p.cmd.Child)
	}
	if p.cmd.Pace == "original" {
		var e struct {
			TS any `json:"ts"`
		}
		if json.Unmarshal(raw, &e) == nil {
			if s, ok := e.TS.(string); ok {
				at, _ = time.Parse(time.RFC3339Nano, s) // the server reports what is wrong with it
			}
		}
	}
	return raw, at, nil
}

// withChild names the child of an event that names none. raw is a valid object.
func withChild(raw json.RawMessage, child string) json.RawMessage {
	if v := schema.Field(raw, "child_id"); v != nil && string(v) != "null" {
		return raw
	}
	return json.RawMessage(jsonscan.Object("{").Str("child_id", child).Members(raw, "child_id").End())
}

// lineReader counts lines under a decoder that reads ahead.
type lineReader struct {
	r      *bufio.Reader
	read   int64   // bytes handed to the decoder
	taken  int64   // bytes that events were made of
	before int     // line feeds before breaks[0]
	breaks []int64 // offsets of line feeds that may still be asked for
	blank  bool    // nothing but space has come since the last line feed
	starts []int64 // offsets of the first byte that is no space, for each line that has one
}

// isArray looks at the first byte that is no space, and passes over a byte order mark.
func (l *lineReader) isArray() (bool, error) {
	if b, _ := l.r.Peek(3); string(b) == "\xef\xbb\xbf" {
		l.r.Discard(3)
	}
	for n := 1; ; n++ {
		b, err := l.r.Peek(n)
		if len(b) < n {
			if errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrBufferFull) {
				return false, nil
			}
			return false, err
		}
		if c := b[n-1]; c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c == '[', nil
		}
	}
}

// Read notes line feeds on their way. It refuses to read far beyond the last event.
func (l *lineReader) Read(b []byte) (int, error) {
	if l.read-l.taken > cli.MaxAhead {
		return 0, fmt.Errorf("over %d bytes: %w", cli.MaxAhead, schema.ErrTooLarge)
	}
	n, err := l.r.Read(b)
	if l.read == 0 {
		l.blank = true
	}
	for i, c := range b[:n] {
		switch {
		case c == '\n':
			l.breaks, l.blank = append(l.breaks, l.read+int64(i)), true
		case l.blank && c != ' ' && c != '\t' && c != '\r':
			l.starts, l.blank = append(l.starts, l.read+int64(i)), false
		}
	}
	l.read += int64(n)
	return n, err
}

// line returns the line of an offset that done has not passed.
func (l *lineReader) line(offset int64) int {
	n := l.before + 1
	for _, at := range l.breaks {
		if at >= offset {
			break
		}
		n++
	}
	return n
}

// next returns the line where something begins after an offset: that of a value that has no end.
func (l *lineReader) next(offset int64) int {
	for _, at := range l.starts {
		if at >= offset {
			return l.line(at)
		}
	}
	return l.line(offset)
}

// forget forgets lines before an offset.
func (l *lineReader) forget(offset int64) {
	for len(l.starts) > 0 && l.starts[0] < offset {
		l.starts = l.starts[1:]
	}
	l.taken = offset
	i := 0
	for i < len(l.breaks) && l.breaks[i] < offset {
		i++
	}
	l.before += i
	l.breaks = l.breaks[i:]
}
