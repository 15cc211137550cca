package serve_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

func health() *runtimev1.RuntimeHealthEvent      { return &runtimev1.RuntimeHealthEvent{} }
func provider() *runtimev1.AIProviderHealthEvent { return &runtimev1.AIProviderHealthEvent{} }
func chunk() *runtimev1.AuditExportChunk         { return &runtimev1.AuditExportChunk{} }

// TestKStream001 closes each stream as its mode says, when a node goes away: D says CANCELLED, and health STOPPING
// before.
func TestKStream001(t *testing.T) {
	n := start(t)
	n.Say("runtime-provider", edgetest.Event("custom.runtime.provider", `{"providerName":"w1","state":"healthy"}`))
	res, err := invoke(with(t), n, "RuntimeAiRealtimeService/OpenRealtimeSession",
		&runtimev1.OpenRealtimeSessionRequest{Head: ask().Head}, &runtimev1.OpenRealtimeSessionResponse{})
	if err != nil {
		t.Fatal(err)
	}
	id := res.GetSessionId()
	h := open(with(t), n, "RuntimeAuditService/SubscribeRuntimeHealthEvents",
		&runtimev1.SubscribeRuntimeHealthEventsRequest{}, health)
	if e := h.must(); e.GetStatus() != runtimev1.RuntimeHealthStatus_RUNTIME_HEALTH_STATUS_READY ||
		e.GetSequence() != 1 || e.GetSampledAt() == nil {
		t.Error(e)
	}
	p := open(with(t), n, "RuntimeAuditService/SubscribeAIProviderHealthEvents",
		&runtimev1.SubscribeAIProviderHealthEventsRequest{}, provider)
	if e := p.must(); e.GetSequence() != 1 || e.GetState() != "healthy" {
		t.Error(e)
	}
	n.Say("runtime-provider", edgetest.Event("custom.runtime.provider",
		`{"providerName":"w1","state":"unhealthy","reason":"gone"}`))
	if e := p.must(); e.GetSequence() != 2 || e.GetState() != "unhealthy" {
		t.Error(e)
	}
	list, err := invoke(with(t), n, "RuntimeAuditService/ListAIProviderHealth",
		&runtimev1.ListAIProviderHealthRequest{}, &runtimev1.ListAIProviderHealthResponse{})
	if err != nil || len(list.GetProviders()) != 1 || list.GetProviders()[0].GetState() != "unhealthy" {
		t.Error(list, err)
	}
	r := open(with(t), n, "RuntimeAiRealtimeService/ReadRealtimeEvents",
		&runtimev1.ReadRealtimeEventsRequest{SessionId: id}, liveEvent)
	a := open(with(t), n, "RuntimeAgentService/SubscribeAgentEvents",
		&runtimev1.SubscribeAgentEventsRequest{AgentId: id, Cursor: "0"}, agentEvent)
	m := open(with(t), n, "RuntimeAppService/SubscribeAppMessages",
		&runtimev1.SubscribeAppMessagesRequest{AppId: "app"}, appEvent)
	c := open(with(t), n, "RuntimeAccountService/SubscribeAccountSessionEvents",
		&runtimev1.SubscribeAccountSessionEventsRequest{}, accEvent)
	w := open(with(t), n, "RuntimeLocalService/WatchLocalTransfers", &runtimev1.WatchLocalTransfersRequest{},
		func() *runtimev1.LocalTransferProgressEvent { return &runtimev1.LocalTransferProgressEvent{} })
	r.must()
	if e := c.must(); e.GetEventType() != runtimev1.AccountEventType_ACCOUNT_EVENT_TYPE_ACCOUNT_STATUS {
		t.Error(e)
	}
	for _, st := range []grpc.ClientStream{a.st, m.st, c.st, w.st} { // headers come at once
		if _, err := st.Header(); err != nil {
			t.Error(err)
		}
	}
	go n.Stop()
	stopping, err := h.rest()
	if status.Code(err) != codes.Canceled || len(stopping) != 1 ||
		stopping[0].GetStatus() != runtimev1.RuntimeHealthStatus_RUNTIME_HEALTH_STATUS_STOPPING {
		t.Errorf("%v, %v", stopping, err)
	}
	ends := map[string]func() (int, error){"providers": count(p.rest), "realtime": count(r.rest), "agent": count(a.rest), "messages": count(m.rest), "account": count(c.rest), "transfers": count(w.rest)}
	for name, end := range ends {
		if more, err := end(); status.Code(err) != codes.Canceled || more > 0 {
			t.Errorf("%s: %d messages, %v", name, more, err)
		}
	}
}

func count[M any](rest func() ([]M, error)) func() (int, error) {
	return func() (int, error) { list, err := rest(); return len(list), err }
}

// list is a catalog of the runs of a log.
type list struct{ runs []schema.RunInfo }

