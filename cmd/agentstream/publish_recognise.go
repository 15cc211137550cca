package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"agentstream/schema"
)

// maxLook bounds how far into a file it is looked to find out what it is, in bytes. An event may be
// half of that.
const maxLook = 2 * schema.MaxEventBytes

// recognised is what a file turned out to be.
type recognised struct {
	kind   *format
	form   string // how frames are written down
	byName bool   // the content did not tell
	body   io.Reader
}

// words says it to people.
func (r recognised) words(packed string) string {
	s := r.kind.name + ", " + r.form
	if packed != "" {
		s += ", " + packed
	}
	if r.byName {
		s += " (by its name)"
	}
	return s
}

// errUnrecognised says that neither content nor name tell what a file holds.
var errUnrecognised = errors.New("cannot tell what it holds; --format says it")

// recognise reads as much as it takes to find out what a file holds. Body gives everything again, also
// when there is an error. What came in pieces over a pipe is looked at piece by piece: nobody waits for
// more than the first frame that tells.
func recognise(r io.Reader, name string) (recognised, error) {
	var head []byte
	piece := make([]byte, 32<<10)
	for {
		n, err := r.Read(piece)
		head = append(head, piece[:n]...)
		found := look(head)
		found.body = io.MultiReader(bytes.NewReader(head), r)
		switch {
		case found.kind != nil:
			return found, nil
		case err != nil && err != io.EOF:
			return found, err
		case err == nil && len(head) < maxLook:
			continue
		}
		found.kind, found.byName = byName(name), true
		switch {
		case found.form == "":
			found.form = "empty"
			if found.kind == nil { // no events: nothing goes wrong
				found.kind, found.byName = formatNamed("native"), false
			}
		case found.form == formText || found.kind == nil:
			return found, fmt.Errorf("%w: it begins with %.60q", errUnrecognised, bytes.TrimSpace(head[:min(len(head), 60)]))
		}
		return found, nil
	}
}

// byName takes a hint of a file's name and its folder's; nil where there is none.
func byName(name string) *format {
	base := strings.ToLower(filepath.Base(filepath.Dir(name)) + "/" + filepath.Base(name))
	if strings.HasSuffix(base, ".traj") {
		return formatNamed("swe-agent")
	}
	all := formats()
	slices.SortStableFunc(all, func(a, b *format) int { return len(b.name) - len(a.name) }) // gemini-cli is not gemini
	for _, part := range []string{filepath.Base(base), base} {
		for _, f := range all {
			if strings.Contains(part, f.name) {
				return f
			}
		}
	}
	return nil
}

// Forms in words.
const (
	formSSE   = "server-sent events"
	formLines = "JSON lines"
	formList  = "JSON list"
	formJSON  = "JSON"
	formText  = "text"
)

// frameShape is what tells one format from another: the members of a frame, as far as they are there.
// A string is given in quotes, of anything else the first character.
type frameShape map[string]string

func (f frameShape) has(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { _, ok := f[n]; return ok })
}

// text is a member that is a string.
func (f frameShape) text(name string) string {
	s, _ := strings.CutPrefix(f[name], `"`)
	return s
}

// look finds out what a file holds from its first bytes; kind is nil while, or when, they do not tell.
func look(head []byte) (r recognised) {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	if len(head) == 0 {
		return r
	}
	switch head[0] {
	case '{':
		r.form = formLines
		if line, _, more := bytes.Cut(head, []byte{'\n'}); more && !json.Valid(line) {
			r.form = formJSON
		}
		r.kind = lookJSON(head)
	case '[':
		r.form = formList
		r.kind = lookJSON(head)
	default:
		r.form, r.kind = lookLines(head)
	}
	return r
}

// maxFrames bounds how many frames are asked.
const maxFrames = 20

// lookJSON asks the objects that a text of JSON values begins with.
func lookJSON(head []byte) *format {
	dec := json.NewDecoder(bytes.NewReader(head))
	if head[0] == '[' {
		if _, err := dec.Token(); err != nil {
			return nil
		}
	}
	for range maxFrames {
		shape, whole := shapeOf(dec)
		if kind := holder("", shape); kind != nil || !whole {
			return kind
		}
	}
	return nil
}

// lookLines asks the frames of a stream of server-sent events.
func lookLines(head []byte) (form string, kind *format) {
	form = formText
	name := ""
	frames := 0
	for line := range bytes.Lines(head) {
		line = bytes.TrimRight(line, "\r\n")
		field, value, colon := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			shape, _ := shapeOf(json.NewDecoder(bytes.NewReader(value)))
			if kind = holder(name, shape); kind != nil || frames == maxFrames {
				return formSSE, kind
			}
			frames++
			name = ""
		case "id", "retry":
		case "": // a comment, or the end of a frame
			colon = len(line) > 0
		default:
			return form, nil
		}
		if colon {
			form = formSSE
		}
	}
	return form, nil
}

// shapeOf reads one object. whole is false where it ends too early, or is none.
func shapeOf(dec *json.Decoder) (shape frameShape, whole bool) {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	shape = frameShape{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return shape, false
		}
		value, err := dec.Token()
		if err != nil {
			return shape, false
		}
		key, _ := name.(string)
		switch v := value.(type) {
		case json.Delim:
			shape[key] = v.String()
			if !skipRest(dec) {
				return shape, false
			}
		case string:
			shape[key] = `"` + v[:min(len(v), 128)]
		default:
			shape[key] = fmt.Sprint(v)
		}
	}
	_, err := dec.Token()
	return shape, err == nil
}

// skipRest reads on to the end of the object or list that has just begun.
func skipRest(dec *json.Decoder) bool {
	for depth := 1; depth > 0; {
		t, err := dec.Token()
		if err != nil {
			return false
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return true
}

// holder gives the format that a frame belongs to; nil where none says so.
func holder(name string, shape frameShape) *format {
	for _, f := range formats() {
		if f.holds != nil && f.holds(name, shape) {
			return f
		}
	}
	return nil
}

// holdsNative: a type of the catalogue, or one that stands where only events have theirs.
func holdsNative(_ string, f frameShape) bool {
	typ := f.text("type")
	if typ == "" || strings.HasPrefix(typ, "response.") {
		return false
	}
	_, err := schema.Lookup(typ)
	return err == nil || f.has("payload", "seq", "run_id", "child_id")
}

// holdsAnthropic: https://docs.claude.com/en/docs/build-with-claude/streaming names the events.
func holdsAnthropic(_ string, f frameShape) bool {
	switch f.text("type") {
	case "message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta", "content_block_stop":
		return true
	case "message": // an answer that was not streamed
		return f.has("role") && f.has("content")
	case "error":
		return f["error"] == "{"
	}
	return false
}
