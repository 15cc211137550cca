package e2e_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/testkit"
)

// drill is a deployment of one NATS server, PostgreSQL, a folder of objects, a persister and an edge, of which
// something is taken away.
type drill struct {
	t       *testing.T
	nats    *natsProc // nil: a cluster
	natsURL string
	dsn     string
	blobs   string
	per     *role
	edge    *role
	told    map[string][]string // lines that were served before, by run
	began   time.Time           // of the way back
}

// drillRuns is how many runs a drill has of each kind.
func drillRuns() int {
	if long() {
		return 200
	}
	return 3
}

func newDrill(t *testing.T) *drill {
	t.Helper()
	beside(t)
	n := startNATS(t, t.TempDir())
	d := &drill{t: t, nats: n, natsURL: n.url(), dsn: testkit.GiveToOwner(t, testkit.Postgres(t)),
		blobs: filepath.Join(t.TempDir(), "blobs"), told: make(map[string][]string)}
	migrate(t, d.dsn, d.natsURL, "--window", "1h")
	d.roles()
	d.start()
	return d
}

// start starts the persister and then the edge, and returns when both are ready.
func (d *drill) start() {
	d.t.Helper()
	for _, r := range []*role{d.per, d.edge} {
		r.start()
		r.await(d.t)
	}
}

// roles describes the roles on the database of the moment.
func (d *drill) roles() {
	objects := []string{"--blobs", d.blobs}
	d.per = newRole(d.t, "persist", d.natsURL, d.dsn,
		append(objects, "--archive-settle", "0s", "--linger", "100ms", "--reap-after", "0s", "--reap-unowned-after", "0s")...)
	d.edge = newRole(d.t, "edge", d.natsURL, d.dsn, objects...)
}

func (d *drill) stop() {
	d.edge.end(syscall.SIGTERM)
	d.per.end(syscall.SIGTERM)
}

func (d *drill) run(name string) string { return "http://" + d.edge.addr + "/v1/agent/runs/" + name }

const (
	drillText = `{"type":"text.delta","payload":{"text":"%d"}}` + "\n"
	drillEnd  = `{"type":"run.lifecycle","payload":{"state":"done"}}` + "\n"
)

// append appends lines and returns the status and the answer.
func (d *drill) append(run, body string) (int, string) {
	d.t.Helper()
	resp, err := http.Post(d.run(run)+"/events", "application/x-ndjson", strings.NewReader(body))
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

// tell appends n events to a run, and its end, and remembers what is served of it.
func (d *drill) tell(run string, n int, ends bool) {
	d.t.Helper()
	var body strings.Builder
	for i := range n {
		fmt.Fprintf(&body, drillText, i)
	}
	if ends {
		body.WriteString(drillEnd)
	}
	if code, text := d.append(run, body.String()); code != http.StatusOK {
		d.t.Fatalf("%s: %d %s", run, code, text)
	}
	d.told[run] = events(d.t, d.run(run))
}

// stored waits until everything is stored.
func (d *drill) stored() {
	d.t.Helper()
	eventually(d.t, 60*time.Second, "everything is stored", func() bool {
		left, err := pending(d.t.Context(), d.natsURL, d.dsn)
		return err == nil && left == 0
	})
}

// archived waits until there are objects of all of the runs.
func (d *drill) archived(runs ...string) {
	d.t.Helper()
	eventually(d.t, 120*time.Second, "objects of "+strings.Join(runs, ", "), func() bool {
		return !slices.ContainsFunc(runs, func(run string) bool {
			found, err := filepath.Glob(filepath.Join(d.blobs, "*", "*", run+".*.jsonl.zst"))
			return err != nil || len(found) == 0
		})
	})
}

// aged waits until the log has dropped everything that it holds now.
func (d *drill) aged() {
	d.t.Helper()
	migrate(d.t, d.dsn, d.natsURL, "--window", "1s")
	defer migrate(d.t, d.dsn, d.natsURL, "--window", "1h")
	eventually(d.t, 60*time.Second, "the window is over", func() bool {
		n := uint64(0)
		eachStream(d.t, d.natsURL, func(s jetstream.Stream) { n += s.CachedInfo().State.Msgs })
		return n == 0
	})
}

// command runs the program.
func (d *drill) command(args ...string) (out string, status int) {
	d.t.Helper()
	path, err := binary()
	if err != nil {
		d.t.Fatal(err)
	}
	cmd := command(path, args...)
	cmd.Env = append(os.Environ(), "AGENTSTREAM_POSTGRES="+d.dsn, "AGENTSTREAM_BLOBS="+d.blobs,
		"AGENTSTREAM_NATS="+d.natsURL)
	b, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// doctor runs it, and holds it to a status and to words.
func (d *drill) doctor(status int, words ...string) {
	d.t.Helper()
	out, code := d.command("doctor")
	if code != status || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(out, w) }) {
		d.t.Errorf("doctor: status %d, want %d and %q:\n%s", code, status, words, out)
	}
}

