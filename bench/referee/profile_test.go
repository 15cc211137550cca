package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// A stack is of the innermost group that it passes through, and of the runtime if it passes through none and begins
// there.
func TestProfilesAreGrouped(t *testing.T) {
	sums, err := groupStacks(strings.NewReader(`File: agentstream
Duration: 5s, Total samples = 100ms ( 2%)
-----------+----------------------------------------------------
   10000us   runtime.futex /go/src/runtime/sys_linux_amd64.s:557
             github.com/nats-io/nats%2ego.(*Conn).publish nats.go@v1.55.0/nats.go:4000
             agentstream/producers.(*Appender).Append agentstream/producers/appender.go:10
             net/http.(*conn).serve net/http/server.go:2
-----------+----------------------------------------------------
   20000us   agentstream/schema.DecodeBatch agentstream/schema/decode.go:10
             agentstream/edge/rest.(*API).ingest agentstream/edge/rest/ingest.go:10
             net/http.(*conn).serve net/http/server.go:2
-----------+----------------------------------------------------
   30000us   runtime.findRunnable runtime/proc.go:1
             runtime.mcall runtime/asm_amd64.s:1
-----------+----------------------------------------------------
              stream:  AGENT_7
   40000us   syscall.write syscall/x.go:1
             agentstream/edge.(*View).flush agentstream/edge/view.go:7
             agentstream/edge.(*Server).serve agentstream/edge/server.go:7
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Duration{groups[1].name: 10 * time.Millisecond, "routing and decoding": 20 * time.Millisecond,
		runtimeGroup: 30 * time.Millisecond, "delivery": 40 * time.Millisecond}
	if !maps.Equal(sums, want) {
		t.Errorf("%v, not %v", sums, want)
	}
	if _, err := groupStacks(strings.NewReader("-----\n  much f\n")); err == nil {
		t.Error("a stack without a time is one")
	}
}
