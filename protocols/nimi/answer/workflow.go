package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"agentstream/adapters/model"
	"agentstream/producers/worker"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// workflow is a graph of nodes, with the names of the runtime protocol's contract.
type workflow struct {
	Nodes []node `json:"nodes"`
	Edges []struct {
		From   string `json:"from_node_id"`
		Output string `json:"from_output"`
		To     string `json:"to_node_id"`
		Input  string `json:"to_input"`
	} `json:"edges"`
}

type node struct {
	ID        string   `json:"node_id"`
	Type      string   `json:"node_type"`
	DependsOn []string `json:"depends_on"`
	Generate  *aiNode  `json:"ai_generate_config"`
	Stream    *aiNode  `json:"ai_stream_config"`
	Template  struct {
		Template string `json:"template"`
	} `json:"template_config"`
}

type aiNode struct {
	Model  string `json:"model_id"`
	System string `json:"system_prompt"`
	Prompt string `json:"prompt"`
	nodeParams
}

// nodeParams are those of a session's parameters that a node may have.
type nodeParams struct {
	Temperature float64 `json:"temperature,omitzero"`
	TopP        float64 `json:"top_p,omitzero"`
	MaxTokens   int     `json:"max_tokens,omitzero"`
}

// session is what a workflow's session.created says of it.
type session struct {
	Model   string `json:"model"` // of nodes that name none
	Runtime struct {
		Workflow json.RawMessage `json:"workflow"`
	} `json:"runtime"`
}

// play plays the nodes of a workflow, one after the other, each after those that it depends on: a task for each. The
// text of a node is the input of those behind it; {{name}} in a template or a prompt is the input of that name, of an
// edge its to_input, or else the id of the node that it comes from.
func (m Models) play(ctx context.Context, q *worker.Task, s session) (string, error) {
	var w workflow
	if err := json.Unmarshal(s.Runtime.Workflow, &w); err != nil {
		return "", because(runtimev1.ReasonCode_WF_DAG_INVALID, err)
	}
	order, err := w.order()
	if err != nil {
		return "", err
	}
	texts := map[string]string{}
	for _, n := range order {
		task := func(typ string, f object) error {
			f["task_id"], f["name"] = n.ID, n.ID
			return q.Run.Emit(ctx, typ, f)
		}
		if err := task(schema.TypeTaskStart, object{}); err != nil {
			return "", err
		}
		text, err := m.node(ctx, q, n, s.Model, w.inputs(n, texts))
		if err != nil {
			return "", err // the end of the turn ends the task
		}
		texts[n.ID] = text
		if err := task(schema.TypeTaskEnd, object{"ok": true,
			"output": object{"text": strings.ToValidUTF8(text[:min(len(text), maxOutput)], "")}}); err != nil {
			return "", err
		}
	}
	return "end_turn", nil
}

// maxOutput is how much of a node's text its task.end has, in bytes. The messages have all of it.
const maxOutput = 32 << 10

// object is one of JSON.
type object = map[string]any

// input is a text that a node gets.
type input struct{ name, text string }

// before calls fn for each node that another one waits for, with the name that its text has there.
func (w *workflow) before(n node, fn func(id, name string)) {
	for _, id := range n.DependsOn {
		fn(id, id)
	}
	for _, e := range w.Edges {
		if e.To == n.ID {
			fn(e.From, cmp.Or(e.Input, e.From))
		}
	}
}

func (w *workflow) inputs(n node, texts map[string]string) (list []input) {
	w.before(n, func(id, name string) { list = append(list, input{name, texts[id]}) })
	return list
}

// order returns the nodes so that each comes behind those that it depends on, and otherwise as they are written.
func (w *workflow) order() (out []node, err error) {
	done, rest := map[string]bool{}, w.Nodes
	for len(rest) > 0 {
		var later []node
		for _, n := range rest {
			ready := true
			w.before(n, func(id, _ string) { ready = ready && done[id] })
			if !ready {
				later = append(later, n)
				continue
			}
			done[n.ID] = true
			out = append(out, n)
		}
		if len(later) == len(rest) {
			return nil, because(runtimev1.ReasonCode_WF_DAG_INVALID,
				errors.New("nodes wait for each other, or for one that is not there"))
		}
		rest = later
	}
	return out, nil
}

// node plays one node, and returns its text. otherwise is the model of a node that names none.
func (m Models) node(ctx context.Context, q *worker.Task, n node, otherwise string, inputs []input) (string, error) {
	switch runtimev1.WorkflowNodeType(runtimev1.WorkflowNodeType_value[n.Type]) {
	case runtimev1.WorkflowNodeType_WORKFLOW_NODE_CONTROL_NOOP:
		return joinInputs(inputs), nil
	case runtimev1.WorkflowNodeType_WORKFLOW_NODE_TRANSFORM_TEMPLATE:
		return fillTemplate(n.Template.Template, inputs), nil
	case runtimev1.WorkflowNodeType_WORKFLOW_NODE_AI_GENERATE, runtimev1.WorkflowNodeType_WORKFLOW_NODE_AI_STREAM:
		cfg := cmp.Or(n.Generate, n.Stream)
		if cfg == nil {
			return "", mismatch("node %.100q has no configuration", n.ID)
		}
		return m.generate(ctx, q, *cfg, otherwise, inputs)
	}
	return "", mismatch("node %.100q is of type %.100q", n.ID, n.Type)
}

// generate asks a model, and returns the text of its message.
func (m Models) generate(ctx context.Context, q *worker.Task, cfg aiNode, otherwise string, inputs []input) (string,
	error) {
	prompt := fillTemplate(cfg.Prompt, inputs)
	if prompt == "" {
		prompt = cmp.Or(joinInputs(inputs), q.Text())
	}
	session, err := json.Marshal(object{"once": true, "model": cmp.Or(cfg.Model, otherwise), "system": cfg.System,
		"parameters": cfg.nodeParams})
	content, cerr := json.Marshal(object{"content": prompt})
	if err := errors.Join(err, cerr); err != nil {
		return "", &model.Error{Kind: model.BadInput, Err: err}
	}
	asked := &worker.Task{Message: q.Message.With(content), Run: q.Run, Turn: q.Turn, Told: q.Told, Session: session}
	if _, err := m.Set.Answer(ctx, asked); err != nil {
		return "", err
	}
	fold, err := q.Fold(ctx)
	if err != nil || len(fold.Messages) == 0 {
		return "", err
	}
	var text strings.Builder
	for _, b := range fold.Messages[len(fold.Messages)-1].Blocks {
		if b.Kind == "text" {
			text.WriteString(b.Text.String())
		}
	}
	return text.String(), nil
}

// joinInputs joins the texts of inputs.
func joinInputs(inputs []input) string {
	var all []string
	for _, in := range inputs {
		if in.text != "" {
			all = append(all, in.text)
		}
	}
	return strings.Join(all, "\n")
}

// fillTemplate puts the inputs into a template, all at once: what an input contains is no template.
func fillTemplate(template string, inputs []input) string {
	var pairs []string
	for _, in := range inputs {
		pairs = append(pairs, "{{"+in.name+"}}", in.text)
	}
	return strings.NewReplacer(pairs...).Replace(template)
}
