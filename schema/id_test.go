package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/schema"
)

// hostileIDs are names that must never come near a subject, a header or a path.
var hostileIDs = []string{
	"", "-", ".", "..", "a.b", ".a", "a.", "*", ">", "a*", "a>", "a b", " a", "a ", "a\tb", "a\nb", "a\rb", "a\r\nb: c",
	"a\x00", "\x00",
	"a\x7f", "a/b", "../../etc", "a\\b", "a%2eb", "a:b", "a$b", "$SYS", "a@b", "a\"b", "a'b", "é", "a\u200bb", "\u200b",
	"\ufeff", "а", "𝒂",
	"a\u202eb", "\xff", "a\xc3", "\xed\xa0\x80", strings.Repeat("a", schema.MaxRunID+1), strings.Repeat("a", 1<<20),
	"{}", "null\n",
}

func TestHostileIDs(t *testing.T) {
	for _, id := range hostileIDs {
		for name, err := range map[string]error{
			"run": schema.ValidRunID(id), "key": schema.RunKey{Tenant: "t", Run: id}.Validate(),
		} {
			if !errors.Is(err, schema.ErrBadID) {
				t.Errorf("%s %.40q: %v", name, id, err)
			} else if len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\r\x00") {
				t.Errorf("%s: error of %d bytes: %.200q", name, len(err.Error()), err)
			}
		}
		if id == "-" { // a lane's name, but a fine tenant and event id
			continue
		}
		for name, err := range map[string]error{
			"tenant": schema.ValidTenant(id), "event": schema.ValidEventID(id),
			"key": schema.RunKey{Tenant: id, Run: "r"}.Validate(),
		} {
			if !errors.Is(err, schema.ErrBadID) {
				t.Errorf("%s %.40q: %v", name, id, err)
			}
		}
	}
	for _, id := range []string{"a", "A", "0", "_", "--", "-a", "run_01JGX6", strings.Repeat("a", schema.MaxRunID)} {
		if err := schema.ValidRunID(id); err != nil {
			t.Error(err)
		}
	}
	if schema.ValidTenant(strings.Repeat("t", schema.MaxTenantID)) != nil ||
		schema.ValidTenant(strings.Repeat("t", schema.MaxTenantID+1)) == nil {
		t.Error("bound of a tenant")
	}
}

