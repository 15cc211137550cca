package otlp

import (
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// schemaURL names the version of the semantic conventions that spans follow.
const schemaURL = "https://opentelemetry.io/schemas/gen-ai/0.1.0"

// scopeName is the name of the instrumentation scope.
const scopeName = "agentstream/tap/otlp"

// Bounds of what a span says, in bytes.
const (
	maxName    = 256
	maxContent = 16 << 10 // one text of contents, or one message
	maxInputs  = 64 << 10 // messages that a request to a model has followed
)

type attribute = *commonpb.KeyValue

func text(key, v string) attribute {
	return &commonpb.KeyValue{Key: key, Value: textValue(v)}
}

func textValue(v string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v}}
}

func number(key string, n int64) attribute {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}}
}

func truth(key string, v bool) attribute {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}}
}

func list(key string, texts []string) attribute {
	values := make([]*commonpb.AnyValue, len(texts))
	for i, v := range texts {
		values[i] = textValue(v)
	}
	array := &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: values}}
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: array}}
}

func (s *openSpan) add(attributes ...attribute) {
	s.pb.Attributes = append(s.pb.Attributes, attributes...)
}

// addText adds an attribute unless it is empty.
func (s *openSpan) addText(key, v string) {
	if v != "" {
		s.add(text(key, clip(v, maxName)))
	}
}

// clip returns a text of at most n bytes that is valid UTF-8, as Protobuf wants, without zero bytes, which databases
// refuse.
func clip(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	return schema.CutText(s, n)
}

// resource is what all spans are of.
func resource(service string) *resourcepb.Resource {
	return &resourcepb.Resource{Attributes: []attribute{text("service.name", service)}}
}

// wrap returns spans as a request has them.
func wrap(service string, spans []*tracepb.Span) *tracepb.TracesData {
	scope := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: scopeName}, SchemaUrl: schemaURL,
		Spans: spans}
	of := &tracepb.ResourceSpans{Resource: resource(service), ScopeSpans: []*tracepb.ScopeSpans{scope}}
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{of}}
}

// errorType returns a class of errors: the code that a value is, or its type or code. Anything else may be a text
// with contents, and is none.
func errorType(v []byte) string {
	if jsonscan.IsString(v) {
		return codeOf(v)
	}
	fields := jsonscan.Fields(nil).Read(v)
	for _, name := range []string{"type", "code"} {
		if code := codeOf(fields.Kind(name, '"')); code != "" {
			return code
		}
	}
	return ""
}

// codeOf returns a string that is one word of at most 128 letters, digits and signs between them; "" for another.
func codeOf(v []byte) string {
	const most = 128
	word, ok := jsonscan.Unquote(v)
	if !ok || len(word) > most {
		return ""
	}
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/") != "" {
		return ""
	}
	return word
}

// tokens is what a request to a model has used. Numbers that no producer has given are 0.
type tokens struct {
	input, output, read, write, thoughts int64
	known                                bool
}

// tokensOf reads a usage, in the words of any provider. Input includes what was read from a cache or written to one.
func tokensOf(usage []byte) tokens {
	u := jsonscan.Fields(nil).Read(usage)
	var t tokens
	t.input = first(u, "input_tokens", "prompt_tokens", "promptTokenCount")
	t.output = first(u, "output_tokens", "completion_tokens", "candidatesTokenCount")
	t.thoughts = first(u, "thoughtsTokenCount")
	t.output += t.thoughts
	for _, name := range []string{"output_tokens_details", "completion_tokens_details"} {
		t.thoughts = max(t.thoughts, first(jsonscan.Fields(nil).Read(u.Object(name)), "reasoning_tokens"))
	}
	for _, name := range []string{"input_tokens_details", "prompt_tokens_details"} {
		t.read = max(t.read, first(jsonscan.Fields(nil).Read(u.Object(name)), "cached_tokens"))
	}
	t.read = max(t.read, first(u, "cachedContentTokenCount"))
	if apart := first(u, "cache_read_input_tokens"); apart > 0 { // as Anthropic counts: beside the input
		t.read = apart
		t.input += apart
	}
	t.write = first(u, "cache_creation_input_tokens")
	t.input += t.write
	t.known = t.input+t.output > 0
	return t
}

// first returns the first of the fields that is a whole number.
func first(fields jsonscan.Fields, names ...string) int64 {
	for _, name := range names {
		if n, ok := fields.Integer(name); ok {
			return n
		}
	}
	return 0
}

// addTo adds what was used to a span.
func (t *tokens) addTo(s *openSpan) {
	if !t.known {
		return
	}
	s.add(number("gen_ai.usage.input_tokens", t.input), number("gen_ai.usage.output_tokens", t.output))
	for _, more := range []struct {
		key string
		n   int64
	}{{"gen_ai.usage.cache_read.input_tokens", t.read}, {"gen_ai.usage.cache_write.input_tokens", t.write},
		{"gen_ai.usage.reasoning.output_tokens", t.thoughts}} {
		if more.n > 0 {
			s.add(number(more.key, more.n))
		}
	}
}

// plus adds what another message of the same request has used.
func (t *tokens) plus(u tokens) {
	t.known = t.known || u.known
	t.input, t.output = t.input+u.input, t.output+u.output
	t.read, t.write, t.thoughts = t.read+u.read, t.write+u.write, t.thoughts+u.thoughts
}
