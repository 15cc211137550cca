package redact_test

import (
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/redact/redacttest"
)

// BenchmarkBatch is what rules cost for events in which nothing is found, per KiB of payloads: deltas of a model, and an
// output of a tool. "none" is a tenant without rules, "known" all known secrets, "literal" with an expression that begins with
// letters, "free" with one that does not.
func BenchmarkBatch(b *testing.B) {
	const known = `{"name":"known","known":["provider-keys","jwt","private-keys","cards"]}`
	words := strings.Fields(strings.Repeat("The quick brown fox jumps over 13 lazy dogs, and asks: is this \\\"it\\\"? ", 20))
	var deltas []schema.Event
	size := 0
	for _, w := range words {
		p := `{"text":" ` + w + `","index":0}`
		size += len(p)
		deltas = append(deltas, schema.Event{Type: schema.TypeTextDelta, Payload: []byte(p)})
	}
	output := `{"call_id":"call_1","ok":true,"output":{"lines":["` + strings.Repeat(strings.Join(words, " "), 4) + `"]}}`
	for _, events := range []struct {
		name string
		list []schema.Event
		size int
	}{{"deltas", deltas, size},
		{"output", []schema.Event{{Type: schema.TypeToolEnd, Payload: []byte(output)}}, len(output)}} {
		for _, set := range []struct{ name, rules string }{{"none", ``}, {"known", known},
			{"literal", known + `,{"name":"own","pattern":"ACME-[0-9a-f]{24}"}`},
			{"free", known + `,{"name":"mail","pattern":"[a-z0-9.]+@[a-z0-9.]+"}`}} {
			b.Run(events.name+"/"+set.name, func(b *testing.B) {
				r := rulesOf(b, `{"*":{"rules":[`+set.rules+`]}}`)
				b.ReportAllocs()
				for b.Loop() {
					if r.Batch(redact.Trail{}, events.list).Hits != nil {
						b.Fatal("something was found")
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(float64(events.size)/1024), "ns/KiB")
			})
		}
	}
}

// FuzzEvent: whatever an event's payload is, what becomes of it is valid JSON of one line, with the ids of the framing.
func FuzzEvent(f *testing.F) {
	for _, s := range redacttest.Secrets(1) {
		f.Add(`{"message_id":"m1","content":[{"type":"text","text":` + quote(f, s.Text) + `}],"output":{"password":7}}`)
	}
	f.Add(`{"text":"\ud800 4111 1111 1111 1111","call_id":"c"}`)
	r := rulesOf(f, redacttest.Rules)
	f.Fuzz(func(t *testing.T, payload string) {
		e := schema.Event{Type: "custom.x", Payload: []byte(payload)}
		if e.Prepare("run") != nil {
			return
		}
		before := string(e.Payload)
		list := r.Event(&e)
		if e.Prepare("run") != nil {
			t.Fatalf("%s became %s", before, e.Payload)
		}
		if (list == nil) != (before == string(e.Payload)) {
			t.Fatalf("%v: %s became %s", list, before, e.Payload)
		}
		if again := r.Event(&e); again != nil {
			t.Fatalf("%s became %s, and then %s", before, payload, e.Payload)
		}
	})
}