func (l *list) Runs(_ context.Context, _ string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	i := 0
	if !q.After.IsZero() {
		for i < len(l.runs) && l.runs[i].ID != q.After.ID {
			i++
		}
		i++
	}
	return l.runs[min(i, len(l.runs)):min(i+q.Limit, len(l.runs))], nil
}

func (l *list) Parent(context.Context, string, string) (string, error) { return "", nil }

// TestKStream009 exports control events of the app's runs: chunks from 0, eof once and last; an empty export is one
// empty chunk.
func TestKStream009(t *testing.T) {
	l := &list{}
	n := start(t, func(c *edge.Config) { c.Catalog = l })
	export := func(m *runtimev1.ExportAuditEventsRequest) ([]*runtimev1.AuditExportChunk, []byte, error) {
		chunks, err := open(with(t), n, "RuntimeAuditService/ExportAuditEvents", m, chunk).rest()
		var all []byte
		for i, c := range chunks {
			if c.GetSequence() != uint64(i) || c.GetEof() != (i == len(chunks)-1) || c.GetExportId() != chunks[0].GetExportId() {
				t.Errorf("chunk %d of %d is %d, eof %v", i, len(chunks), c.GetSequence(), c.GetEof())
			}
			all = append(all, c.GetChunk()...)
		}
		return chunks, all, err
	}
	if chunks, all, err := export(&runtimev1.ExportAuditEventsRequest{Compress: true}); err != nil ||
		len(chunks) != 1 || len(all) != 0 || chunks[0].GetMimeType() != "application/x-ndjson+gzip" {
		t.Errorf("%v, %v", chunks, err)
	}
	for i := range 150 {
		_, run := n.scenario(with(t), ask(func(m *runtimev1.StreamScenarioRequest) { m.Head.SubjectUserId = fmt.Sprint("u", i%2) }))
		n.Say(run, text("not exported"), over("error", "AI_PROVIDER_INTERNAL: secret words"))
		l.runs = append(l.runs, schema.RunInfo{ID: run,
			Session: json.RawMessage(fmt.Sprintf(`{"app_id":"app","subject":"u%d"}`, i%2))})
	}
	chunks, all, err := export(&runtimev1.ExportAuditEventsRequest{})
	lines := strings.Split(strings.TrimSpace(string(all)), "\n")
	if err != nil || len(chunks) < 2 || len(lines) != 450 || strings.Contains(string(all), "secret") ||
		strings.Contains(string(all), "hello") {
		t.Fatalf("%d chunks, %d lines, %v", len(chunks), len(lines), err)
	}
	var last struct {
		Operation  string
		ReasonCode string `json:"reason_code"`
		AppID      string `json:"app_id"`
	}
	if err := json.Unmarshal([]byte(lines[449]), &last); err != nil || last.Operation != "run.lifecycle" ||
		last.ReasonCode != "AI_PROVIDER_INTERNAL" || last.AppID != "app" {
		t.Errorf("%s, %v", lines[449], err)
	}
	_, all, err = export(&runtimev1.ExportAuditEventsRequest{Format: "json", Compress: true, SubjectUserId: "u1"})
	z, zerr := gzip.NewReader(bytes.NewReader(all))
	if err := errors.Join(err, zerr); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	var array []json.RawMessage
	if err := errors.Join(err, json.Unmarshal(text, &array)); err != nil || len(array) != 225 {
		t.Errorf("%d records, %v", len(array), err)
	}
	if _, all, err := export(&runtimev1.ExportAuditEventsRequest{ToTime: &timestamppb.Timestamp{Seconds: 1}}); err != nil || len(all) > 0 {
		t.Errorf("%d bytes before 1970, %v", len(all), err)
	}
	page := &runtimev1.ListAuditEventsRequest{PageSize: 200}
	for want := range 3 {
		res, err := invoke(with(t), n, "RuntimeAuditService/ListAuditEvents", page, &runtimev1.ListAuditEventsResponse{})
		if len := len(res.GetEvents()); err != nil || len != []int{200, 200, 50}[want] ||
			(res.GetNextPageToken() == "") != (want == 2) {
			t.Errorf("page %d: %d, %v", want, len, err)
		}
		page.PageToken = res.GetNextPageToken()
	}
	_, _, err = export(&runtimev1.ExportAuditEventsRequest{Format: "xml"})
	refused(t, "format", err, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID")
	_, _, err = export(&runtimev1.ExportAuditEventsRequest{AppId: "other"})
	refused(t, "another app", err, codes.PermissionDenied, "APP_SCOPE_FORBIDDEN")
	_, err = open(t.Context(), n, "RuntimeAuditService/ExportAuditEvents", &runtimev1.ExportAuditEventsRequest{},
		chunk).next()
	refused(t, "no app", err, codes.Unauthenticated, "PRINCIPAL_UNAUTHORIZED")
}
