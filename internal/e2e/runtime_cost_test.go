package e2e_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"agentstream/edge/edgetest"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// rawCall calls a stream on a connection of its own. Its window is the test's to open.
func rawCall(t *testing.T, p *proc, path string, message []byte, headers ...string) *edgetest.Raw {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	r, err := edgetest.CallRaw(c, path, message,
		append(headers, "authorization", "Bearer "+edgeToken, "x-nimi-app-id", runtimeApp)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// runtimeScenario opens the stream of the scenario with a key, with room for all of it.
func runtimeScenario(t *testing.T, p *proc, key string) *edgetest.Raw {
	t.Helper()
	message, err := proto.Marshal(textScenario("watched", "hello"))
	if err != nil {
		t.Fatal(err)
	}
	return rawCall(t, p, "/nimi.runtime.v1.RuntimeAiService/StreamScenario", message, "x-nimi-idempotency-key", key)
}

// runtimeDev starts a node that knows a model that nobody serves: who answers is the test.
func runtimeDev(t *testing.T) *proc {
	t.Helper()
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	postLog(t, p.url("/v1/agent/runs/runtime-provider/events"),
		`custom.runtime.provider {"providerName":"test","state":"healthy","models":["watched"]}`)
	return p
}

// runOf returns the run of a scenario whose stream begins.
func runOf(t *testing.T, r *edgetest.Raw) string {
	t.Helper()
	e := &runtimev1.StreamScenarioEvent{}
	if err := proto.Unmarshal(r.Next(), e); err != nil || e.GetStarted() == nil {
		t.Fatalf("%v, %v", e, err)
	}
	return e.GetTraceId()
}

// TestRuntimeCost: what a delta costs the server that 1,000 clients watch as a scenario, beside the native stream over
// gRPC in full detail. Each delta has over 32 bytes, so that it is a message of its own in both. The long form has the
// machine to itself.
func TestRuntimeCost(t *testing.T) {
	clients, deltas, rounds := 1000, 60, 7
	if !runtimeLong() {
		beside(t)
		clients, deltas, rounds = 40, 10, 1
	}
	p := runtimeDev(t)
	m := metisAt(t, p)
	conns, runs := [2][]*edgetest.Raw{}, [2]string{"native", ""}
	m.open(runs[0])
	native := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), runs[0])
	native = protowire.AppendVarint(protowire.AppendTag(native, 4, protowire.VarintType), 1)
	for range clients {
		conns[0] = append(conns[0], rawCall(t, p, "/agent.v1.AgentRun/Stream", native))
		conns[1] = append(conns[1], runtimeScenario(t, p, "cost"))
	}
	for i, list := range conns {
		for _, r := range list {
			if err := r.Allow(1 << 30); err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				runs[1] = runOf(t, r)
			}
		}
	}
	used := [2][]float64{}
	for round := range rounds + 1 {
		for i, list := range conns {
			began := cpuSeconds(p.cmd.Process.Pid, false)
			for n := range deltas { // each client is written to once for each
				end := fmt.Sprintf("%d.%d.", round, n)
				var reading sync.WaitGroup
				for _, r := range list {
					reading.Go(func() {
						if !r.Until(end) {
							t.Errorf("%s: %s", runs[i], r.WaitEnd(0))
						}
					})
				}
				m.append(p.url("/v1/agent/runs/"+runs[i]+"/events"),
					`{"type":"text.delta","payload":{"text":"`+end+strings.Repeat(" and more", 5)+`","index":0}}`+"\n")
				reading.Wait()
			}
			if took := cpuSeconds(p.cmd.Process.Pid, false) - began; round > 0 { // the first warms up
				used[i] = append(used[i], took)
			}
		}
	}
	if !runtimeLong() {
		return
	}
	per := func(i int) float64 { // what others do on the machine only adds to it
		return slices.Min(used[i]) / float64(clients*deltas) * 1e6
	}
	t.Logf("a delivery takes %.2f µs of CPU, the native one over gRPC %.2f: ratio %.2f", per(1), per(0), per(1)/per(0))
	if per(1) > 1.3*per(0) {
		t.Errorf("a delivery costs more than 1.3 times the native one")
	}
}
