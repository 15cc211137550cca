package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/adapters/provider/providertest"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// keeping is a deployment whose runs can be read from each place that they are kept in.
type keeping struct {
	t     *testing.T
	nats  string
	where string // the archive: a folder, or a DSN
	edge  *proc
	runs  []string // all that were published
	forms []form
}

// form is one place that runs are read from. turn makes them be read from it; nil: it is not built
// into the binary, and nothing is claimed about it.
type form struct {
	name string
	turn func()
}

// Whatever a run is read from, its bytes are the same: from the stream, from rows, from a blob; as a
// file and as a stream of frames; from its beginning and behind any number. The log itself, read
// beside every layer of ours, says what the bytes are.
func TestBytesAreTheSameFromEverywhere(t *testing.T) {
	beside(t)
	t.Run("SQLite", func(t *testing.T) { sameBytes(t, keptInSQLite(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { sameBytes(t, keptInPostgres(t)) })
}

func sameBytes(t *testing.T, k *keeping) {
	names := slices.Sorted(maps.Keys(recorded(t)))
	for _, name := range names {
		k.publish(name)
	}
	hostileRuns := k.publishHostile()
	want := make(map[string][]string)
	log := readLog(t, k.nats)
	for _, l := range log.lines { // in the order of the log, which is that of seq within a run
		want[l.at.run.Run] = append(want[l.at.run.Run], l.text)
	}
	if len(want) != len(names)+len(hostileRuns) {
		t.Fatalf("%d runs in the log of %d recordings and %d hostile runs", len(want), len(names), len(hostileRuns))
	}
	k.runs = slices.Sorted(maps.Keys(want))
	hostileBytes(t, want, hostileRuns)
	for _, f := range k.forms {
		if f.turn == nil {
			t.Logf("%s: not wired, nothing is claimed", f.name)
			continue
		}
		f.turn()
		began, reads := time.Now(), 0
		for run, lines := range want {
			reads += k.compare(f.name, run, lines)
		}
		t.Logf("%s: %d runs, %d events, %d readings, each the very bytes of the log, %s", f.name, len(want),
			len(log.lines), reads, time.Since(began).Round(time.Millisecond))
	}
}

// hostileBytes makes sure that what is hard to keep is among what is compared.
func hostileBytes(t *testing.T, want map[string][]string, runs []string) {
	t.Helper()
	var all strings.Builder
	for _, run := range runs {
		all.WriteString(strings.Join(want[run], "\n"))
	}
	for what, bytes := range map[string]string{
		"NUL": `nul \u0000 and`, "a lone high surrogate": `lone \ud800 high`, "a lone low surrogate": `lone \udc00 low`,
		"duplicate keys": `{"text":"first wins nowhere","text":"last wins"}`, "a number beyond every float": `1e400`,
		"the order of keys": `{"zz":1,"text":"odd order","aa":2`, "a long number": `123456789012345678901234567890`,
		"white space": "{ \"text\" :\t\"white  space\" ,  \"k\" : [ 1 , 2 ,{ } , [ ] ] }", "escapes that need not be": `\/\/`,
	} {
		if !strings.Contains(all.String(), bytes) {
			t.Errorf("%s: %s is not among what is compared", what, bytes)
		}
	}
}

// compare reads a run in every way and gives how many readings that were.
func (k *keeping) compare(form, run string, want []string) (reads int) {
	k.t.Helper()
	whole := strings.Join(want, "\n") + "\n"
	base := k.edge.url("/v1/agent/runs/" + run)
	if got := getBytes(k.t, base+"/replay.jsonl"); got != whole {
		k.t.Errorf("%s: %s: replay.jsonl: %s", form, run, difference(got, whole))
	}
	n := len(want)
	for after := range maps.Keys(map[int]bool{0: true, 1: true, n / 3: true, n / 2: true, n - 1: true}) {
		if after >= n {
			continue
		}
		rest := strings.Join(want[after:], "\n") + "\n"
		if got := k.streamed(base, after, n); got != rest {
			k.t.Errorf("%s: %s: stream behind %d: %s", form, run, after, difference(got, rest))
		}
		if got := getBytes(k.t, fmt.Sprintf("%s/replay.jsonl?after=%d", base, after)); got != rest {
			k.t.Errorf("%s: %s: replay.jsonl behind %d: %s", form, run, after, difference(got, rest))
		}
		reads += 2
	}
	if middle := n / 2; middle > 0 {
		part := strings.Join(want[middle-1:middle], "\n") + "\n"
		if got := getBytes(k.t, fmt.Sprintf("%s/replay.jsonl?after=%d&through=%d", base, middle-1, middle)); got != part {
			k.t.Errorf("%s: %s: only seq %d: %s", form, run, middle, difference(got, part))
		}
	}
	return reads + 2
}

// difference says where two texts part.
func difference(got, want string) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	from := max(0, at-40)
	return fmt.Sprintf("%d bytes of %d; at byte %d it is %.120q, want %.120q", len(got), len(want), at, got[from:],
		want[from:])
}

func getBytes(t testing.TB, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %.300s %v", url, resp.StatusCode, body, err)
	}
	return string(body)
}

// streamed reads the data of the frames behind a number up to the last one, a line each.
func (k *keeping) streamed(base string, after, last int) string {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/stream?detail=full", nil)
	if err != nil {
		k.t.Fatal(err)
	}
	if after > 0 {
		req.Header.Set("Last-Event-ID", strconv.Itoa(after))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		k.t.Fatalf("%s behind %d: status %d", base, after, resp.StatusCode)
	}
	var out strings.Builder
	r := bufio.NewReaderSize(resp.Body, 256<<10)
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			k.t.Errorf("%s behind %d: %v", base, after, err)
			return out.String()
		}
		if data, ok := strings.CutPrefix(text, "data: "); ok {
			out.WriteString(data)
		}
		if text == "id: "+strconv.Itoa(last)+"\n" {
			return out.String()
		}
	}
}

