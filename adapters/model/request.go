package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentstream/producers/worker"
)

// inputMessage is one of the input. Parts is what it says: text, and images by their URL.
type inputMessage struct {
	Role  string
	Name  string
	Parts []inputPart
}

type inputPart struct {
	Type string `json:"type"` // text or image_url
	Text string `json:"text"`
	URL  string `json:"url"`
}

// text returns the texts, a line each.
func (m *inputMessage) text() string {
	var all []string
	for _, p := range m.Parts {
		if p.Text != "" {
			all = append(all, p.Text)
		}
	}
	return strings.Join(all, "\n")
}

func (m *inputMessage) UnmarshalJSON(raw []byte) error {
	var f struct {
		Role    string          `json:"role"`
		Name    string          `json:"name"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return err
	}
	m.Role, m.Name = f.Role, f.Name
	var text string
	if json.Unmarshal(f.Content, &text) == nil {
		m.Parts = []inputPart{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(f.Content, &m.Parts)
}

// messagesOf returns the input: messages of the command, or what it says as one message of the user.
func messagesOf(q *worker.Task) (list []inputMessage, err error) {
	var f struct {
		Messages []inputMessage `json:"messages"`
	}
	if err := json.Unmarshal(q.Message.Event.Payload, &f); err != nil {
		return nil, &Error{BadInput, fmt.Errorf("messages: %w", err)}
	}
	if len(f.Messages) > 0 {
		return f.Messages, nil
	}
	if q.Text() == "" {
		return nil, &Error{BadInput, errors.New("the message has no text")}
	}
	return []inputMessage{{Role: "user", Parts: []inputPart{{Type: "text", Text: q.Text()}}}}, nil
}

// fields is an object of a request. Its methods leave out what is not set.
type fields map[string]any

func (f fields) params(p *params, maxTokens string) fields {
	if p.Temperature != nil {
		f["temperature"] = *p.Temperature
	}
	if p.TopP != nil {
		f[cmp.Or(map[string]string{"maxOutputTokens": "topP"}[maxTokens], "top_p")] = *p.TopP
	}
	if p.MaxTokens > 0 {
		f[maxTokens] = p.MaxTokens
	}
	return f
}

// each returns what fn makes of the elements of a list, nil for none.
func each[T any](list []T, fn func(T) any) (out []any) {
	for _, v := range list {
		out = append(out, fn(v))
	}
	return out
}

func (f fields) tools(list []tool, fn func(tool) any) fields {
	if len(list) > 0 {
		f["tools"] = each(list, fn)
	}
	return f
}

func schemaOf(t tool) any {
	if len(t.InputSchema) == 0 {
		return fields{"type": "object"}
	}
	return t.InputSchema
}

// chatRequest is a request of https://platform.openai.com/docs/api-reference/chat/create.
func chatRequest(d *description, input []inputMessage) any {
	list := each(input, func(m inputMessage) any {
		f := fields{"role": m.Role, "content": m.text()}
		if m.Name != "" {
			f["name"] = m.Name
		}
		if hasImages(m) {
			f["content"] = each(m.Parts, func(p inputPart) any {
				if p.URL != "" {
					return fields{"type": "image_url", "image_url": fields{"url": p.URL}}
				}
				return fields{"type": "text", "text": p.Text}
			})
		}
		return f
	})
	if d.System != "" {
		list = append([]any{fields{"role": "system", "content": d.System}}, list...)
	}
	f := fields{"model": d.Model, "messages": list, "stream": true, "stream_options": fields{"include_usage": true}}
	return f.params(&d.Parameters, "max_completion_tokens").tools(d.Tools, func(t tool) any {
		return fields{"type": "function", "function": fields{"name": t.Name, "description": t.Description,
			"parameters": schemaOf(t)}}
	})
}

// hasImages reports whether a message has an image.
func hasImages(m inputMessage) bool {
	for _, p := range m.Parts {
		if p.URL != "" {
			return true
		}
	}
	return false
}

// responsesRequest is a request of https://platform.openai.com/docs/api-reference/responses/create.
func responsesRequest(d *description, input []inputMessage) any {
	f := fields{"model": d.Model, "stream": true, "store": false, "input": each(input, func(m inputMessage) any {
		return fields{"role": m.Role, "content": each(m.Parts, func(p inputPart) any {
			switch {
			case p.URL != "":
				return fields{"type": "input_image", "image_url": p.URL}
			case m.Role == "assistant":
				return fields{"type": "output_text", "text": p.Text}
			}
			return fields{"type": "input_text", "text": p.Text}
		})}
	})}
	if d.System != "" {
		f["instructions"] = d.System
	}
	return f.params(&d.Parameters, "max_output_tokens").tools(d.Tools, func(t tool) any {
		return fields{"type": "function", "name": t.Name, "description": t.Description, "parameters": schemaOf(t)}
	})
}

// systemOf returns the system prompt, with the messages of the system, and the other messages.
func systemOf(d *description, input []inputMessage) (system string, rest []inputMessage) {
	system = d.System
	for _, m := range input {
		if m.Role == "system" {
			system = strings.TrimSpace(system + "\n" + m.text())
		} else {
			rest = append(rest, m)
		}
	}
	return system, rest
}

// anthropicTokens is the bound of an answer where the session has none: the API demands one.
const anthropicTokens = 4096

// messagesRequest is a request of https://docs.anthropic.com/en/api/messages.
func messagesRequest(d *description, input []inputMessage) any {
	system, input := systemOf(d, input)
	list := each(input, func(m inputMessage) any {
		return fields{"role": m.Role, "content": each(m.Parts, func(p inputPart) any {
			if p.URL != "" {
				return fields{"type": "image", "source": fields{"type": "url", "url": p.URL}}
			}
			return fields{"type": "text", "text": p.Text}
		})}
	})
	f := fields{"model": d.Model, "messages": list, "stream": true, "max_tokens": anthropicTokens}
	if system != "" {
		f["system"] = system
	}
	if r := d.Parameters.Reasoning; r.Budget > 0 && r.Mode != "off" {
		f["thinking"] = fields{"type": "enabled", "budget_tokens": r.Budget}
		f["max_tokens"] = anthropicTokens + r.Budget
	}
	return f.params(&d.Parameters, "max_tokens").tools(d.Tools, func(t tool) any {
		return fields{"name": t.Name, "description": t.Description, "input_schema": schemaOf(t)}
	})
}

// generateRequest is a request of https://ai.google.dev/api/generate-content.
func generateRequest(d *description, input []inputMessage) any {
	text := func(s string) fields { return fields{"parts": []any{fields{"text": s}}} }
	system, input := systemOf(d, input)
	list := each(input, func(m inputMessage) any {
		f := text(m.text())
		f["role"] = cmp.Or(map[string]string{"assistant": "model"}[m.Role], "user")
		return f
	})
	f := fields{"contents": list, "generationConfig": fields{}.params(&d.Parameters, "maxOutputTokens")}
	if system != "" {
		f["systemInstruction"] = text(system)
	}
	if len(d.Tools) > 0 {
		f["tools"] = []any{fields{"functionDeclarations": each(d.Tools, func(t tool) any {
			return fields{"name": t.Name, "description": t.Description, "parameters": schemaOf(t)}
		})}}
	}
	return f
}
