package nimi

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// Read decodes a request's message and holds it to its form, which is looked at before all else (K-KEYSRC-004).
func Read[M proto.Message](body []byte, m M) (M, error) {
	if err := proto.Unmarshal(body, m); err != nil {
		return m, refuseMalformed("not a %s", m.ProtoReflect().Descriptor().Name())
	}
	return m, form(m)
}

// Envelope returns what is wrong with the form of a message that a method was sent: "/package.Service/Method".
func Envelope(path string, body []byte) error {
	name := strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return err
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Input().FullName())
	if err != nil {
		return err
	}
	_, err = Read(body, t.New().Interface())
	return err
}

// form refuses a message without what every one of its kind has.
func form(m proto.Message) error {
	if listLength(m) > dialect.MaxList {
		return refuseMalformed("a filter has more than %d entries", dialect.MaxList)
	}
	switch m := m.(type) {
	case interface {
		GetHead() *runtimev1.ScenarioRequestHead
		GetSpec() *runtimev1.ScenarioSpec
	}:
		if m.GetSpec().GetSpec() == nil {
			return refuseMalformed("spec is missing")
		}
	case *runtimev1.SubscribeAppMessagesRequest:
		if m.GetAppId() == "" {
			return refuseMalformed("app_id is missing")
		}
	case *runtimev1.SendAppMessageRequest:
		if m.GetFromAppId() == "" || m.GetToAppId() == "" || m.GetMessageType() == "" {
			return refuseMalformed("from_app_id, to_app_id and message_type are needed")
		}
	case interface{ GetFormat() string }:
		if _, _, ok := Format(m.GetFormat()); !ok {
			return refuseMalformed("format is not ndjson, jsonl or json")
		}
	case interface{ GetAfterSequence() uint64 }:
		if _, err := sequence(m.GetAfterSequence()); err != nil {
			return err
		}
	}
	return formOfNames(m)
}

// listLength is how long the list of a filter is.
func listLength(m proto.Message) int {
	switch m := m.(type) {
	case *runtimev1.SubscribeAgentEventsRequest:
		return len(m.GetEventFilters())
	case *runtimev1.SubscribeMemoryEventsRequest:
		return len(m.GetScopeFilters())
	case *runtimev1.SubscribeAppMessagesRequest:
		return len(m.GetFromAppIds())
	}
	return 0
}

// formOfNames looks at heads, ids and cursors.
func formOfNames(m proto.Message) error {
	if m, ok := m.(interface {
		GetHead() *runtimev1.ScenarioRequestHead
	}); ok {
		if h := m.GetHead(); h == nil || h.GetRoutePolicy() == runtimev1.RoutePolicy_ROUTE_POLICY_UNSPECIFIED ||
			h.GetTimeoutMs() < 0 {
			return refuseMalformed("head and its route_policy are needed, and timeout_ms is not negative")
		}
	}
	if m, ok := m.(interface{ GetCursor() string }); ok {
		if _, err := cursor(m.GetCursor()); err != nil {
			return err
		}
	}
	id := "-"
	switch m := m.(type) {
	case interface{ GetJobId() string }:
		id = m.GetJobId()
	case interface{ GetTaskId() string }:
		id = m.GetTaskId()
	case interface{ GetSessionId() string }:
		id = m.GetSessionId()
	case interface{ GetAgentId() string }:
		id = m.GetAgentId()
	}
	if id == "" {
		return refuseMalformed("the id is missing")
	}
	return nil
}

// Format reads the format of an export: its MIME type, and whether it is one array.
func Format(name string) (mime string, array, ok bool) {
	switch name {
	case "", "ndjson", "jsonl":
		return "application/x-ndjson", false, true
	case "json":
		return "application/json", true, true
	}
	return "", false, false
}

// refuseMalformed refuses a message that is not as the protocol has it.
func refuseMalformed(format string, args ...any) error {
	return Refuse(runtimev1.ReasonCode_PROTOCOL_ENVELOPE_INVALID, format, args...)
}
