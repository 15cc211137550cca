package demo

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"agentstream/producers"
)

const (
	agentModel    = "scripted-1"
	agentProvider = "demo"
	systemTokens  = 320 // of what its model reads before the first message
)

// Pace of the agent's output: a thought runs faster than text, a tool's input faster still.
const (
	thoughtPace = 38 * time.Millisecond
	textPace    = 66 * time.Millisecond
	inputPace   = 26 * time.Millisecond
)

// voice is a model that says what a script has for it. A word is one token.
type voice struct {
	turn    *producers.Turn
	pauses  func(time.Duration) error
	context int // tokens that the model has read and written
	cached  int // those that it has from the call before
	said    int // tokens of the message that is being written
	asked   []*producers.Call
}

// usage counts three disjoint kinds of tokens.
type usage struct {
	Input  int `json:"input_tokens"`
	Cached int `json:"cache_read_input_tokens"`
	Output int `json:"output_tokens"`
}

// read adds a text to what the model reads next.
func (v *voice) read(text string) { v.context += len(words(text)) }

// messagePart is a piece of a message: one of these.
type messagePart struct {
	Thought string `json:"thought"` // reasoning, word by word, with a signature as providers give it
	Text    string `json:"text"`    // word by word
	Report  string `json:"report"`  // text in clauses: a reader can follow several that write at once
	Picture string `json:"picture"` // the name of the image
	Fails   string `json:"fails"`   // why the model does
	call    *tool
	asks    string // permission that the call needs
}

// message is one call of the model: a message in parts. It returns the tool calls that the message asks for.
func (v *voice) message(parts []messagePart) ([]*producers.Call, error) {
	call, err := v.turn.BeginModel(agentProvider, agentModel)
	if err != nil {
		return nil, err
	}
	m, err := v.turn.Message(producers.MessageInfo{Model: agentModel, Provider: agentProvider})
	if err != nil {
		return nil, err
	}
	v.asked, v.said = nil, 0
	for _, p := range parts {
		if err := p.say(v, m); err != nil {
			return nil, err
		}
	}
	stop := "end_turn"
	if len(v.asked) > 0 {
		stop = "tool_use"
	}
	used := usage{v.context - v.cached, v.cached, v.said}
	v.context += v.said
	if err := m.End(stop, used); err != nil {
		return nil, err
	}
	return v.asked, call.End(used)
}

// spell emits pieces at a pace.
func (v *voice) spell(pieces []string, pace time.Duration, say func(string) error) error {
	for _, p := range pieces {
		if err := v.pauses(pace); err != nil {
			return err
		}
		if err := say(p); err != nil {
			return err
		}
		v.said++
	}
	return nil
}

func (p messagePart) say(v *voice, m *producers.Message) error {
	switch {
	case p.Fails != "":
		return &scripted{errors.New(p.Fails)}
	case p.Picture != "":
		return m.Data("image", "image/svg+xml", p.Picture, eventsPicture)
	case p.call != nil:
		return v.call(m, p.call, p.asks)
	case p.Report != "":
		return v.report(m, p.Report)
	case p.Text != "":
		return v.spell(words(p.Text), textPace, m.Text)
	}
	if err := v.spell(words(p.Thought), thoughtPace, m.Reasoning); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(p.Thought))
	return m.Sign(base64.StdEncoding.EncodeToString(sum[:]))
}

// report emits text clause by clause.
func (v *voice) report(m *producers.Message, text string) error {
	for rest := text; rest != ""; {
		end := len(rest)
		if n := strings.IndexAny(rest, ",.:;"); n >= 0 {
			end = min(end, n+1+strings.IndexAny(rest[n:]+" ", " \n"))
		}
		clause := rest[:end]
		rest = rest[end:]
		n := len(words(clause))
		if err := v.spell([]string{clause}, time.Duration(n)*textPace, m.Text); err != nil {
			return err
		}
		v.said += n - 1
	}
	return nil
}

// call asks for a tool. Its input streams in. With permission, the call has to be allowed first.
func (v *voice) call(m *producers.Message, t *tool, permission string) error {
	c, err := m.Call(t.ID, t.Name)
	if err != nil {
		return err
	}
	var pieces []string
	for rest := string(t.Input); rest != ""; {
		n := min(5, len(rest))
		pieces, rest = append(pieces, rest[:n]), rest[n:]
	}
	if err := v.spell(pieces, inputPace, c.Input); err != nil {
		return err
	}
	v.asked = append(v.asked, c)
	return c.ReadyAs(nil, permission)
}

// words cuts text into pieces that end behind their white space.
func words(text string) []string {
	var out []string
	for text != "" {
		n := strings.IndexAny(text, " \n") + 1
		if n == 0 {
			n = len(text)
		}
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}
