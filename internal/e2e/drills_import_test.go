package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// importEvents is how many events the folder of a dev server has, in how many runs.
func importEvents() (runs, events int) {
	if long() {
		return 1000, 1000
	}
	return 12, 50
}

// putBlob puts a blob of a run and returns its reference.
func putBlob(t *testing.T, base, run, content string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, base+"/v1/agent/runs/"+run+"/blobs", strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/plain")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("a blob: %d %s %v", resp.StatusCode, text, err)
	}
	_, ref, _ := strings.Cut(string(text), `"blob_ref":"`)
	ref, _, _ = strings.Cut(ref, `"`)
	return ref
}

// postTo appends lines to a run.
func postTo(t *testing.T, base, run, body string) {
	t.Helper()
	resp, err := http.Post(base+"/v1/agent/runs/"+run+"/events", "application/x-ndjson", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d", run, resp.StatusCode)
	}
}

// devBody is n events of a run, and its end if it has one.
func devBody(run, n int) string {
	var body strings.Builder
	for i := range n {
		fmt.Fprintf(&body, `{"type":"text.delta","payload":{"text":"%d of run %d, \u0000 and 1e400"}}`+"\n", i, run)
	}
	if run%2 == 0 {
		body.WriteString(drillEnd)
	}
	return body.String()
}

// TestDrillImport: the folder of a dev server moves into a deployment that serves. Every run has the same bytes there,
// and its blob; runs that have not ended go on with their numbers. An import that is repeated changes nothing, and a run
// of which the deployment has other events is refused and left.
func TestDrillImport(t *testing.T) {
	d := newDrill(t)
	folder := filepath.Join(t.TempDir(), "data")
	dev := newProc(t, "dev", "--data", folder, "--no-demo", "--archive-settle", "0s")
	dev.start()
	base := "http://" + dev.addr
	runs, events := importEvents()
	refs := make(map[string]string)
	for i := range runs {
		run := fmt.Sprint("run_dev_", i)
		postTo(t, base, run, fmt.Sprintf(drillText, 0))
		if i%4 == 0 {
			refs[run] = putBlob(t, base, run, strings.Repeat(run+" ", 100_000))
		}
		postTo(t, base, run, devBody(i, events))
		d.told[run] = served(t, base, run)
	}
	if out, code := d.command("import", folder); code != 1 || !strings.Contains(out, "in use by") {
		t.Errorf("an import while the server runs: %d %s", code, out)
	}
	dev.stop()
	d.append("run_dev_1", `{"type":"text.delta","payload":{"text":"another run of this name"}}`+"\n")
	d.stored()
	d.began = time.Now()
	out, code := d.command("import", folder)
	if code != 1 || !strings.Contains(out, "REFUSED\tdefault/run_dev_1\t") || !strings.Contains(out, fmt.Sprintf("%d moved", runs-1)) {
		t.Fatalf("import: %d\n%s", code, out)
	}
	t.Logf("drill: %s", out)
	delete(d.told, "run_dev_1")
	var names []string
	for run := range d.told {
		names = append(names, run)
	}
	slices.Sort(names)
	lost := d.served(names...)
	d.report("import of a dev folder", lost)
	if lost > 0 {
		t.Errorf("%d events are lost", lost)
	}
	for run, ref := range refs {
		code, text := getText(d.run(run) + "/blobs/" + ref)
		if code != http.StatusOK || text != strings.Repeat(run+" ", 100_000) {
			t.Errorf("the blob %s of %s: %d, %d bytes", ref, run, code, len(text))
		}
	}
	if out, _ := d.command("import", folder); !strings.Contains(out, " 0 moved with 0 events") {
		t.Errorf("an import again: %s", out)
	}
	if code, text := d.append("run_dev_3", fmt.Sprintf(drillText, 0)); code != http.StatusOK ||
		!strings.Contains(text, fmt.Sprintf(`"first_seq":%d`, len(d.told["run_dev_3"])+1)) {
		t.Errorf("it goes on with %d %s", code, text)
	}
	d.archived("run_dev_0")
}
