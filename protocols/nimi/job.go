package nimi

import (
	"cmp"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Job is a run as a scenario job and as a workflow: what its records have made of it so far.
type Job struct {
	req      dialect.Request
	scenario Scenario
	heard    heard
	sequence uint64
	tasks    uint64
	told     uint64 // states of providers, of this stream

	created, updated time.Time
	status           runtimev1.ScenarioJobStatus
	reason           runtimev1.ReasonCode
	detail           string
	progress         progress
	cancelled        bool // it was asked for
	clients          int  // of the scenario's streams
	outputs          []output
	nodes            []node
	providers        providers
	account          *runtimev1.AccountSessionEvent // the newest; nil: none was fed
	fields           jsonscan.Fields
	lived            schema.RunState // the state of the newest run.lifecycle
	session          realtime
}

// progress is so many steps of a total, 0: of none that is known.
type progress struct{ done, total int64 }

// output is what a run has produced, without the bytes.
type output struct {
	media string
	size  int64
	sum   hash.Hash
}

// node of a workflow.
type node struct {
	id     string
	status runtimev1.WorkflowStatus
	again  bool // a graph that goes on may begin it once more
}

// MaxNodes bounds the nodes of a workflow.
const MaxNodes = 256

// For returns a copy.
func (j *Job) For(req dialect.Request) dialect.Stateful {
	c := *j
	c.req, c.fields, c.told, c.heard = req, nil, 0, j.heard.clone()
	c.session = realtime{encoder: encoder{run: req.Run}, answer: j.session.answer}
	c.session.heard = j.session.heard.clone()
	c.providers, c.nodes, c.outputs = slices.Clone(j.providers), slices.Clone(j.nodes), slices.Clone(j.outputs)
	for i := range c.outputs {
		c.outputs[i].sum = cloneSum(j.outputs[i].sum)
	}
	return &c
}

func cloneSum(h hash.Hash) hash.Hash {
	out := sha256.New()
	if state, err := h.(encoding.BinaryMarshaler).MarshalBinary(); err == nil {
		_ = out.(encoding.BinaryUnmarshaler).UnmarshalBinary(state) // it was marshalled by the same code
	}
	return out
}

// Size is about what the copy holds.
func (j *Job) Size() int {
	n := 512 + len(j.detail) + 200*len(j.outputs)
	for _, p := range j.providers {
		n += 512 + 64*len(p.models)
	}
	for _, t := range j.nodes {
		n += 64 + len(t.id)
	}
	return n
}

// Admit lets everybody in.
func (j *Job) Admit(dialect.Request) error { return nil }

// Scenario returns what the run was begun with.
func (j *Job) Scenario() Scenario { return j.scenario }

// Over reports whether the run has ended.
func (j *Job) Over() bool {
	return j.status >= runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_COMPLETED
}

// Clients is how many streams of a scenario are open, as the run's records have it.
func (j *Job) Clients() int { return j.clients }

// IsClosed reports whether the run has ended or was asked to.
func (j *Job) IsClosed() bool { return j.Over() || j.cancelled }

// Project makes the frame of a record that changes what the client gets.
func (j *Job) Project(out *dialect.Frames, r schema.Record) error {
	if j.req.Stream == StreamRealtime {
		j.session.project(out, r)
	} else {
		j.session.project(nil, r)
	}
	changed, event := j.feed(r)
	if out == nil {
		return nil
	}
	switch j.req.Stream {
	case StreamProvider:
		return j.provider(out, r)
	case StreamAccount:
		return newFeed(j.req).Project(out, r)
	case StreamWorkflow:
		return j.workflowFrame(out, event)
	case StreamRealtime:
		return nil
	default:
		if !changed {
			return nil
		}
		m := &runtimev1.ScenarioJobEvent{EventType: runtimev1.ScenarioJobEventType(j.status), Sequence: j.sequence,
			TraceId:   j.req.Run,
			Timestamp: timestamppb.New(j.updated), Job: j.Job()}
		return add(out, m, j.Over())
	}
}

// feed reports whether a record changed the job, and returns the event of the workflow that it is, without its number;
// nil for none.
func (j *Job) feed(r schema.Record) (changed bool, event *runtimev1.WorkflowEvent) {
	at := j.updated
	if _, ts, _ := r.Envelope(); len(ts) > 0 {
		if t, err := time.Parse(time.RFC3339Nano, string(ts)); err == nil {
			at = t
		}
	}
	if j.status == 0 {
		j.created = at
		j.status, changed = runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_SUBMITTED, true
		event = &runtimev1.WorkflowEvent{EventType: runtimev1.WorkflowEventType_WORKFLOW_EVENT_STARTED}
	}
	switch typ := string(r.Type); typ {
	case schema.TypeSessionCreated:
		if r.Child == nil && r.Seq == 1 {
			j.scenario = ReadScenario(r.Payload())
			j.clients = 1
		}
	case schema.TypeTaskStart, schema.TypeTaskEnd:
		event = j.task(r, typ == schema.TypeTaskEnd)
	}
	if r.Child == nil {
		was, at := j.status, j.progress
		j.root(r)
		changed = changed || was != j.status || at != j.progress
		if j.Over() && was != j.status {
			event = &runtimev1.WorkflowEvent{EventType: workflowEnds[j.status], ReasonCode: j.reason}
		}
	}
	if changed {
		j.sequence++
	}
	if changed || event != nil {
		j.updated = at
	}
	if event != nil {
		j.tasks++
	}
	return changed, event
}

// root reads a record of the root lane.
func (j *Job) root(r schema.Record) {
	if j.Over() && string(r.Type) != schema.TypeRunLifecycle {
		return
	}
	switch string(r.Type) {
	case schema.TypeTurnStart:
		j.heard.hear(r)
		j.status = runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_RUNNING
	case schema.TypeProgress:
		j.fields = j.fields.Read(r.Payload())
		done, ok := j.fields.Integer("done")
		total, _ := j.fields.Integer("total")
		if ok && total > 0 && done >= 0 && done <= total {
			j.progress = progress{done, total}
			j.status = runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_RUNNING
		}
	case schema.TypeTextDelta:
		j.fields = j.fields.Read(r.Payload())
		j.addOutput("text/plain", []byte(j.fields.Str("text")))
	case schema.TypeDataDelta:
		j.fields = j.fields.Read(r.Payload())
		if media, data := Sound(j.fields); data != nil {
			j.addOutput(string(media), data)
		}
	case typeCancel:
		j.cancelled = true
	case TypeClients:
		j.fields = j.fields.Read(r.Payload())
		if j.clients++; j.fields.Str("client") == "left" {
			j.clients -= 2
		}
	case typeProvider:
		j.providers.set(r.Payload())
	case typeAccount:
		if m := (&runtimev1.AccountSessionEvent{}); FeedJSON.Unmarshal(r.Payload(), m) == nil {
			j.account = m
		}
	case schema.TypeRunLifecycle:
		j.lifecycle(r)
	case schema.TypeCommandMessage:
		j.turn()
		j.heard.hear(r)
	default:
		j.heard.hear(r)
	}
}

// addOutput adds data to the output of its media type.
func (j *Job) addOutput(media string, data []byte) {
	for i := range j.outputs {
		if o := &j.outputs[i]; o.media == media {
			o.size += int64(len(data))
			o.sum.Write(data)
			return
		}
	}
	if len(data) > 0 && len(j.outputs) < 8 {
		j.outputs = append(j.outputs, output{strings.Clone(media), 0, sha256.New()})
		j.addOutput(media, data)
	}
}

func (j *Job) lifecycle(r schema.Record) {
	j.fields = j.fields.Read(r.Payload())
	state, reason := schema.RunState(j.fields.Str("state")), j.fields.Str("reason")
	j.reason, j.detail = 0, ""
	if state != j.lived {
		j.lived = state
		j.turn()
	}
	switch state {
	case schema.StateDone:
		j.status = runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_COMPLETED
	case schema.StateAborted:
		j.status, j.detail = runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_CANCELED, strings.Clone(reason)
	case schema.StateError:
		j.status, j.reason, j.detail = runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_FAILED, ReasonOf(reason), strings.Clone(reason)
		if j.reason == runtimev1.ReasonCode_AI_PROVIDER_TIMEOUT || j.reason == runtimev1.ReasonCode_WF_TIMEOUT {
			j.status = runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_TIMEOUT
		}
	default:
		j.cancelled = false
		if j.Over() || j.status < runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_RUNNING {
			j.status = runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_RUNNING
		}
	}
}

// turn notes that the ids of nodes may be used again.
func (j *Job) turn() {
	for i := range j.nodes {
		j.nodes[i].again = true
	}
}

// Job returns the snapshot, the same for a stream and for who asks.
func (j *Job) Job() *runtimev1.ScenarioJob {
	s := j.scenario
	m := &runtimev1.ScenarioJob{
		JobId: j.req.Run, TraceId: j.req.Run, ScenarioType: s.Type,
		ExecutionMode: runtimev1.ExecutionMode_EXECUTION_MODE_ASYNC_JOB,
		Head: &runtimev1.ScenarioRequestHead{AppId: s.App, SubjectUserId: s.Subject, ModelId: s.Model,
			RoutePolicy: s.Route, TimeoutMs: int32(s.Timeout)},
		RouteDecision: s.Route, ModelResolved: cmp.Or(j.heard.model, s.Model), Status: j.status, ReasonCode: j.reason,
		ReasonDetail: j.detail,
		CreatedAt:    timestamppb.New(j.created), UpdatedAt: timestamppb.New(j.updated),
	}
	if s.As == "stream" {
		m.ExecutionMode = runtimev1.ExecutionMode_EXECUTION_MODE_STREAM
	}
	if p := j.progress; p.total > 0 {
		m.ProgressPercent, m.ProgressCurrentStep, m.ProgressTotalSteps = int32(100*p.done/p.total), int32(p.done), int32(p.total)
	}
	if j.Over() {
		m.Usage = j.heard.usage()
		m.Artifacts = j.Artifacts()
	}
	return m
}

// Artifacts returns what the run has produced, without the bytes.
func (j *Job) Artifacts() (list []*runtimev1.ScenarioArtifact) {
	for _, o := range j.outputs {
		list = append(list, &runtimev1.ScenarioArtifact{ArtifactId: j.req.Run + "/" + o.media, MimeType: o.media,
			SizeBytes: o.size,
			Sha256:    hex.EncodeToString(cloneSum(o.sum).Sum(nil))})
	}
	return list
}