func TestSubjects(t *testing.T) {
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	for _, lane := range []string{"", "run_c", "_", "--", "live", "agent"} {
		subject := schema.Subject(key, lane, 4)
		for _, s := range []string{subject, schema.LivePrefix + strings.TrimPrefix(subject, schema.StorePrefix)} {
			got, gotLane, err := schema.ParseSubject(s)
			if err != nil || got != key || gotLane != lane {
				t.Errorf("%s: %v %q %v", s, got, gotLane, err)
			}
		}
		if !strings.HasPrefix(subject, strings.TrimSuffix(schema.RunFilter(key, 4), ">")) {
			t.Errorf("%s is not under %s", subject, schema.RunFilter(key, 4))
		}
	}
	p := schema.Partition("run_1", 4)
	for got, want := range map[string]string{
		schema.Subject(key, "", 4):  fmt.Sprintf("agent.%d.acme.run_1.-", p),
		schema.Subject(key, "c", 4): fmt.Sprintf("agent.%d.acme.run_1.c", p),
		schema.RunFilter(key, 4):    fmt.Sprintf("agent.%d.acme.run_1.>", p),
		schema.LiveFilter(key, 4):   fmt.Sprintf("live.agent.%d.acme.run_1.>", p),
		schema.PartitionFilter(3):   "agent.3.>",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What the log says of a child's id lies under every filter of the run of that name, and is no pack.
func TestChildSubjects(t *testing.T) {
	key := schema.RunKey{Tenant: "acme", Run: "kid"}
	s := schema.ChildSubject(key, "run_1", 4)
	if want := fmt.Sprintf("agent.%d.acme.kid.-.run_1", schema.Partition("kid", 4)); s != want ||
		!strings.HasPrefix(s, strings.TrimSuffix(schema.RunFilter(key, 4), ">")) {
		t.Errorf("%s, want %s", s, want)
	}
	if child, root, ok := schema.ParseChildSubject(s); !ok || child != key || root != "run_1" {
		t.Errorf("%s: %v %s %v", s, child, root, ok)
	}
	if _, _, err := schema.ParseSubject(s); !errors.Is(err, schema.ErrBadPack) {
		t.Errorf("%s is a pack: %v", s, err)
	}
	bad := []string{"", ".", "agent.0.acme.kid.-", "agent.0.acme.kid.-.", "agent.0.acme.kid.-.-",
		"agent.0.acme.kid.x.run", "agent.0.acme.kid.-.a.b",
		"live.agent.0.acme.kid.-.run", "agent.0.acme.*.-.run", "agent.0.acme.kid.-.>"}
	for _, s := range bad {
		if child, root, ok := schema.ParseChildSubject(s); ok {
			t.Errorf("%s: %v %s", s, child, root)
		}
	}
	for payload, want := range map[string]string{`{"child_id":"kid"}`: "kid", `{"child_id":"k\u0069d","x":1}`: "kid",
		`{"Child_id":"kid"}`: "", `{"child_id":"-"}`: "",
		`{"child_id":"a.b"}`: "", `{"child_id":7}`: "", `{}`: "", `[]`: "", `{`: "", ``: "", `null`: ""} {
		if got := schema.ChildOfSpawn([]byte(payload)); got != want {
			t.Errorf("%s: %q", payload, got)
		}
	}
}

// TestPartition pins the hash, FNV-1a (computed elsewhere): another one would look for every stored run in the wrong
// stream.
func TestPartition(t *testing.T) {
	for run, want := range map[string]int{"run_1": 2, "run_2": 3, "run_01JGX6TESTRUN": 2, "a": 0, "b": 1} {
		if got := schema.Partition(run, 4); got != want {
			t.Errorf("Partition(%s, 4) = %d, pinned %d", run, got, want)
		}
	}
	seen := map[int]int{}
	for i := range 4000 {
		seen[schema.Partition(fmt.Sprintf("run_%d", i), 4)]++
	}
	for p := range 4 {
		if seen[p] < 700 {
			t.Errorf("partition %d has %d of 4000 runs", p, seen[p])
		}
	}
	if schema.Partition("x", 1) != 0 {
		t.Error("one partition")
	}
}

func TestParseSubjectRefuses(t *testing.T) {
	bad := []string{"", "agent", "agent.", "agent.0.t.r", "agent.0.t.r.", "agent.0.t.r.c.d", "agent.0..r.c",
		"agent.0.t..c", "xagent.0.t.r.c",
		"live.0.t.r.c", "live.live.agent.0.t.r.c", "agent.0.t.r.*", "agent.0.t.r.>", "agent.0.t.*.-", "agent.0.t.-.-",
		"agent.0.t.r.c\r\n", "AGENT.0.t.r.c"}
	for _, id := range hostileIDs {
		bad = append(bad, "agent.0.t."+id+".-")
		if id != "-" {
			bad = append(bad, "agent.0."+id+".r.-", "agent.0.t.r."+id)
		}
	}
	for _, s := range bad {
		if key, lane, err := schema.ParseSubject(s); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("%.80q: %v %q %v", s, key, lane, err)
		}
	}
}

func TestParseCursor(t *testing.T) {
	for text, want := range map[string]schema.Seq{"": 0, "0": 0, "7": 7, "0007": 7, "9007199254740991": schema.MaxSeq} {
		if got, err := schema.ParseCursor(text); err != nil || got != want {
			t.Errorf("%q: %d %v", text, got, err)
		}
	}
	for _, text := range []string{"-1", "+1", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", "NaN", "null", "evt_1",
		"9007199254740992", "9999999999999999",
		"18446744073709551616", "00000000000000001", "١", "1\x00", "1,2", strings.Repeat("1", 1<<16)} {
		if got, err := schema.ParseCursor(text); !errors.Is(err, schema.ErrBadCursor) {
			t.Errorf("%.40q: %d %v", text, got, err)
		}
	}
}

// TestIDsGrow with a clock that jumps, and over floors.
func TestIDsGrow(t *testing.T) {
	ids := schema.NewIDs()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	last := ""
	for i := range 3000 {
		switch i % 7 {
		case 3:
			now = now.Add(-time.Hour)
		case 5:
			now = now.Add(time.Hour + time.Millisecond)
		}
		id := ids.Event(now, "")
		if id <= last || schema.ValidEventID(id) != nil || !strings.HasPrefix(id, schema.EventPrefix) {
			t.Fatalf("%d: %s after %s", i, id, last)
		}
		last = id
	}
	if run := ids.Run(now); !strings.HasPrefix(run, schema.RunPrefix) || schema.ValidRunID(run) != nil {
		t.Errorf("run id %s", run)
	}
}

func TestIDsFloor(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ahead := schema.NewIDs().Event(now.Add(10*time.Minute), "")
	ids := schema.NewIDs()
	if id := ids.Event(now, ahead); id <= ahead {
		t.Errorf("%s is not above the floor %s", id, ahead)
	}
	behind := schema.NewIDs().Event(now.Add(-time.Hour), "")
	last := ids.Event(now, "")
	for _, floor := range []string{behind, "", "garbage", "evt_", "evt_!!!!!!!!!!!!!!!!!!!!!!!!!!", "run_x",
		strings.Repeat("Z", 26), "evt_8ZZZZZZZZZZZZZZZZZZZZZZZZZ"} {
		id := ids.Event(now, floor)
		if id <= last {
			t.Errorf("floor %s: %s after %s", floor, id, last)
		}
		last = id
	}
}

// TestIDsForgedFloor: one run's forged id must not carry the ids of all others to the end of time.
func TestIDsForgedFloor(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ids := schema.NewIDs()
	ids.Event(now, "evt_7ZZZZZZZZZZZZZZZZZZZZZZZZZ")
	id := ids.Event(now, "")
	if limit := schema.NewIDs().Event(now.Add(25*time.Hour), ""); id >= limit {
		t.Errorf("%s is from the future", id)
	}
	if next := ids.Event(now.Add(time.Hour), ""); next <= id {
		t.Errorf("%s after %s", next, id)
	}
}

// TestStamp asks with clocks that disagree, at once.
func TestStamp(t *testing.T) {
	g, base := schema.NewIDs(), time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	var clocks sync.WaitGroup
	for i := range 4 {
		clocks.Go(func() {
			for k := range 2000 {
				now := base.Add(time.Duration(k*(i+1)) * 300 * time.Microsecond)
				if got, want := g.Stamp(now), now.Format(schema.TimeLayout); got != want {
					t.Errorf("%v: %s, want %s", now, got, want)
				}
			}
		})
	}
	clocks.Wait()
}

func TestIDsConcurrently(t *testing.T) {
	ids := schema.NewIDs()
	now := time.Now()
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			last := ""
			for range 500 {
				id := ids.Event(now, last)
				mu.Lock()
				if seen[id] || id <= last {
					t.Errorf("%s after %s", id, last)
				}
				seen[id] = true
				mu.Unlock()
				last = id
			}
		})
	}
	wg.Wait()
}