// publish publishes a recording by the command line.
func (k *keeping) publish(name string) {
	k.t.Helper()
	path, err := binary()
	if err != nil {
		k.t.Fatal(err)
	}
	run := "rec_" + strings.NewReplacer("/", "_", ".", "_").Replace(name)
	cmd := command(path, "publish", "--server", k.edge.url(""), "--run", run,
		filepath.Join(providertest.Dir(k.t), filepath.FromSlash(name)))
	cmd.Env = append(os.Environ(), "AGENTSTREAM_TOKEN="+edgeToken)
	if out, err := cmd.CombinedOutput(); err != nil {
		k.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// publishHostile stores the runs that are hard to keep: through the SDK, and over HTTP.
func (k *keeping) publishHostile() (runs []string) {
	k.t.Helper()
	nc, err := natskit.Dial(k.nats, k.t.Name())
	if err != nil {
		k.t.Fatal(err)
	}
	defer nc.Close()
	log, err := pubjs.Open(k.t.Context(), nc)
	if err != nil {
		k.t.Fatal(err)
	}
	var payloads []schema.Event
	for _, p := range slices.Concat(persistertest.Hostile(), schematest.HostilePayloads()) {
		payloads = append(payloads, schema.Event{Type: schema.TypeTextDelta, Payload: []byte(p)})
	}
	const end = `{"state":"done","reason":"\u0000 \ud800"}`
	payloads = append(payloads, schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(end)})
	for run, events := range map[string][]schema.Event{
		"hostile_scenario": schematest.ByName("hostile").Events, "hostile_payloads": payloads,
		"hostile_long": schematest.Generate(3000, 5).Events,
	} {
		pub, err := producers.New(producers.Config{Log: log, Key: schema.RunKey{Tenant: "default", Run: run}})
		if err != nil {
			k.t.Fatal(err)
		}
		for _, e := range events {
			if _, err := pub.Publish(k.t.Context(), e); err != nil {
				k.t.Fatalf("%s: %v", run, err)
			}
		}
		if err := pub.Close(k.t.Context()); err != nil {
			k.t.Fatal(err)
		}
		runs = append(runs, run)
	}
	var body bytes.Buffer
	for _, p := range schematest.HostilePayloads() {
		fmt.Fprintf(&body, `{"type":"text.delta","payload":%s}`+"\n", p)
	}
	fmt.Fprintf(&body, `{"type":"run.lifecycle","payload":%s}`+"\n", end)
	if _, _, err := post(k.t.Context(), http.DefaultClient, k.edge.url("/v1/agent/runs/hostile_http/events"), "k",
		body.Bytes()); err != nil {
		k.t.Fatal(err)
	}
	return append(runs, "hostile_http")
}

// forget makes the streams drop everything, as their window would, and the edge its pages: what is
// read from then on comes from the archive.
func (k *keeping) forget() {
	k.t.Helper()
	eventually(k.t, 60*time.Second, "everything is archived", func() bool {
		left, err := pending(k.t.Context(), k.nats, k.where)
		return err == nil && left == 0
	})
	purgeAll(k.t, k.nats)
	k.edge.kill()
	k.edge.start()
	if left := len(readLog(k.t, k.nats).lines); left != 0 {
		k.t.Fatalf("the streams still hold %d events", left)
	}
}

func keptInSQLite(t *testing.T) *keeping {
	nats, data := testkit.FreeAddr(t), t.TempDir()
	k := &keeping{t: t, nats: "nats://" + nats, where: data}
	k.edge = newProc(t, "dev", "--no-demo", "--data", data, "--nats-listen", nats, "--partitions", "4")
	k.edge.start()
	k.forms = []form{{"stream", func() {}}, {"rows of SQLite", k.forget},
		{"blobs, SQLite", k.toBlobs("dev", []string{"--data", data}, func() (n int) {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(data, "archive.db")+"?_pragma=query_only(1)")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.QueryRow("select count(*) from agent_run_events").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		})}}
	return k
}

