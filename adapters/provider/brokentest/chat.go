package brokentest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// chat are the rewritings of Chat Completions.
func chat() (list []Rewriting) {
	add := func(name string, but Aspect, do func(r *rand.Rand, s *Body) bool) {
		list = append(list, Rewriting{name, []API{Chat}, do, but})
	}
	add("id changes on later pieces", IDs, pieces(func(i, n int, c Object) bool { return n > 0 && put(c, "id", fmt.Sprint("other_", i)) }))
	add("id another on the later pieces", IDs,
		pieces(func(_, n int, c Object) bool { return n > 0 && put(c, "id", "other") }))
	add(`id "null" on later pieces`, 0, pieces(func(_, n int, c Object) bool { return n > 0 && put(c, "id", "null") }))
	add("id empty on later pieces", 0, pieces(func(_, n int, c Object) bool { return n > 0 && put(c, "id", "") }))
	add("no ids of calls", IDs, pieces(func(_, _ int, c Object) bool { delete(c, "id"); return true }))
	add(`ids of calls all "null"`, IDs, pieces(func(_, _ int, c Object) bool { return put(c, "id", "null") }))
	add("no index", 0, pieces(func(_, _ int, c Object) bool { delete(c, "index"); return true }))
	add("index all 0", 0, pieces(func(_, _ int, c Object) bool { return put(c, "index", 0) }))
	add("index from 1", 0, pieces(func(_, _ int, c Object) bool {
		return put(c, "index", number(c["index"])+1)
	}))
	add("index shifted on later pieces", 0,
		pieces(func(_, n int, c Object) bool { return n > 0 && put(c, "index", number(c["index"])+1) }))
	add("index a text", 0, pieces(func(_, _ int, c Object) bool { return put(c, "index", fmt.Sprint(number(c["index"]))) }))
	add("name in two pieces", 0, splitNames)
	add("name on every piece", 0, nameEverywhere)
	add("whole calls at index 0 without ids", IDs, wholeCalls("text", true))
	add("whole calls", 0, wholeCalls("text", false))
	add("arguments as an object", 0, wholeCalls("object", false))
	add("old spelling of calls", IDs, legacy)
	add("finish reason on every chunk", 0, unlessFailed(choices(func(_ int, c Object) bool { return c["finish_reason"] == nil && put(c, "finish_reason", "stop") })))
	add("finish reason empty on others", 0,
		choices(func(_ int, c Object) bool { return c["finish_reason"] == nil && put(c, "finish_reason", "") }))
	add("no finish reason", Stop, func(r *rand.Rand, s *Body) bool {
		return !s.ends && choices(func(_ int, c Object) bool {
			had := c["finish_reason"] != nil
			c["finish_reason"] = nil
			return had
		})(r, s)
	})
	add("message once more", 0, again(true, false))
	add("message once more as a delta", 0, again(false, false))
	add("message once more with other ids", IDs, again(true, true))
	add("role on every delta", 0, deltas(func(d Object) bool { return put(d, "role", "assistant") }))
	add("content null", 0, deltas(func(d Object) bool { return d["content"] == nil && put(d, "content", nil) }))
	add("content empty", 0, deltas(func(d Object) bool { return d["content"] == nil && put(d, "content", "") }))
	add("calls empty", 0, deltas(func(d Object) bool { return d["tool_calls"] == nil && put(d, "tool_calls", []any{}) }))
	add("content a list", 0, deltas(func(d Object) bool {
		v, ok := d["content"].(string)
		return ok && v != "" && put(d, "content", []any{Object{"type": "text", "text": v}})
	}))
	add("chunk ids change", IDs, each(func(i int, o Object) bool { return put(o, "id", fmt.Sprint("chunk_", i)) }))
	add("chunk ids empty", IDs, each(func(_ int, o Object) bool { return put(o, "id", "") }))
	add("object missing", 0, each(func(_ int, o Object) bool { delete(o, "object"); return true }))
	add("usage in the choice", 0, moveUsage(func(_, choice, usage Object) { choice["usage"] = usage }))
	add("usage in a vendor's member", 0, moveUsage(func(chunk, _, usage Object) { chunk["x_vendor"] = Object{"id": "x", "usage": usage} }))
	add("usage on every chunk", 0, usageEverywhere)
	add("usage empty behind", 0, usageBehind("prompt_tokens", 0))
	add("usage smaller behind", 0, usageBehind("prompt_tokens", 1))
	return list
}

