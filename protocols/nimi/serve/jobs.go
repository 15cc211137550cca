package serve

import (
	"context"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// job returns a run as it stands.
func job(ctx context.Context, c *protocol.Call, id string, none runtimev1.ReasonCode) (head schema.Head, j *nimi.Job,
	err error) {
	if id, err = nimi.RunID(id, none); err == nil {
		head, j, err = protocol.Newest[*nimi.Job](ctx, c, dialect.Request{Run: id, Stream: nimi.StreamJob})
	}
	if err == nil {
		err = ofApp(c, j.Scenario())
	}
	return head, j, err
}

func submitJob(ctx context.Context, c *protocol.Call,
	m *runtimev1.SubmitScenarioJobRequest) (*runtimev1.SubmitScenarioJobResponse, error) {
	if key := m.GetIdempotencyKey(); key != "" && c.Request.Header.Get(headerKey) == "" {
		c.Request.Header.Set(headerKey, key)
	}
	asked := &runtimev1.StreamScenarioRequest{Head: m.GetHead(), ScenarioType: m.GetScenarioType(),
		ExecutionMode: m.GetExecutionMode(), Spec: m.GetSpec(), Extensions: m.GetExtensions()}
	w := wanted{StreamScenarioRequest: asked, as: "job", method: "SubmitScenarioJob",
		mode: runtimev1.ExecutionMode_EXECUTION_MODE_ASYNC_JOB, labels: m.GetLabels()}
	run, _, err := w.store(ctx, c)
	if err != nil {
		return nil, err
	}
	_, j, err := protocol.Newest[*nimi.Job](ctx, c, dialect.Request{Run: run, Stream: nimi.StreamJob})
	if err != nil {
		return nil, err
	}
	return &runtimev1.SubmitScenarioJobResponse{Job: visibleJob(c, j)}, nil
}

// visibleJob is a job as its caller may see it: of one who may not read, which it is and its state.
func visibleJob(c *protocol.Call, j *nimi.Job) *runtimev1.ScenarioJob {
	all := j.Job()
	if c.MayRead() {
		return all
	}
	return &runtimev1.ScenarioJob{JobId: all.GetJobId(), TraceId: all.GetTraceId(), Status: all.GetStatus()}
}

const noJob = runtimev1.ReasonCode_AI_MEDIA_JOB_NOT_FOUND

func getJob(ctx context.Context, c *protocol.Call,
	m *runtimev1.GetScenarioJobRequest) (*runtimev1.GetScenarioJobResponse, error) {
	_, j, err := job(ctx, c, m.GetJobId(), noJob)
	if err != nil {
		return nil, err
	}
	return &runtimev1.GetScenarioJobResponse{Job: j.Job()}, nil
}

func cancelJob(ctx context.Context, c *protocol.Call,
	m *runtimev1.CancelScenarioJobRequest) (*runtimev1.CancelScenarioJobResponse, error) {
	_, j, err := job(ctx, c, m.GetJobId(), noJob)
	if err != nil {
		return nil, err
	}
	if err := cancel(ctx, c, m.GetJobId(), m.GetReason()); err != nil {
		return nil, err
	}
	return &runtimev1.CancelScenarioJobResponse{Job: visibleJob(c, j)}, nil
}

// maxArtifacts bounds the bytes of an answer.
const maxArtifacts = 16 << 20

// artifacts answers with what a run has produced.
func artifacts(ctx context.Context, c *protocol.Call,
	m *runtimev1.GetScenarioArtifactsRequest) (*runtimev1.GetScenarioArtifactsResponse, error) {
	head, j, err := job(ctx, c, m.GetJobId(), noJob)
	if err != nil {
		return nil, err
	}
	run := m.GetJobId()
	list := j.Artifacts()
	bytes := map[string]*runtimev1.ScenarioArtifact{}
	size := int64(0)
	for _, a := range list {
		bytes[a.GetMimeType()] = a
		size += a.GetSizeBytes()
	}
	if size <= maxArtifacts {
		for r, err := range c.Records(ctx, run, 0, head.Last) {
			if err != nil {
				return nil, err
			}
			if r.Child == nil {
				collect(bytes, r)
			}
		}
	}
	answer := &runtimev1.GetScenarioArtifactsResponse{JobId: run, TraceId: run, Artifacts: list}
	if a := bytes["text/plain"]; a != nil {
		answer.Output = &runtimev1.ScenarioOutput{Output: &runtimev1.ScenarioOutput_TextGenerate{TextGenerate: &runtimev1.TextGenerateOutput{Text: strings.ToValidUTF8(string(a.GetBytes()), "")}}}
	} else if len(list) > 0 {
		answer.Output = &runtimev1.ScenarioOutput{Output: &runtimev1.ScenarioOutput_SpeechSynthesize{SpeechSynthesize: &runtimev1.SpeechSynthesizeResult{Artifacts: list}}}
	}
	return answer, nil
}

func collect(bytes map[string]*runtimev1.ScenarioArtifact, r schema.Record) {
	switch string(r.Type) {
	case schema.TypeTextDelta:
		if a := bytes["text/plain"]; a != nil {
			a.Bytes = append(a.Bytes, jsonscan.Fields(nil).Read(r.Payload()).Str("text")...)
		}
	case schema.TypeDataDelta:
		media, data := nimi.Sound(jsonscan.Fields(nil).Read(r.Payload()))
		if a := bytes[string(media)]; a != nil {
			a.Bytes = append(a.Bytes, data...)
		}
	}
}