// served compares what is served with what was told, and returns the number of events that are lost.
func (d *drill) served(runs ...string) (lost int) {
	d.t.Helper()
	for _, run := range runs {
		now := served(d.t, "http://"+d.edge.addr, run)
		want := d.told[run]
		if !slices.Equal(now, want[:min(len(now), len(want))]) {
			d.t.Errorf("%s: other events are served than before", run)
		}
		lost += len(want) - len(now)
	}
	return lost
}

// report prints what was lost and how long the way back took.
func (d *drill) report(what string, lost int) {
	all := 0
	for _, lines := range d.told {
		all += len(lines)
	}
	d.t.Logf("drill: %-34s RPO %d of %d acknowledged events, RTO %.1f s", what, lost, all, time.Since(d.began).Seconds())
}

func names(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

// endedRuns publishes runs that end, and returns their ids.
func (d *drill) endedRuns(prefix string) []string {
	d.t.Helper()
	list := names(prefix, drillRuns())
	for _, run := range list {
		d.tell(run, 20, true)
	}
	return list
}

// TestDrillDatabaseGone: the tables are gone. Objects and log together are the whole: every run is served as before,
// and goes on with its numbers.
func TestDrillDatabaseGone(t *testing.T) {
	d := newDrill(t)
	old, young := d.endedRuns("run_old_"), names("run_young_", drillRuns())
	d.stored()
	d.archived(old...)
	d.aged()
	for _, run := range young {
		d.tell(run, 10, false)
	}
	d.began = time.Now()
	d.stop()
	d.dsn = testkit.GiveToOwner(t, testkit.Postgres(t))
	migrate(t, d.dsn, d.natsURL)
	if out, code := d.command("archive", "restore"); code != 0 ||
		!strings.Contains(out, fmt.Sprintf("%d objects, %d restored", len(old), len(old))) {
		t.Fatalf("archive restore: %d\n%s", code, out)
	}
	d.roles()
	d.start()
	lost := d.served(append(old, young...)...)
	d.report("database gone", lost)
	if lost > 0 {
		t.Errorf("%d events are lost", lost)
	}
	d.stored()
	d.doctor(0)
	if out, code := d.command("archive", "restore"); code != 0 || !strings.Contains(out, " 0 restored") {
		t.Errorf("archive restore again: %d\n%s", code, out)
	}
	if code, text := d.append(young[0], fmt.Sprintf(drillText, 0)); code != http.StatusOK ||
		!strings.Contains(text, `"first_seq":11`) {
		t.Errorf("it goes on with %d %s", code, text)
	}
}

// TestDrillDatabaseOlder: the tables come back as they were before the log's window. What only they had is said to be
// lost, for ever and everywhere; runs that have an object are served from it, and no number is given again that it
// knows.
func TestDrillDatabaseOlder(t *testing.T) {
	d := newDrill(t)
	d.tell("run_first", 20, true)
	d.tell("run_grown", 10, false)
	d.stored()
	d.stop()
	older := testkit.GiveToOwner(t, testkit.CopyDatabase(t, d.dsn))
	d.start()
	done, gone := names("run_done_", drillRuns()), names("run_open_", drillRuns())
	d.tell("run_grown", 10, true)
	for i := range done {
		d.tell(done[i], 20, true)
		d.tell(gone[i], 7, false)
	}
	d.stored()
	d.archived(append(done, "run_grown")...)
	d.aged()
	d.began = time.Now()
	d.stop()
	d.dsn = older
	d.roles()
	d.edge.start() // before anything is stored, no number is given
	time.Sleep(2 * time.Second)
	if code, _ := d.edge.ready(); code == http.StatusOK {
		t.Error("an edge is ready, though nobody has looked at what is lost")
	}
	d.per.start()
	d.per.await(t)
	d.edge.await(t)
	if lost := d.served(append(done, "run_grown", "run_first")...); lost > 0 {
		t.Errorf("%d events are lost of which there is an object", lost)
	}
	d.report("database older than the window", d.served(gone...))
	for range 2 {
		d.doctor(1, "LOST: ", "left the log before they were stored")
		eventually(t, 30*time.Second, "the loss is said", func() bool {
			_, text := d.per.ready()
			_, metrics := getText("http://" + d.per.admin + "/metrics")
			_, operations := getText("http://" + d.edge.addr + "/v1/agent/operations")
			n, _, ok := scraped(metrics, "agentstream_recorded_lost_messages")
			return strings.Contains(text, "left the log before they were stored") && ok && n > 0 &&
				strings.Contains(operations, `"reason":"dropped"`)
		})
		d.stop()
		d.start()
	}
	for _, run := range append(done, "run_grown") {
		if code, text := d.append(run, fmt.Sprintf(drillText, 0)); code == http.StatusOK {
			t.Errorf("%s has ended, and takes events: %s", run, text)
		}
	}
}

// TestDrillBucketOlder: the bucket comes back without objects that the tables name. What has its rows is written again.
func TestDrillBucketOlder(t *testing.T) {
	d := newDrill(t)
	old := d.endedRuns("run_old_")
	d.stored()
	d.archived(old...)
	d.began = time.Now()
	if err := os.RemoveAll(d.blobs); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.blobs, 0o700); err != nil {
		t.Fatal(err)
	}
	out, code := d.command("archive", "restore")
	if code != 0 || !strings.Contains(out, "written again") {
		t.Fatalf("archive restore: %d\n%s", code, out)
	}
	d.archived(old...)
	lost := d.served(old...)
	d.report("bucket older than the database", lost)
	if out, code := d.command("archive", "verify"); code != 0 || lost > 0 {
		t.Errorf("%d events are lost, verify: %d\n%s", lost, code, out)
	}
	d.doctor(0)
}

