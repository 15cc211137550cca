package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/s2"

	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema/redact/redacttest"
)

// deployed is a deployment of an edge and a persister on NATS and PostgreSQL, and where each of its parts keeps files.
type deployed struct {
	*examplesHouse
	bus    string
	places map[string]string // folders, by what is in them
}

// newDeployed starts a deployment that encrypts what all tenants store.
func newDeployed(t *testing.T) *deployed {
	t.Helper()
	folder, _ := program(t)
	store, listen := t.TempDir(), testkit.FreeAddr(t)
	nats, err := natskit.Serve(natskit.Embedded{StoreDir: store, Listen: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nats.Shutdown(); nats.WaitForShutdown() })
	pg := testkit.StartPostgres(t)
	d := &deployed{&examplesHouse{t: t, folder: folder, url: "http://" + listen, admin: pg.Database(t)}, nats.ClientURL(),
		map[string]string{"log": store, "tables": filepath.Join(pg.Socket(), "data"), "objects": filepath.Join(folder, "blobs"),
			"backup": filepath.Join(folder, "backup")}}
	d.env = []string{asProgram + "=1", "PATH=" + folder + ":" + os.Getenv("PATH"), "HOME=" + folder,
		"AGENTSTREAM_NATS=" + d.bus, "AGENTSTREAM_POSTGRES=" + d.admin, "AGENTSTREAM_BLOBS=" + d.places["objects"],
		"AGENTSTREAM_KEY_SERVICE=file:" + filepath.Join(folder, "keys"), "AGENTSTREAM_ENCRYPT=*", "AGENTSTREAM_KEY_LIFE=1s"}
	if err := os.Mkdir(filepath.Join(folder, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.do("migrate")
	d.do("keys create --tenant default --by ops")
	d.begin("off", "persist", "--archive-settle", "1s", "--linger", "0s")
	d.begin("off", "edge", "--insecure-no-auth", "--listen", listen, "--nats-ingest", "--otlp-settle", "100ms")
	return d
}

// do runs a command that succeeds.
func (d *deployed) do(line string) {
	d.t.Helper()
	if out, status := d.run(line); status != 0 {
		d.t.Fatalf("%s: %d\n%s", line, status, out)
	}
}

// flush has PostgreSQL write its tables into files.
func (d *deployed) flush() {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.admin)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(d.t.Context()))
	for _, query := range []string{"vacuum analyze", "checkpoint"} {
		if _, err := conn.Exec(d.t.Context(), query); err != nil {
			d.t.Fatal(err)
		}
	}
}

// unpack writes beside the parts of a backup what is compressed in them.
func (d *deployed) unpack() {
	d.t.Helper()
	backup := d.places["backup"]
	dumps, err := filepath.Glob(filepath.Join(backup, "*.dump"))
	snapshots, err2 := filepath.Glob(filepath.Join(backup, "streams", "*.snapshot"))
	if err != nil || err2 != nil || len(dumps) != 1 || len(snapshots) < 3 {
		d.t.Fatalf("the backup has %q, %q", dumps, snapshots)
	}
	out, err := exec.CommandContext(d.t.Context(), "pg_restore", "--file=-", dumps[0]).Output()
	if err == nil {
		err = os.WriteFile(dumps[0]+".sql", out, 0o600)
	}
	for _, path := range snapshots {
		b, readErr := os.ReadFile(path)
		text, s2Err := io.ReadAll(s2.NewReader(bytes.NewReader(b)))
		for _, e := range []error{err, readErr, s2Err} {
			if e != nil {
				d.t.Fatal(path, e)
			}
		}
		err = os.WriteFile(path+".tar", text, 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// TestEncryptedDeployment: of texts that come in by every way nothing is in any file of NATS, of PostgreSQL with its
// write-ahead log, of the objects and of a backup, while readers get them as they were sent. The ids beside them, which are
// not encrypted, are found in each of these places, so it is searched. Once the key is deleted, no protocol shows a text.
func TestEncryptedDeployment(t *testing.T) {
	d := newDeployed(t)
	sendSecrets(t, d.url, d.bus, planted)
	whole(t, d.url)
	checkReads(t, d.url)
	clitest.WaitFor(t, func() bool { // there are objects
		found, err := filepath.Glob(filepath.Join(d.places["objects"], "default", "*", "events-0.*"))
		return err == nil && len(found) > 1
	})
	d.flush()
	d.do("backup " + d.places["backup"] + " --objects copy")
	d.unpack()
	id := []redacttest.Secret{{Kind: "id", Text: "events-0", Core: "events-0"}}
	for part, folder := range d.places {
		if leaks := searchFiles(t, folder, planted); len(leaks) > 0 {
			t.Errorf("%s, found in files: %q", part, leaks)
		}
		if len(searchFiles(t, folder, id)) == 0 {
			t.Errorf("%s: not even an id is found", part)
		}
	}
	d.do("keys delete --tenant default --yes --by ops")
	clitest.WaitFor(t, func() bool {
		status, body := readBeginning(t, d.url+"/v1/agent/runs/events-0/events")
		return status == http.StatusGone && strings.Contains(body, "KEY-GONE")
	})
	for _, path := range readsOf {
		status, body := readBeginning(t, d.url+path)
		if leaks := redacttest.Leak([]byte(body), planted); len(leaks) > 0 || status != http.StatusGone {
			t.Errorf("%s: %d, %q", path, status, leaks)
		}
	}
}
