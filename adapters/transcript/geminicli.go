package transcript

import (
	"encoding/json"

	"agentstream/adapters/gemini"
	"agentstream/adapters/provider"
)

// geminiCLI reads the recorded responses of gemini-cli: {method, response}, where response is the list
// of chunks of a stream or one object.
type geminiCLI struct {
	s       *recorder
	out     *provider.Writer
	machine provider.Machine
	outcome provider.Outcome
}

func newGeminiCLI(s *recorder, out *provider.Writer) *geminiCLI {
	s.goesOn = true
	return &geminiCLI{s: s, out: out, machine: gemini.NewMachine(out)}
}

func (g *geminiCLI) line(all provider.Fields) {
	method, response := all.Str("method"), all.Get("response")
	var chunks []json.RawMessage
	switch {
	case method != "generateContentStream" && method != "generateContent":
	case provider.IsObject(response):
		chunks = []json.RawMessage{response}
	default:
		chunks = provider.Elements(response)
	}
	if chunks == nil {
		g.out.Custom(method, all)
		g.see()
		return
	}
	for _, raw := range chunks {
		if chunk, ok := provider.Parse(raw); ok {
			g.machine.Frame("", chunk)
		} else {
			g.out.Custom("chunk", provider.Fields{field("chunk", raw)})
		}
	}
	g.machine.Close()
	g.see()
}

// see hands events to the recorder, and judges by them.
func (g *geminiCLI) see() {
	events := g.out.Drain()
	for i := range events {
		g.outcome.See(&events[i])
	}
	g.s.add(events...)
}

// finish returns how the run went. The format does not record how a run ended; it went as its last model call.
func (g *geminiCLI) finish() verdict {
	g.see()
	state, reason := g.outcome.State()
	return verdict{state, reason, false}
}
