package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

// poster publishes by pipelined POSTs on one connection: one goroutine writes requests, one reads the
// answers, which come in order (RFC 9112 §9.3.2).
type poster struct {
	answers *answers
	conn    net.Conn
	out     *bufio.Writer
	heads   []string // of requests, by run
	size    int
	body    []byte
	open    chan unit // written and unanswered, oldest first; its capacity is the depth
	ended   chan struct{}
	failed  error // set before ended is closed
	closing sync.Once
}

// requestHeads begin the POSTs of all runs, up to the length.
func requestHeads(srv *server, runs []string) []string {
	heads := make([]string, len(runs))
	for i, run := range runs {
		heads[i] = srv.head("POST", pathOf(run)+"/events") + "Content-Type: " + ndjson + "\r\nContent-Length: "
	}
	return heads
}

func newPoster(ctx context.Context, srv *server, cfg Config, heads []string, a *answers) (*poster, error) {
	conn, err := srv.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	p := &poster{answers: a, conn: conn, out: bufio.NewWriterSize(conn, 64<<10), size: cfg.Size,
		heads: heads, open: make(chan unit, cfg.Depth), ended: make(chan struct{})}
	go p.read()
	return p, nil
}

func (p *poster) write(ctx context.Context, u unit) error {
	select {
	case p.open <- u:
	default: // what is buffered must go out before its answers are waited for
		if err := p.flush(); err != nil {
			return err
		}
		select {
		case p.open <- u:
		case <-p.ended:
			return p.failed
		case <-ctx.Done():
			return fmt.Errorf("load: stopped: %w", context.Cause(ctx))
		}
	}
	p.body = p.body[:0]
	for i := range u.count {
		p.body = append(appendLine(p.body, p.size, mark{due: u.due, run: u.run, n: u.first + int64(i)}), '\n')
	}
	var length [20]byte
	p.out.WriteString(p.heads[u.run])
	p.out.Write(strconv.AppendInt(length[:0], int64(len(p.body)), 10))
	p.out.WriteString("\r\n\r\n")
	if _, err := p.out.Write(p.body); err != nil { // it keeps the first error
		return p.explainBreak(err)
	}
	return nil
}

func (p *poster) flush() error {
	if err := p.out.Flush(); err != nil {
		return p.explainBreak(err)
	}
	return nil
}

// explainBreak returns the reader's error where there is one: it says why the connection ended.
func (p *poster) explainBreak(err error) error {
	p.conn.Close()
	<-p.ended
	return errors.Join(p.failed, fmt.Errorf("publish: %w", err))
}

func (p *poster) close(ctx context.Context) error {
	p.closing.Do(func() { close(p.open) })
	if err := p.out.Flush(); err != nil {
		p.conn.Close()
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.conn.Close()
		<-p.ended
	}
	p.conn.Close()
	for u := range p.open {
		p.answers.noteAnswer(u, errAbandoned)
	}
	return p.failed
}

// read takes answers until the writer closes or the connection fails. What is then open, close abandons.
func (p *poster) read() {
	defer close(p.ended)
	r := bufio.NewReaderSize(p.conn, 16<<10)
	var body []byte
	for u := range p.open {
		status, text, err := readAnswer(r, body[:0])
		switch {
		case err != nil:
			p.conn.Close()
			p.answers.noteAnswer(u, errAbandoned)
			p.failed = fmt.Errorf("publish: the connection failed: %w", err)
			return
		case status/100 != 2:
			p.answers.noteAnswer(u, fmt.Errorf("%w: status %d: %.300s", ErrRefused, status, text))
		default:
			p.answers.noteAnswer(u, nil)
		}
		body = text
	}
}

var errAnswer = errors.New("load: malformed response")

// readAnswer reads one response (RFC 9112 §6): all that is needed of it, without net/http's header
// map. The body is appended to body.
func readAnswer(r *bufio.Reader, body []byte) (status int, text []byte, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, body, err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.")) || len(line) < 12 {
		return 0, body, fmt.Errorf("%w: %.40q", errAnswer, line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, body, fmt.Errorf("%w: %.40q", errAnswer, line)
	}
	length, coded := 0, false
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return 0, body, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil || length < 0 || length > maxBody {
				return 0, body, fmt.Errorf("%w: length %q", errAnswer, value)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			coded = true
		}
	}
	if coded {
		err = readChunks(r, &body)
		return status, body, err
	}
	from := len(body)
	body = append(body, make([]byte, length)...)
	_, err = io.ReadFull(r, body[from:])
	return status, body, err
}

// readChunks reads a chunked body to its end.
func readChunks(r *bufio.Reader, body *[]byte) error {
	c := &chunked{}
	for {
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		err = c.feed([]byte{b}, func(p []byte) { *body = append(*body, p...) })
		if errors.Is(err, errEnded) { // the empty line behind the last chunk; servers of ours send no trailer
			_, err = r.ReadSlice('\n')
			return err
		}
		if err != nil {
			return err
		}
	}
}
