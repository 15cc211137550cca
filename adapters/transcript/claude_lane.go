package transcript

import (
	"crypto/sha256"
	"encoding/json"
	"slices"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/provider"
)

// claudeLane is the run or one sub-agent. It hands its messages, as events of the API, to a decoder of
// its own.
type claudeLane struct {
	s      *recorder
	cfg    provider.Config
	out    *provider.Writer // for what is no message
	dec    *provider.Decoder
	parent *claudeLane // nil for the run
	call   string      // that delegates to the child

	open      string              // id of the message that lines are telling
	emitted   [][sha256.Size]byte // its blocks
	continued map[string]int      // how often a message went on, of the newest few
	streams   []string            // ids of the newest messages that streams emitted
}

// maxStreams bounds the ids of streamed messages that are remembered; the lines that repeat them come
// at once.
const maxStreams = 16

func newClaudeLane(s *recorder, cfg provider.Config) *claudeLane {
	inner := cfg
	inner.MaxFrameBytes = s.cfg.MaxLineBytes + 1<<20 // a line in the API's form is longer by little
	return &claudeLane{s: s, cfg: cfg, out: provider.NewWriter("claude_code", cfg), dec: anthropic.NewDecoder(inner),
		continued: map[string]int{}}
}

// write hands one event of the API to the decoder, and its events to the recorder.
func (l *claudeLane) write(event json.RawMessage) {
	events, _ := l.dec.Write(append(slices.Clone(event), '\n')) // it is not closed
	l.s.add(append(events, l.dec.Settle()...)...)
}

func (l *claudeLane) stream(id string) {
	if id == "" {
		return
	}
	if l.streams = append(l.streams, id); len(l.streams) > maxStreams {
		l.streams = l.streams[1:]
	}
}

func (l *claudeLane) wasStreamed(id string) bool { return id != "" && slices.Contains(l.streams, id) }

// message emits the blocks of a line, which begin a message or go on with the open one.
func (l *claudeLane) message(id string, m provider.Fields) {
	if l.open != id {
		l.endMessage()
		l.announce(id, m)
	}
	blocks := blocksOf(m)
	for _, raw := range blocks[l.countKnown(blocks):] {
		index := field("index", provider.Number(len(l.emitted)))
		l.emitted = append(l.emitted, sha256.Sum256(raw))
		l.write(provider.Fields{field("type", provider.Quote("content_block_start")), index,
			field("content_block", raw)}.Encode())
		l.write(provider.Fields{field("type", provider.Quote("content_block_stop")), index}.Encode())
	}
	end := provider.Fields{field("type", provider.Quote("message_delta")), field("delta", provider.Fields{
		field("stop_reason", provider.OrNull(m.Get("stop_reason"))),
		field("stop_sequence", provider.OrNull(m.Get("stop_sequence"))),
	}.Encode())}
	if u := m.Get("usage"); provider.IsObject(u) {
		end = append(end, field("usage", u))
	}
	l.write(end.Encode())
}

// countKnown returns how many of the blocks were emitted: some versions repeat in each line what came before.
func (l *claudeLane) countKnown(blocks []json.RawMessage) int {
	if len(l.emitted) == 0 || len(blocks) < len(l.emitted) {
		return 0
	}
	for i, sum := range l.emitted {
		if sum != sha256.Sum256(blocks[i]) {
			return 0
		}
	}
	return len(l.emitted)
}

// announce announces a message. One that ended and goes on is another message.
func (l *claudeLane) announce(id string, m provider.Fields) {
	if len(l.continued) > 64 {
		clear(l.continued)
	}
	l.continued[id]++
	name := provider.ShortenID(id)
	if n := l.continued[id]; n > 1 {
		name += "_part_" + string(provider.Number(n))
	}
	start := provider.Fields{field("id", provider.Quote(name))}
	for _, f := range m {
		switch f.Name {
		case "id", "content":
		default:
			start = append(start, f)
		}
	}
	start = append(start, field("content", json.RawMessage("[]")))
	l.write(provider.Fields{field("type", provider.Quote("message_start")), field("message", start.Encode())}.Encode())
	l.open, l.emitted = id, nil
}

// endMessage ends the message that lines were telling.
func (l *claudeLane) endMessage() {
	if l.open != "" {
		l.write(json.RawMessage(`{"type":"message_stop"}`))
		l.open, l.emitted = "", nil
	}
}
