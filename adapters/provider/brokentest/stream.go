package brokentest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// API is one of the APIs.
type API string

// The APIs.
const (
	Anthropic API = "anthropic"
	Chat      API = "openai-chat"
	Responses API = "openai-responses"
	Gemini    API = "gemini"
)

// Object is a JSON object.
type Object = map[string]any

// Frame is one event of a stream.
type Frame struct {
	Name string // of the server-sent event; "" is none
	Data Object
	Raw  string // in the stead of Data: [DONE], or nothing
	Line string // in the stead of all: lines as they are
}

// Body is a body that is being rewritten.
type Body struct {
	API    API
	Frames []Frame
	Wire   Wire
	ends   bool // what one rewriting took away another may not
}

// Wire is how the frames are written.
type Wire struct {
	Start    string // before all of it
	Line     string // ends a line; "" is LF
	Field    string // begins a line of data; "" is "data: "
	Tight    bool   // no blank line between two events
	Nameless bool   // no names of events
	Named    bool   // the names have what the data lacks
	Between  string // behind every event
	Wrap     string // member of an object around every frame; "" is none
	JSON     string // "lines", "list" or "printed" in the stead of server-sent events
	Indent   bool   // the data of an event stands in several lines
	Bare     int    // every so many frames stands without the field; 0 is none
	Merge    int    // every so many frames share the data of an event
	Tear     int    // every so many frames is torn into two events
}

// Read reads a recorded body.
func Read(api API, body []byte) *Body {
	s := &Body{API: api}
	name := ""
	for line := range strings.SplitSeq(string(body), "\n") {
		line = strings.TrimRight(line, "\r")
		switch field, value, _ := strings.Cut(line, ":"); {
		case strings.HasPrefix(line, "{"):
			s.Frames = append(s.Frames, Frame{Data: parse(line)})
		case field == "event":
			name = strings.TrimSpace(value)
		case field == "data" && strings.TrimSpace(value) == "[DONE]":
			s.Frames = append(s.Frames, Frame{Raw: "[DONE]"})
		case field == "data":
			s.Frames = append(s.Frames, Frame{Name: name, Data: parse(value)})
			name = ""
		}
	}
	s.mark()
	return s
}

func parse(text string) Object {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var o Object
	if err := d.Decode(&o); err != nil {
		return nil
	}
	return o
}

// Clone copies a stream.
func (s *Body) Clone() *Body {
	out := *s
	out.Frames = make([]Frame, len(s.Frames))
	for i, f := range s.Frames {
		out.Frames[i] = f.clone()
	}
	return &out
}

func (f Frame) clone() Frame {
	if f.Data != nil {
		f.Data = cloneValue(f.Data).(Object)
	}
	return f
}

// cloneValue returns a deep copy.
func cloneValue(v any) any {
	switch v := v.(type) {
	case Object:
		out := make(Object, len(v))
		for k, e := range v {
			out[k] = cloneValue(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = cloneValue(e)
		}
		return out
	}
	return v
}

func encode(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// Possible reports whether a stream can be written so that nothing is lost.
func (s *Body) Possible() bool {
	w := s.Wire
	if w.Tear > 0 && (w.Tight || w.Indent || w.Merge > 0 || w.Bare > 0 || w.Between != "") {
		return false
	}
	return !w.Named || w.JSON == "" && !w.Nameless && w.Merge+w.Tear+w.Bare == 0
}

// Body writes the stream.
func (s *Body) Body(r *rand.Rand) []byte {
	s.unmark()
	for i, f := range s.Frames {
		if s.Wire.Wrap != "" && f.Data != nil {
			s.Frames[i].Data = Object{s.Wire.Wrap: f.Data}
		}
	}
	var b strings.Builder
	b.WriteString(s.Wire.Start)
	if s.Wire.JSON != "" {
		s.writeJSON(&b)
	} else {
		s.writeEvents(&b, r)
	}
	text := b.String()
	switch s.Wire.Line {
	case "", "\n":
	case "mixed":
		text = mixLineEnds(text, r)
	default:
		text = strings.ReplaceAll(text, "\n", s.Wire.Line)
	}
	return []byte(text)
}

// mixLineEnds ends every line in another way. A line feed after a carriage return would end no line of its own.
func mixLineEnds(text string, r *rand.Rand) string {
	var b strings.Builder
	last := ""
	for i, line := range strings.Split(text, "\n") {
		if i > 0 { // the end of the line before
			end := []string{"\r\n", "\r", "\n"}[r.IntN(3)]
			if end == "\n" && last == "\r" {
				end = "\r\n"
			}
			b.WriteString(end)
			last = end
		}
		if b.WriteString(line); line != "" {
			last = ""
		}
	}
	return b.String()
}

func (s *Body) writeJSON(b *strings.Builder) {
	var list []string
	for _, f := range s.Frames {
		if f.Data == nil {
			continue
		}
		text := encode(f.Data)
		if s.Wire.JSON == "printed" {
			var p bytes.Buffer
			if json.Indent(&p, []byte(text), "", "  ") == nil {
				text = p.String()
			}
		}
		list = append(list, text)
	}
	if s.Wire.JSON == "lines" {
		b.WriteString(strings.Join(list, "\n"))
		return
	}
	b.WriteString("[" + strings.Join(list, ",\n") + "]")
}

func (s *Body) writeEvents(b *strings.Builder, r *rand.Rand) {
	held := ""
	for i, f := range s.Frames {
		if f.Line != "" {
			b.WriteString(f.Line)
			continue
		}
		text := f.Raw
		if f.Data != nil {
			text = encode(f.Data)
		}
		w := s.Wire
		nth := func(n int) bool { return n > 0 && i%n == 0 && f.Data != nil }
		if nth(w.Merge) && i+1 < len(s.Frames) && s.Frames[i+1].Data != nil && s.Frames[i+1].Name == f.Name {
			held += text
			continue
		}
		text, held = held+text, ""
		switch {
		case nth(w.Bare) && f.Name == "":
			b.WriteString(text + "\n\n")
		case nth(w.Tear) && len(text) > 2:
			at := 1 + r.IntN(len(text)-1)
			for at < len(text)-1 && text[at]&0xc0 == 0x80 { // between two characters
				at++
			}
			if strings.TrimSpace(text[:at]) != text[:at] || strings.TrimSpace(text[at:]) != text[at:] {
				at = 1 // white space at the end of a line is a frame's own
			}
			s.event(b, f.Name, text[:at])
			s.event(b, f.Name, text[at:])
		default:
			s.event(b, f.Name, text)
		}
	}
}

func (s *Body) event(b *strings.Builder, name, text string) {
	w := s.Wire
	field := w.Field
	if field == "" {
		field = "data: "
	}
	if name != "" && !w.Nameless {
		fmt.Fprintf(b, "event: %s\n", name)
	}
	if w.Indent && strings.HasPrefix(text, "{") {
		var p bytes.Buffer
		if json.Indent(&p, []byte(text), "", " ") == nil {
			text = strings.ReplaceAll(p.String(), "\n", "\n"+field)
		}
	}
	b.WriteString(field + text + "\n")
	if !w.Tight {
		b.WriteString("\n")
	}
	b.WriteString(w.Between)
}
