package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// replaceServers stops the drill and gives it a new NATS, the database of dsn and a new folder of objects. They are empty.
func (d *drill) replaceServers(dsn string) {
	d.t.Helper()
	d.stop()
	n := startNATS(d.t, d.t.TempDir())
	d.nats, d.natsURL = n, n.url()
	d.dsn, d.blobs = dsn, filepath.Join(d.t.TempDir(), "blobs")
}

// backUp makes a backup into a new folder, as an administrator of the database.
func (d *drill) backUp() (folder string) {
	d.t.Helper()
	folder = filepath.Join(d.t.TempDir(), "backup")
	owner := d.dsn
	d.dsn = strings.Replace(owner, "//owner_of_databases@", "//postgres@", 1)
	began := time.Now()
	out, code := d.command("backup", folder, "--objects", "copy")
	d.dsn = owner
	if code != 0 {
		d.t.Fatalf("backup: %d\n%s", code, out)
	}
	d.t.Logf("drill: backup in %.1f s: %s", time.Since(began).Seconds(), strings.TrimSpace(out))
	return folder
}

// TestDrillBackup: a backup that is made under load comes back in other servers, in three ages: all parts of one backup,
// tables that are older than the log, and tables that are newer. Everything that was acknowledged before the backup of
// the older part is served with the same bytes, and runs go on after their newest number.
func TestDrillBackup(t *testing.T) {
	for _, c := range []struct {
		name           string
		tables, stream int // which backup each part is of
	}{{"all of one backup", 1, 1}, {"log newer than tables", 0, 1}, {"tables newer than log", 1, 0}} {
		t.Run(c.name, func(t *testing.T) {
			d := newDrill(t)
			done := d.endedRuns("run_done_")
			open := names("run_open_", drillRuns())
			for _, run := range open {
				d.tell(run, 10, false)
			}
			d.stored()
			d.archived(done...)
			folders := []string{d.backUp()}
			stop := d.load("run_load")
			late := d.endedRuns("run_late_")
			for _, run := range open {
				d.tell(run, 5, false)
			}
			stop()
			d.stored()
			d.archived(late...)
			stop = d.load("run_loaded")
			folders = append(folders, d.backUp())
			stop()
			d.replaceServers(testkit.GiveToOwner(t, testkit.Postgres(t)))
			d.began = time.Now()
			d.restore(folders[c.tables], "tables")
			d.restore(folders[1], "objects")
			d.restore(folders[c.stream], "streams")
			migrate(t, d.dsn, d.natsURL)
			d.roles()
			d.start()
			lost := d.served(append(append(done, open...), late...)...)
			d.report("restored, "+c.name, lost)
			if lost > 0 {
				t.Errorf("%d events are lost that were acknowledged before the backup", lost)
			}
			d.stored()
			d.doctor(1, "the log was made again") // what came after a backup is lost, and that is said
			if code, text := d.append(open[0], fmt.Sprintf(drillText, 0)); code != http.StatusOK ||
				!strings.Contains(text, `"first_seq":16`) {
				t.Errorf("it goes on with %d %s", code, text)
			}
			if out, code := d.command("archive", "verify"); code != 0 {
				t.Errorf("archive verify: %d\n%s", code, out)
			}
		})
	}
}

