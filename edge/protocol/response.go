package protocol

import "net/http"

// Response remembers what was sent.
type Response struct {
	http.ResponseWriter
	Status int
	Bytes  int64
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