// unlessFailed leaves streams with an error as they are.
func unlessFailed(do func(*rand.Rand, *Body) bool) func(*rand.Rand, *Body) bool {
	return func(r *rand.Rand, s *Body) bool {
		for _, f := range s.Frames {
			if f.Data["error"] != nil || f.Data["type"] == "error" {
				return false
			}
		}
		return do(r, s)
	}
}

func put(o Object, name string, v any) bool {
	o[name] = v
	return true
}

func number(v any) int {
	switch v := v.(type) {
	case json.Number:
		n, _ := v.Int64()
		return int(n)
	case int:
		return v
	}
	return 0
}

// choices calls do with every choice of every chunk.
func choices(do func(i int, c Object) bool) func(*rand.Rand, *Body) bool {
	return each(func(i int, o Object) (any bool) {
		for _, v := range list(o, "choices") {
			if c, ok := v.(Object); ok && do(i, c) {
				any = true
			}
		}
		return any
	})
}

// deltas calls do with every delta.
func deltas(do func(d Object) bool) func(*rand.Rand, *Body) bool {
	return choices(func(_ int, c Object) bool {
		d := object(c, "delta")
		return d != nil && do(d)
	})
}

// Marks that the pieces of calls have while a stream is rewritten: which call of which choice it is, and how many
// pieces of it came before.
const (
	markCall = "\x00call"
	markNth  = "\x00nth"
)

// mark marks the pieces of calls.
func (s *Body) mark() {
	seen := map[string]int{}
	eachCall(s, func(_ int, choice, c Object) {
		key := fmt.Sprint(choice["index"], " ", c["index"])
		c[markCall], c[markNth] = key, seen[key]
		seen[key]++
	})
}

// unmark takes the marks away.
func (s *Body) unmark() {
	eachCall(s, func(_ int, _, c Object) {
		delete(c, markCall)
		delete(c, markNth)
	})
}

// eachCall calls do with every piece of a call.
func eachCall(s *Body, do func(i int, choice, c Object)) {
	for i, f := range s.Frames {
		for _, choice := range list(f.Data, "choices") {
			for _, v := range list(object(choice, "delta"), "tool_calls") {
				if c, ok := v.(Object); ok {
					do(i, choice.(Object), c)
				}
			}
		}
	}
}

// pieces calls do with every piece of a call, the frame's number, and how many pieces of the call came before.
func pieces(do func(i, n int, c Object) bool) func(*rand.Rand, *Body) bool {
	return func(_ *rand.Rand, s *Body) (any bool) {
		eachCall(s, func(i int, _, c Object) {
			if n, ok := c[markNth].(int); ok && do(i, n, c) {
				any = true
			}
		})
		return any
	}
}

// splitNames makes two chunks of one that names a single call.
func splitNames(r *rand.Rand, s *Body) bool {
	for i := range s.Frames {
		call := onlyCall(s.Frames[i])
		name := text(object(call, "function"), "name")
		if len(name) < 2 {
			continue
		}
		at := 1 + r.IntN(len(name)-1)
		first := s.Frames[i].clone()
		head := object(onlyCall(first), "function")
		head["name"], head["arguments"] = name[:at], ""
		rest := object(call, "function")
		rest["name"] = name[at:]
		delete(call, "id")
		delete(call, "type")
		call[markNth] = 1
		s.ends = true
		s.Frames = slices.Insert(s.Frames, i, first)
		return true
	}
	return false
}

