package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister/sqlite"
	"agentstream/schema"
)

// TestDrillImportKilled: an import that is killed at generated points, after so many events or in its blobs, and run
// again until it is done, leaves what one that was not disturbed does: the same bytes of every run and blob, each event
// once. What it does last for a run that has lost its beginning is done too when a kill came before it.
func TestDrillImportKilled(t *testing.T) {
	d := newDrill(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	folder, refs, total := devFolderOf(t, d, 40)
	path := filepath.Join(folder, "archive.db")
	expire(t, path, "run_dev_1", 3)
	db := d.admin()
	d.killImports(db, folder, total, rnd)
	if out, code := d.command("import", folder); code != 0 {
		t.Fatalf("import: %d\n%s", code, out)
	}
	if n := userEvents(t, db); n != total-3 {
		t.Errorf("%d events, want %d", n, total-3)
	}
	delete(d.told, "run_dev_1")
	var names []string
	for run := range d.told {
		names = append(names, run)
	}
	slices.Sort(names)
	if lost := d.served(names...); lost > 0 {
		t.Errorf("%d events are lost", lost)
	}
	for run, ref := range refs {
		code, text := getText(d.run(run) + "/blobs/" + ref)
		if code != http.StatusOK || text != strings.Repeat(run+" ", 100_000) {
			t.Errorf("the blob of %s: %d, %d bytes", run, code, len(text))
		}
	}
	d.forgetExpiry(db, folder, "run_dev_1", 3)
	if out, code := d.command("import", folder); code != 0 || !strings.Contains(out, " 0 moved with 0 events") {
		t.Errorf("an import again: %d %s", code, out)
	}
}

// killImports starts imports and kills each after a generated number of events.
func (d *drill) killImports(db *pgx.Conn, folder string, total int, rnd *rand.Rand) {
	d.t.Helper()
	kills, within := 8, 0
	for i := range kills {
		before := userEvents(d.t, db)
		p := d.startImport(folder)
		at := before + rnd.IntN(max(1, (total-before)/(kills-i))+1)
		for userEvents(d.t, db) < at && !p.over() {
			<-time.After(time.Millisecond)
		}
		<-time.After(time.Duration(rnd.IntN(20)) * time.Millisecond)
		p.kill()
		if n := userEvents(d.t, db); n > 0 && n < total-3 {
			within++
		}
	}
	d.t.Logf("%d of %d kills came in the middle", within, kills)
	if within == 0 {
		d.t.Error("no kill came in the middle")
	}
}

// admin connects to the database as one from whom row security hides nothing.
func (d *drill) admin() *pgx.Conn {
	d.t.Helper()
	db, err := pgx.Connect(d.t.Context(), strings.Replace(d.dsn, "//owner_of_databases@", "//postgres@", 1))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

// userEvents returns how many events of users the tables have.
func userEvents(t *testing.T, db *pgx.Conn) (n int) {
	t.Helper()
	const ask = "select count(*) from agent_run_events where koder_user_id = 'default'"
	if err := db.QueryRow(t.Context(), ask).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// devFolderOf makes the folder of a dev server with runs, of which every fourth has a blob, and notes what it served.
func devFolderOf(t *testing.T, d *drill, runs int) (folder string, refs map[string]string, total int) {
	t.Helper()
	folder, refs = filepath.Join(t.TempDir(), "data"), make(map[string]string)
	dev := newProc(t, "dev", "--data", folder, "--no-demo", "--archive-settle", "0s")
	dev.start()
	base := "http://" + dev.addr
	for i := range runs {
		run := fmt.Sprint("run_dev_", i)
		postTo(t, base, run, fmt.Sprintf(drillText, 0))
		if i%4 == 0 {
			refs[run] = putBlob(t, base, run, strings.Repeat(run+" ", 100_000))
		}
		postTo(t, base, run, devBody(i, 200))
		d.told[run] = served(t, base, run)
		total += len(d.told[run])
	}
	eventually(t, time.Minute, "the folder's tables have all of it", func() bool {
		_, text := getText(base + "/v1/agent/runs?limit=200")
		return strings.Count(text, `"run_dev_`) >= runs
	})
	dev.stop()
	return folder, refs, total
}

// expire has the first events of a run expire in a folder.
func expire(t *testing.T, path, run string, through schema.Seq) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.BeginAt(t.Context(), schema.RunKey{Tenant: "default", Run: run}, through); err != nil {
		t.Fatal(err)
	}
}

// forgetExpiry takes back that the beginning of an imported run has expired, as a kill just before leaves it, and holds
// the next import to it.
func (d *drill) forgetExpiry(db *pgx.Conn, folder, run string, want int) {
	d.t.Helper()
	expired := func() (n int) {
		d.t.Helper()
		if err := db.QueryRow(d.t.Context(), "select expired_seq from agent_runs where id = $1", run).Scan(&n); err != nil {
			d.t.Fatal(err)
		}
		return n
	}
	if n := expired(); n != want {
		d.t.Errorf("%s has lost its first %d events, want %d", run, n, want)
	}
	const forget = "update agent_runs set expired_seq = 0, floor_seq = 0 where id = $1"
	if _, err := db.Exec(d.t.Context(), forget, run); err != nil {
		d.t.Fatal(err)
	}
	if out, code := d.command("import", folder); code != 0 {
		d.t.Errorf("an import again: %d %s", code, out)
	}
	if n := expired(); n != want {
		d.t.Errorf("after a kill %s has lost its first %d events, want %d", run, n, want)
	}
}

// importing is an import that runs.
type importing struct {
	t    *testing.T
	pid  int
	done chan struct{}
}

func (d *drill) startImport(folder string) *importing {
	d.t.Helper()
	path, err := binary()
	if err != nil {
		d.t.Fatal(err)
	}
	cmd := command(path, "import", folder)
	cmd.Env = append(os.Environ(), "AGENTSTREAM_POSTGRES="+d.dsn, "AGENTSTREAM_NATS="+d.natsURL)
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	p := &importing{t: d.t, pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	return p
}

func (p *importing) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill kills it, if it has not ended.
func (p *importing) kill() {
	if !p.over() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	<-p.done
}
