package serve

import (
	"context"

	"google.golang.org/protobuf/encoding/protojson"

	"agentstream/edge/protocol"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

const noTask = runtimev1.ReasonCode_WF_TASK_NOT_FOUND

// submitWorkflow stores a graph that a worker plays.
func submitWorkflow(ctx context.Context, c *protocol.Call,
	m *runtimev1.SubmitWorkflowRequest) (*runtimev1.SubmitWorkflowResponse, error) {
	if err := checkCaller(c, m.GetAppId()); err != nil {
		return nil, err
	}
	if err := checkGraph(m.GetDefinition()); err != nil {
		return nil, err
	}
	d := m.GetDefinition()
	graph, err := encodeMessage(d, protojson.MarshalOptions{UseProtoNames: true})
	if err != nil {
		return nil, err
	}
	created := session{Once: true, Model: modelOf(d), App: m.GetAppId(), Subject: m.GetSubjectUserId(),
		Deadlines: deadlines{Total: total(m.GetTimeoutMs(), totalText)},
		Runtime:   view{As: "workflow", Type: "text", Route: "local", Workflow: graph}}
	run, _, err := store(ctx, c, "SubmitWorkflow", created, &input{Content: "workflow " + d.GetWorkflowType()})
	if err != nil {
		return nil, err
	}
	return &runtimev1.SubmitWorkflowResponse{TaskId: run, Accepted: true,
		ReasonCode: runtimev1.ReasonCode_ACTION_EXECUTED}, nil
}

// modelOf is the model of the first node that has one.
func modelOf(d *runtimev1.WorkflowDefinition) string {
	for _, n := range d.GetNodes() {
		if id := n.GetAiGenerateConfig().GetModelId() + n.GetAiStreamConfig().GetModelId(); id != "" {
			return id
		}
	}
	return ""
}

// checkGraph refuses what is no directed graph without cycles, and nodes that no worker plays.
func checkGraph(d *runtimev1.WorkflowDefinition) error {
	bad := func(format string, a ...any) error {
		return nimi.Refuse(runtimev1.ReasonCode_WF_DAG_INVALID, format, a...)
	}
	before := map[string][]string{}
	if n := len(d.GetNodes()); n == 0 || n > nimi.MaxNodes {
		return bad("there are %d nodes; a workflow has up to %d", n, nimi.MaxNodes)
	}
	for _, n := range d.GetNodes() {
		if _, twice := before[n.GetNodeId()]; twice || n.GetNodeId() == "" {
			return bad("node %q is there twice, or has no id", n.GetNodeId())
		}
		before[n.GetNodeId()] = n.GetDependsOn()
	}
	for _, e := range d.GetEdges() {
		if _, ok := before[e.GetFromNodeId()]; !ok {
			return bad("an edge begins at %q, which is no node", e.GetFromNodeId())
		}
		if _, ok := before[e.GetToNodeId()]; !ok {
			return bad("an edge ends at %q, which is no node", e.GetToNodeId())
		}
		before[e.GetToNodeId()] = append(before[e.GetToNodeId()], e.GetFromNodeId())
	}
	for _, list := range before {
		for _, id := range list {
			if _, ok := before[id]; !ok {
				return bad("%q is no node", id)
			}
		}
	}
	if n := circular(before); n > 0 {
		return bad("%d nodes wait for each other", n)
	}
	return checkNodes(d)
}

// circular returns how many nodes never come to their turn. before are those that each one waits for.
func circular(before map[string][]string) int {
	waits, then := map[string]int{}, map[string][]string{}
	var ready []string
	for id, list := range before {
		if waits[id] = len(list); len(list) == 0 {
			ready = append(ready, id)
		}
		for _, up := range list {
			then[up] = append(then[up], id)
		}
	}
	left := len(before)
	for ; len(ready) > 0; left-- {
		id := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for _, next := range then[id] {
			if waits[next]--; waits[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	return left
}

func checkNodes(d *runtimev1.WorkflowDefinition) error {
	for _, n := range d.GetNodes() {
		if !map[runtimev1.WorkflowNodeType]bool{
			runtimev1.WorkflowNodeType_WORKFLOW_NODE_AI_GENERATE:        n.GetAiGenerateConfig() != nil,
			runtimev1.WorkflowNodeType_WORKFLOW_NODE_AI_STREAM:          n.GetAiStreamConfig() != nil,
			runtimev1.WorkflowNodeType_WORKFLOW_NODE_TRANSFORM_TEMPLATE: n.GetTemplateConfig() != nil,
			runtimev1.WorkflowNodeType_WORKFLOW_NODE_CONTROL_NOOP:       true,
		}[n.GetNodeType()] {
			return nimi.Refuse(runtimev1.ReasonCode_WF_NODE_CONFIG_MISMATCH,
				"node %q is of a type that is not played, or has not its config", n.GetNodeId())
		}
	}
	return nil
}

func getWorkflow(ctx context.Context, c *protocol.Call,
	m *runtimev1.GetWorkflowRequest) (*runtimev1.GetWorkflowResponse, error) {
	_, j, err := job(ctx, c, m.GetTaskId(), noTask)
	if err != nil {
		return nil, err
	}
	return j.Workflow(), nil
}

func cancelWorkflow(ctx context.Context, c *protocol.Call, m *runtimev1.CancelWorkflowRequest) (*runtimev1.Ack, error) {
	_, _, err := job(ctx, c, m.GetTaskId(), noTask)
	if err == nil {
		err = cancel(ctx, c, m.GetTaskId(), "")
	}
	if err != nil {
		return nil, err
	}
	return &runtimev1.Ack{Ok: true, ReasonCode: runtimev1.ReasonCode_ACTION_EXECUTED}, nil
}
