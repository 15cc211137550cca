package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// hookSecret signs webhooks.
const hookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

// hookReport is what a receiver says came.
type hookReport struct {
	Bad, Failed, Twice int
	Runs               map[string][]int // the numbers of events, in the order in which they came first
}

func (r *hookReport) events() (n int) {
	for _, list := range r.Runs {
		n += len(list)
	}
	return n
}

// startReceiver starts a receiver that prints its port, and returns its address.
func startReceiver(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Env = append(os.Environ(), "SECRET="+hookSecret)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + strings.TrimSpace(port)
}

// reportOf asks a receiver what came.
func reportOf(t *testing.T, address string) (r hookReport) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/report")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// writeTexts writes events of 100 runs to the log.
func writeTexts(t *testing.T, k *testkit.Server, events int) {
	t.Helper()
	runs := make([]*persistertest.Writer, 100)
	for i := range runs {
		runs[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}, "20260228")
	}
	for i := range events / 5 {
		p := runs[i%len(runs)].Texts("", 5)
		subject := schema.Subject(p.Key, "", k.Partitions)
		if _, err := k.JS.PublishMsgAsync(&nats.Msg{Subject: subject, Header: p.Headers(), Data: p.Body}); err != nil {
			t.Fatal(err)
		}
	}
	<-k.JS.PublishAsyncComplete()
}

// TestWebhookLibraries: receivers in Node and Python check each signature by the library of Standard Webhooks, and fail a
// third of all requests. They get each event, those of a run in order. AGENTSTREAM_DELIVERIES is how many.
func TestWebhookLibraries(t *testing.T) {
	beside(t)
	want := 500
	if s := os.Getenv("AGENTSTREAM_DELIVERIES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 500 {
			t.Fatalf("AGENTSTREAM_DELIVERIES=%q", s)
		}
		want = n / 500 * 500
	}
	k := testkit.NATS(t)
	writeTexts(t, k, want)
	inNode := exec.Command(program(t, "node"), "webhook.mjs")
	inNode.Dir = jsDir
	needPython(t)
	inPython := pythonScript(t.Context(), "webhook.py")
	for name, cmd := range map[string]*exec.Cmd{"node": inNode, "python": inPython} {
		t.Run(name, func(t *testing.T) {
			address := startReceiver(t, cmd)
			p := newProc(t, "tap", "--nats", k.Server.ClientURL(), "--name", name, "--allow-private",
				"--to", "webhook+http://"+address+"/hook")
			p.env = []string{"AGENTSTREAM_TAP_WEBHOOK_SECRET=" + hookSecret}
			began := time.Now()
			p.start()
			var report hookReport
			eventually(t, 10*time.Minute, "all deliveries", func() bool {
				report = reportOf(t, address)
				return report.events() >= want
			})
			for run, seqs := range report.Runs {
				for i, seq := range seqs {
					if seq != i+1 {
						t.Fatalf("%s came as %v", run, seqs)
					}
				}
			}
			if report.events() != want || report.Bad > 0 || report.Failed < want/4 {
				t.Errorf("%d events of %d, %d bad signatures, %d failed", report.events(), want, report.Bad, report.Failed)
			}
			t.Logf("%s: %d events of %d runs in order in %v; %d requests failed, %d came twice, no bad signature", name,
				report.events(), len(report.Runs), time.Since(began).Round(time.Second), report.Failed, report.Twice)
		})
	}
}