// TestDrillNATSEmpty: NATS comes back empty beside a full archive. Nothing says that it is well, what is not known is
// absent, and the command that is named brings the log back. Then runs go on with their numbers.
func TestDrillNATSEmpty(t *testing.T) {
	d := newDrill(t)
	runs := names("run_", drillRuns())
	for _, run := range runs {
		d.tell(run, 10, false)
	}
	d.stored()
	d.nats.kill()
	if err := os.RemoveAll(d.nats.dir); err != nil {
		t.Fatal(err)
	}
	d.began = time.Now()
	d.nats.start()
	d.nats.await()
	const command = "agentstream migrate --partitions 4 --replicas 1 --window 1h0m0s"
	for _, r := range []*role{d.edge, d.per} {
		eventually(t, 30*time.Second, r.name+" is not ready, and names the command", func() bool {
			code, text := r.ready()
			return code == http.StatusServiceUnavailable && strings.Contains(text, command) &&
				strings.Contains(text, "the log is empty, and the archive has stored")
		})
	}
	eventually(t, 30*time.Second, "the lag is absent", func() bool {
		_, text := d.per.ready()
		_, metrics := getText("http://" + d.per.admin + "/metrics")
		_, _, lag := scraped(metrics, "agentstream_persist_lag_messages")
		_, _, window := scraped(metrics, "agentstream_persist_window_left_seconds")
		empty, _, _ := scraped(metrics, "agentstream_log_empty")
		return !strings.Contains(text, "lag_messages") && !strings.Contains(text, "window_left") && !lag && !window &&
			empty == 1
	})
	d.doctor(1, "AGENT_3: it is missing; run: agentstream migrate --partitions 4")
	if out, code := d.command(strings.Fields(command)[1:]...); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	d.edge.await(t)
	d.per.await(t)
	eventually(t, 60*time.Second, "events are taken", func() bool {
		code, text := d.append(runs[0], fmt.Sprintf(drillText, 0))
		if code == http.StatusOK && !strings.Contains(text, `"first_seq":11`) {
			t.Fatalf("numbers are given again: %s", text)
		}
		return code == http.StatusOK
	})
	d.told[runs[0]] = events(t, d.run(runs[0]))
	lost := d.served(runs...)
	d.report("NATS empty", lost)
	d.doctor(1, "the log was made again")
	if lost > 0 {
		t.Errorf("%d events are lost that were stored", lost)
	}
}

