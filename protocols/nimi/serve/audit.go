package serve

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Sizes of an export.
const (
	auditChunk = 32 << 10 // bytes of a chunk, about
	auditRuns  = 100      // runs that are listed at a time
)

// wantedAudit is what an export is of.
type wantedAudit struct {
	app, subject string
	since, until time.Time
}

// export sends audit records: chunks from 0, the last one with eof (K-STREAM-009). A node that goes away finishes it.
func export(c *protocol.Call, in dialect.Input, to protocol.Sending) error {
	m, err := nimi.Read(in.Body, &runtimev1.ExportAuditEventsRequest{})
	if err != nil {
		return err
	}
	w, err := readAuditRequest(c, m)
	if err != nil {
		return err
	}
	out := &chunks{id: c.NewRun("export_"), send: to.Send, form: "%s\n", next: "%s\n"}
	array := false
	if out.mime, array, _ = nimi.Format(m.GetFormat()); array { // it was looked at
		out.form, out.next, out.tail = "[%s", ",%s", "]"
	}
	out.to = &out.held
	if m.GetCompress() {
		out.mime += "+gzip"
		out.zip = gzip.NewWriter(&out.held)
		out.to = out.zip
	}
	ctx := context.WithoutCancel(c.Context()) // what sends to a client that is gone fails
	if err := w.walk(ctx, c, out.record); err != nil {
		return err
	}
	return out.finish()
}

// readAuditRequest reads what an export asks for, as far as the caller's app may.
func readAuditRequest(c *protocol.Call, m *runtimev1.ExportAuditEventsRequest) (w wantedAudit, err error) {
	app := appOf(c)
	if app == "" && m.GetAppId() == "" {
		return w, nimi.Refuse(runtimev1.ReasonCode_PRINCIPAL_UNAUTHORIZED, "an export is of an app")
	}
	if app != "" && m.GetAppId() != "" && app != m.GetAppId() {
		return w, nimi.Refuse(runtimev1.ReasonCode_APP_SCOPE_FORBIDDEN, "app_id is not the caller's")
	}
	// or 1970
	w = wantedAudit{app: cmp.Or(app, m.GetAppId()), subject: m.GetSubjectUserId(), since: m.GetFromTime().AsTime()}
	if t := m.GetToTime(); t != nil {
		w.until = t.AsTime()
	}
	return w, nil
}

// walk hands out the control events of the app's runs, oldest run first.
func (w *wantedAudit) walk(ctx context.Context, c *protocol.Call, each func(*runtimev1.AuditEventRecord) error) error {
	q := schema.RunsQuery{Until: w.until, Limit: auditRuns, Oldest: true, Sessions: true, Archived: true}
	for {
		list, err := c.Runs(ctx, q)
		if err != nil {
			return err
		}
		for i := range list {
			r := &list[i]
			s := nimi.ReadScenario(r.Session)
			if s.App != w.app || w.subject != "" && s.Subject != w.subject || !r.Updated.IsZero() && r.Updated.Before(w.since) {
				continue
			}
			if err := w.run(ctx, c, r.ID, s, each); err != nil {
				return err
			}
		}
		if len(list) < q.Limit {
			return nil
		}
		q.After = list[len(list)-1].Cursor()
	}
}

