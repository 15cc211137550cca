package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
)

// streamDepth is how many events of one stream may be unanswered, and streamBuffer how many bytes of them are sent
// together.
const (
	streamDepth  = 4096
	streamBuffer = 32 << 10
)

// streamer publishes lines of its runs in one request whose body stays open, and takes the receipts from its answer.
type streamer struct {
	answers *answers
	size    int
	conn    net.Conn
	body    io.Reader // of the answer
	heads   []string  // of lines, by run
	numbers map[string]int
	buf     []byte

	mu     sync.Mutex
	open   map[int][]unit // unanswered, by run, oldest first
	room   chan struct{}  // as many as may still be unanswered
	ended  chan struct{}
	failed error // set before ended is closed
}

func newStreamer(ctx context.Context, srv *server, cfg Config, a *answers) (*streamer, error) {
	conn, err := srv.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	resp, r, err := exchange(conn, srv.head("POST", "/v1/agent/events")+"Content-Type: "+ndjson+
		"\r\nTransfer-Encoding: chunked\r\n\r\n", http.StatusOK)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("publish: %w", err)
	}
	_ = resp // its body is read from r
	s := &streamer{answers: a, size: cfg.Size, conn: conn, body: httputil.NewChunkedReader(r),
		numbers: map[string]int{}, open: map[int][]unit{},
		room: make(chan struct{}, streamDepth), ended: make(chan struct{})}
	for i, name := range a.ledger.names {
		s.heads, s.numbers[name] = append(s.heads, `{"run_id":"`+name+`"`), i
	}
	go s.read()
	return s, nil
}

func (s *streamer) write(ctx context.Context, u unit) error {
	for range u.count {
		select {
		case s.room <- struct{}{}:
			continue
		default: // what is buffered must go out before its answers are waited for
		}
		if err := s.flush(); err != nil {
			return err
		}
		select {
		case s.room <- struct{}{}:
		case <-s.ended:
			return s.failed
		case <-ctx.Done():
			return fmt.Errorf("load: stopped: %w", context.Cause(ctx))
		}
	}
	s.mu.Lock()
	s.open[u.run] = append(s.open[u.run], u)
	s.mu.Unlock()
	for i := range u.count {
		s.buf = append(s.buf, s.heads[u.run]...)
		at := len(s.buf)
		s.buf = append(appendLine(s.buf, s.size, mark{due: u.due, run: u.run, n: u.first + int64(i)}), '\n')
		s.buf[at] = ',' // in place of its brace
	}
	if len(s.buf) >= streamBuffer {
		return s.flush()
	}
	return nil
}

// flush sends what is buffered as one chunk.
func (s *streamer) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	head := append(strconv.AppendInt(nil, int64(len(s.buf)), 16), "\r\n"...)
	s.buf = append(s.buf, "\r\n"...)
	parts := net.Buffers{head, s.buf}
	_, err := parts.WriteTo(s.conn)
	if s.buf = s.buf[:0]; err != nil {
		s.conn.Close()
		<-s.ended
		return errors.Join(s.failed, fmt.Errorf("publish: %w", err))
	}
	return nil
}

func (s *streamer) close(ctx context.Context) error {
	err := s.flush()
	if err == nil {
		_, err = s.conn.Write([]byte("0\r\n\r\n"))
	}
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	if err != nil {
		s.conn.Close()
	}
	<-s.ended
	s.conn.Close()
	for _, list := range s.open {
		for _, u := range list {
			s.answers.noteAnswer(u, errAbandoned)
		}
	}
	return s.failed
}

// read takes receipts until the answer ends.
func (s *streamer) read() {
	defer close(s.ended)
	r := bufio.NewReaderSize(s.body, 64<<10)
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && len(line) > 1 {
			err = s.readReceipt(line)
		}
		if err != nil {
			s.conn.Close()
			s.failed = fmt.Errorf("publish: the stream failed: %w", err)
			return
		}
	}
}

// readReceipt reads one receipt.
func (s *streamer) readReceipt(line []byte) error {
	var r struct {
		Run   string          `json:"run_id"`
		First int64           `json:"first_seq"`
		Last  int64           `json:"last_seq"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("%.300q: %w", line, err)
	}
	run, ok := s.numbers[r.Run]
	lines := int(r.Last - r.First + 1)
	var err error
	if r.Error != nil {
		lines, err = 1, fmt.Errorf("%w: %.300s", ErrRefused, r.Error)
	}
	if !ok {
		return fmt.Errorf("%w: %.300q", errAnswer, line)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for list := s.open[run]; lines > 0; list = s.open[run] {
		if len(list) == 0 {
			return fmt.Errorf("%w: more than was sent: %.300q", errAnswer, line)
		}
		u := list[0]
		u.count = min(u.count, lines)
		s.answers.noteAnswer(u, err)
		list[0].first += int64(u.count)
		list[0].count -= u.count
		if list[0].count == 0 {
			s.open[run] = list[1:]
		}
		for range u.count {
			<-s.room
		}
		lines -= u.count
	}
	return nil
}