// TestDrillDatabaseOlderAndNATSEmpty: NATS has lost its data, and the database is of a backup. Runs that have an object
// are served from it, and their numbers are not given again; the rest is said to be lost.
func TestDrillDatabaseOlderAndNATSEmpty(t *testing.T) {
	d := newDrill(t)
	d.tell("run_first", 20, true)
	d.tell("run_grown", 10, false)
	d.stored()
	d.stop()
	older := testkit.GiveToOwner(t, testkit.CopyDatabase(t, d.dsn))
	d.start()
	done := d.endedRuns("run_done_")
	d.tell("run_grown", 10, true)
	d.stored()
	d.archived(append(done, "run_grown")...)
	d.began = time.Now()
	d.stop()
	d.nats.kill()
	if err := os.RemoveAll(d.nats.dir); err != nil {
		t.Fatal(err)
	}
	d.nats.start()
	d.nats.await()
	d.dsn = older
	migrate(t, d.dsn, d.natsURL, "--window", "1h")
	d.roles()
	d.edge.start()
	d.per.start()
	d.per.await(t)
	d.edge.await(t)
	for _, run := range append(done, "run_grown") {
		if code, text := d.append(run, fmt.Sprintf(drillText, 0)); code == http.StatusOK {
			t.Errorf("%s has ended, and takes events: %s", run, text)
		}
	}
	lost := d.served(append(done, "run_first", "run_grown")...)
	d.report("database older, NATS empty", lost)
	if lost > 0 {
		t.Errorf("%d events are lost of which there is an object", lost)
	}
	d.doctor(1, "the log was made again")
}

// TestDrillDatabaseGoneAndNATSEmpty: only the objects are left, and an edge comes first. It takes nothing before they
// are restored, and names the command; then runs go on where their objects end.
func TestDrillDatabaseGoneAndNATSEmpty(t *testing.T) {
	d := newDrill(t)
	done := d.endedRuns("run_done_")
	d.stored()
	d.archived(done...)
	d.began = time.Now()
	d.stop()
	d.nats.kill()
	if err := os.RemoveAll(d.nats.dir); err != nil {
		t.Fatal(err)
	}
	d.nats.start()
	d.nats.await()
	d.dsn = testkit.GiveToOwner(t, testkit.Postgres(t))
	migrate(t, d.dsn, d.natsURL, "--window", "1h")
	d.roles()
	d.edge.start()
	eventually(t, time.Minute, "the edge names the command", func() bool {
		code, text := d.edge.ready()
		return code == http.StatusServiceUnavailable && strings.Contains(text, "agentstream archive restore")
	})
	var refused sync.WaitGroup
	for _, run := range []string{done[0], "run_new"} { // each waits its time
		refused.Go(func() {
			if code, text := d.append(run, fmt.Sprintf(drillText, 0)); code != http.StatusServiceUnavailable {
				t.Errorf("%s takes events before its object is restored: %d %s", run, code, text)
			}
		})
	}
	refused.Wait()
	if out, code := d.command("archive", "restore"); code != 0 {
		t.Fatalf("archive restore: %d\n%s", code, out)
	}
	d.edge.await(t)
	d.per.start()
	d.per.await(t)
	lost := d.served(done...)
	d.report("database gone, NATS empty", lost)
	if lost > 0 {
		t.Errorf("%d events are lost", lost)
	}
	for _, run := range done {
		if code, text := d.append(run, fmt.Sprintf(drillText, 0)); code == http.StatusOK {
			t.Errorf("%s has ended, and takes events: %s", run, text)
		}
	}
	if code, text := d.append("run_new", fmt.Sprintf(drillText, 0)); code != http.StatusOK {
		t.Errorf("a new run: %d %s", code, text)
	}
}
