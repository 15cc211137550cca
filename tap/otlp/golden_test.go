package otlp

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"agentstream/schema/schematest"
)

var update = flag.Bool("update", false, "write testdata anew")

// TestSpansOfScenarios: the spans of each scenario are those in testdata, without contents and with them.
func TestSpansOfScenarios(t *testing.T) {
	for _, s := range append(schematest.All(), langgraphRun(t)) {
		if s.Name == "long" {
			continue // the same again and again
		}
		for _, contents := range []bool{false, true} {
			name := s.Name
			if contents {
				name += ".contents"
			}
			t.Run(name, func(t *testing.T) {
				got := trace(t, Options{Contents: contents, Pending: true}, eventsOf(t, acme, s))
				if orphans := got.orphans(); len(orphans) > 0 {
					t.Errorf("orphans: %v", orphans)
				}
				for _, span := range got.spans {
					for _, a := range span.Attributes {
						if strings.HasSuffix(a.Key, ".messages") && !json.Valid([]byte(a.Value.GetStringValue())) {
							t.Errorf("%s is no JSON: %s", a.Key, show(a.Value))
						}
					}
				}
				compare(t, filepath.Join("testdata", name+".txt"), got.String())
			})
		}
	}
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
	}
}

// everywhere are attributes that all spans have, or that their name says.
var everywhere = []string{"agentstream.tenant", "agentstream.run.id", "gen_ai.conversation.id", "gen_ai.operation.name"}

// String returns the spans as trees, for people.
func (s *store) String() string {
	var b strings.Builder
	below := map[string][]*tracepb.Span{}
	for _, id := range s.order {
		span := s.spans[id]
		below[string(span.ParentSpanId)] = append(below[string(span.ParentSpanId)], span)
	}
	var write func(span *tracepb.Span, depth int)
	write = func(span *tracepb.Span, depth int) {
		indent := strings.Repeat("  ", depth)
		if value(span.Attributes, "agentstream.pending") != "" {
			fmt.Fprintf(&b, "%s· begins %s %x\n", indent, since(span.StartTimeUnixNano), span.SpanId)
			return
		}
		kind := strings.ToLower(strings.TrimPrefix(span.Kind.String(), "SPAN_KIND_"))
		from, to := since(span.StartTimeUnixNano), since(span.EndTimeUnixNano)
		fmt.Fprintf(&b, "%s%s [%s %s-%s] %x", indent, span.Name, kind, from, to, span.SpanId)
		if span.Status != nil {
			b.WriteString(" error")
		}
		b.WriteByte('\n')
		for _, a := range span.Attributes {
			if !slices.Contains(everywhere, a.Key) {
				fmt.Fprintf(&b, "%s    %s = %s\n", indent, a.Key, show(a.Value))
			}
		}
		for _, e := range span.Events {
			state := value(e.Attributes, "agentstream.state")
			fmt.Fprintf(&b, "%s    at %s %s %s\n", indent, since(e.TimeUnixNano), e.Name, state)
		}
		for _, l := range span.Links {
			fmt.Fprintf(&b, "%s    link %x %s\n", indent, l.SpanId, value(l.Attributes, "agentstream.link"))
		}
		for _, child := range below[string(span.SpanId)] {
			write(child, depth+1)
		}
	}
	for _, root := range below[""] {
		fmt.Fprintf(&b, "trace %x\n", root.TraceId)
		write(root, 1)
	}
	return b.String()
}

func since(nano uint64) string {
	return fmt.Sprint(time.Unix(0, int64(nano)).Sub(schematest.Epoch))
}

func value(attributes []attribute, key string) string {
	for _, a := range attributes {
		if a.Key == key {
			return show(a.Value)
		}
	}
	return ""
}

func show(v *commonpb.AnyValue) string {
	if array := v.GetArrayValue(); array != nil {
		var all []string
		for _, v := range array.Values {
			all = append(all, show(v))
		}
		return fmt.Sprint(all)
	}
	if v.GetStringValue() != "" {
		return v.GetStringValue()
	}
	if n, ok := v.Value.(*commonpb.AnyValue_IntValue); ok {
		return fmt.Sprint(n.IntValue)
	}
	return fmt.Sprint(v.GetBoolValue())
}
