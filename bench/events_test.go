package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"agentstream/schema"
)

// texts are payloads of text.delta, such that a stored line has 240 to 300 bytes.
func texts(n int) [][]byte {
	words := strings.Fields("the agent reads a file and finds that its test has not been run since the parser changed so it runs it")
	rnd := rand.New(rand.NewPCG(1, 2))
	list := make([][]byte, n)
	for i := range list {
		b := []byte(`{"text":"`)
		for len(b) < 80 {
			b = append(append(b, words[rnd.IntN(len(words))]...), ' ')
		}
		list[i] = fmt.Appendf(b, `","index":%d}`, i%4)
	}
	return list
}

// packsOf builds what the log stores for events text deltas of one run, per to a pack. With end, the
// last event is the run's end.
func packsOf(key schema.RunKey, events, per int, end bool) []schema.Pack {
	ids, now, payloads := schema.NewIDs(), time.Now().UTC(), texts(1000)
	head := schema.Head{Day: now.Format("20060102"), Lane: schema.Lane{Owner: "bench", Epoch: 1}}
	packs := make([]schema.Pack, 0, events/per+1)
	for int(head.Last) < events {
		p := schema.Pack{Key: key, First: head.Last + 1, Writer: "bench"}
		for p.Count < per && int(head.Last) < events {
			e := schema.Event{ID: ids.Event(now, head.LastID), TS: now.Format(schema.TimeLayout), Type: schema.TypeTextDelta,
				RunID: key.Run, Seq: head.Last + 1, Payload: payloads[int(head.Last)%len(payloads)]}
			if end && int(e.Seq) == events {
				e.Type, e.Payload = schema.TypeRunLifecycle, []byte(`{"state":"done","reason":null}`)
			}
			if err := head.Advance(e.Type, "", e.ID, e.Payload); err != nil {
				panic(err)
			}
			p.Body = append(e.AppendLine(p.Body), '\n')
			p.Count++
		}
		p.Head = head
		packs = append(packs, p)
	}
	return packs
}

// bodies are stored lines, one event each.
func bodies(n int) [][]byte {
	list := make([][]byte, 0, n)
	for _, p := range packsOf(schema.RunKey{Tenant: tenant, Run: "run_1_0000"}, n, 1, false) {
		list = append(list, p.Body)
	}
	return list
}

// ndjson is the body of a POST: events as a producer sends them, without what the log fills in.
func ndjson(events int) (body []byte) {
	for _, text := range texts(events) {
		body = fmt.Appendf(body, `{"type":"text.delta","payload":%s}`+"\n", text)
	}
	return body
}

func TestEventsAreOfTheSizeThatIsReported(t *testing.T) {
	least, most := 1<<20, 0
	for _, b := range bodies(1000) {
		least, most = min(least, len(b)), max(most, len(b))
	}
	if least < 240 || most > 300 {
		t.Fatalf("lines of %d to %d bytes", least, most)
	}
}