// TestDrillBackupIntoCluster: a backup of one server comes back in a cluster of three with three copies of each stream.
// Every event is served with the same bytes, also after one of the servers is killed, and runs go on.
func TestDrillBackupIntoCluster(t *testing.T) {
	d := newDrill(t)
	done, open := d.endedRuns("run_done_"), names("run_open_", drillRuns())
	for _, run := range open {
		d.tell(run, 10, false)
	}
	d.stored()
	d.archived(done...)
	folder := d.backUp()
	d.stop()
	c := startNATSCluster(t, t.TempDir())
	d.natsURL, d.dsn = c.url(), testkit.GiveToOwner(t, testkit.Postgres(t))
	d.blobs = filepath.Join(t.TempDir(), "blobs")
	d.began = time.Now()
	if out, code := d.command("restore", folder, "--replicas", "3"); code != 0 || !strings.Contains(out, "streams: 7 restored") {
		t.Fatalf("restore: %d\n%s", code, out)
	}
	migrate(t, d.dsn, d.natsURL, "--replicas", "3")
	d.roles()
	d.start()
	lost := d.served(append(done, open...)...)
	d.report("restored into a cluster", lost)
	var streams []string
	for p := range 4 {
		streams = append(streams, natskit.StreamName(p))
	}
	c.whole(append(streams, natskit.BlobStream))
	lead := c.leader(natskit.StreamName(schema.Partition(open[0], 4)))
	if lead < 0 {
		t.Fatal("nobody leads the stream")
	}
	c.nodes[lead].end(syscall.SIGKILL)
	// Another one is chosen meanwhile.
	eventually(t, 60*time.Second, "runs are served without the server that is gone", func() bool {
		for _, run := range append(done, open...) {
			if code, _ := getText("http://" + d.edge.addr + "/v1/agent/runs/" + run + "/events?limit=1"); code != http.StatusOK {
				return false
			}
		}
		return true
	})
	if lost += d.served(append(done, open...)...); lost > 0 {
		t.Errorf("%d events are lost", lost)
	}
	eventually(t, 60*time.Second, "events are accepted", func() bool {
		code, _ := d.append(open[0], fmt.Sprintf(drillText, 0))
		return code == http.StatusOK
	})
	d.told[open[0]] = events(t, d.run(open[0]))
	if now := d.told[open[0]]; len(now) < 11 || !strings.Contains(now[10], `"seq":11,`) {
		t.Errorf("it goes on with %q", now[min(10, len(now)):])
	}
}

// load appends to a run, an event a request, until stop is called.
func (d *drill) load(run string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			default:
				d.append(run, fmt.Sprintf(drillText, i))
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// restore restores one part.
func (d *drill) restore(folder, part string) {
	d.t.Helper()
	if out, code := d.command("restore", folder, "--only", part); code != 0 {
		d.t.Fatalf("restore %s: %d\n%s", part, code, out)
	}
}

// TestBackupRefuses: a folder without a manifest is no backup, a damaged file is named before anything is changed, and
// nothing that exists is written over.
func TestBackupRefuses(t *testing.T) {
	d := newDrill(t)
	done := d.endedRuns("run_done_")
	d.stored()
	d.archived(done...)
	folder := d.backUp()
	if out, code := d.command("backup", folder); code != 1 || !strings.Contains(out, "the folder is not empty") {
		t.Errorf("a second backup into the folder: %d %s", code, out)
	}
	if out, code := d.command("restore", folder, "--only", "tables"); code != 1 || !strings.Contains(out, "has tables") {
		t.Errorf("tables over tables: %d %s", code, out)
	}
	if out, code := d.command("restore", folder); code != 0 || !strings.Contains(out, "streams: 0 restored") ||
		!strings.Contains(out, "objects: 0 put") {
		t.Errorf("a restore where everything is: %d %s", code, out)
	}
	eventually(t, 60*time.Second, "the age of the backup is shown", func() bool {
		_, metrics := getText("http://" + d.per.admin + "/metrics")
		age, _, ok := scraped(metrics, "agentstream_backup_age_seconds")
		return ok && age >= 0 && age < 300
	})
	d.tell(done[0]+"_more", 3, true)
	if out, code := d.command("restore", folder, "--only", "streams"); code != 1 || !strings.Contains(out, "is there and ends with message") {
		t.Errorf("streams over streams that have gone on: %d %s", code, out)
	}
	var b struct {
		Streams []struct {
			File string `json:"file"`
		} `json:"streams"`
	}
	text, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, b.Streams[0].File)
	snapshot, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	snapshot[len(snapshot)/2] ^= 1
	if err := os.WriteFile(path, snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	d.replaceServers(testkit.GiveToOwner(t, testkit.Postgres(t)))
	if out, code := d.command("restore", folder); code != 1 || !strings.Contains(out, "not as the manifest says") {
		t.Errorf("a damaged file: %d %s", code, out)
	}
	if err := os.Remove(filepath.Join(folder, "manifest.json")); err != nil {
		t.Fatal(err)
	}
	if out, code := d.command("restore", folder); code != 1 || !strings.Contains(out, "no backup") {
		t.Errorf("a folder without a manifest: %d %s", code, out)
	}
}
