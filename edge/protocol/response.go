package protocol

import (
	"net/http"
	"sync"
	"time"
)

// Response remembers what was sent. One goroutine uses it, but for StopReading.
type Response struct {
	http.ResponseWriter
	Status int
	Bytes  int64

	mu   sync.Mutex
	over bool // the handler returns
}

// StopReading lets what reads the request's body end with an error. It may be called at any time and from any
// goroutine: after Leave it does nothing, for nothing is behind the ResponseWriter then, and HTTP/2's panics.
func (w *Response) StopReading() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // it fails when the client is gone
	}
}

// Leave is called before the handler returns.
func (w *Response) Leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

func (w *Response) WriteHeader(status int) {
	if w.Status == 0 && status >= 200 {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *Response) Write(b []byte) (int, error) {
	if w.Status == 0 {
		w.Status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.Bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach deadlines and flushing.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
