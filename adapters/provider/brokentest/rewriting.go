package brokentest

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// Rewriting is what a broken translator makes of a stream.
type Rewriting struct {
	Name string
	APIs []API
	// Do rewrites a stream. It reports whether there was anything to rewrite.
	Do func(r *rand.Rand, s *Body) bool
	// But is in what the outcome may differ.
	But Aspect
}

// Rewritings returns all of them, in the order of the documentation.
func Rewritings() []Rewriting {
	return slices.Concat(framing(), chat(), responses(), anthropic(), gemini())
}

// For returns those of an API.
func For(api API) (list []Rewriting) {
	for _, rw := range Rewritings() {
		if slices.Contains(rw.APIs, api) {
			list = append(list, rw)
		}
	}
	return list
}

var everywhere = []API{Anthropic, Chat, Responses, Gemini}

// wire makes a rewriting of how frames are written.
func wire(name string, but Aspect, set func(*Wire)) Rewriting {
	return Rewriting{name, everywhere, func(_ *rand.Rand, s *Body) bool {
		set(&s.Wire)
		return true
	}, but}
}

// framing are the rewritings of what lies around the frames.
func framing() []Rewriting {
	return []Rewriting{
		wire("empty data", 0, func(w *Wire) { w.Between += "data: \n\ndata:\n\n" }),
		wire("data is null", 0, func(w *Wire) { w.Between += "data: null\n\n" }),
		wire("comments", 0, func(w *Wire) { w.Between += ": keep alive\n\n:\n" }),
		wire("no blank lines", 0, func(w *Wire) { w.Tight = true }),
		wire("CRLF", 0, func(w *Wire) { w.Line = "\r\n" }),
		wire("CR", 0, func(w *Wire) { w.Line = "\r" }),
		wire("line ends mixed", 0, func(w *Wire) { w.Line = "mixed" }),
		wire("byte order mark", 0, func(w *Wire) { w.Start = "\xef\xbb\xbf" }),
		wire("blank lines first", 0, func(w *Wire) { w.Start = "\n\n" }),
		wire("no space", 0, func(w *Wire) { w.Field = "data:" }),
		wire("data packed twice", 0, func(w *Wire) { w.Field = "data: data: " }),
		wire("data over several lines", 0, func(w *Wire) { w.Indent = true }),
		wire("no event names", 0, func(w *Wire) { w.Nameless = true }),
		wire("one JSON a line", 0, func(w *Wire) { w.JSON = "lines" }),
		wire("a JSON list", 0, func(w *Wire) { w.JSON = "list" }),
		wire("a printed JSON list", 0, func(w *Wire) { w.JSON = "printed" }),
		wire("JSON without its field", 0, func(w *Wire) { w.Bare = 3 }),
		wire("frames merged", 0, func(w *Wire) { w.Merge = 3 }),
		wire("frames torn", 0, func(w *Wire) { w.Tear = 3 }),
		{"error as a field", everywhere, errorField, Stop},
		{"[DONE] twice", everywhere, func(_ *rand.Rand, s *Body) bool {
			s.Frames = append(s.Frames, Frame{Raw: "[DONE]"}, Frame{Raw: "[DONE]"})
			return true
		}, 0},
		{"[DONE] missing", everywhere, func(_ *rand.Rand, s *Body) bool {
			n := len(s.Frames)
			s.Frames = slices.DeleteFunc(s.Frames, func(f Frame) bool { return f.Raw == "[DONE]" })
			return len(s.Frames) < n
		}, 0},
		{"control frame doubled", everywhere, doubleControl, 0},
		{"one id for all calls", everywhere, each(func(_ int, o Object) bool { return sameIDs(o) }), IDs},
		{"any frame doubled", everywhere, doubleAny, Twice | Split | Stop | Many | Result},
	}
}

// sameIDs sets one id for all calls in a value, where they have one.
func sameIDs(v any) (found bool) {
	set := func(o Object, name string) {
		if id := text(o, name); id != "" {
			found = put(o, name, "call_0")
		}
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			found = sameIDs(e) || found
		}
	case Object:
		set(object(v, "functionCall"), "id")
		for _, c := range list(v, "tool_calls") {
			set(c.(Object), "id")
		}
		switch v["type"] {
		case "tool_use":
			set(v, "id")
		case "function_call", "custom_tool_call":
			set(v, "call_id")
		}
		for _, e := range v {
			found = sameIDs(e) || found
		}
	}
	return found
}

