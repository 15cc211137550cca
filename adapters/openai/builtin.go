package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/adapters/provider"
)

// builtin is an item that is no message, no thought and no call of the client's own tools.
type builtin struct {
	src    provider.Fields // the item as its end has it; nil before
	output provider.Fields // what its result has instead of what the item has
}

// beginBuiltin begins a block of the item's kind. Calls are emitted as such.
func (d *responses) beginBuiltin(it *item, src provider.Fields) {
	whole := withoutImage(it.typ, src)
	base, _ := provider.Parse(whole.Encode())
	b := &provider.Block{Index: d.next(), Kind: it.typ, Base: base, Raw: base.Encode()}
	switch {
	case strings.HasSuffix(it.typ, "_call"):
		b.ToolUse, b.Call, b.CallKind = true, callID(src), provider.Bounded(it.typ)
		b.FreeText = it.typ == "code_interpreter_call"
		if b.Tool = src.Str("name"); b.Tool == "" {
			b.Tool = strings.TrimSuffix(it.typ, "_call")
		}
	case strings.HasSuffix(it.typ, "_output"):
		b.Answers = d.answers(it.typ, src.Str("call_id"))
	}
	it.tool = &builtin{}
	it.head = d.msg.Begin(b)
}

// withoutImage returns an item without the image that it may hold.
func withoutImage(typ string, src provider.Fields) (out provider.Fields) {
	for _, f := range src {
		if typ != "image_generation_call" || f.Name != "result" || base64Text(f.Value) == nil {
			out = append(out, f)
		}
	}
	return out
}

// completeBuiltin takes the whole item. It reports whether that agrees with what was emitted of it.
func (d *responses) completeBuiltin(it *item, src provider.Fields) (agrees bool) {
	if image := base64Text(src.Get("result")); it.typ == "image_generation_call" && image != nil {
		media := mediaType(src)
		b := dataBlock(d.msg, d.next(), media, "image")
		emitData(d.out, b, media, "image", image)
		b.End(true)
		it.tool.output = provider.Fields{{Name: "index", Value: provider.Number(b.Index)}}
	}
	it.tool.src, _ = provider.Parse(withoutImage(it.typ, src).Encode())
	it.head.Base = append(provider.Fields(nil), it.tool.src...)
	if !it.head.ToolUse {
		it.head.Raw = it.tool.src.Encode()
		return true
	}
	for _, name := range []string{"arguments", "code", "action", "actions", "queries", "operation", "input"} {
		switch v := src.Get(name); {
		case !provider.Filled(v):
		case provider.IsString(v) && (name == "arguments" || it.head.FreeText):
			return it.head.Settle(v)
		default:
			it.head.Input = bytes.Clone(v)
			return true
		}
	}
	return true
}

// endBuiltin ends the block of an item, and emits the result of the call: a tool of the provider has
// run by then. Where that may come in an item of its own the call does not end before it.
func (d *responses) endBuiltin(it *item, finished bool) {
	src := it.tool.src
	it.head.End(finished)
	switch {
	case it.head.ToolUse && clientRuns(it.typ, src):
		d.calls = true
	case src == nil || !finished:
	case it.head.ToolUse:
		failed := src.Str("status") == "failed" || provider.Filled(src.Get("error"))
		output, bare := outputOf(it.tool, failed)
		r := result{it.head.Call, it.typ, failed, output}
		if bare && apart(it.typ) {
			d.held = append(d.held, r)
		} else {
			d.emit(r)
		}
	case it.head.Answers != "":
		output := src.Get("output")
		if output == nil {
			output = src.Get("tools")
		}
		d.emit(result{it.head.Answers, it.typ, src.Str("status") == "failed", output})
	}
}

// result is what came of a call of a tool that the provider ran.
type result struct {
	call, kind string
	failed     bool
	output     json.RawMessage
}

// emit emits a result; the first of a call counts.
func (d *responses) emit(r result) {
	d.held = slices.DeleteFunc(d.held, func(h result) bool { return h.call == r.call })
	if d.answered[r.call] {
		return
	}
	if d.answered == nil {
		d.answered = make(map[string]bool)
	}
	d.answered[r.call] = true
	d.out.Result(r.call, r.failed, r.output, r.kind)
}

// emitHeld emits how the calls went whose output has not come.
func (d *responses) emitHeld() {
	for len(d.held) > 0 {
		d.emit(d.held[0])
	}
}

// answers returns the call whose output an item is: the one it names, or else the oldest that waits for such output.
func (d *responses) answers(typ, call string) string {
	if call != "" {
		return provider.Bounded(call)
	}
	name := strings.TrimSuffix(strings.TrimSuffix(typ, "_output"), "_call")
	for _, r := range d.held {
		if strings.TrimSuffix(r.kind, "_call") == name {
			return r.call
		}
	}
	return ""
}

// apart reports whether the output of a tool may come in an item of its own, behind the call.
func apart(typ string) bool {
	switch typ {
	case "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call":
		return false
	}
	return true
}

// clientRuns reports whether the client has to run a tool of the provider.
func clientRuns(typ string, src provider.Fields) bool {
	switch typ {
	case "computer_call", "local_shell_call", "apply_patch_call":
		return true
	case "shell_call":
		where := src.Object("environment").Str("type")
		return where == "" || where == "local"
	case "tool_search_call":
		return src.Str("execution") == "client"
	}
	return false
}

// outputOf returns the result of a call. One with nothing but the report that it went well has that for its result,
// which is bare.
func outputOf(t *builtin, failed bool) (output json.RawMessage, bare bool) {
	if t.output != nil {
		return t.output.Encode(), false
	}
	names := []string{"outputs", "results", "output", "result", "tools"}
	if failed {
		names = append([]string{"error"}, names...)
	}
	for _, name := range names {
		if v := t.src.Get(name); provider.Filled(v) {
			return v, false
		}
	}
	if v := t.src.Get("status"); provider.Filled(v) {
		return provider.Fields{{Name: "status", Value: v}}.Encode(), true
	}
	return nil, true
}
