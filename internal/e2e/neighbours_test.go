package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// hmacSecret signs the tokens of devToken.
const hmacSecret = "e2e-secret-of-tokens-of-32-bytes-or-more"

// devToken makes a credential of a tenant that may do all but operate.
func devToken(t testing.TB, tenant string) string {
	t.Helper()
	now := time.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "agentstream", "aud": "agentstream", "sub": tenant, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"tenant": tenant, "scope": "read write command",
	}).SignedString([]byte(hmacSecret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// askAs asks with a credential. Without an answer the status is 0.
func askAs(t testing.TB, token, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	kind := "application/json"
	if strings.HasSuffix(req.URL.Path, "/events") && strings.HasPrefix(req.URL.Path, "/v1/agent/") {
		kind = "application/x-ndjson"
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// heavyReads are what one tenant reads of its large runs; %s is the run.
var heavyReads = []string{
	"/threads/%s/state", "/threads/%s", "/v1/agent/runs/%s/snapshot", "/api/v1/cloud/sessions/%s",
	"/api/v1/cloud/sessions/%s/events?limit=1000",
	"/metis/sessions/%s", "/metis/sessions/%s/messages", "/v1/agent/runs/%s/steps", "/v1/agent/runs/%s/events?limit=1000",
}

// neighbourAsks are what another tenant asks of a small run meanwhile, in this order: method, path, body.
var neighbourAsks = [][3]string{
	{"GET", "/threads/%s"}, {"GET", "/threads/%s/state"}, {"GET", "/api/v1/cloud/sessions/%s"},
	{"GET", "/api/v1/cloud/sessions/%s/events"}, {"GET", "/v1/agent/runs/%s/snapshot"}, {"GET", "/metis/sessions/%s"},
	{"GET", "/metis/sessions/%s/messages"},
	{"POST", "/v1/agent/runs/%s/answer", `{"request_id":"q","answer":"!"}`}, {"POST", "/v1/agent/runs/%s/pause"},
	{"POST", "/v1/agent/runs/%s/cancel"},
}

// TestNeighbours: while one tenant reads ten runs with 40,000 open calls each, thirteen requests at a time, another
// tenant's threads, sessions, snapshots, metis sessions and commands are answered. The long form holds their p99 to
// twice that of a quiet node; the short one has a tenth of the calls and looks only that nothing is refused.
func TestNeighbours(t *testing.T) {
	beside(t)
	runs, calls, lasts := 10, 4_000, 2*time.Second
	if long() {
		calls, lasts = 40_000, 15*time.Second
	}
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir(), "--hmac-secret", hmacSecret)
	p.start()
	large := make([]string, runs)
	for i := range large {
		large[i] = fmt.Sprint("run_large_", i)
		openCalls(t, p, devToken(t, "large"), large[i], calls)
	}
	quiet := neighbour(t, p, "quiet", lasts)
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	token, client := devToken(t, "large"), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 13}}
	defer client.CloseIdleConnections()
	read := make([]int, 13)
	before := cpuSeconds(p.cmd.Process.Pid, false)
	for w := range read {
		reading.Go(func() {
			for i := w; ctx.Err() == nil; i++ {
				path := fmt.Sprintf(heavyReads[i%len(heavyReads)], large[i/3%runs])
				if heavyRead(ctx, client, token, p.url(path)) == http.StatusOK {
					read[w]++
				}
			}
		})
	}
	defer reading.Wait()
	defer cancel()
	loaded := neighbour(t, p, "loaded", lasts)
	cpu := cpuSeconds(p.cmd.Process.Pid, false) - before
	cancel()
	reading.Wait()
	all := 0
	for _, n := range read {
		all += n
	}
	if all == 0 {
		t.Error("the large tenant has read nothing")
	}
	t.Logf("neighbours: the large tenant has read %d times; %.1f s of CPU in %v", all, cpu, lasts)
	for i := range neighbourAsks {
		compare(t, neighbourAsks[i][0]+" "+strings.TrimPrefix(neighbourAsks[i][1], "/v1/agent/runs/"), quiet[i], loaded[i])
	}
	ratio := compare(t, "all", slices.Concat(quiet...), slices.Concat(loaded...))
	if long() && ratio > 2 {
		t.Errorf("the neighbour's p99 is %.1f times that of a quiet node", ratio)
	}
}

// openCalls begins a run with calls that do not end.
func openCalls(t *testing.T, p *proc, token, run string, n int) {
	t.Helper()
	var body strings.Builder
	for i := range n {
		fmt.Fprintf(&body, `{"type":"tool.start","payload":{"call_id":"c%d","tool":"t"}}`+"\n", i)
		if i%1000 != 999 && i != n-1 {
			continue
		}
		if code, text := askAs(t, token, "POST", p.url("/v1/agent/runs/"+run+"/events"),
			body.String()); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
		body.Reset()
	}
}

func heavyRead(ctx context.Context, client *http.Client, token, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // it ends when the test does
	return resp.StatusCode
}

// neighbour asks for so long, and returns how long each kind of request took.
func neighbour(t *testing.T, p *proc, name string, lasts time.Duration) [][]time.Duration {
	t.Helper()
	token, took := devToken(t, "small"), make([][]time.Duration, len(neighbourAsks))
	end := time.Now().Add(lasts)
	for n := 0; time.Now().Before(end); n++ {
		run := fmt.Sprintf("run_%s_%d", name, n)
		code, text := askAs(t, token, "POST", p.url("/v1/agent/runs/"+run+"/events"), `{"type":"run.lifecycle","payload":{"state":"running"}}
{"type":"message.start","payload":{"message_id":"m","role":"assistant"}}
{"type":"text.delta","payload":{"text":"a"}}
{"type":"input.requested","payload":{"request_id":"q","question":"?"}}
`)
		if code != http.StatusOK {
			t.Errorf("%s: %d %s", run, code, text)
			return took
		}
		for i, ask := range neighbourAsks {
			began := time.Now()
			code, text := askAs(t, token, ask[0], p.url(fmt.Sprintf(ask[1], run)), ask[2])
			took[i] = append(took[i], time.Since(began))
			if code != http.StatusOK && code != http.StatusAccepted {
				t.Errorf("%s %s: %d %s", ask[0], fmt.Sprintf(ask[1], run), code, text)
			}
		}
	}
	return took
}

// compare prints two distributions and returns the ratio of their p99.
func compare(t *testing.T, what string, quiet, loaded []time.Duration) float64 {
	t.Helper()
	at := func(d []time.Duration, q float64) time.Duration {
		if len(d) == 0 {
			return 0
		}
		d = slices.Sorted(slices.Values(d))
		return d[int(float64(len(d)-1)*q)].Round(10 * time.Microsecond)
	}
	ratio := float64(at(loaded, 0.99)) / float64(max(at(quiet, 0.99), 1))
	t.Logf("neighbours: %-42s quiet p50 %8v p99 %8v (%d), loaded p50 %8v p99 %8v (%d), p99 × %.2f", what,
		at(quiet, 0.5), at(quiet, 0.99), len(quiet), at(loaded, 0.5), at(loaded, 0.99), len(loaded), ratio)
	return ratio
}
