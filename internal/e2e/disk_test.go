package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// speaker appends events to a run of its own, one after the other, each until it is acknowledged or refused.
type speaker struct {
	run    string
	keyed  bool
	acked  []int // numbers that events were acknowledged under
	unsure int   // answers that leave open whether an event is stored
	codes  map[string]int
	worst  time.Duration // longest wait for an answer
	all    *atomic.Int64 // counts what all speakers together were acknowledged
}

// speak goes on until ctx ends.
func (s *speaker) speak(ctx context.Context, t *testing.T, p *proc) {
	s.codes = map[string]int{}
	for n := 0; ctx.Err() == nil; n++ {
		begun := time.Now()
		status, body := appendOne(t, p, s.run, map[bool]string{true: fmt.Sprint("k", n)}[s.keyed])
		s.worst = max(s.worst, time.Since(begun))
		var answer struct {
			First int `json:"first_seq"`
			Error struct {
				Code string `json:"code"`
			} `json:"error"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Errorf("%s: %d %q: %v", s.run, status, body, err)
			return
		}
		s.codes[fmt.Sprint(status, " ", answer.Error.Code)]++
		switch {
		case status == http.StatusOK:
			s.acked = append(s.acked, answer.First)
			s.all.Add(1)
		case answer.Error.Code == "UNANSWERED":
			s.unsure++
		case status != http.StatusServiceUnavailable:
			t.Errorf("%s: %d %s", s.run, status, body)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// appendOne posts one event of some size, once.
func appendOne(t *testing.T, p *proc, run, key string) (int, string) {
	t.Helper()
	body := `{"type":"text.delta","payload":{"text":"` + strings.Repeat("x", 4<<10) + `"}}`
	req, err := http.NewRequest(http.MethodPost, p.url("/v1/agent/runs/"+run+"/events"), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, "{}"
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// readiness is what the operators' listener says.
type readiness struct {
	Ready     bool              `json:"ready"`
	Checks    map[string]string `json:"checks"`
	Persister []struct {
		Stream      string `json:"stream"`
		LastError   string `json:"last_error"`
		Rows        int    `json:"rows"`
		Lag         int    `json:"lag_messages"`
		DeadLetters int    `json:"dead_letters"`
		Conflicts   int    `json:"conflicts"`
	} `json:"persister"`
}

func readyOf(t *testing.T, p *proc) (r readiness) {
	t.Helper()
	resp, err := http.Get("http://" + p.admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Ready != (resp.StatusCode == http.StatusOK) {
		t.Fatalf("status %d, %+v", resp.StatusCode, r)
	}
	return r
}

// TestFullDisk fills the disk under a dev server that is being written to, three times: it says so in its readiness,
// refuses appends at once, goes on serving what is stored, and goes on by itself when there is room again. Nothing that
// was acknowledged is lost, in the log or in the archive, and no number is given twice.
func TestFullDisk(t *testing.T) {
	beside(t)
	disk := testkit.SmallDisk(t, 64)
	p := newProc(t, "dev", "--no-demo", "--data", filepath.Join(disk, "data"), "--partitions", "4")
	p.start()
	var acked atomic.Int64
	all := []*speaker{{run: "plain0"}, {run: "plain1"}, {run: "plain2"}, {run: "keyed0", keyed: true},
		{run: "keyed1", keyed: true}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var speaking sync.WaitGroup
	for _, s := range all {
		s.all = &acked
		speaking.Go(func() { s.speak(ctx, t, p) })
	}
	quiet := "quiet"
	say(t, p, quiet, 1)
	for round := range 3 {
		before := acked.Load()
		eventually(t, 60*time.Second, "events", func() bool { return acked.Load() > before+200 })
		free := testkit.Fill(t, disk)
		var r readiness
		eventually(t, 20*time.Second, "not ready", func() bool { r = readyOf(t, p); return !r.Ready })
		if !strings.Contains(r.Checks["disk"], "MiB") || r.Checks["nats"] != "ok" {
			t.Errorf("checks: %v", r.Checks)
		}
		for _, key := range []string{"", fmt.Sprint("key", round)} {
			// One that was not refused at once would wait for the log, and be UNANSWERED.
			if status, body := appendOne(t, p, quiet, key); status != 503 || !strings.Contains(body, `"STORAGE-FULL"`) {
				t.Errorf("full, key %q: %d %s", key, status, body)
			}
		}
		if got := events(t, p.url("/v1/agent/runs/"+quiet)); len(got) != 1+round {
			t.Errorf("full: %d events are served, want %d", len(got), 1+round)
		}
		free()
		eventually(t, 60*time.Second, "ready again", func() bool { return readyOf(t, p).Ready })
		eventually(t, 30*time.Second, "an append",
			func() bool { status, _ := appendOne(t, p, quiet, ""); return status == 200 })
	}
	cancel()
	speaking.Wait()
	t.Logf("NATS was begun anew %d times", strings.Count(p.log.String(), "was begun anew"))
	total := 4
	for _, s := range all {
		t.Logf("%s: %d acknowledged, %d unsure, longest wait %v, %v", s.run, len(s.acked), s.unsure,
			s.worst.Round(time.Millisecond), s.codes)
		stored := events(t, p.url("/v1/agent/runs/"+s.run))
		total += len(stored)
		if len(stored) < len(s.acked) || len(stored) > len(s.acked)+s.unsure+1 {
			t.Errorf("%s: %d events are stored, %d were acknowledged and %d left open", s.run, len(stored),
				len(s.acked), s.unsure)
		}
		for i, n := range s.acked {
			if n < 1 || n > len(stored) || i > 0 && n <= s.acked[i-1] {
				t.Fatalf("%s: the %d. acknowledged event has number %d of %d", s.run, i, n, len(stored))
			}
		}
	}
	eventually(t, 60*time.Second, "all is archived", func() bool {
		rows := 0
		for _, s := range readyOf(t, p).Persister {
			if rows += s.Rows; s.DeadLetters+s.Conflicts > 0 {
				t.Fatalf("%+v", s)
			}
		}
		return rows == total
	})
}

// TestFullDiskAtStart: a server does not start on a full disk, says why, and loses nothing by having tried.
func TestFullDiskAtStart(t *testing.T) {
	beside(t)
	disk := testkit.SmallDisk(t, 64)
	data := filepath.Join(disk, "data")
	p := newProc(t, "dev", "--no-demo", "--data", data)
	p.start()
	say(t, p, "run", 1)
	say(t, p, "run", 2)
	free := testkit.Fill(t, disk)
	p.kill()
	out, code := ends(t, "dev", "--no-demo", "--data", data, "--listen", "127.0.0.1:0", "--admin-listen", "off")
	if code != 1 || !strings.Contains(out, "no space left on device") {
		t.Errorf("on a full disk: status %d, %s", code, out)
	}
	free()
	p.start()
	say(t, p, "run", 3)
}

// TestFullDiskUnderArchive: what SQLite cannot store is said, in the check that says whether it can be read, until it
// is stored after all.
func TestFullDiskUnderArchive(t *testing.T) {
	beside(t)
	disk := testkit.SmallDisk(t, 64)
	p := newProc(t, "dev", "--no-demo", "--data", filepath.Join(disk, "data"), "--linger", "5s")
	p.start()
	rows := func() (n int) {
		for _, s := range readyOf(t, p).Persister {
			n += s.Rows
		}
		return n
	}
	say(t, p, "run", 1)
	eventually(t, 30*time.Second, "the first event is archived", func() bool { return rows() == 1 })
	const more = 100 // which wait for the next transaction
	for range more {
		if status, body := appendOne(t, p, "run", ""); status != 200 {
			t.Fatal(body)
		}
	}
	free := testkit.Fill(t, disk)
	eventually(t, 60*time.Second, "the archive's trouble",
		func() bool { return strings.Contains(readyOf(t, p).Checks["archive"], "disk is full") })
	free()
	eventually(t, 60*time.Second, "all is archived", func() bool { return rows() == 1+more })
	eventually(t, 30*time.Second, "all is well again",
		func() bool { r := readyOf(t, p); return r.Ready && r.Checks["archive"] == "ok" })
}
