package otlp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"agentstream/adapters/otlp"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Bounds of one append of spans.
const (
	packSpans = 256
	packBytes = 600 << 10
)

// decodedTimes is how many times its size a request takes beside itself when it is taken apart.
const decodedTimes = 8

// export stores the spans of a request, and answers how many it has refused.
func (in *Ingest) export(c *protocol.Call) error {
	return in.keep(c, "rejectedSpans", readSpans)
}

// keep stores what a request has, and answers how much it has refused. refused is the answer's name for that, in JSON.
func (in *Ingest) keep(c *protocol.Call, refused string, read func(raw []byte, isText bool) (*batch, error)) error {
	raw, err := c.Message(typeProtobuf, typeJSON)
	if err != nil {
		return err
	}
	err = c.In.Share.Reserve(c.Context(), decodedTimes*int64(len(raw)))
	if err != nil {
		return err
	}
	isText := c.Request != nil && isJSON(c.Request.Header)
	b, err := read(raw, isText)
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	for _, id := range b.order {
		if err := in.store(ctx, c, id, b); err != nil {
			return err
		}
	}
	return reply(c, b, refused, isText)
}

// decode reads a request, whose name is for people. Fields that are not known are passed over.
func decode(raw []byte, isText bool, name string, request proto.Message) error {
	var err error
	if isText {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, request)
	} else {
		err = proto.Unmarshal(raw, request)
	}
	if err != nil {
		return dialect.Refuse(dialect.ErrBadRequest, "the body is not an %s", name)
	}
	return nil
}

// readSpans reads a request, an ExportTraceServiceRequest: TracesData by another name.
func readSpans(raw []byte, isText bool) (*batch, error) {
	request := new(trace.TracesData)
	err := decode(raw, isText, "ExportTraceServiceRequest", request)
	if err != nil {
		return nil, err
	}
	b := newBatch()
	for _, r := range request.GetResourceSpans() {
		for _, sc := range r.GetScopeSpans() {
			from := otlp.OriginOf(r, sc)
			for _, s := range sc.GetSpans() {
				if isText {
					otlp.FixIDs(s)
				}
				k, ok := otlp.Keep(from, s)
				b.add(k, ok, whyNoID)
			}
		}
	}
	return b, nil
}

// batch is what a request has, by the traces.
type batch struct {
	traces  map[string][]otlp.Kept
	order   []string
	refused map[string]int // why
}

// Why spans are refused.
const (
	whyNoID  = "a span has no trace id of 16 bytes, or no span id of 8"
	whyOther = "of log records, events of models (gen_ai.…) are kept that belong to a span"
	whyMany  = "a trace keeps 10,000 spans and log records"
	whyLarge = "a trace keeps 32 MiB of spans and log records"
)

// newBatch returns a batch that has nothing.
func newBatch() *batch {
	return &batch{traces: make(map[string][]otlp.Kept), refused: make(map[string]int)}
}

// add adds what is to be stored of a trace, or counts a refusal when it cannot be kept.
func (b *batch) add(k otlp.Kept, ok bool, why string) {
	if !ok {
		b.refused[why]++
		return
	}
	if b.traces[k.Trace] == nil {
		b.order = append(b.order, k.Trace)
	}
	b.traces[k.Trace] = append(b.traces[k.Trace], k)
}

// errNothing reports that all spans are stored already.
var errNothing = errors.New("nothing is new")

// store stores the spans of one trace, in packs.
func (in *Ingest) store(ctx context.Context, c *protocol.Call, id string, b *batch) error {
	key := schema.RunKey{Tenant: c.Caller.Tenant, Run: otlp.RunPrefix + id}
	for rest := b.traces[id]; len(rest) > 0; {
		n, size := 0, 0
		for n < len(rest) && n < packSpans && (n == 0 || size+len(rest[n].Payload) <= packBytes) {
			size += len(rest[n].Payload)
			n++
		}
		p := &packPlan{known: in.traces.get(key), spans: rest[:n], read: c.Records}
		_, err := c.Append(ctx, key.Run, nil, producers.AppendOptions{Whole: true, Plan: p.plan})
		if err != nil && !errors.Is(err, errNothing) {
			return err
		}
		for why, count := range p.refused {
			b.refused[why] += count
		}
		rest = rest[n:]
	}
	in.traces.trim(key)
	in.note(key)
	return nil
}

// reply answers, in the form of the request.
func reply(c *protocol.Call, b *batch, refused string, isText bool) error {
	var why []string
	all := 0
	for _, text := range []string{whyNoID, whyOther, whyMany, whyLarge} {
		if n := b.refused[text]; n > 0 {
			all += n
			why = append(why, fmt.Sprintf("%d refused: %s", n, text))
		}
	}
	if isText {
		c.Reply(http.StatusOK, textResponse(refused, all, strings.Join(why, "; ")))
		return nil
	}
	c.ReplyAs(http.StatusOK, typeProtobuf, response(all, strings.Join(why, "; ")))
	return nil
}

// response encodes an ExportTraceServiceResponse, or an ExportLogsServiceResponse, which has the same fields.
func response(refused int, why string) []byte {
	if refused == 0 {
		return nil
	}
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(refused))
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), why)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
}

// textResponse writes the same as JSON, where a number of 64 bits is a text.
func textResponse(name string, refused int, why string) []byte {
	o := jsonscan.Object("{")
	if refused > 0 {
		o = append(o.Name("partialSuccess"), '{')
		o = o.Str(name, strconv.Itoa(refused)).Str("errorMessage", why).End()
	}
	return o.End()
}
