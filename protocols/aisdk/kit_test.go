package aisdk

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write testdata")

// framesOf are the chunks that a request is shown of records, up to the one that ends the stream.
func framesOf(t testing.TB, req dialect.Request, records []schema.Record) (list []string) {
	t.Helper()
	p := Dialect{}.Projector(req)
	var out dialect.Frames
	for _, r := range records {
		out.Reset()
		if err := p.Project(&out, r); err != nil {
			t.Fatalf("seq %d: %v", r.Seq, err)
		}
		for _, f := range out.List {
			list = append(list, string(f.Data))
			if f.Last && req.Form != formAll {
				return list
			}
		}
	}
	return list
}

// responsesOf returns the responses of records.
func responsesOf(t testing.TB, records []schema.Record) (list []schema.Seq) {
	t.Helper()
	p := Dialect{}.Projector(dialect.Request{}).(*projector)
	for _, r := range records {
		if err := p.Project(nil, r); err != nil {
			t.Fatal(err)
		}
		if span := p.chat.Spans.Find(dialect.SpanNewest); span.First > 0 && !slices.Contains(list, span.First) {
			list = append(list, span.First)
		}
	}
	return list
}

// rules is what a client of version 6 holds a body to.
type rules struct {
	open  map[string]bool // texts
	calls map[string]bool
	step  bool
	ended bool
	body  int
}

// needed are the fields that each chunk must have.
var needed = map[string]string{
	"start": "messageId", "start-step": "", "finish-step": "", "text-start": "id", "text-delta": "id delta",
	"text-end":        "id",
	"reasoning-start": "id", "reasoning-delta": "id delta", "reasoning-end": "id",
	"tool-input-start": "toolCallId toolName",
	"tool-input-delta": "toolCallId inputTextDelta", "tool-input-available": "toolCallId toolName input",
	"tool-input-error": "toolCallId toolName input errorText", "tool-approval-request": "approvalId toolCallId",
	"tool-output-available": "toolCallId output", "tool-output-error": "toolCallId errorText",
	"tool-output-denied": "toolCallId",
	"file":               "url mediaType", "message-metadata": "messageMetadata", "finish": "finishReason",
	"abort": "reason",
	"error": "errorText",
}

// check returns what is wrong with a chunk.
func (v *rules) check(chunk string) error {
	if chunk == doneText {
		return nil
	}
	f := jsonscan.Fields(nil).Read([]byte(chunk))
	typ := f.Str("type")
	need, known := needed[typ]
	if data := strings.HasPrefix(typ, "data-"); !known && !data || data && f.Raw("data") == nil {
		return fmt.Errorf("no such chunk")
	}
	for _, name := range strings.Fields(need) {
		if f.Raw(name) == nil {
			return fmt.Errorf("%s is not there", name)
		}
	}
	if string(f.Raw("providerMetadata")) == "null" || string(f.Raw("id")) == "null" {
		return fmt.Errorf("null in the place of nothing")
	}
	if v.body == 0 && typ != "start" {
		return fmt.Errorf("it is the first")
	}
	v.body++
	part, call := f.Str("type")[:min(4, len(typ))]+f.Str("id"), f.Str("toolCallId")
	switch {
	case typ == "start" && v.body > 1:
		return fmt.Errorf("a second start")
	case v.ended && typ != "finish":
		return fmt.Errorf("it is after the end")
	case strings.HasSuffix(typ, "-start") && f.Str("id") != "":
		if v.open[part] || !v.step {
			return fmt.Errorf("it begins again, or outside of a step")
		}
		v.open[part] = true
	case strings.HasPrefix(typ, "text-") || strings.HasPrefix(typ, "reasoning-"):
		if !v.open[part] {
			return fmt.Errorf("it has not begun")
		}
		v.open[part] = typ != "text-end" && typ != "reasoning-end"
	case typ == "start-step" && v.step, typ == "finish-step" && !v.step:
		return fmt.Errorf("steps do not match")
	case typ == "tool-input-start", typ == "tool-input-available", typ == "tool-input-error":
		v.calls[call] = true
	case call != "" && !v.calls[call]:
		return fmt.Errorf("the call is not known")
	}
	switch typ {
	case "start-step", "finish-step", "finish", "abort", "error":
		v.step = typ == "start-step"
		for id, open := range v.open {
			if open {
				return fmt.Errorf("%s is open", id)
			}
		}
		v.ended = typ == "abort" || typ == "error" || typ == "finish"
	}
	return nil
}

func newRules() *rules { return &rules{open: map[string]bool{}, calls: map[string]bool{}} }
