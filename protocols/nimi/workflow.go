package nimi

import (
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// workflowStatus is what the status of a job is of a workflow.
var workflowStatus = map[runtimev1.ScenarioJobStatus]runtimev1.WorkflowStatus{
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_SUBMITTED: runtimev1.WorkflowStatus_WORKFLOW_STATUS_ACCEPTED,
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_RUNNING:   runtimev1.WorkflowStatus_WORKFLOW_STATUS_RUNNING,
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_COMPLETED: runtimev1.WorkflowStatus_WORKFLOW_STATUS_COMPLETED,
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_CANCELED:  runtimev1.WorkflowStatus_WORKFLOW_STATUS_CANCELED,
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_FAILED:    runtimev1.WorkflowStatus_WORKFLOW_STATUS_FAILED,
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_TIMEOUT:   runtimev1.WorkflowStatus_WORKFLOW_STATUS_FAILED,
}

// workflowEnds are the last events of a workflow, by the status of the job.
var workflowEnds = map[runtimev1.ScenarioJobStatus]runtimev1.WorkflowEventType{
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_COMPLETED: runtimev1.WorkflowEventType_WORKFLOW_EVENT_COMPLETED,
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_CANCELED:  runtimev1.WorkflowEventType_WORKFLOW_EVENT_CANCELED,
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_FAILED:    runtimev1.WorkflowEventType_WORKFLOW_EVENT_FAILED,
	runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_TIMEOUT:   runtimev1.WorkflowEventType_WORKFLOW_EVENT_FAILED,
}

// task reads the beginning or the end of a node; nil when it is the repeat of one.
func (j *Job) task(r schema.Record, end bool) *runtimev1.WorkflowEvent {
	j.fields = j.fields.Read(r.Payload())
	id := strings.Clone(j.fields.Str("task_id"))
	e := &runtimev1.WorkflowEvent{EventType: runtimev1.WorkflowEventType_WORKFLOW_EVENT_NODE_STARTED, NodeId: id}
	status := runtimev1.WorkflowStatus_WORKFLOW_STATUS_RUNNING
	if end {
		status, e.EventType = runtimev1.WorkflowStatus_WORKFLOW_STATUS_COMPLETED, runtimev1.WorkflowEventType_WORKFLOW_EVENT_NODE_COMPLETED
		if v := j.fields.Raw("ok"); string(v) == "false" {
			// There is no event of a node that failed: the workflow's own end says so.
			status, e.EventType = runtimev1.WorkflowStatus_WORKFLOW_STATUS_FAILED, runtimev1.WorkflowEventType_WORKFLOW_EVENT_NODE_SKIPPED
			e.ReasonCode = runtimev1.ReasonCode_AI_PROVIDER_INTERNAL
		}
	}
	for i := range j.nodes {
		n := &j.nodes[i]
		if n.id != id {
			continue
		}
		works := n.status == runtimev1.WorkflowStatus_WORKFLOW_STATUS_RUNNING
		if end && !works || !end && !n.again {
			return nil
		}
		n.status, n.again = status, false
		return e
	}
	if len(j.nodes) < MaxNodes {
		j.nodes = append(j.nodes, node{id: id, status: status})
	}
	return e
}

// workflowFrame makes the frame of an event.
func (j *Job) workflowFrame(out *dialect.Frames, e *runtimev1.WorkflowEvent) error {
	if e == nil {
		return nil
	}
	e.Sequence, e.TaskId, e.TraceId, e.Timestamp = j.tasks, j.req.Run, j.req.Run, timestamppb.New(j.updated)
	return add(out, e, j.Over())
}

// Workflow returns the run as a workflow.
func (j *Job) Workflow() *runtimev1.GetWorkflowResponse {
	m := &runtimev1.GetWorkflowResponse{TaskId: j.req.Run, ReasonCode: j.reason, Status: workflowStatus[j.status]}
	for _, n := range j.nodes {
		m.Nodes = append(m.Nodes, &runtimev1.WorkflowNodeStatus{NodeId: n.id, Status: n.status, Attempt: 1})
	}
	return m
}
