package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/bench/load"
	"agentstream/internal/localpg"
)

// The test binary is also the referee's own program, and a harness that does what little it takes to
// show that the two meet: the real one is not part of the project.
const harnessEnv, hangEnv = "AGENTSTREAM_TEST_HARNESS", "AGENTSTREAM_TEST_HANG"

func TestMain(m *testing.M) {
	args := os.Args[1:]
	if len(args) > 0 && slices.Contains([]string{"serve", "sdk", shapeFloor}, args[0]) {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		if err := command(ctx, args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(harnessEnv) != "" {
		if err := standIn(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// standIn is a harness for one event: it starts the target, begins a run, watches it, publishes, and awaits
// the event. A reference it only names.
func standIn(args []string) error {
	v := map[string]string{}
	for i := 0; i+1 < len(args); i++ {
		name, value := args[i], args[i+1]
		if name == "-v" {
			name, value, _ = strings.Cut(value, "=")
		}
		v[name] = value
	}
	metrics := map[string]float64{"p50_ms": 1, "p99_ms": 1, "cpu_s_per_M": 1}
	if v["-t"] == "custom" {
		if err := oneEvent(v); err != nil {
			return err
		}
		metrics["acked_s"] = 1
	}
	b, err := json.Marshal(map[string]any{"M": metrics})
	if err != nil {
		return err
	}
	return os.WriteFile(v["-o"], append(b, '\n'), 0o600)
}

func oneEvent(v map[string]string) error {
	target := exec.Command("sh", "-c", v["cmd"])
	var said bytes.Buffer
	target.Stdout, target.Stderr = &said, &said
	if err := target.Start(); err != nil {
		return err
	}
	defer func() {
		_ = target.Process.Signal(os.Interrupt)
		_ = target.Wait()
	}()
	run := func(name string) string { return strings.ReplaceAll(v[name], "{ch}", "7") }
	host := strings.Split(run("prepare"), "/")[2]
	if err := await(context.Background(), host, nil); err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	event := `{"type":"text.delta","payload":{"text":"hello"}}` + "\n"
	var watched io.Reader
	for _, r := range []struct{ method, url, body string }{{http.MethodPut, run("prepare"), ""},
		{http.MethodGet, run("sse"), ""}, {http.MethodPost, run("pub"), event}} {
		resp, err := request(r.method, r.url, r.body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("%s %s: %s", r.method, r.url, resp.Status)
		}
		if r.method == http.MethodGet {
			watched = resp.Body
		}
	}
	for lines := bufio.NewScanner(watched); lines.Scan(); {
		if strings.Contains(lines.Text(), "hello") {
			hang()
			<-time.After(10 * sampleEvery) // a load lasts long enough to be sampled
			return nil
		}
	}
	return errors.New("the event did not come back")
}

// hang says where it is and waits to be killed, if that is asked for.
func hang() {
	if file := os.Getenv(hangEnv); file != "" {
		_ = os.WriteFile(file, nil, 0o600)
		select {}
	}
}

func request(method, url, body string) (*http.Response, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	switch method {
	case http.MethodPost:
		req.Header.Set("Content-Type", "application/x-ndjson")
	case http.MethodGet:
		req.Header.Set("Last-Event-ID", "0")
	}
	return http.DefaultClient.Do(req)
}

// realReferee measures the real product with the harness that stands in.
func realReferee(t *testing.T, shapes ...string) *referee {
	t.Helper()
	if slices.Contains(shapes, shapeSplit) {
		if _, err := localpg.Programs(postgresPrograms...); err != nil && os.Getenv("CI") == "" {
			t.Skip("SKIPPED, NOTHING WAS TESTED: ", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	r := &referee{self: self, harness: self, agentstream: filepath.Join(bin, "agentstream"),
		natsServer: filepath.Join(bin, "nats-server"),
		ports:      ports{first: 28080}, shapes: shapes, rounds: 1, results: open(t, t.TempDir()), say: io.Discard}
	root := filepath.Join("..", "..")
	for to, what := range map[string]string{r.agentstream: "./cmd/agentstream",
		r.natsServer: "github.com/nats-io/nats-server/v2"} {
		if err := goBuild(t.Context(), root, to, what); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(harnessEnv, "1")
	t.Cleanup(func() {
		if r.postgres != nil {
			if err := r.postgres.stop(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// Both shapes are started, reached, sampled and gone afterwards; a second call repeats nothing.
func TestRefereeMeasuresBothShapes(t *testing.T) {
	r := realReferee(t, shapeDev, shapeSplit)
	l := manyRuns(0)[0]
	sdk := line{id: "s5-sdk-3", sdk: 3, window: 500 * time.Millisecond}
	if err := r.measureAll(t.Context(), []line{l, sdk}); err != nil {
		t.Fatal(err)
	}
	processes := map[string][]string{"nats-js": nil, shapeDev: {"agentstream"},
		shapeSplit: {"edge", "nats", "persist", "postgres"}}
	for target, names := range processes {
		recs := r.results.of(l.id, target)
		if len(recs) != 1 || recs[0].spoilReason() != "" {
			t.Fatalf("%s: %+v", target, recs)
		}
		for _, name := range names {
			if recs[0].PeakMiB[name] == 0 {
				t.Errorf("%s: nothing is known of %s: %v", target, name, recs[0].PeakMiB)
			}
		}
	}
	for _, shape := range r.shapes {
		recs := r.results.of(sdk.id, shape)
		if len(recs) != 1 || recs[0].Metrics["acked_s"] < 100 || recs[0].Metrics["cpu_s_per_M"] <= 0 {
			t.Errorf("sdk on %s: %+v", shape, recs)
		}
	}
	for i := range 4 {
		if err := await(shortly(t), r.ports.at(i), nil); err == nil {
			t.Errorf("something still listens at %s", r.ports.at(i))
		}
	}
	again := *r
	again.harness, again.results = "there is none", open(t, r.results.dir)
	if err := again.measureAll(t.Context(), []line{l, sdk}); err != nil {
		t.Errorf("a measurement is repeated: %v", err)
	}
	if _, err := again.results.report(false, r.shapes, "", ""); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"table.md", "s2-p50_ms.svg"} {
		if b, err := os.ReadFile(filepath.Join(again.results.dir, name)); err != nil || len(b) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the harness has no publisher for is loaded by the project's own: a stream, what it leaves on disk, and a
// profile. An earlier binary takes turns, but for streams.
func TestRefereeLoadsByItself(t *testing.T) {
	r := realReferee(t, shapeDev+beforeSuffix, shapeDev)
	r.before = r.agentstream
	small := func(id string, stream bool) line {
		return line{id: id, what: id, window: time.Second,
			load: &load.Config{Scenario: load.ManyRuns, Runs: 5, Watchers: 1, Rate: 200, Stream: stream,
				Duration: time.Second, Warm: 100 * time.Millisecond}}
	}
	stream, stored, profile := small("stream", true), small("stored", false), small("profile", false)
	stored.disk, stored.sync, profile.profile = true, true, true
	if err := r.measureAll(t.Context(), []line{stream, stored, profile}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.results.of(stream.id, r.shapes[0])); n != 0 {
		t.Errorf("a stream is published %d times to an earlier binary", n)
	}
	if recs := r.results.of(stream.id, shapeDev); len(recs) != 1 || recs[0].spoilReason() != "" ||
		recs[0].Metrics["delivered_s"] < 150 || recs[0].CPU == "" {
		t.Errorf("stream: %+v", recs)
	}
	for _, shape := range r.shapes {
		recs := r.results.of(stored.id, shape)
		if len(recs) != 1 || recs[0].Metrics["log_bytes_per_event"] < 240 ||
			recs[0].Metrics["archive_bytes_per_event"] < 240 {
			t.Errorf("%s: on disk: %+v", shape, recs)
		}
	}
	var table strings.Builder
	if err := r.results.writeProfiles(t.Context(), &table, profile, r.shapes); err != nil ||
		!strings.Contains(table.String(), "| profile: CPU µs an event | dev-before | dev |") {
		t.Errorf("%v:\n%s", err, &table)
	}
}

// The shape without the product takes turns on lines of single events: it serves them, and they are counted.
func TestRefereeMeasuresTheFloor(t *testing.T) {
	r := realReferee(t, shapeFloor)
	posted, streamed := manyRuns(0)[0], line{id: "stream", what: "stream", window: time.Second,
		load: &load.Config{Scenario: load.ManyRuns, Runs: 5,
			Watchers: 2, Rate: 200, Stream: true, Duration: time.Second, Warm: 100 * time.Millisecond}}
	replayed := line{id: "replay", args: []string{"-s", "s4"}}
	if err := r.measureAll(t.Context(), []line{posted, streamed, replayed}); err != nil {
		t.Fatal(err)
	}
	if recs := r.results.of(posted.id, shapeFloor); len(recs) != 1 || recs[0].spoilReason() != "" ||
		recs[0].PeakMiB[shapeFloor] == 0 {
		t.Errorf("posted: %+v", recs)
	}
	if recs := r.results.of(streamed.id, shapeFloor); len(recs) != 1 || recs[0].spoilReason() != "" ||
		recs[0].Metrics["delivered_s"] < 300 {
		t.Errorf("streamed: %+v", recs)
	}
	if n := len(r.results.of(replayed.id, shapeFloor)); n != 0 {
		t.Error("what it cannot do is asked of it")
	}
}

func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A harness that fails is an error of its measurement, not of the others, and is tried again.
func TestFailedMeasurementIsKeptAndRepeated(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &referee{self: self, harness: filepath.Join(t.TempDir(), "none"), natsServer: "nats-server", rounds: 1,
		results: open(t, t.TempDir()), say: io.Discard}
	l := line{id: "x", refs: []reference{{target: "one"}, {target: "two"}}}
	err = r.measureAll(t.Context(), []line{l})
	if err == nil || len(r.results.records) != 2 || !strings.Contains(err.Error(), "x on two") {
		t.Fatalf("%v, %+v", err, r.results.records)
	}
	r.harness = self
	t.Setenv(harnessEnv, "1")
	if err := r.measureAll(t.Context(), []line{l}); err != nil {
		t.Fatal(err)
	}
	if why := r.results.spoilReason("x", "two"); why != "" {
		t.Error(why)
	}
}

// A harness that is killed takes the target with it, although nothing tells the target.
func TestTargetEndsWithTheHarness(t *testing.T) {
	r := realReferee(t, shapeDev)
	hung, state := filepath.Join(t.TempDir(), "hung"), t.TempDir()
	args := append([]string{"-o", filepath.Join(t.TempDir(), "out")},
		r.custom(line{}, []string{"serve", "-agentstream", r.agentstream,
			"-state", state, "-logs", filepath.Join(t.TempDir(), "log."), "-port", fmt.Sprint(r.ports.first)})...)
	harness := exec.Command(r.harness, args...)
	harness.Env = append(os.Environ(), hangEnv+"="+hung)
	if err := harness.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { _, err := os.Stat(hung); return err == nil })
	pid := (&sampler{state: state}).pids()["agentstream"]
	if pid == 0 || syscall.Kill(pid, 0) != nil {
		t.Fatalf("no process %d", pid)
	}
	if err := harness.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = harness.Wait()
	until(t, func() bool { return syscall.Kill(pid, 0) != nil })
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("in vain")
		}
		time.Sleep(20 * time.Millisecond)
	}
}
