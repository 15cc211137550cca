package nimi

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// TestFiltersAreBounded: a filter of a stream has at most 64 entries.
func TestFiltersAreBounded(t *testing.T) {
	for _, n := range []int{dialect.MaxList, dialect.MaxList + 1} {
		kinds, scopes := make([]runtimev1.AgentEventType, n), make([]runtimev1.MemoryBankScope, n)
		apps := make([]string, n)
		for stream, m := range map[string]proto.Message{
			StreamAgent:   &runtimev1.SubscribeAgentEventsRequest{AgentId: "a", EventFilters: kinds},
			StreamMemory:  &runtimev1.SubscribeMemoryEventsRequest{ScopeFilters: scopes},
			StreamMessage: &runtimev1.SubscribeAppMessagesRequest{AppId: "a", FromAppIds: apps},
		} {
			body, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Dialect{}.Open(dialect.Input{Stream: stream, Body: body})
			if refused := err != nil; refused != (n > dialect.MaxList) {
				t.Errorf("%s with %d entries: %v", stream, n, err)
			}
		}
	}
}
