package serve_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"agentstream/edge/edgetest"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// TestTrimmedFeeds: of a feed whose beginning is no longer kept a client without a number gets what is left. One whose
// number is older is refused with OUT_OF_RANGE; that of an account is told how the account is now, and that it has
// missed something. States are those of what is left.
func TestTrimmedFeeds(t *testing.T) {
	n := start(t)
	for i := range 3 {
		n.Say("runtime-account", edgetest.Event("custom.runtime.account", `{"eventType":3,"state":`+string(rune('1'+i))+`}`))
		n.Say("runtime-memory", edgetest.Event("custom.runtime.memory", `{"eventType":1}`))
		n.Say("runtime-provider", edgetest.Event("custom.runtime.provider",
			`{"providerName":"w","state":"healthy","models":["m`+string(rune('1'+i))+`"]}`))
		if _, err := invoke(with(t), n, "RuntimeAppService/SendAppMessage",
			&runtimev1.SendAppMessageRequest{FromAppId: "app", ToAppId: "app", MessageType: "t"},
			&runtimev1.SendAppMessageResponse{}); err != nil {
			t.Fatal(err)
		}
	}
	account := func(after uint64) *opened[*runtimev1.AccountSessionEvent] {
		return open(with(t), n, "RuntimeAccountService/SubscribeAccountSessionEvents",
			&runtimev1.SubscribeAccountSessionEventsRequest{AfterSequence: after}, accEvent)
	}
	for _, run := range []string{"runtime-account", "runtime-memory", "runtime-provider", nimi.MessageRun("app")} {
		n.Nodes.Log.Expire(edgetest.Key(run), 2)
	}
	o := account(0)
	if a, b := o.must(), o.must(); a.GetState() != 3 || a.GetReplayTruncated() || b.GetSequence() != 3 {
		t.Errorf("without a number: %v, %v", a, b)
	}
	for after, truncated := range map[uint64]bool{1: true, 2: false, 3: false, 9: true} {
		o := account(after)
		a := o.must()
		if a.GetEventType() != 1 || a.GetState() != 3 || a.GetReplayTruncated() != truncated {
			t.Errorf("after %d: %v", after, a)
		}
		if after == 2 {
			if b := o.must(); b.GetSequence() != 3 || b.GetEventType() != 3 {
				t.Errorf("after %d: %v", after, b)
			}
		}
	}
	o = account(1)
	o.must()
	n.Say("runtime-account", edgetest.Event("custom.runtime.account", `{"eventType":9,"state":8}`))
	if b := o.must(); b.GetSequence() != 4 || b.GetState() != 8 {
		t.Errorf("what comes behind a truncated snapshot: %v", b)
	}
	memory := func(cursor string) *opened[*runtimev1.MemoryEvent] {
		return open(with(t), n, "RuntimeCognitionService/SubscribeMemoryEvents",
			&runtimev1.SubscribeMemoryEventsRequest{Cursor: cursor}, memEvent)
	}
	if a := memory("").must(); a.GetSequence() != 3 {
		t.Errorf("%v", a)
	}
	if a := memory("2").must(); a.GetSequence() != 3 {
		t.Errorf("%v", a)
	}
	_, err := memory("1").next()
	holds(t, "an older cursor", err, codes.OutOfRange, "PROTOCOL_ENVELOPE_INVALID")
	_, err = open(with(t), n, "RuntimeAppService/SubscribeAppMessages",
		&runtimev1.SubscribeAppMessagesRequest{AppId: "app", Cursor: "1"}, appEvent).next()
	holds(t, "an older cursor of messages", err, codes.OutOfRange, "PROTOCOL_ENVELOPE_INVALID")
	p := open(with(t), n, "RuntimeAuditService/SubscribeAIProviderHealthEvents",
		&runtimev1.SubscribeAIProviderHealthEventsRequest{}, provider)
	if a := p.must(); a.GetProviderName() != "w" || a.GetSequence() != 1 {
		t.Errorf("%v", a)
	}
	_, err = n.ends(with(t), prefix+"RuntimeAiService/StreamScenario", proto.Message(ask()))
	holds(t, "a model that is no longer announced", err, codes.NotFound, "AI_MODEL_NOT_FOUND")
}
