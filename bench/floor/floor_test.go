package floor

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is acknowledged has been written to who watches, in the order of its run, and lies in the archive at the end.
func TestEventsAreServedAndStored(t *testing.T) {
	data, url, end := begin(t)
	watched := do(t, http.MethodGet, url+"/v1/agent/runs/a/stream", "", http.StatusOK)
	frames := bufio.NewReader(watched.Body)
	wantNext := func(first, last int, text string) {
		t.Helper()
		for seq := first; seq <= last; seq++ {
			want := fmt.Sprintf("id: %d\ndata: %s\n\n", seq, fmt.Sprintf(text, seq))
			got := make([]byte, len(want))
			if _, err := io.ReadFull(frames, got); err != nil || string(got) != want {
				t.Fatalf("frame %q, %v, want %q", got, err, want)
			}
		}
	}
	do(t, http.MethodPost, url+"/v1/agent/runs/a/events", "{\"n\":1}\n{\"n\":2}\n", http.StatusNoContent)
	wantNext(1, 2, `{"n":%d}`)
	var lines strings.Builder
	const all = 500
	for n := 3; n <= all; n++ {
		fmt.Fprintf(&lines, "{\"run_id\":\"a\",\"n\":%d}\n{\"run_id\":\"b%d\"}\n", n, n%40)
	}
	answer, err := io.ReadAll(do(t, http.MethodPost, url+"/v1/agent/events", lines.String(), http.StatusOK).Body)
	if err != nil {
		t.Fatal(err)
	}
	receipts := strings.Count(string(answer), "\n")
	if of := strings.Count(lines.String(), "\n"); receipts != of ||
		!strings.Contains(string(answer), `{"line":1,"run_id":"a","first_seq":3,"last_seq":3}`+"\n") {
		t.Fatalf("%d receipts of %d lines: %.300s", receipts, of, answer)
	}
	wantNext(3, all, `{"run_id":"a","n":%d}`)
	end()
	db, err := sql.Open("sqlite", filepath.Join(data, "archive.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows, last, positions int
	if err := db.QueryRow(`select count(*), max(seq) filter (where run = 'a' and line like '%"n":' || seq || '}'), (select sum(position) from positions)
		from events`).Scan(&rows, &last, &positions); err != nil {
		t.Fatal(err)
	}
	if want := 2 + receipts; rows != want || last != all || positions != want {
		t.Errorf("%d rows, the last of a run %d, positions %d; want %d, %d, %d", rows, last, positions, want, all, want)
	}
}

// begin serves until end is called.
func begin(t *testing.T) (data, url string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	data = t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, data) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	t.Cleanup(end)
	return data, "http://" + l.Addr().String(), end
}

func do(t *testing.T, method, url, body string, want int) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != want {
		t.Fatalf("%s %s: %s", method, url, resp.Status)
	}
	return resp
}
