package openai

import (
	"cmp"
	"maps"
	"slices"

	"agentstream/schema/jsonscan"
)

// echoed are what a response says of its request, each with what stands there when nothing was asked.
var echoed = [...][2]string{{"instructions", "null"}, {"parallel_tool_calls", "true"}, {"temperature", "null"},
	{"top_p", "null"}, {"previous_response_id", "null"}, {"background_options", ""}}

// echo returns what is echoed of a request.
func echo(asked jsonscan.Fields) []byte {
	o := jsonscan.Object("{")
	for _, e := range append(echoed[:], [2]string{"metadata"}) {
		if v := asked.Raw(e[0]); len(v) <= maxAsked {
			o = o.OptRaw(e[0], v)
		}
	}
	return o.End()
}

// appendResponse writes the response as it stands. Its output is there when it has ended, and when it is asked for.
func (p *projector) appendResponse(o jsonscan.Object) jsonscan.Object {
	r := &p.now
	o = append(o, '{').Str("id", responseID(p.id, r.n)).Str("object", "response").Int("created_at", r.created)
	o = o.Str("status", r.status).Str("model", cmp.Or(r.model, "unknown"))
	o = append(o.Name("error"), "null"...)
	if r.status == "failed" {
		why := cmp.Or(r.why, "the run has failed and gave no reason")
		o = append(o[:len(o)-len("null")], '{').Str("code", "server_error").Str("message", why).End()
	}
	o = append(o.Name("incomplete_details"), "null"...)
	if r.lacks != "" {
		o = append(o[:len(o)-len("null")], '{').Str("reason", r.lacks).End()
	}
	asked := jsonscan.Fields(nil).Read(r.asked)
	for _, e := range echoed {
		v := asked.Raw(e[0])
		if v == nil {
			v = []byte(e[1])
		}
		o = o.OptRaw(e[0], v)
	}
	o = append(o, `,"tool_choice":"auto","tools":[],"background":true`...)
	o = p.appendMetadata(append(o.Name("metadata"), '{'), asked.Object("metadata")).End()
	return p.appendUsage(p.appendOutput(o)).End()
}

// appendOutput writes the items in their order. Those that are open are as they are.
func (p *projector) appendOutput(o jsonscan.Object) jsonscan.Object {
	items := map[int][]byte{}
	for i, whole := range p.now.output.All() {
		items[i] = whole
	}
	for _, it := range p.open.All() {
		if !p.now.elided {
			items[it.index] = it.append(nil, statusNow, nil, "")
		}
	}
	o = append(o.Name("output"), '[')
	for n, i := range slices.Sorted(maps.Keys(items)) {
		if n > 0 {
			o = append(o, ',')
		}
		o = append(o, items[i]...)
	}
	return append(o, ']')
}

// appendMetadata writes what was given, and what else is to be known: clients have no other place for it.
func (p *projector) appendMetadata(o jsonscan.Object, given []byte) jsonscan.Object {
	o = o.Members(given, "agentstream_state", "agentstream_output")
	if l := p.run.Lane(""); l != nil && l.State != "" {
		o = o.Str("agentstream_state", string(l.State))
	}
	if p.run.Questions().Len() > 0 && p.now.open {
		o = o.Str("agentstream_waits", "input")
	}
	if p.now.elided {
		o = o.Str("agentstream_output", "elided")
	}
	return o
}

func (p *projector) appendUsage(o jsonscan.Object) jsonscan.Object {
	u := p.now.usage
	if u == nil {
		return o.Raw("usage", nil)
	}
	o = append(o.Name("usage"), '{').Int("input_tokens", u["input_tokens"]).Int("output_tokens", u["output_tokens"])
	o = o.Int("total_tokens", u["input_tokens"]+u["output_tokens"])
	o = append(o.Name("input_tokens_details"), '{').Int("cached_tokens", u["cache_read_input_tokens"]).End()
	return append(o.Name("output_tokens_details"), '{').Int("reasoning_tokens", 0).End().End()
}
