package sse

import (
	"net/http"
	"strings"
	"testing"
)

// TestDirectToNode: Node's fetch is not told that the connection closes, by which it would take a stream that is cut
// for a whole one.
func TestDirectToNode(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		asked http.Header
		want  string
	}{
		{http.Header{}, "Connection: close\r\n"},
		{http.Header{"Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Site": {"same-site"}}, "Connection: close\r\n"},
		{http.Header{"Sec-Fetch-Mode": {"cors"}}, "Keep-Alive: timeout=1\r\n"},
	} {
		head := string(tr.appendHead(http.Header{}, c.asked, Plain.ready()))
		if !strings.Contains(head, c.want) || strings.Contains(head, "Connection:") == strings.Contains(head, "Keep-Alive:") {
			t.Errorf("%v: %s", c.asked, head)
		}
	}
}
