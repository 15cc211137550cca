package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// TestDrillOtherPartitions: a deployment moves under load into servers whose log has another number of partitions, more
// and fewer. Everything that was acknowledged is served with the same bytes, runs go on with their numbers, a request
// that is repeated with its key stores nothing, and nothing is said to be lost. A backup of a log of which the tables
// lack events is refused.
func TestDrillOtherPartitions(t *testing.T) {
	for _, partitions := range []int{9, 3} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			d := newDrill(t)
			done, open := d.endedRuns("run_done_"), names("run_open_", drillRuns())
			for _, run := range open {
				d.tell(run, 10, false)
			}
			runs, each := importEvents()
			for i := range runs {
				postTo(t, "http://"+d.edge.addr, fmt.Sprint("run_full_", i), devBody(i, each))
			}
			blob := putBlob(t, "http://"+d.edge.addr, open[0], strings.Repeat("blob ", 100_000))
			_, first := d.keyed(open[0], "of the move")
			d.told[open[0]] = events(t, d.run(open[0]))
			d.stored()
			d.archived(done...)
			behind := d.backUpBehind()
			all := d.move(behind, partitions)
			lost := d.served(append(done, open...)...)
			d.report(fmt.Sprintf("%d partitions", partitions), lost)
			if lost > 0 {
				t.Errorf("%d events are lost", lost)
			}
			if n := userEvents(t, d.admin()); n != all {
				t.Errorf("%d events, before the move %d", n, all)
			}
			if replayed, again := d.keyed(open[0], "of the move"); !replayed || again != first {
				t.Errorf("repeated with its key: %v %s, the first was %s", replayed, again, first)
			}
			for _, run := range open[1:] {
				code, text := d.append(run, fmt.Sprintf(drillText, 0))
				if code != http.StatusOK || !strings.Contains(text, `"first_seq":11`) {
					t.Errorf("it goes on with %d %s", code, text)
				}
			}
			if code, text := d.append(done[0], fmt.Sprintf(drillText, 0)); code == http.StatusOK {
				t.Errorf("a run that has ended accepts events: %s", text)
			}
			if code, text := getText(d.run(open[0]) + "/blobs/" + blob); code != http.StatusOK || len(text) != 500_000 {
				t.Errorf("the blob: %d, %d bytes", code, len(text))
			}
			d.stored()
			d.doctor(0)
		})
	}
}

// backUpBehind makes a backup under load whose tables lack what was written since.
func (d *drill) backUpBehind() (folder string) {
	d.t.Helper()
	stop := d.load("run_load")
	defer stop()
	d.per.end(syscall.SIGTERM)
	<-time.After(time.Second)
	folder = d.backUp()
	d.per.start()
	return folder
}

// move moves the drill under load into servers with another number of partitions, and returns how many events it has.
// The restore is repeated, as after a kill; of the backup behind it is refused.
func (d *drill) move(behind string, partitions int) (all int) {
	d.t.Helper()
	stop := d.load("run_load")
	<-time.After(time.Second)
	still := time.Now()
	d.edge.end(syscall.SIGTERM) // from here on writes stand still
	stop()
	d.stored()
	folder := d.backUp()
	all = userEvents(d.t, d.admin())
	d.replaceServers(testkit.GiveToOwner(d.t, testkit.Postgres(d.t)))
	out, code := d.command("restore", behind, "--new-log")
	if code != 1 || !strings.Contains(out, "the tables of the backup lack events") {
		d.t.Errorf("a backup whose tables lack something: %d %s", code, out)
	}
	for _, want := range []string{"tables: restored", "tables: left as they are"} {
		if out, code := d.command("restore", folder, "--new-log"); code != 0 || !strings.Contains(out, want) {
			d.t.Fatalf("restore: %d\n%s", code, out)
		}
	}
	out, code = d.command("migrate", "--partitions", fmt.Sprint(partitions), "--window", "1h")
	if code != 0 || !strings.Contains(out, fmt.Sprintf("%d partitions", partitions)) {
		d.t.Fatalf("migrate: %d\n%s", code, out)
	}
	d.roles()
	d.start()
	d.began = still
	took := time.Since(still).Seconds()
	d.t.Logf("drill: from 4 to %d partitions: writes stood still for %.1f s, with %d events: %.1f s a million", partitions,
		took, all, took/float64(all)*1e6)
	return all
}

// keyed appends an event to a run with a key, and returns whether it was there, and the answer.
func (d *drill) keyed(run, key string) (replayed bool, answer string) {
	d.t.Helper()
	req, err := http.NewRequest(http.MethodPost, d.run(run)+"/events", strings.NewReader(fmt.Sprintf(drillText, 0)))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: %d %s %v", run, resp.StatusCode, text, err)
	}
	return resp.Header.Get("Idempotency-Replayed") == "true", string(text)
}