func errorField(_ *rand.Rand, s *Body) bool {
	s.Frames = append(s.Frames, Frame{Line: "error: {\"code\":400,\"message\":\"the context is full\"}\n\n"})
	return true
}

// doubleControl doubles a frame that has no content.
func doubleControl(r *rand.Rand, s *Body) bool {
	var at []int
	for i, f := range s.Frames {
		if f.Data != nil && control(s.API, f) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return false
	}
	i := at[r.IntN(len(at))]
	s.Frames = slices.Insert(s.Frames, i, s.Frames[i].clone())
	return true
}

// control reports whether a frame has no text of its own.
func control(api API, f Frame) bool {
	o := f.Data
	switch api {
	case Chat:
		for _, c := range list(o, "choices") {
			d := object(c, "delta")
			for _, name := range []string{"content", "reasoning", "reasoning_content", "refusal", "tool_calls",
				"function_call", "reasoning_details"} {
				if v := d[name]; v != nil && v != "" {
					return false
				}
			}
			if object(c, "logprobs") != nil {
				return false
			}
		}
		return len(list(o, "choices")) < 2
	case Anthropic:
		return o["type"] != "content_block_delta" && (o["type"] != nil || f.Name != "content_block_delta")
	case Responses:
		return true // they are numbered
	}
	for _, c := range list(o, "candidates") {
		if len(list(object(c, "content"), "parts")) > 0 {
			return false
		}
	}
	return true
}

func doubleAny(r *rand.Rand, s *Body) bool {
	if len(s.Frames) == 0 {
		return false
	}
	i := r.IntN(len(s.Frames))
	s.Frames = slices.Insert(s.Frames, i, s.Frames[i].clone())
	return true
}

// object returns a member that is an object; nil when it is none.
func object(v any, name string) Object {
	o, _ := v.(Object)
	inner, _ := o[name].(Object)
	return inner
}

// list returns a member that is a list.
func list(v any, name string) []any {
	o, _ := v.(Object)
	inner, _ := o[name].([]any)
	return inner
}

// text returns a member that is a string.
func text(v any, name string) string {
	o, _ := v.(Object)
	s, _ := o[name].(string)
	return s
}

// each calls do with the data of every frame, and reports whether one of them was changed.
func each(do func(i int, o Object) bool) func(*rand.Rand, *Body) bool {
	return func(_ *rand.Rand, s *Body) (any bool) {
		for i, f := range s.Frames {
			if f.Data != nil && do(i, f.Data) {
				any = true
			}
		}
		return any
	}
}

// drop takes out the frames that a function names.
func drop(which func(o Object) bool) func(*rand.Rand, *Body) bool {
	return func(_ *rand.Rand, s *Body) bool {
		n := len(s.Frames)
		s.Frames = slices.DeleteFunc(s.Frames, func(f Frame) bool { return f.Data != nil && which(f.Data) })
		return len(s.Frames) < n
	}
}

// after inserts a frame behind the last one that a function names.
func after(s *Body, which func(o Object) bool, add ...Frame) bool {
	for i := len(s.Frames) - 1; i >= 0; i-- {
		if o := s.Frames[i].Data; o != nil && which(o) {
			s.Frames = slices.Insert(s.Frames, i+1, add...)
			return true
		}
	}
	return false
}

// aspects are the words of the documentation for what may differ.
var aspects = []struct {
	aspect Aspect
	word   string
}{{IDs, "ids"}, {Usage, "usage"}, {Stop, "the end"}, {Split, "borders of texts"}, {Result, "results"},
	{Twice, "doubled content"}, {Many, "messages"}}

// Row returns the row of a rewriting in the documentation.
func Row(rw Rewriting) string {
	var but []string
	for _, a := range aspects {
		if rw.But&a.aspect != 0 {
			but = append(but, a.word)
		}
	}
	row := "| " + rw.Name + " |"
	for _, api := range everywhere {
		cell := ""
		if slices.Contains(rw.APIs, api) {
			cell = "="
			if len(but) > 0 {
				cell = strings.Join(but, ", ")
			}
		}
		row += " " + cell + " |"
	}
	return row
}