func (w *wantedAudit) run(ctx context.Context, c *protocol.Call, run string, s nimi.Scenario,
	each func(*runtimev1.AuditEventRecord) error) error {
	head, err := c.Head(ctx, run)
	if err != nil {
		return err
	}
	for r, err := range c.Records(ctx, run, 0, head.Last) {
		if err != nil {
			return err
		}
		if m := auditOf(run, s, r); m != nil && w.within(m) {
			if err := each(m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *wantedAudit) within(m *runtimev1.AuditEventRecord) bool {
	t := m.GetTimestamp().AsTime()
	return !t.Before(w.since) && (w.until.IsZero() || t.Before(w.until))
}

// auditOf returns the record of a control event: what began, what was commanded, what ended. nil: it is none. Content
// is left out.
func auditOf(run string, s nimi.Scenario, r schema.Record) *runtimev1.AuditEventRecord {
	typ := string(r.Type)
	f := jsonscan.Fields(nil)
	reason := runtimev1.ReasonCode_ACTION_EXECUTED
	switch {
	case typ == schema.TypeSessionCreated:
	case strings.HasPrefix(typ, "command."):
		f = f.Read(r.Payload())
	case typ == schema.TypeRunLifecycle:
		f = f.Read(r.Payload())
		if f.Str("state") == string(schema.StateError) {
			reason = nimi.ReasonOf(f.Str("reason"))
		}
	default:
		return nil
	}
	id, ts, _ := r.Envelope()
	at, _ := time.Parse(time.RFC3339Nano, string(ts)) // a zero time is sent
	m := &runtimev1.AuditEventRecord{AuditId: string(id), AppId: s.App, SubjectUserId: s.Subject, Domain: "runtime.ai",
		Operation: typ, ReasonCode: reason,
		TraceId: run, Timestamp: timestamppb.New(at), PrincipalId: f.Str("by")}
	if state := f.Str("state"); state != "" {
		m.Payload = &structpb.Struct{Fields: map[string]*structpb.Value{"state": structpb.NewStringValue(state)}}
	}
	return m
}

// chunks collects an export.
type chunks struct {
	id, mime string
	form     string // of the next record
	next     string // of those behind it
	tail     string // behind the last
	n        uint64
	records  int
	held     bytes.Buffer
	zip      *gzip.Writer // nil: it is not compressed
	to       io.Writer
	send     func([]byte) error
}

func (o *chunks) record(m *runtimev1.AuditEventRecord) error {
	text, err := encodeMessage(m, protojson.MarshalOptions{UseProtoNames: true})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(o.to, o.form, text); err != nil {
		return err
	}
	o.records++
	o.form = o.next
	if o.held.Len() >= auditChunk {
		return o.flush(false)
	}
	return nil
}

func (o *chunks) flush(eof bool) error {
	b, err := proto.Marshal(&runtimev1.AuditExportChunk{ExportId: o.id, Sequence: o.n, Chunk: o.held.Bytes(), Eof: eof,
		MimeType: o.mime})
	if err != nil {
		return err
	}
	o.n++
	o.held.Reset()
	return o.send(b)
}

// finish sends the last chunk. An empty export is one that is empty.
func (o *chunks) finish() error {
	if o.records == 0 {
		o.held.Reset()
		return o.flush(true)
	}
	if _, err := io.WriteString(o.to, o.tail); err != nil {
		return err
	}
	if o.zip != nil {
		if err := o.zip.Close(); err != nil {
			return err
		}
	}
	return o.flush(true)
}

// maxPage bounds the records of a page.
const maxPage = 500

// errPage ends a walk whose page is full.
var errPage = errors.New("the page is full")

// listAudit answers with the first records of what an export has, of one domain, and a token for the next ones: how
// many there were.
func listAudit(ctx context.Context, c *protocol.Call,
	m *runtimev1.ListAuditEventsRequest) (*runtimev1.ListAuditEventsResponse, error) {
	w, err := readAuditRequest(c, &runtimev1.ExportAuditEventsRequest{AppId: m.GetAppId(),
		SubjectUserId: m.GetSubjectUserId(), FromTime: m.GetFromTime(), ToTime: m.GetToTime()})
	if err != nil {
		return nil, err
	}
	skip, size := 0, min(max(int(m.GetPageSize()), 1), maxPage)
	if m.GetPageSize() == 0 {
		size = maxPage
	}
	if token := m.GetPageToken(); token != "" {
		text, ok := protocol.ReadPageToken("audit", token)
		if skip, err = strconv.Atoi(text); err != nil || !ok {
			return nil, nimi.Refuse(runtimev1.ReasonCode_PAGE_TOKEN_INVALID, "page_token is not one of this list")
		}
	}
	answer, n := &runtimev1.ListAuditEventsResponse{}, 0
	err = w.walk(ctx, c, func(r *runtimev1.AuditEventRecord) error {
		if d := m.GetDomain(); d != "" && d != r.GetDomain() || m.GetReasonCode() != 0 &&
			m.GetReasonCode() != r.GetReasonCode() {
			return nil
		}
		if n++; n <= skip {
			return nil
		}
		if len(answer.Events) == size {
			answer.NextPageToken = protocol.PageToken("audit", strconv.Itoa(n-1))
			return errPage
		}
		answer.Events = append(answer.Events, r)
		return nil
	})
	if err != nil && !errors.Is(err, errPage) {
		return nil, err
	}
	return answer, nil
}
