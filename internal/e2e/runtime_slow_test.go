package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"agentstream/edge/edgetest"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// TestRuntimeSlow: clients that take 64 KiB of a scenario and then nothing cost no memory by what they have not read.
// Half of them come back after 12 s: they get COMPLETED, which the log has by then, and RESOURCE_EXHAUSTED. The others
// are reset. How long others wait for a delta meanwhile is printed.
func TestRuntimeSlow(t *testing.T) {
	clients, deltas := 200, 500
	if !runtimeLong() {
		beside(t)
		clients, deltas = 8, 20
	}
	p := runtimeDev(t)
	m := metisAt(t, p)
	quick, quickRun := runtimeWatchers(t, p, "quick", 20)
	quiet := waits(t, m, p.url("/v1/agent/runs/"+quickRun+"/events"), quick, deltas, "quiet")
	slow, run := runtimeWatchers(t, p, "slow", clients)
	events := p.url("/v1/agent/runs/" + run + "/events")
	say := func(mib int) {
		for range mib * 16 {
			m.append(events, `{"type":"text.delta","payload":{"text":"`+strings.Repeat("0123456789abcdef", 4<<10)+`"}}`+"\n")
		}
	}
	say(2)
	if runtimeLong() {
		time.Sleep(5 * time.Second)
	}
	heap := p.heap()
	say(4)
	// Within 5 s the archive is done with what was said, and what each client was read for it has been let go: a client
	// that does not read for 3 s keeps no state.
	grown, most := 0.0, 16.0
	for limit := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if grown = (p.heap() - heap) / (1 << 20); grown <= most || time.Now().After(limit) {
			break
		}
	}
	if grown > most {
		t.Errorf("4 MiB that %d clients do not read take %.1f MiB", clients, grown)
	}
	m.append(events, `{"type":"run.lifecycle","payload":{"state":"done","reason":null}}`+"\n")
	stalled := time.Now()
	loud := waits(t, m, p.url("/v1/agent/runs/"+quickRun+"/events"), quick, deltas, "loud")
	t.Logf("p50 and p99 of a delta: %v beside nobody, %v beside %d clients that read nothing; 4 MiB more for them take %.1f MiB of heap", quiet, loud, clients, grown)
	time.Sleep(time.Until(stalled.Add(12 * time.Second)))
	for _, r := range slow[:clients/2] {
		if err := r.Allow(1 << 30); err != nil {
			t.Error(err)
		}
	}
	for i, r := range slow {
		end, want := r.WaitEnd(2*time.Minute), "reset INTERNAL_ERROR"
		if i < clients/2 {
			want = "8 AI_STREAM_BROKEN"
			last := &runtimev1.StreamScenarioEvent{}
			list := r.Messages()
			if err := proto.Unmarshal(list[len(list)-1], last); err != nil || last.GetCompleted() == nil {
				t.Errorf("the last event of client %d is %v, %v", i, last, err)
			}
		}
		if end != want || r.Bytes() > 1<<20 {
			t.Errorf("client %d: %d bytes, ended with %q, want %q", i, r.Bytes(), end, want)
		}
	}
}

// runtimeWatchers opens streams of one scenario, with the window that HTTP/2 begins with.
func runtimeWatchers(t *testing.T, p *proc, key string, n int) (list []*edgetest.Raw, run string) {
	t.Helper()
	for range n {
		list = append(list, runtimeScenario(t, p, key))
	}
	for _, r := range list {
		run = runOf(t, r)
	}
	return list, run
}

// waits sends deltas, and returns how long it took in the middle, and at 99 of 100, until all clients had one.
func waits(t *testing.T, m metis, events string, clients []*edgetest.Raw, deltas int, name string) string {
	t.Helper()
	var took []time.Duration
	for n := range deltas {
		end := fmt.Sprintf("%s %d.", name, n)
		began := time.Now()
		var reading sync.WaitGroup
		for _, r := range clients {
			reading.Go(func() {
				if !r.Until(end) {
					t.Errorf("%s: %s", name, r.WaitEnd(0))
				}
				if err := r.Allow(1 << 10); err != nil {
					t.Error(err)
				}
			})
		}
		m.append(events, `{"type":"text.delta","payload":{"text":"`+strings.Repeat("and more ", 5)+end+`"}}`+"\n")
		reading.Wait()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return fmt.Sprintf("%v, %v", took[len(took)/2].Round(10*time.Microsecond),
		took[len(took)*99/100].Round(10*time.Microsecond))
}
