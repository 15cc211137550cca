package brokentest

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// anthropic are the rewritings of the Messages API.
func anthropic() (list []Rewriting) {
	add := func(name string, but Aspect, do func(r *rand.Rand, s *Body) bool) {
		list = append(list, Rewriting{name, []API{Anthropic}, do, but})
	}
	is := func(t string) func(Object) bool { return func(o Object) bool { return text(o, "type") == t } }
	later := func(o Object) bool { return is("content_block_delta")(o) || is("content_block_stop")(o) }
	add("no index on deltas and stops", 0, each(func(_ int, o Object) bool {
		if later(o) {
			delete(o, "index")
		}
		return later(o)
	}))
	add("no index at all", 0, each(func(_ int, o Object) bool {
		had := o["index"] != nil
		delete(o, "index")
		return had
	}))
	add("index all 0 in blocks", 0, each(func(_ int, o Object) bool { return o["index"] != nil && put(o, "index", 0) }))
	add("index from 1 in blocks", 0, each(func(_ int, o Object) bool { return o["index"] != nil && put(o, "index", number(o["index"])+1) }))
	add("index shifted on deltas and stops", 0, each(func(_ int, o Object) bool {
		return later(o) && o["index"] != nil && put(o, "index", number(o["index"])+1)
	}))
	add("no content_block_stop", 0, drop(is("content_block_stop")))
	add("content_block_stop twice", 0, doubleFrames(is("content_block_stop")))
	add("content_block_start twice", 0, doubleFrames(is("content_block_start")))
	add("message_start twice", 0, doubleFrames(is("message_start")))
	add("no message_stop", Stop, drop(is("message_stop")))
	add("no message_delta", Stop|Usage, drop(is("message_delta")))
	add("message_delta twice", 0, doubleFrames(is("message_delta")))
	add("thought in the text block", 0, lateThought)
	add("usage empty at the end", Usage, func(_ *rand.Rand, s *Body) bool {
		for _, f := range s.Frames {
			if u := object(f.Data, "usage"); u != nil && is("message_delta")(f.Data) {
				c := f.clone()
				c.Data["usage"] = Object{"input_tokens": 0, "output_tokens": 0}
				c.Data["delta"] = Object{}
				return after(s, is("message_delta"), c)
			}
		}
		return false
	})
	add("input tokens 0 at the end", Usage, each(func(_ int, o Object) bool {
		u := object(o, "usage")
		return u != nil && is("message_delta")(o) && put(u, "input_tokens", 0)
	}))
	add("type in the event's name alone, blocks", 0, func(_ *rand.Rand, s *Body) bool { return nameOnly(s) })
	add("pings", 0, func(r *rand.Rand, s *Body) bool {
		s.Frames = slices.Insert(s.Frames, r.IntN(len(s.Frames)+1), Frame{Name: "ping", Data: Object{"type": "ping"}})
		return true
	})
	add("empty deltas", 0, func(_ *rand.Rand, s *Body) bool {
		for i := len(s.Frames) - 1; i >= 0; i-- {
			d := object(s.Frames[i].Data, "delta")
			if t := text(d, "type"); t == "text_delta" || t == "input_json_delta" {
				c := s.Frames[i].clone()
				object(c.Data, "delta")[map[string]string{"text_delta": "text", "input_json_delta": "partial_json"}[t]] = ""
				s.Frames = slices.Insert(s.Frames, i, c)
			}
		}
		return true
	})
	add("message once more, whole", 0, wholeMessage)
	return list
}

// doubleFrames returns a rewriting that sends some frames twice.
func doubleFrames(which func(Object) bool) func(*rand.Rand, *Body) bool {
	return func(_ *rand.Rand, s *Body) (any bool) {
		for i := len(s.Frames) - 1; i >= 0; i-- {
			if o := s.Frames[i].Data; o != nil && which(o) {
				s.Frames, any = slices.Insert(s.Frames, i, s.Frames[i].clone()), true
			}
		}
		return any
	}
}

// lateThought lets the last piece of a thought come when the text behind it has begun.
func lateThought(_ *rand.Rand, s *Body) bool {
	last := -1
	for i, f := range s.Frames {
		if text(object(f.Data, "delta"), "type") == "thinking_delta" {
			last = i
		}
		if b := object(f.Data, "content_block"); last >= 0 && b != nil {
			if text(b, "type") != "text" || text(b, "text") != "" {
				return false
			}
			moved := s.Frames[last]
			moved.Data["index"] = f.Data["index"]
			s.Frames = slices.Insert(s.Frames, i+1, moved)
			s.Frames = slices.Delete(s.Frames, last, last+1)
			return true
		}
	}
	return false
}

// wholeMessage adds the message as an answer has it that was not streamed.
func wholeMessage(_ *rand.Rand, s *Body) bool {
	var m Object
	var content []any
	for _, f := range s.Frames {
		switch text(f.Data, "type") {
		case "message_start":
			if m != nil || len(list(object(f.Data, "message"), "content")) > 0 {
				return false
			}
			m = cloneValue(object(f.Data, "message")).(Object)
		case "content_block_start":
			if number(f.Data["index"]) != len(content) {
				return false
			}
			content = append(content, cloneValue(object(f.Data, "content_block")))
		case "content_block_delta":
			if number(f.Data["index"]) >= len(content) ||
				!applyDelta(content[number(f.Data["index"])].(Object), object(f.Data, "delta")) {
				return false
			}
		case "error":
			return false
		}
	}
	if m == nil || text(m, "id") == "" {
		return false
	}
	for _, v := range content {
		b := v.(Object)
		if raw, ok := b["partial"].(string); ok {
			delete(b, "partial")
			if b["input"] = parse(raw); b["input"] == nil {
				return false
			}
		}
	}
	m["content"] = content
	delete(m, "usage")
	delete(m, "stop_reason")
	delete(m, "stop_sequence")
	s.Frames = append(s.Frames, Frame{Name: "message", Data: m})
	return true
}

// applyDelta adds a delta to a block. false: it is of a kind that this does not know.
func applyDelta(b, delta Object) bool {
	switch t := text(delta, "type"); t {
	case "text_delta", "thinking_delta":
		name := strings.TrimSuffix(t, "_delta")
		b[name] = text(b, name) + text(delta, name)
	case "input_json_delta":
		raw, _ := b["partial"].(string)
		b["partial"] = raw + text(delta, "partial_json")
	case "signature_delta":
		b["signature"] = delta["signature"]
	default:
		return false
	}
	return true
}
