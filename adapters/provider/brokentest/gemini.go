package brokentest

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// gemini are the rewritings of the Gemini API.
func gemini() (out []Rewriting) {
	add := func(name string, but Aspect, do func(r *rand.Rand, s *Body) bool) {
		out = append(out, Rewriting{name, []API{Gemini}, do, but})
	}
	candidates := func(do func(c Object) bool) func(*rand.Rand, *Body) bool {
		return each(func(_ int, o Object) (any bool) {
			for _, v := range list(o, "candidates") {
				if c, ok := v.(Object); ok && do(c) {
					any = true
				}
			}
			return any
		})
	}
	add("STOP on every chunk", 0, once(candidates(func(c Object) bool { return c["finishReason"] == nil && put(c, "finishReason", "STOP") })))
	add("no finishReason", Stop|Split, once(candidates(func(c Object) bool {
		had := c["finishReason"] != nil
		delete(c, "finishReason")
		return had
	})))
	add("responseId changes", IDs, once(each(func(i int, o Object) bool { return o["responseId"] != nil && put(o, "responseId", fmt.Sprint("r_", i)) })))
	add("no responseId", IDs, each(func(_ int, o Object) bool {
		had := o["responseId"] != nil
		delete(o, "responseId")
		return had
	}))
	add("no modelVersion behind the first", 0, each(func(i int, o Object) bool {
		if i > 0 {
			delete(o, "modelVersion")
		}
		return i > 0
	}))
	add("no roles", 0, candidates(func(c Object) bool {
		content := object(c, "content")
		had := content["role"] != nil
		if had {
			delete(content, "role")
		}
		return had
	}))
	add("no index of candidates", 0, candidates(func(c Object) bool {
		had := c["index"] != nil
		delete(c, "index")
		return had
	}))
	add("index of candidates 0", 0, candidates(func(c Object) bool { return put(c, "index", 0) }))
	return append(out, geminiContent(candidates)...)
}

// geminiContent are those of the counts and the parts.
func geminiContent(candidates func(func(Object) bool) func(*rand.Rand, *Body) bool) (out []Rewriting) {
	add := func(name string, but Aspect, do func(r *rand.Rand, s *Body) bool) {
		out = append(out, Rewriting{name, []API{Gemini}, do, but})
	}
	add("usage empty, behind the last", 0, geminiUsage(Object{"promptTokenCount": 0, "totalTokenCount": 0}))
	add("usage missing behind the first", Usage, each(func(i int, o Object) bool {
		if i > 0 {
			delete(o, "usageMetadata")
		}
		return i > 0
	}))
	add("parts empty", 0, func(r *rand.Rand, s *Body) bool {
		i := r.IntN(len(s.Frames))
		c := s.Frames[i].clone()
		for _, v := range list(c.Data, "candidates") {
			delete(v.(Object), "finishReason")
			delete(v.(Object), "groundingMetadata")
			if content := object(v, "content"); content != nil {
				content["parts"] = []any{}
			}
		}
		s.Frames = slices.Insert(s.Frames, i, c)
		return true
	})
	add("empty text parts", 0, candidates(func(c Object) bool {
		content := object(c, "content")
		return content != nil && put(content, "parts", append([]any{Object{"text": ""}}, list(content, "parts")...))
	}))
	add("texts in two parts", 0, candidates(func(c Object) bool {
		content := object(c, "content")
		var parts []any
		split := false
		for _, v := range list(content, "parts") {
			p := v.(Object)
			if t := []rune(text(p, "text")); len(t) > 1 && p["thoughtSignature"] == nil {
				first := cloneValue(p).(Object)
				first["text"], p["text"] = string(t[:len(t)/2]), string(t[len(t)/2:])
				parts, split = append(parts, first), true
			}
			parts = append(parts, p)
		}
		return split && put(content, "parts", parts)
	}))
	add("text once more at the end", 0, once(textAgain))
	add("calls doubled with their ids", 0, func(_ *rand.Rand, s *Body) (any bool) {
		for i := len(s.Frames) - 1; i >= 0; i-- {
			for _, v := range list(s.Frames[i].Data, "candidates") {
				for _, p := range list(object(v, "content"), "parts") {
					if call := object(p, "functionCall"); call != nil && call["args"] != nil && call["willContinue"] == nil && !any {
						if call["id"] == nil {
							call["id"] = "given"
						}
						c := s.Frames[i].clone()
						delete(c.Data, "usageMetadata")
						s.Frames, any = slices.Insert(s.Frames, i+1, c), true
					}
				}
			}
		}
		return any
	})
	out[len(out)-1].But = IDs
	add("wrapped", 0, func(_ *rand.Rand, s *Body) bool {
		s.Wire.Wrap = "response"
		return true
	})
	return out
}

func geminiUsage(u Object) func(*rand.Rand, *Body) bool {
	return func(_ *rand.Rand, s *Body) bool {
		for i := len(s.Frames) - 1; i >= 0; i-- {
			if o := s.Frames[i].Data; object(o, "usageMetadata") != nil {
				add := Object{"usageMetadata": u}
				if o["responseId"] != nil {
					add["responseId"] = o["responseId"]
				}
				s.Frames = append(s.Frames, Frame{Data: add})
				return true
			}
		}
		return false
	}
}

// textAgain repeats the whole text in the last chunk, which has none of its own.
func textAgain(_ *rand.Rand, s *Body) bool {
	all, chunks := "", 0
	for _, f := range s.Frames {
		for _, v := range list(f.Data, "candidates") {
			for _, p := range list(object(v, "content"), "parts") {
				if t := text(p, "text"); t != "" && p.(Object)["thought"] == nil {
					all += t
					chunks++
				}
			}
		}
	}
	if chunks < 3 || len(all) < 32 {
		return false
	}
	last := s.Frames[len(s.Frames)-1].clone()
	for _, v := range list(last.Data, "candidates") {
		c := v.(Object)
		if c["finishReason"] == nil {
			return false
		}
		c["content"] = Object{"role": "model", "parts": []any{Object{"text": all}}}
		s.Frames = append(s.Frames, last)
		return true
	}
	return false
}
