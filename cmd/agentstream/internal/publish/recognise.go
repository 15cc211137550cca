package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"agentstream/adapters/transcript"
	"agentstream/schema"
)

// maxLook bounds how far into a file it is looked to find out what it is, in bytes. An event may be
// half of that.
const maxLook = 2 * schema.MaxEventBytes

// recognised is what a file turned out to be.
type recognised struct {
	kind   *format
	form   string // how frames are written down
	byName bool   // the content did not show it
	body   io.Reader
}

// words returns it for people.
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

// errUnrecognised reports that neither content nor name show what a file holds.
var errUnrecognised = errors.New("cannot tell what it holds; --format says it")

// recognise reads as much as it takes to find out what a file holds. Body returns everything again, also
// when there is an error. What came in pieces over a pipe is looked at piece by piece: nobody waits for
// more than the first frame that decides.
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

// look finds out what a file holds from its first bytes; kind is nil while, or when, they do not show it.
func look(head []byte) (r recognised) {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	if len(head) == 0 {
		return r
	}
	if r.form = formOf(head); r.form != formText {
		name, _ := transcript.Recognise(head)
		r.kind = formatNamed(name)
	}
	return r
}

func formOf(head []byte) string {
	line, _, more := bytes.Cut(head, []byte{'\n'})
	switch {
	case head[0] == '[':
		return formList
	case head[0] == '{' && more && !json.Valid(line):
		return formJSON
	case head[0] == '{':
		return formLines
	}
	field, _, _ := bytes.Cut(line, []byte{':'})
	switch string(field) {
	case "", "data", "event", "id", "retry":
		if len(field) < len(line) {
			return formSSE
		}
	}
	return formText
}
