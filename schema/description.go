package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
)

// Bounds of what people say of a run. Lengths are in characters.
const (
	MaxTitle     = 512
	MaxTags      = 32
	MaxTag       = 64
	MaxPairs     = 16 // of metadata, in one change
	MaxPairName  = 64
	MaxPairValue = 512
)

// Headers that describe a run where it begins: of requests that append to it, and of calls through the proxy. Values
// are UTF-8 or percent-encoded; tags are separated by commas, and so are the pairs name=value of metadata.
const (
	HeaderTitle    = "Agentstream-Run-Title"
	HeaderTags     = "Agentstream-Run-Tags"
	HeaderMetadata = "Agentstream-Run-Metadata"
)

// Description is what people say of a run: by it they find it again. In a log it is the payload of a session.updated or
// session.created, whose fields MergeSession merges. The zero Description says nothing.
type Description struct {
	Title    string            `json:"title,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// IsZero reports whether nothing is said.
func (d *Description) IsZero() bool { return d.Title == "" && len(d.Tags) == 0 && len(d.Metadata) == 0 }

// Event returns the session.updated that says it. The error names the field that is beyond its bounds, and wraps
// ErrMalformed.
func (d *Description) Event() (Event, error) {
	payload, err := json.Marshal(*d) // a copy: d is then not of the heap, where nothing is said
	if err == nil {
		_, err = CheckDescription(payload)
	}
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return Event{Type: TypeSessionUpdated, Payload: payload}, nil
}

// ParseDescription reads the headers, whose names are as http.Header has them.
func ParseDescription(header map[string][]string) (d Description, err error) {
	if header[HeaderTitle] == nil && header[HeaderTags] == nil && header[HeaderMetadata] == nil {
		return d, nil // as nearly always
	}
	texts := make(map[string]string, 3)
	for _, name := range []string{HeaderTitle, HeaderTags, HeaderMetadata} {
		values := header[name]
		if len(values) > 1 {
			return d, fmt.Errorf("%s must be given once", name)
		}
		texts[name] = strings.Join(values, "")
	}
	if d.Title, err = decodeHeader(HeaderTitle, texts[HeaderTitle]); err != nil {
		return d, err
	}
	for part := range headerList(texts[HeaderTags]) {
		tag, err := decodeHeader(HeaderTags, part)
		if err != nil {
			return d, err
		}
		d.Tags = append(d.Tags, tag)
	}
	for part := range headerList(texts[HeaderMetadata]) {
		if err := d.addPair(part); err != nil {
			return d, err
		}
	}
	payload, err := json.Marshal(d)
	if err == nil {
		_, err = CheckDescription(payload)
	}
	return d, err
}

func (d *Description) addPair(part string) error {
	name, value, ok := strings.Cut(part, "=")
	name, err := decodeHeader(HeaderMetadata, name)
	if err != nil {
		return err
	}
	if value, err = decodeHeader(HeaderMetadata, value); err != nil {
		return err
	}
	if _, twice := d.Metadata[name]; !ok || twice {
		return fmt.Errorf("%s is a list of name=value, each name once", HeaderMetadata)
	}
	if d.Metadata == nil {
		d.Metadata = make(map[string]string)
	}
	d.Metadata[name] = value
	return nil
}

// headerList returns the elements of a header's list that are not empty.
func headerList(value string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); part != "" && !yield(part) {
				return
			}
		}
	}
}

func decodeHeader(name, value string) (string, error) {
	text, err := url.PathUnescape(strings.TrimSpace(value))
	if err != nil || !utf8.ValidString(text) {
		return "", fmt.Errorf("%s must be UTF-8 or percent-encoded (a %% is written %%25), not %s", name, quote(value))
	}
	return text, nil
}

// CheckDescription checks title, tags and metadata of a session.created or session.updated that a client sends; null
// takes one away. Other fields are not looked at. field is the JSON pointer of what is wrong.
func CheckDescription(payload []byte) (field string, err error) {
	p := jsonscan.Fields(nil).Read(payload)
	if v := p.Some("title"); v != nil {
		if s, ok := jsonscan.Unquote(v); !ok || !isShort(s, 0, MaxTitle) {
			return "/title", fmt.Errorf("title is not a string of at most %d characters", MaxTitle)
		}
	}
	if err := checkTags(p.Some("tags")); err != nil {
		return "/tags", err
	}
	if err := checkPairs(p.Some("metadata")); err != nil {
		return "/metadata", err
	}
	return "", nil
}

func checkTags(v []byte) error {
	if v == nil {
		return nil
	}
	bad := fmt.Errorf("tags is not a list of at most %d different strings of 1 to %d characters, without commas and control characters",
		MaxTags, MaxTag)
	if v[0] != '[' {
		return bad
	}
	var tags []string
	for element := range jsonscan.Elements(v) {
		tag, ok := jsonscan.Unquote(element)
		if !ok || !isTag(tag) || len(tags) == MaxTags || slices.Contains(tags, tag) {
			return bad
		}
		tags = append(tags, tag)
	}
	return nil
}

// isTag reports whether a run can have a tag: one that stands in a list with commas, and that every database holds.
func isTag(s string) bool {
	return isShort(s, 1, MaxTag) && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == ',' || r < ' ' || r == 0x7F })
}

func checkPairs(v []byte) error {
	if v == nil {
		return nil
	}
	bad := fmt.Errorf("metadata is not an object of at most %d strings of at most %d characters, with names of 1 to %d; null takes one away",
		MaxPairs, MaxPairValue, MaxPairName)
	if v[0] != '{' {
		return bad
	}
	n := 0
	return EachField(v, func(name string, v []byte) error {
		s, ok := jsonscan.Unquote(v)
		if n++; n > MaxPairs || !isShort(name, 1, MaxPairName) || !ok && string(v) != "null" || !isShort(s, 0, MaxPairValue) {
			return bad
		}
		return nil
	})
}

func isShort(s string, least, most int) bool {
	n := utf8.RuneCountInString(s)
	return n >= least && n <= most
}

// maxPairsKept bounds the metadata of a run after a change by a command.
const maxPairsKept = 4 * MaxPairs

// CheckChange checks whether what is kept of a run takes a change, which a merge passes over silently. session is what
// MergeSession has made, payload one that CheckDescription lets pass.
func CheckChange(session, payload []byte) (field string, err error) {
	merged := MergeSession(session, TypeSessionUpdated, "", payload)
	metadata := jsonscan.Fields(nil).Read(jsonscan.Fields(nil).Read(merged).Object(sessionMetadata))
	if len(metadata) > maxPairsKept {
		return "/metadata", fmt.Errorf("the run would have more than %d pairs of metadata", maxPairsKept)
	}
	if len(merged)+len(payload) > MaxSession && bytes.Equal(merged, session) {
		return "", fmt.Errorf("what is said of the run would have more than %d bytes", MaxSession)
	}
	return "", nil
}

// Bounds of what Opening returns, in characters, and of the text that it reads, in bytes.
const (
	maxOpening  = 200
	openingRead = 8 * maxOpening
)

// Opening returns the first words of what an event of the root says, "" for one that says nothing: of a
// command.message, or of a message.end whose content has text. What stands before, between and after calls is one text.
// White space is one space. By those of its first message a run without a title is shown.
func Opening(typ string, payload []byte) string {
	if typ != TypeCommandMessage && typ != TypeMessageEnd {
		return ""
	}
	p := jsonscan.Fields(nil).Read(payload)
	content := p.Some("content")
	if p.Str("role") == "system" {
		return ""
	}
	if jsonscan.IsString(content) {
		return cutWords(jsonscan.DecodeString(content))
	}
	if len(content) == 0 || content[0] != '[' {
		return ""
	}
	var words strings.Builder
	for block := range jsonscan.Elements(content) {
		b := jsonscan.Fields(nil).Read(block)
		if typ := b.Str("type"); typ != "text" && typ != "" {
			continue
		}
		if part := strings.Join(strings.Fields(CutText(b.Str("text"), openingRead)), " "); part != "" {
			words.WriteString(part + " ")
		}
		if words.Len() >= openingRead {
			break
		}
	}
	return cutWords(words.String())
}

// cutWords returns the beginning of a text in one line, in a form that every database can keep.
func cutWords(s string) string {
	s = CutText(s, openingRead) // what is behind is not shown
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) <= maxOpening {
		return s
	}
	return strings.TrimSpace(string([]rune(s)[:maxOpening-1])) + "…"
}
