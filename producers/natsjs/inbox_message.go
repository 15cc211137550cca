package natsjs

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/producers"
	"agentstream/schema"
)

// keyOf reads the run from a subject that matches InboxSubject. Its ids are unchecked.
func keyOf(subject string) schema.RunKey {
	tenant, run, _ := strings.Cut(subject[min(len(inboxPrefix), len(subject)):], ".")
	return schema.RunKey{Tenant: tenant, Run: run}
}

// codeBadReply is the code, in counts and in the log, of a message that asks for an answer where none is sent.
const codeBadReply = "BAD-REPLY"

// mayAnswer reports whether an answer may be sent to a subject. The server lets a client name any subject for
// replies, also those that it may not publish to itself; the answer would be sent with the rights of this node,
// into the log or to JetStream's API. Reply subjects begin with an underscore: _INBOX of clients, _R_ of imports.
func mayAnswer(reply string) bool { return reply[0] == '_' }

// Headers of JetStream that are conditions or instructions. An answer would imply that they were followed.
var unserved = []string{"Nats-Expected-", "Nats-Batch-", "Nats-Schedule", "Nats-Rollup", "Nats-TTL", "Nats-Incr"}

// postOf reads a message.
func (i *Inbox) postOf(key schema.RunKey, m *nats.Msg) producers.Post {
	p := producers.Post{Body: m.Data}
	for name, values := range m.Header {
		if name == jetstream.MsgIDHeader {
			p.Keys = values
			continue
		}
		if name == jetstream.ExpectedStreamHeader && len(values) == 1 && values[0] == i.streamOf(key) {
			continue
		}
		for _, prefix := range unserved {
			if strings.HasPrefix(name, prefix) && (p.Unserved == "" || name < p.Unserved) {
				p.Unserved = name
			}
		}
	}
	return p
}

// messageOverhead is about what a message that waits takes beside its text, in bytes.
const messageOverhead = 256

// sizeOf returns what a message that waits takes, in bytes.
func sizeOf(p *producers.Post, reply string) int { return messageOverhead + len(p.Body) + len(reply) }

// streamOf names the stream in which the run is, or would be.
func (i *Inbox) streamOf(key schema.RunKey) string {
	l := i.cfg.Log
	return l.streams[schema.Partition(key.Run, l.partitions)]
}

// appendAnswer writes an answer in the shape of JetStream's publish acknowledgements (ADR-1, PubAck), with the
// run's numbers in place of the stream's.
func appendAnswer(b []byte, stream string, a *producers.Answer) []byte {
	if a.Refusal != nil {
		return appendRefusal(b, a.Refusal)
	}
	b = append(append(append(b, `{"stream":"`...), stream...), `","seq":`...)
	b = strconv.AppendInt(b, int64(a.Last), 10)
	b = strconv.AppendInt(append(b, `,"first_seq":`...), int64(a.First), 10)
	if a.Replayed {
		b = append(b, `,"duplicate":true`...)
	}
	return append(b, '}')
}

func appendRefusal(b []byte, r *producers.Refusal) []byte {
	text := r.Message
	if r.Line > 0 {
		text = "line " + strconv.Itoa(r.Line) + ": " + text
	}
	words, err := json.Marshal(r.Code + ": " + text)
	if err != nil { // a text always has a form
		words = []byte(`""`)
	}
	b = strconv.AppendInt(append(b, `{"error":{"code":`...), int64(r.Status), 10)
	b = strconv.AppendInt(append(b, `,"err_code":`...), int64(r.Number), 10)
	b = append(append(b, `,"description":`...), words...)
	if r.Retry > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), int64(r.Retry), 10)
	}
	return append(b, "}}"...)
}
