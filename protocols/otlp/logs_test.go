package otlp_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	spans "agentstream/adapters/otlp"
	"agentstream/protocols/otlp"
	"agentstream/schema"
)

// textValue is a text of OpenTelemetry.
func textValue(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
}

// mapValue is a map of texts, and of maps: names and values.
func mapValue(list ...any) *common.AnyValue {
	kv := &common.KeyValueList{}
	for i := 0; i < len(list); i += 2 {
		v, isMap := list[i+1].(*common.AnyValue)
		if !isMap {
			v = textValue(fmt.Sprint(list[i+1]))
		}
		kv.Values = append(kv.Values, &common.KeyValue{Key: list[i].(string), Value: v})
	}
	return &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: kv}}
}

// record makes the log record of a span, as the library for Node writes it.
func record(id string, span, at int, name string, body *common.AnyValue) *logs.LogRecord {
	s := spanOf(id, span, 0, at, at, "")
	return &logs.LogRecord{TraceId: s.TraceId, SpanId: s.SpanId, TimeUnixNano: s.StartTimeUnixNano, Body: body,
		Attributes: []*common.KeyValue{{Key: "event.name", Value: textValue(name)}}}
}

// talk is a model call whose contents are in log records: a question that is asked twice, and the answer.
func talk(id string) []*logs.LogRecord {
	return []*logs.LogRecord{
		record(id, 2, 1, "gen_ai.system.message", mapValue("content", "Be brief.")),
		record(id, 2, 1, "gen_ai.user.message", mapValue("content", "hello?")),
		record(id, 2, 1, "gen_ai.user.message", mapValue("content", "hello?")),
		record(id, 2, 4, "gen_ai.choice",
			mapValue("finish_reason", "stop", "message", mapValue("content", "here I am"))),
	}
}