func keptInPostgres(t *testing.T) *keeping {
	server, dsn := testkit.NATS(t), testkit.Postgres(t)
	k := &keeping{t: t, nats: server.Server.ClientURL(), where: dsn}
	migrate(t, dsn, k.nats)
	k.edge = newProc(t, "edge", "--nats", k.nats)
	k.edge.env = []string{"AGENTSTREAM_POSTGRES=" + dsn}
	k.edge.start()
	per := newProc(t, "persist", "--nats", k.nats)
	per.env = k.edge.env
	per.start()
	k.forms = []form{{"stream", func() {}}, {"rows of PostgreSQL", k.forget},
		{"blobs, PostgreSQL", k.toBlobs("edge", nil, func() (n int) {
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			if err := conn.QueryRow(t.Context(), "select count(*) from agent_run_events").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		})}}
	return k
}

// toBlobs returns how all runs are moved to blobs, and their rows removed; nil where the role that
// serves them reads no blobs.
func (k *keeping) toBlobs(role string, store []string, rows func() int) func() {
	k.t.Helper()
	path, err := binary()
	if err != nil {
		k.t.Fatal(err)
	}
	if help, err := command(path, role, "--help").CombinedOutput(); err != nil ||
		!strings.Contains(string(help), "--blobs") {
		return nil
	}
	return func() {
		k.t.Helper()
		env := append(k.edge.env, "AGENTSTREAM_BLOBS="+k.t.TempDir())
		tell := func(args ...string) {
			k.t.Helper()
			cmd := command(path, append(args, store...)...)
			cmd.Env = append(os.Environ(), env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				k.t.Fatalf("agentstream %q: %v\n%s", args[:2], err, tail(string(out), 2000))
			}
		}
		tell(append([]string{"archive", "run", "--archive-settle", "0s"}, k.runs...)...)
		<-time.After(1500 * time.Millisecond)
		tell("retention", "run", "--nats", k.nats, "--rows-for", "1s")
		if n := rows(); n != 0 {
			k.t.Fatalf("%d rows are still there", n)
		}
		k.edge.kill()
		k.edge.env = env
		k.edge.start()
	}
}
