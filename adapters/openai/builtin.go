package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// beginBuiltin begins an item that is no message, no thought and no call of the client's own tools: a block of the
// item's kind. Calls are emitted as such.
func (d *responses) beginBuiltin(it *item, src provider.Fields) {
	base := withoutImage(it.typ, src).Copy()
	b := &provider.Block{Index: d.Next(), Kind: it.typ, Base: base, Raw: base.Encode()}
	switch {
	case strings.HasSuffix(it.typ, "_call"):
		b.ToolUse, b.Call, b.CallKind = true, callID(src), provider.ShortenID(it.typ)
		b.FreeText = it.typ == "code_interpreter_call"
		b.Tool = cmp.Or(src.Str("name"), strings.TrimSuffix(it.typ, "_call"))
	case strings.HasSuffix(it.typ, "_output"):
		b.Answers = d.callOfOutput(it.typ, src.Str("call_id"))
	}
	it.head = d.Msg.Begin(b)
}

// withoutImage returns an item without the image that it may hold.
func withoutImage(typ string, src provider.Fields) provider.Fields {
	if typ != "image_generation_call" || !isBase64(src.Get("result")) {
		return src
	}
	return src.Without("result")
}

// completeBuiltin takes the whole item. It reports whether that agrees with what was emitted of it.
func (d *responses) completeBuiltin(it *item, src provider.Fields) (agrees bool) {
	if data := src.Get("result"); it.typ == "image_generation_call" && isBase64(data) {
		b := d.image("image", data, src)
		b.End(true)
		it.output = provider.Fields{{Name: "index", Value: provider.Number(b.Index)}}
	}
	it.src = withoutImage(it.typ, src).Copy()
	it.head.Base = slices.Clone(it.src)
	if !it.head.ToolUse {
		it.head.Raw = it.src.Encode()
		return true
	}
	for _, name := range []string{"arguments", "code", "action", "actions", "queries", "operation", "input"} {
		switch v := src.Get(name); {
		case !provider.HasValue(v):
		case jsonscan.IsString(v) && (name == "arguments" || it.head.FreeText):
			return it.head.Settle(v)
		default:
			it.head.Input = bytes.Clone(v)
			return true
		}
	}
	return true
}

// endBuiltin emits the result of the call that an item was: a tool of the provider has run by then. Where that may come
// in an item of its own it waits for that.
func (d *responses) endBuiltin(it *item, finished bool) {
	src := it.src
	switch {
	case it.head.ToolUse && clientRuns(it.typ, src):
		d.calls = true
	case src == nil || !finished:
	case it.head.ToolUse:
		failed := src.Str("status") == "failed" || provider.HasValue(src.Get("error"))
		output, bare := it.result(failed)
		r := result{it.head.Call, it.typ, failed, output}
		if bare && !slices.Contains(whole, it.typ) {
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
	d.answered[r.call] = true
	d.Out.Result(r.call, r.failed, r.output, r.kind)
}

// emitHeld emits how the calls went whose output has not come.
func (d *responses) emitHeld() {
	for len(d.held) > 0 {
		d.emit(d.held[0])
	}
}

// callOfOutput returns the call whose output an item is: the one it names, else the oldest that waits for such output.
func (d *responses) callOfOutput(typ, call string) string {
	if call != "" {
		return provider.ShortenID(call)
	}
	name := strings.TrimSuffix(strings.TrimSuffix(typ, "_output"), "_call")
	for _, r := range d.held {
		if strings.TrimSuffix(r.kind, "_call") == name {
			return r.call
		}
	}
	return ""
}

// whole are the calls whose items have their output. That of another may come in an item of its own, behind the call.
var whole = []string{
	"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call",
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

// result returns the result of a call. One with nothing but the report that it went well has that for its result,
// which is bare.
func (it *item) result(failed bool) (output json.RawMessage, bare bool) {
	if it.output != nil {
		return it.output.Encode(), false
	}
	names := []string{"outputs", "results", "output", "result", "tools"}
	if failed {
		names = append([]string{"error"}, names...)
	}
	for _, name := range names {
		if v := it.src.Get(name); provider.HasValue(v) {
			return v, false
		}
	}
	if v := it.src.Get("status"); provider.HasValue(v) {
		return provider.Fields{{Name: "status", Value: v}}.Encode(), true
	}
	return nil, true
}
