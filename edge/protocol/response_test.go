package protocol

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestStopReadingOfWhatIsOver: the reading of a request that is over may be stopped: a timer may fire while its handler
// returns, and a panic there would end the process.
func TestStopReadingOfWhatIsOver(t *testing.T) {
	made := make(chan *Response, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r := &Response{ResponseWriter: w}
		defer r.Leave()
		r.WriteHeader(http.StatusNoContent)
		r.StopReading()
		made <- r
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	server.Close() // the handler has returned
	if resp.ProtoMajor != 2 {
		t.Fatalf("HTTP/%d", resp.ProtoMajor)
	}
	(<-made).StopReading()
}
