package openai

import (
	"bytes"
	"strings"

	"agentstream/producers/provider"
)

// builtin is an item that is no message, no thought and no call of the client's own tools.
type builtin struct {
	src    provider.Fields // the item as its end has it; nil before
	output provider.Fields // what its result says instead of what the item has
}

// beginBuiltin begins a block of the item's kind. Calls are told as such.
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
		b.Answers = provider.Bounded(src.Str("call_id"))
	}
	it.tool = &builtin{}
	it.head = d.msg.Begin(b)
}

// withoutImage gives an item without the image that it may hold.
func withoutImage(typ string, src provider.Fields) (out provider.Fields) {
	for _, f := range src {
		if typ != "image_generation_call" || f.Name != "result" || base64Text(f.Value) == nil {
			out = append(out, f)
		}
	}
	return out
}

// completeBuiltin takes the whole item. It says whether that agrees with what was told of it.
func (d *responses) completeBuiltin(it *item, src provider.Fields) (agrees bool) {
	if image := base64Text(src.Get("result")); it.typ == "image_generation_call" && image != nil {
		media := mediaType(src)
		b := dataBlock(d.msg, d.next(), media, "image")
		sayData(d.out, b, media, "image", image)
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
		case !says(v):
		case provider.IsString(v) && (name == "arguments" || it.head.FreeText):
			return it.head.Settle(v)
		default:
			it.head.Input = bytes.Clone(v)
			return true
		}
	}
	return true
}

// endBuiltin ends the block of an item, and tells what came of the call: a tool of the provider has
// run by then.
func (d *responses) endBuiltin(it *item, finished bool) {
	src := it.tool.src
	it.head.End(finished)
	switch {
	case it.head.ToolUse && clientRuns(it.typ, src):
		d.calls = true
	case src == nil || !finished:
	case it.head.ToolUse:
		failed := src.Str("status") == "failed" || says(src.Get("error"))
		d.out.Result(it.head.Call, failed, outputOf(it.tool, failed).Get("output"), it.typ)
	case it.head.Answers != "":
		failed := src.Str("status") == "failed"
		d.out.Result(it.head.Answers, failed, provider.OrNull(src.Get("output")), it.typ)
	}
}

// clientRuns says that the client has to run a tool that the provider knows.
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

// outputOf gives the result of a call as {"output": …}. A call that says no more than that it went well
// has that for its result.
func outputOf(t *builtin, failed bool) provider.Fields {
	names := []string{"outputs", "results", "output", "result", "tools", "status"}
	if failed {
		names = append([]string{"error"}, names...)
	}
	if t.output != nil {
		return provider.Fields{{Name: "output", Value: t.output.Encode()}}
	}
	for _, name := range names {
		if v := t.src.Get(name); says(v) {
			if name == "status" {
				v = provider.Fields{{Name: name, Value: v}}.Encode()
			}
			return provider.Fields{{Name: "output", Value: v}}
		}
	}
	return nil
}
