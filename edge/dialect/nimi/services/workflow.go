package services

import (
	"context"

	"google.golang.org/protobuf/encoding/protojson"

	"agentstream/edge/dialect/nimi"
	"agentstream/edge/protocol"
	"agentstream/schema"
	runtimev1 "agentstream/schema/contracts/nimi/runtime/v1"
	"agentstream/schema/jsonscan"
)

const noTask = runtimev1.ReasonCode_WF_TASK_NOT_FOUND

// submitWorkflow stores a graph that a worker plays.
func submitWorkflow(ctx context.Context, c *protocol.Call, m *runtimev1.SubmitWorkflowRequest) (*runtimev1.SubmitWorkflowResponse, error) {
	if err := checkCaller(c, m.GetAppId()); err != nil {
		return nil, err
	}
	if err := checkGraph(m.GetDefinition()); err != nil {
		return nil, err
	}
	graph, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m.GetDefinition())
	if err != nil {
		return nil, err
	}
	compact, err := canonical(graph)
	if err != nil {
		return nil, err
	}
	total := int64(totalText)
	if t := m.GetTimeoutMs(); t > 0 {
		total = int64(t)
	}
	in := jsonscan.Object("{").Str("as", "workflow").Str("type", "text").Str("route", "local").Raw("workflow", compact)
	created := jsonscan.Object("{").Bool("once", true).Str("model", modelOf(m.GetDefinition())).Str("app_id", m.GetAppId()).OptStr("subject", m.GetSubjectUserId()).
		Raw("deadlines", jsonscan.Object("{").Int("total_ms", total).End()).Raw("runtime", in.End()).End()
	said := []byte(jsonscan.Object("{").Str("content", "workflow "+m.GetDefinition().GetWorkflowType()).End())
	run, _, err := store(ctx, c, "SubmitWorkflow", m.GetAppId(), []schema.Event{
		{Type: schema.TypeSessionCreated, Actor: "user", Payload: []byte(created)}, {Type: schema.TypeCommandMessage, Actor: "user", Payload: c.By(said)}})
	if err != nil {
		return nil, err
	}
	return &runtimev1.SubmitWorkflowResponse{TaskId: run, Accepted: true, ReasonCode: runtimev1.ReasonCode_ACTION_EXECUTED}, nil
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
	if len(d.GetNodes()) == 0 {
		return bad("there are no nodes")
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
	const seen, done = 1, 2
	state := map[string]int{}
	var walk func(id string) error
	walk = func(id string) error {
		switch list, ok := before[id]; {
		case !ok:
			return bad("%q is no node", id)
		case state[id] == seen:
			return bad("node %q depends on itself", id)
		case state[id] == done:
			return nil
		default:
			state[id] = seen
			for _, b := range list {
				if err := walk(b); err != nil {
					return err
				}
			}
			state[id] = done
			return nil
		}
	}
	for _, n := range d.GetNodes() {
		if err := walk(n.GetNodeId()); err != nil {
			return err
		}
	}
	return checkNodes(d)
}

func checkNodes(d *runtimev1.WorkflowDefinition) error {
	for _, n := range d.GetNodes() {
		ok := false
		switch n.GetNodeType() {
		case runtimev1.WorkflowNodeType_WORKFLOW_NODE_AI_GENERATE:
			ok = n.GetAiGenerateConfig() != nil
		case runtimev1.WorkflowNodeType_WORKFLOW_NODE_AI_STREAM:
			ok = n.GetAiStreamConfig() != nil
		case runtimev1.WorkflowNodeType_WORKFLOW_NODE_TRANSFORM_TEMPLATE:
			ok = n.GetTemplateConfig() != nil
		case runtimev1.WorkflowNodeType_WORKFLOW_NODE_CONTROL_NOOP:
			ok = true
		}
		if !ok {
			return nimi.Refuse(runtimev1.ReasonCode_WF_NODE_CONFIG_MISMATCH, "node %q is of a type that is not played, or has not its config", n.GetNodeId())
		}
	}
	return nil
}

func getWorkflow(ctx context.Context, c *protocol.Call, m *runtimev1.GetWorkflowRequest) (*runtimev1.GetWorkflowResponse, error) {
	run, _, j, err := job(ctx, c, m.GetTaskId(), noTask)
	if err != nil {
		return nil, err
	}
	return j.Workflow(run), nil
}

func cancelWorkflow(ctx context.Context, c *protocol.Call, m *runtimev1.CancelWorkflowRequest) (*runtimev1.Ack, error) {
	run, _, _, err := job(ctx, c, m.GetTaskId(), noTask)
	if err == nil {
		err = cancel(ctx, c, run, "", nimi.Refuse(runtimev1.ReasonCode_AI_MEDIA_JOB_NOT_CANCELLABLE, "it is over"))
	}
	if err != nil {
		return nil, err
	}
	return &runtimev1.Ack{Ok: true, ReasonCode: runtimev1.ReasonCode_ACTION_EXECUTED}, nil
}
