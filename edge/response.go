package edge

import "net/http"

// response remembers what was sent.
type response struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach deadlines and flushing.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