// onlyCall returns the piece of a call in a chunk of one choice that has nothing else; nil when there is none.
func onlyCall(f Frame) Object {
	all := list(f.Data, "choices")
	if len(all) != 1 || number(all[0].(Object)["index"]) != 0 {
		return nil
	}
	calls := list(object(all[0], "delta"), "tool_calls")
	if len(calls) != 1 {
		return nil
	}
	c, _ := calls[0].(Object)
	return c
}

func nameEverywhere(r *rand.Rand, s *Body) bool {
	if s.ends {
		return false
	}
	names := map[string]any{}
	return pieces(func(_, n int, c Object) bool {
		key := fmt.Sprint(c[markCall])
		f := object(c, "function")
		if f == nil {
			return false
		}
		if n == 0 {
			names[key] = f["name"]
			return false
		}
		return f["name"] == nil && put(f, "name", names[key])
	})(r, s)
}

// wholeCalls gathers the pieces of every call of the first choice in the chunk that begins it.
func wholeCalls(form string, bare bool) func(*rand.Rand, *Body) bool {
	return func(r *rand.Rand, s *Body) bool {
		firsts := map[string]Object{}
		args := map[string]string{}
		inPieces := false
		pieces(func(_, n int, c Object) bool {
			inPieces = inPieces || n > 0 && object(c, "function")["name"] != nil
			return true
		})(r, s)
		if inPieces {
			return false
		}
		pieces(func(_, n int, c Object) bool {
			key, f := fmt.Sprint(c[markCall]), object(c, "function")
			if n == 0 {
				firsts[key] = c
			}
			args[key] += text(f, "arguments")
			if f != nil {
				f["arguments"] = ""
			}
			return true
		})(r, s)
		for key, c := range firsts {
			f := object(c, "function")
			o := parse(args[key])
			if f == nil || o == nil {
				return false
			}
			f["arguments"] = args[key]
			if form == "object" {
				f["arguments"] = o
			}
			if bare {
				delete(c, "id")
				c["index"] = 0
			}
		}
		if len(firsts) == 0 {
			return false
		}
		for _, f := range s.Frames { // what is left of the others
			for _, c := range list(f.Data, "choices") {
				d := object(c, "delta")
				calls := slices.DeleteFunc(list(d, "tool_calls"), func(v any) bool {
					return text(object(v, "function"), "arguments") == "" && object(v, "function")["name"] == nil
				})
				if d != nil && d["tool_calls"] != nil {
					d["tool_calls"] = calls
				}
			}
		}
		return true
	}
}

// legacy writes a single call as a function_call.
func legacy(r *rand.Rand, s *Body) bool {
	which := map[any]bool{}
	eachCall(s, func(_ int, _, c Object) { which[c[markCall]] = true })
	if len(which) != 1 {
		return false
	}
	return deltas(func(d Object) bool {
		calls := list(d, "tool_calls")
		if len(calls) != 1 || object(calls[0], "function") == nil {
			return false
		}
		d["function_call"] = object(calls[0], "function")
		delete(d, "tool_calls")
		return true
	})(r, s)
}

// whole is what the first choice comes to.
type whole struct {
	text, refusal string
	thought       map[string]string
	calls         []any
	finish        any
	head          Object
}

func gather(s *Body) (w whole) {
	w.thought = map[string]string{}
	byIndex := map[string]Object{}
	for _, f := range s.Frames {
		for _, v := range list(f.Data, "choices") {
			c, _ := v.(Object)
			if number(c["index"]) != 0 {
				continue
			}
			w.head = f.Data
			if c["finish_reason"] != nil && c["finish_reason"] != "" {
				w.finish = c["finish_reason"]
			}
			d := object(c, "delta")
			w.text += text(d, "content")
			w.refusal += text(d, "refusal")
			for _, name := range []string{"reasoning", "reasoning_content"} {
				w.thought[name] += text(d, name)
			}
			for _, call := range list(d, "tool_calls") {
				w.piece(byIndex, call)
			}
		}
	}
	return w
}

