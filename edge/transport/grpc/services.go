package grpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"agentstream/edge/transport"
)

// Names of the standard services.
const (
	Health     = "grpc.health.v1.Health"
	Reflection = grpcreflect.ReflectV1ServiceName
)

// Services is what the standard services report, and of whom.
type Services struct {
	// Names are the full names of the services that are served beside the standard ones. Reflection lists them
	// and health knows them.
	Names []string
	// Files are encoded FileDescriptorSets that declare the services of Names, with all that they import. Sets may
	// hold the same files. Reflection shows them.
	Files [][]byte
	// Ready reports whether this node takes streams. It is asked often and must not block. nil: always.
	Ready func() bool
	// Closing is closed when this node goes away: health watches say so, and end with CANCELLED behind
	// transport.Notice, so that they do not hold its end up. nil: never.
	Closing <-chan struct{}
	// Poll is how often Ready is asked for a watch; default 1 s.
	Poll time.Duration
	// Watches bounds the health watches at a time; default 256. One more is RESOURCE_EXHAUSTED.
	Watches int
	// ReflectionTimeout bounds one call of reflection; default 5 s.
	ReflectionTimeout time.Duration
}

func (v Services) withDefaults() Services {
	if v.Ready == nil {
		v.Ready = func() bool { return true }
	}
	if v.Poll <= 0 {
		v.Poll = time.Second
	}
	if v.Watches <= 0 {
		v.Watches = 256
	}
	if v.ReflectionTimeout <= 0 {
		v.ReflectionTimeout = 5 * time.Second
	}
	return v
}

type briefKey struct{}

// Brief returns a context for a call of somebody who may watch health for so long at most. The end is UNIMPLEMENTED: it
// makes clients take the server for healthy and not ask again, as the definition of Watch has it.
func Brief(ctx context.Context, most time.Duration) context.Context {
	return context.WithValue(ctx, briefKey{}, most)
}

// brief returns a channel that tells when a watch has to end; nil: it need not.
func brief(ctx context.Context) <-chan time.Time {
	if most, ok := ctx.Value(briefKey{}).(time.Duration); ok {
		return time.After(most)
	}
	return nil
}

// Handlers returns the standard services as handlers by path, each for POST alone: grpc.health.v1.Health
// (Check and Watch, for "" and each of v.Names), and server reflection in v1 and v1alpha, which shows these
// services and no other type of the binary. Reflection needs HTTP/2. An error says that a file is damaged, or
// that a service is declared by none.
func (t *Transport) Handlers(v Services) (map[string]http.Handler, error) {
	resolver, err := newResolver(v)
	if err != nil {
		return nil, err
	}
	h := &health{Services: v.withDefaults()}
	opts := connect.WithHandlerOptions(t.options()...)
	reflector := grpcreflect.NewReflector(
		grpcreflect.NamerFunc(func() []string { return append(slices.Clone(v.Names), Health, Reflection) }),
		grpcreflect.WithDescriptorResolver(resolver),
		grpcreflect.WithExtensionResolver(&protoregistry.Types{}),
	)
	_, v1 := grpcreflect.NewHandlerV1(reflector, opts)
	_, v1alpha := grpcreflect.NewHandlerV1Alpha(reflector, opts)
	const info = "/ServerReflectionInfo"
	return map[string]http.Handler{
		"/" + Health + "/Check": t.only(connect.NewUnaryHandler("/"+Health+"/Check", h.check,
			opts), t.cfg.RequestTimeout),
		"/" + Health + "/Watch": t.only(connect.NewServerStreamHandler("/"+Health+"/Watch",
			h.watch, opts), t.cfg.RequestTimeout),
		"/" + Reflection + info:                            t.only(v1, h.ReflectionTimeout),
		"/" + grpcreflect.ReflectV1AlphaServiceName + info: t.only(v1alpha, h.ReflectionTimeout),
	}, nil
}

// only lets calls through that Speaks approves, and bounds the time in which what they send must be
// there, and for reflection the whole call.
func (t *Transport) only(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsCall(r) {
			http.Error(w, "send application/grpc or application/grpc-web", http.StatusUnsupportedMediaType)
			return
		}
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit)); err != nil {
			http.Error(w, "this server takes no calls", http.StatusInternalServerError)
			return
		}
		if _, ok := w.(http.Flusher); !ok { // a wrapper that only unwraps
			w = &flusher{w, http.NewResponseController(w), t.cfg.WriteTimeout}
		}
		next.ServeHTTP(w, r)
	})
}

