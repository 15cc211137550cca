package otlp

import (
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/schema"
)

// Paths of the ways in: of spans, and of the log records that belong to them.
const (
	Path     = "/v1/traces"
	RPC      = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	LogsPath = "/v1/logs"
	LogsRPC  = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
)

const (
	typeProtobuf = "application/x-protobuf"
	typeJSON     = "application/json"
)

// maxMessage is the largest message over gRPC, in bytes: the largest body as well, unless that is configured.
const maxMessage = 8 << 20

// codeUnavailable is the status of gRPC after which exporters try again.
const codeUnavailable = 14

// Protocol returns the protocol that an edge mounts.
func (in *Ingest) Protocol() protocol.Protocol {
	return protocol.Protocol{
		Dialect: Dialect{}, Words: words, LastWords: lastWords,
		Routes: []protocol.Route{
			{Pattern: "POST " + Path, RPC: RPC, MaxMessage: maxMessage, Needs: auth.ScopeWrite, Writes: true,
				Serve: in.export},
			{Pattern: "POST " + LogsPath, RPC: LogsRPC, MaxMessage: maxMessage, Needs: auth.ScopeWrite, Writes: true,
				Serve: in.exportLogs},
		},
	}
}

// Dialect words refusals. Nothing is streamed.
type Dialect struct{}

// Info names the protocol, and declares its services.
func (Dialect) Info() dialect.Info { return dialect.Info{Name: "otlp", Files: [][]byte{descriptors()}} }

// descriptors returns the services with all that they import, the imports first.
func descriptors() []byte {
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	for _, of := range []signal{
		{file: trace.File_opentelemetry_proto_trace_v1_trace_proto, name: "trace", service: "Trace",
			field: "resource_spans", message: "ResourceSpans", refused: "rejected_spans"},
		{file: logs.File_opentelemetry_proto_logs_v1_logs_proto, name: "logs", service: "Logs",
			field: "resource_logs", message: "ResourceLogs", refused: "rejected_log_records"},
	} {
		add(of.file)
		set.File = append(set.File, of.declare())
	}
	b, _ := proto.Marshal(set) // all of it is made here
	return b
}

// signal is what the service of spans and that of log records differ in.
type signal struct {
	file                                   protoreflect.FileDescriptor
	name, service, field, message, refused string
}

// declare declares the service by hand: the module's package of it brings a gateway and a server.
func (s signal) declare() *descriptorpb.FileDescriptorProto {
	field := func(name string, n int32, kind descriptorpb.FieldDescriptorProto_Type,
		of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: proto.String(name), Number: proto.Int32(n), Type: kind.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if of != "" {
			f.TypeName = proto.String(of)
		}
		return f
	}
	const (
		message = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
		number  = descriptorpb.FieldDescriptorProto_TYPE_INT64
		text    = descriptorpb.FieldDescriptorProto_TYPE_STRING
	)
	pack, export := "opentelemetry.proto.collector."+s.name+".v1", "Export"+s.service
	list := field(s.field, 1, message, ".opentelemetry.proto."+s.name+".v1."+s.message)
	list.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	of := func(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: proto.String(name), Field: fields}
	}
	return &descriptorpb.FileDescriptorProto{
		Name:    proto.String("opentelemetry/proto/collector/" + s.name + "/v1/" + s.name + "_service.proto"),
		Package: proto.String(pack), Syntax: proto.String("proto3"), Dependency: []string{s.file.Path()},
		MessageType: []*descriptorpb.DescriptorProto{
			of(export+"ServiceRequest", list),
			of(export+"ServiceResponse", field("partial_success", 1, message, "."+pack+"."+export+"PartialSuccess")),
			of(export+"PartialSuccess", field(s.refused, 1, number, ""), field("error_message", 2, text, "")),
		},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String(s.service + "Service"),
			Method: []*descriptorpb.MethodDescriptorProto{{
				Name: proto.String("Export"), InputType: proto.String("." + pack + "." + export + "ServiceRequest"),
				OutputType: proto.String("." + pack + "." + export + "ServiceResponse")}}}},
	}
}

// Open refuses: there is nothing to read here.
func (Dialect) Open(dialect.Input) (dialect.Request, error) {
	return dialect.Request{}, dialect.Refuse(dialect.ErrBadRequest, "traces are not read in this protocol")
}

// Projector shows nothing.
func (Dialect) Projector(dialect.Request) dialect.Projector {
	return dialect.ProjectorFunc(func(*dialect.Frames, schema.Record) error { return nil })
}

// AppendError writes google.rpc.Status as JSON.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte {
	b, _ := json.Marshal(struct { // a text always encodes
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{codeOf(p.Status), textOf(p)})
	return append(dst, b...)
}

// words writes a refusal in the form of the request: protobuf, unless that is JSON.
func words(r *http.Request, p dialect.Problem) (mediaType string, body []byte) {
	if isJSON(r.Header) {
		return typeJSON, Dialect{}.AppendError(nil, p)
	}
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(codeOf(p.Status)))
	return typeProtobuf, protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), textOf(p))
}

// isJSON reports whether the body of a request is JSON.
func isJSON(h http.Header) bool {
	name, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return name == typeJSON
}

// textOf returns the message of a refusal, with its code.
func textOf(p dialect.Problem) string {
	return strings.TrimSuffix(cmp.Or(p.Message, http.StatusText(p.Status))+" ("+p.Code+")", " ()")
}

// codes are those of gRPC by the status of HTTP.
var codes = map[int]int{400: 3, 401: 16, 403: 7, 404: 5, 408: 4, 409: 10, 413: 8, 415: 3, 429: 8, 500: 13, 501: 12,
	503: codeUnavailable, 504: 4, 507: 8}

// codeOf returns the code of gRPC for a status of HTTP; 2, unknown, when there is none.
func codeOf(status int) int { return cmp.Or(codes[status], 2) }

// lastWords sets the code after which exporters try again, of refusals that waiting ends.
func lastWords(_ dialect.Stream, why dialect.Problem, _ bool, end *transport.End) {
	switch why.Reason {
	case dialect.ReasonLimited, dialect.ReasonBusy, dialect.ReasonFull:
		end.GRPC = codeUnavailable
	}
}