func (w *whole) piece(byIndex map[string]Object, v any) {
	c, _ := v.(Object)
	key := fmt.Sprint(c[markCall])
	known := byIndex[key]
	if known == nil {
		known = Object{"index": c["index"], "id": c["id"], "type": "function",
			"function": Object{"name": "", "arguments": ""}}
		byIndex[key] = known
		w.calls = append(w.calls, known)
	}
	f, from := object(known, "function"), object(c, "function")
	if !strings.HasPrefix(text(f, "name"), text(from, "name")) {
		f["name"] = text(f, "name") + text(from, "name")
	}
	f["arguments"] = text(f, "arguments") + text(from, "arguments")
}

// again adds the whole message of the first choice at its end: as a message, or as a last delta.
func again(message, otherIDs bool) func(*rand.Rand, *Body) bool {
	return func(_ *rand.Rand, s *Body) bool {
		w, was := gather(s), s.ends
		if s.ends = true; was {
			return false
		}
		if w.head == nil || w.finish == nil || !message && len(w.text) < 32 || strings.Contains(w.text, "\ufffd") {
			return false
		}
		m := Object{"role": "assistant", "content": w.text}
		if w.refusal != "" {
			m["refusal"] = w.refusal
		}
		for name, v := range w.thought {
			if v != "" && message {
				m[name] = v
			}
		}
		for i, c := range w.calls {
			if otherIDs {
				c.(Object)["id"] = fmt.Sprint("again_", i)
			}
		}
		if len(w.calls) > 0 && message {
			m["tool_calls"] = cloneValue(w.calls)
		}
		chunk := cloneValue(w.head).(Object)
		delete(chunk, "usage")
		name := "delta"
		if message {
			name, chunk["object"] = "message", "chat.completion"
		}
		chunk["choices"] = []any{Object{"index": 0, name: m, "finish_reason": w.finish}}
		return after(s, func(o Object) bool { return len(list(o, "choices")) > 0 }, Frame{Data: chunk})
	}
}

// moveUsage takes the usage from where it is and puts it elsewhere in the last chunk with a choice.
func moveUsage(to func(chunk, choice, usage Object)) func(*rand.Rand, *Body) bool {
	return func(_ *rand.Rand, s *Body) bool {
		usage := takeUsage(s, "usage")
		if usage == nil {
			return false
		}
		for i := len(s.Frames) - 1; i >= 0; i-- {
			if all := list(s.Frames[i].Data, "choices"); len(all) > 0 && number(all[0].(Object)["index"]) == 0 {
				to(s.Frames[i].Data, all[0].(Object), usage)
				return true
			}
		}
		return false
	}
}

// takeUsage takes out all usages and returns the largest.
func takeUsage(s *Body, name string) (usage Object) {
	for _, f := range s.Frames {
		if u := object(f.Data, name); u != nil {
			if number(u["total_tokens"]) >= number(usage["total_tokens"]) {
				usage = u
			}
			delete(f.Data, name)
		}
	}
	return usage
}

func usageEverywhere(_ *rand.Rand, s *Body) bool {
	usage := takeUsage(s, "usage")
	last := -1
	for i, f := range s.Frames {
		if len(list(f.Data, "choices")) > 0 {
			last = i
		}
	}
	if usage == nil || last < 0 {
		return false
	}
	for i, f := range s.Frames[:last+1] {
		if len(list(f.Data, "choices")) > 0 {
			f.Data["usage"] = Object{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
			if i == last {
				f.Data["usage"] = usage
			}
		}
	}
	return true
}

// usageBehind adds a chunk with a usage that is empty or smaller behind the real one.
func usageBehind(name string, n int) func(*rand.Rand, *Body) bool {
	return func(_ *rand.Rand, s *Body) bool {
		var real Object
		for _, f := range s.Frames {
			if u := object(f.Data, "usage"); u != nil {
				real = f.Data
			}
		}
		if real == nil {
			return false
		}
		extra := cloneValue(real).(Object)
		extra["choices"] = []any{}
		extra["usage"] = Object{name: n, "total_tokens": n}
		return after(s, func(o Object) bool { return o["choices"] != nil }, Frame{Data: extra})
	}
}