func encodeLogs(t *testing.T, list ...*logs.LogRecord) []byte {
	t.Helper()
	b, err := proto.Marshal(&logs.LogsData{ResourceLogs: []*logs.ResourceLogs{{
		ScopeLogs: []*logs.ScopeLogs{{Scope: &common.InstrumentationScope{Name: "test"}, LogRecords: list}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// postLogs sends log records, and returns the answer.
func (w *world) postLogs(contentType string, body []byte) (status int, text string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.node.Host+otlp.LogsPath,
		bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := w.node.HTTP.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// sendLogs sends log records, and expects that all are taken.
func (w *world) sendLogs(list ...*logs.LogRecord) {
	w.t.Helper()
	status, text := w.postLogs("application/x-protobuf", encodeLogs(w.t, list...))
	if status != http.StatusOK || text != "" {
		w.t.Fatalf("%d %q", status, text)
	}
}

// sayings are the texts of the messages in a story.
func sayings(story string) (list []string) {
	for line := range strings.Lines(story) {
		_, text, ok := strings.Cut(line, `"text":"`)
		if ok && strings.Contains(line, schema.TypeMessageEnd) {
			text, _, _ = strings.Cut(text, `"`)
			list = append(list, text)
		}
	}
	return list
}

// TestLogsHaveTheContents has a model call whose messages are in log records, which come before its span, after it,
// twice, and when the trace was settled: they are told once.
func TestLogsHaveTheContents(t *testing.T) {
	for name, send := range map[string]func(w *world, id string, bare, root func()){
		"before": func(w *world, id string, bare, root func()) {
			w.sendLogs(talk(id)...)
			bare()
			root()
		},
		"after, twice": func(w *world, id string, bare, root func()) {
			bare()
			root()
			w.sendLogs(talk(id)...)
			w.restart()
			w.sendLogs(talk(id)...)
		},
		"by and by": func(w *world, id string, bare, root func()) {
			w.sendLogs(talk(id)[:3]...)
			root()
			w.settle(id)
			w.sendLogs(talk(id)[3:]...)
			bare()
		},
		"late": func(w *world, id string, bare, root func()) {
			bare()
			root()
			w.settle(id)
			w.sendLogs(talk(id)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := traceID(3)
			send(w, id, func() {
				w.send(spanOf(id, 2, 1, 1, 5, "chat m", "gen_ai.operation.name", "chat", "gen_ai.system", "openai",
					"gen_ai.usage.input_tokens", 11, "gen_ai.usage.output_tokens", 5))
			}, func() { w.send(spanOf(id, 1, 0, 0, 9, "root")) })
			w.settle(id)
			w.settle(id)
			story := w.story(id)
			if got := fmt.Sprint(sayings(story)); got != "[hello? hello? here I am]" {
				t.Errorf("%s in\n%s", got, story)
			}
			if n := w.count(id, spans.LogType); n != 4 {
				t.Errorf("%d records are stored of 4", n)
			}
			if strings.Count(story, `"input_tokens":11`) != 1 || strings.Count(story, schema.TypeModelEnd) != 1 ||
				!strings.HasSuffix(story, "{\"state\":\"done\"}\n") {
				t.Error(story)
			}
		})
	}
}

// TestLogsThatAreRefused has records that belong to no span, and those that are no events of models.
func TestLogsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	id := traceID(3)
	noSpan, other := talk(id)[1], record(id, 2, 1, "http.request", textValue("GET /"))
	noSpan.SpanId = nil
	status, text := w.postLogs("application/x-protobuf", encodeLogs(t, noSpan, other, talk(id)[3]))
	if status != 200 || !strings.Contains(text, "2 refused: of log records") {
		t.Errorf("%d %q", status, text)
	}
	list := talk(traceID(171))
	jsonBody := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"` + traceID(171) + `","spanId":"` +
		hex.EncodeToString(list[1].SpanId) + `","timeUnixNano":"7","eventName":"gen_ai.user.message",` +
		`"body":{"kvlistValue":{"values":[{"key":"content","value":{"stringValue":"hi"}}]}}},{"body":{"stringValue":"x"}}]}]}]}`
	status, text = w.postLogs("application/json", []byte(jsonBody))
	if status != 200 || !strings.Contains(text, `"rejectedLogRecords":"1"`) {
		t.Errorf("%d %q", status, text)
	}
	w.send(spanOf(traceID(171), 2, 0, 1, 5, "chat m", "gen_ai.operation.name", "chat"))
	w.settle(traceID(171))
	if got := fmt.Sprint(sayings(w.story(traceID(171)))); got != "[hi]" {
		t.Error(got)
	}
	for contentType, body := range map[string]string{"application/x-protobuf": "\xff\xff", "application/json": "["} {
		if status, text := w.postLogs(contentType, []byte(body)); status != 400 {
			t.Errorf("%s: %d %q", contentType, status, text)
		}
	}
	var many []*logs.LogRecord
	for i := range 10_100 {
		many = append(many, record(traceID(9), 2, i, "gen_ai.user.message", mapValue("content", "hi")))
	}
	status, text = w.postLogs("application/x-protobuf", encodeLogs(t, many...))
	if status != 200 || !strings.Contains(text, "100 refused: a trace keeps 10,000") {
		t.Errorf("%d %q", status, text)
	}
	huge := record(traceID(10), 2, 1, "gen_ai.user.message", mapValue("content", strings.Repeat("a", 1<<20), "id", "x"))
	w.sendLogs(huge)
	if list := w.events(traceID(10)); len(list) != 2 || len(list[1].Payload) > 200<<10 ||
		!strings.Contains(string(list[1].Payload), `"omitted":["content"]`) {
		t.Errorf("%d events", len(list))
	}
}

// TestLogsOverGRPC sends log records over gRPC.
func TestLogsOverGRPC(t *testing.T) {
	w := newWorld(t)
	cc, err := grpc.NewClient(w.node.Host, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	request := &logs.LogsData{ResourceLogs: []*logs.ResourceLogs{{
		ScopeLogs: []*logs.ScopeLogs{{LogRecords: talk(traceID(3))}}}}}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "test-caller", "tenant:acme")
	if err := cc.Invoke(ctx, otlp.LogsRPC, request, new(emptypb.Empty)); err != nil {
		t.Fatal(err)
	}
	if n := w.count(traceID(3), spans.LogType); n != 4 {
		t.Errorf("%d records are stored of 4", n)
	}
}

// TestALateSpanKeepsTheFault has a trace that has failed, and a span that comes when it is settled: it has failed still.
func TestALateSpanKeepsTheFault(t *testing.T) {
	w := newWorld(t)
	id := traceID(4)
	root := spanOf(id, 1, 0, 0, 9, "root")
	root.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR, Message: "no"}
	w.send(root)
	w.settle(id)
	w.send(chat(id, 2, 1, 1, 2, "q", "a", ""))
	w.settle(id)
	if story := w.story(id); strings.Count(story, `{"state":"error","reason":"no"}`) != 2 {
		t.Error(story)
	}
}
