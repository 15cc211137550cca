package floor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Serve takes over a listener and keeps log and archive in a folder that has neither yet. It ends with ctx.
func Serve(ctx context.Context, listener net.Listener, data string) error {
	defer func() { _ = listener.Close() }() // the server has closed it, once there is one
	easeMonitor()
	l, err := openLog(ctx, filepath.Join(data, "nats"))
	if err != nil {
		return fmt.Errorf("floor: log: %w", err)
	}
	defer l.close()
	a, err := openArchive(ctx, l, filepath.Join(data, "archive.db"))
	if err != nil {
		return fmt.Errorf("floor: archive: %w", err)
	}
	s := &server{log: l, runs: map[string]*run{}, seed: maphash.MakeSeed()}
	defer s.hangUp()
	web := &http.Server{Handler: s.routes()}
	g, ending := errgroup.WithContext(ctx)
	over, published := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return a.run(over) })
	g.Go(func() error {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		defer published()
		<-ending.Done()
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if web.Shutdown(brief) != nil { // a request goes on
			return web.Close()
		}
		return nil
	})
	return g.Wait()
}

// easeMonitor is that of cmd/agentstream/internal/process: the first thread that the runtime begins may wake up a
// millisecond late. Nothing happens where there is no proc(5), or without the right to do so.
func easeMonitor() {
	threads, _ := os.ReadDir("/proc/self/task")
	first := 0
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil && id > os.Getpid() && (first == 0 || id < first) {
			first = id
		}
	}
	_ = os.WriteFile("/proc/"+strconv.Itoa(first)+"/timerslack_ns", []byte("1000000"), 0) // see above
}

type server struct {
	log  *eventLog
	seed maphash.Seed
	mu   sync.RWMutex
	runs map[string]*run
}

// run is locked while an event is stored and written, so that its events have one order.
type run struct {
	id, subject string
	mu          sync.Mutex
	stored      uint64 // position of its last event in the log
	seq         int64
	frame       []byte // of the last event, to be used again
	watchers    []net.Conn
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("PUT /v1/agent/runs/{run}",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	mux.HandleFunc("POST /v1/agent/runs/{run}/events", s.post)
	mux.HandleFunc("GET /v1/agent/runs/{run}/stream", s.watch)
	mux.HandleFunc("POST /v1/agent/events", s.stream)
	return mux
}

// find returns a run, which exists from then on.
func (s *server) find(id []byte) *run {
	s.mu.RLock()
	r := s.runs[string(id)]
	s.mu.RUnlock()
	if r != nil {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := string(id)
	r = cmp.Or(s.runs[name], &run{id: name, subject: s.log.subject(name)})
	s.runs[name] = r
	return r
}

func (s *server) post(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r := s.find([]byte(q.PathValue("run")))
	for line := range bytes.Lines(body) {
		if _, err := s.publish(r, line); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// publish stores an event and writes it to those who watch its run, as a chunk of their answer.
func (s *server) publish(r *run, line []byte) (seq int64, err error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stored, err = s.log.append(r.subject, line, r.stored); err != nil {
		return 0, err
	}
	r.seq++
	var number [20]byte
	id := strconv.AppendInt(number[:0], r.seq, 10)
	f := strconv.AppendInt(r.frame[:0], int64(len("id: \ndata: \n\n")+len(id)+len(line)), 16)
	f = append(append(f, "\r\nid: "...), id...)
	f = append(append(f, "\ndata: "...), line...)
	f = append(f, "\n\n\r\n"...)
	r.frame = f
	for i, conn := range r.watchers {
		if conn == nil {
			continue
		}
		if _, err := conn.Write(f); err != nil {
			_ = conn.Close() // it is gone
			r.watchers[i] = nil
		}
	}
	return r.seq, nil
}

// watch leaves the connection to whoever publishes. What is published after its head has come is written to it.
func (s *server) watch(w http.ResponseWriter, q *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	r := s.find([]byte(q.PathValue("run")))
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	r.watchers = append(r.watchers, conn)
}

func (s *server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		r.mu.Lock()
		for _, conn := range r.watchers {
			if conn != nil {
				_ = conn.Close()
			}
		}
		r.watchers = nil
		r.mu.Unlock()
	}
}

// appenders is how many events of one publish stream are stored at a time.
const appenders = 4

type streamed struct {
	number int64
	run    *run
	line   []byte
}

// stream stores lines as they come; those of a run go one way and keep their order.
func (s *server) stream(w http.ResponseWriter, q *http.Request) {
	control := http.NewResponseController(w)
	if err := control.EnableFullDuplex(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	_ = control.Flush()
	receipts := &receipts{w: w, control: control}
	var group sync.WaitGroup
	var ways [appenders]chan streamed
	for i := range ways {
		ways[i] = make(chan streamed, 1024)
		group.Go(func() {
			for l := range ways[i] {
				seq, err := s.publish(l.run, l.line)
				receipts.add(l, seq, err)
			}
		})
	}
	in := bufio.NewReaderSize(q.Body, 64<<10)
	for n := int64(1); ; n++ {
		line, err := in.ReadSlice('\n')
		if err != nil {
			break // the end, or the client is gone
		}
		id, _, _ := bytes.Cut(bytes.TrimPrefix(line, []byte(`{"run_id":"`)), []byte(`"`))
		receipts.open.Add(1)
		ways[maphash.Bytes(s.seed, id)%appenders] <- streamed{n, s.find(id), bytes.Clone(line)}
	}
	for _, way := range ways {
		close(way)
	}
	group.Wait()
}

// receipts are sent together while other lines are on their way, and held back for a millisecond at most.
type receipts struct {
	open    atomic.Int64 // lines without a receipt
	mu      sync.Mutex
	w       io.Writer
	control *http.ResponseController
	text    []byte
	since   time.Time
}

func (r *receipts) add(l streamed, seq int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.text) == 0 {
		r.since = time.Now()
	}
	if err != nil {
		r.text = fmt.Appendf(r.text, `{"line":%d,"run_id":%q,"error":{"message":%q,"status":503}}`+"\n", l.number,
			l.run.id, err)
	} else {
		r.text = fmt.Appendf(r.text, `{"line":%d,"run_id":%q,"first_seq":%d,"last_seq":%[3]d}`+"\n", l.number, l.run.id, seq)
	}
	if r.open.Add(-1) == 0 || time.Since(r.since) > time.Millisecond {
		_, _ = r.w.Write(r.text) // a client that is gone ends the reading as well
		_ = r.control.Flush()
		r.text = r.text[:0]
	}
}