// flusher flushes a wrapped response, under a deadline.
type flusher struct {
	http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration
}

// Flush pushes what was written. A client that does not take it loses the call.
func (f *flusher) Flush() {
	_ = f.rc.SetWriteDeadline(time.Now().Add(f.limit))
	_ = f.rc.Flush()
	_ = f.rc.SetWriteDeadline(time.Time{})
}

// health answers grpc.health.v1.Health.
type health struct {
	Services
	watches atomic.Int64
}

func (h *health) status() healthpb.HealthCheckResponse_ServingStatus {
	select {
	case <-h.Closing:
		return healthpb.HealthCheckResponse_NOT_SERVING
	default:
	}
	if h.Ready() {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// hasService reports whether a service is served; "" is the server itself.
func (h *health) hasService(service string) bool {
	return service == "" || slices.Contains(h.Names, service)
}

func (h *health) check(_ context.Context,
	r *connect.Request[healthpb.HealthCheckRequest]) (*connect.Response[healthpb.HealthCheckResponse], error) {
	if !h.hasService(r.Msg.GetService()) {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("unknown service"))
	}
	return connect.NewResponse(&healthpb.HealthCheckResponse{Status: h.status()}), nil
}

// watch sends the status and each change of it. A service that is not known is reported as such and watched on:
// the definition of Watch wants no error for it.
func (h *health) watch(ctx context.Context, r *connect.Request[healthpb.HealthCheckRequest],
	out *connect.ServerStream[healthpb.HealthCheckResponse]) error {
	if h.watches.Add(1) > int64(h.Watches) {
		h.watches.Add(-1)
		return connect.NewError(connect.CodeResourceExhausted, errors.New("too many watches"))
	}
	defer h.watches.Add(-1)
	tick := time.NewTicker(h.Poll)
	defer tick.Stop()
	closing, stop := h.Closing, (<-chan time.Time)(nil)
	last, enough := healthpb.HealthCheckResponse_UNKNOWN, brief(ctx)
	for {
		now := h.status()
		if !h.hasService(r.Msg.GetService()) {
			now = healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
		if now != last {
			if err := out.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-closing:
			closing, stop = nil, time.After(transport.Notice)
		case <-stop:
			return connect.NewError(connect.CodeCanceled, errors.New("this node is shutting down"))
		case <-enough:
			return connect.NewError(connect.CodeUnimplemented, errors.New("a longer watch needs a credential"))
		case <-tick.C:
		}
	}
}

// resolver finds the descriptors of the services that are served here.
type resolver struct {
	files protoregistry.Files
}

func newResolver(v Services) (*resolver, error) {
	r := &resolver{}
	for _, f := range []protoreflect.FileDescriptor{healthpb.File_grpc_health_v1_health_proto,
		reflectionpb.File_grpc_reflection_v1_reflection_proto} {
		if err := r.add(f); err != nil {
			return nil, err
		}
	}
	for _, encoded := range v.Files {
		set := &descriptorpb.FileDescriptorSet{}
		if err := proto.Unmarshal(encoded, set); err != nil {
			return nil, fmt.Errorf("grpc: file descriptor set: %w", err)
		}
		files, err := protodesc.NewFiles(set)
		if err != nil {
			return nil, fmt.Errorf("grpc: file descriptor set: %w", err)
		}
		files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
			err = r.add(f)
			return err == nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, name := range v.Names {
		d, err := r.FindDescriptorByName(protoreflect.FullName(name))
		if _, ok := d.(protoreflect.ServiceDescriptor); !ok || err != nil {
			return nil, fmt.Errorf("grpc: service %s is in none of the files", name)
		}
	}
	return r, nil
}

// add takes a file, which several sets may hold: what many import.
func (r *resolver) add(f protoreflect.FileDescriptor) error {
	if same, err := r.files.FindFileByPath(f.Path()); err == nil &&
		proto.Equal(protodesc.ToFileDescriptorProto(same), protodesc.ToFileDescriptorProto(f)) {
		return nil
	}
	if err := r.files.RegisterFile(f); err != nil {
		return fmt.Errorf("grpc: register %s: %w", f.Path(), err)
	}
	return nil
}

func (r *resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	return r.files.FindFileByPath(path)
}

func (r *resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return r.files.FindDescriptorByName(name)
}
