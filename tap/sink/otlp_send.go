package sink

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"agentstream/internal/backoff"
	"agentstream/tap/otlp"
)

// Paths and methods of OTLP.
const (
	tracesPath    = "/v1/traces"
	metricsPath   = "/v1/metrics"
	tracesMethod  = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	metricsMethod = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
)

// otlpHTTP posts requests as binary Protobuf over HTTP.
type otlpHTTP struct {
	client  *http.Client
	url     string // without the path of a signal
	headers func() ([][2]string, error)
}

// Send implements otlp.Sender.
func (h *otlpHTTP) Send(ctx context.Context, data *tracepb.TracesData) error {
	return h.post(ctx, tracesPath, data)
}

// SendMetrics implements otlp.Sender.
func (h *otlpHTTP) SendMetrics(ctx context.Context, data *metricspb.MetricsData) error {
	return h.post(ctx, metricsPath, data)
}

// post posts what has the fields of a request.
func (h *otlpHTTP) post(ctx context.Context, path string, request proto.Message) error {
	body, err := proto.Marshal(request)
	if err != nil {
		return fmt.Errorf("%w: %w", otlp.ErrPermanent, err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(body)
	err = errors.Join(err, z.Close())
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, &packed)
	if err != nil {
		return err
	}
	headers, err := h.headers()
	if err != nil {
		return err
	}
	for _, pair := range headers {
		req.Header.Set(pair[0], pair[1])
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := do(h.client, req)
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	answer, err := readAnswer(resp)
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	return judge(ctx, resp, answer)
}

// judge returns what an answer over HTTP means. What says that the request is the reason is permanent; all else is
// tried again, also what a wrong path or a missing key causes: an operator can mend those.
func judge(ctx context.Context, resp *http.Response, answer []byte) error {
	err := fmt.Errorf("otlp: status %d: %s", resp.StatusCode, readable(answer))
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-protobuf") {
			return partialOf(answer)
		}
		return nil
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", otlp.ErrPermanent, err)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		seconds, bad := strconv.Atoi(resp.Header.Get("Retry-After"))
		if bad == nil {
			return errors.Join(err, backoff.Sleep(ctx, min(time.Duration(seconds)*time.Second, longPause)))
		}
	}
	return err
}

// readable returns the message of a google.rpc.Status, or what else an answer says.
func readable(answer []byte) string {
	message, n := protowire.ConsumeBytes(field(answer, 2, protowire.BytesType))
	if n >= 0 {
		answer = message
	}
	return excerpt(answer)
}

// excerpt returns the beginning of another side's text.
func excerpt(b []byte) string { return fmt.Sprintf("%.200s", strings.ToValidUTF8(string(b), "\uFFFD")) }

// partialOf returns a RejectedError when an answer, an ExportTraceServiceResponse or that of another signal, says
// that not all was accepted. These messages have the same fields.
func partialOf(answer []byte) error {
	partial, _ := protowire.ConsumeBytes(field(answer, 1, protowire.BytesType))
	count, _ := protowire.ConsumeVarint(field(partial, 1, protowire.VarintType))
	if count == 0 {
		return nil
	}
	message, _ := protowire.ConsumeBytes(field(partial, 2, protowire.BytesType))
	return &otlp.RejectedError{Count: int64(count), Message: excerpt(message)}
}

// field returns what a message has from the value of its first field with a number and a type on; nil when there is
// none.
func field(message []byte, want protowire.Number, kind protowire.Type) []byte {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if num == want && typ == kind {
			return message
		}
		n = protowire.ConsumeFieldValue(num, typ, message)
		if n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}

// Close implements otlp.Sender.
func (h *otlpHTTP) Close() error {
	h.client.CloseIdleConnections()
	return nil
}

// otlpGRPC sends requests over gRPC. It knows the methods by their names: the package that is generated for them
// brings a gateway to HTTP, which no program here needs.
type otlpGRPC struct {
	conn    *grpc.ClientConn
	timeout time.Duration
	headers func() ([][2]string, error)
}

func newOTLPGRPC(u *url.URL, secure bool, o Options, headers func() ([][2]string, error)) (*otlpGRPC, error) {
	if strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("gRPC has no path: want otlp+grpc://HOST:PORT")
	}
	creds := insecure.NewCredentials()
	if secure {
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	host := u.Host
	if u.Port() == "" {
		host += ":4317"
	}
	conn, err := grpc.NewClient("dns:///"+host, grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry())
	if err != nil {
		return nil, err
	}
	return &otlpGRPC{conn: conn, timeout: o.Timeout, headers: headers}, nil
}

// Send implements otlp.Sender.
func (g *otlpGRPC) Send(ctx context.Context, data *tracepb.TracesData) error {
	return g.call(ctx, tracesMethod, data)
}

// SendMetrics implements otlp.Sender.
func (g *otlpGRPC) SendMetrics(ctx context.Context, data *metricspb.MetricsData) error {
	return g.call(ctx, metricsMethod, data)
}

func (g *otlpGRPC) call(ctx context.Context, method string, request proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	headers, err := g.headers()
	if err != nil {
		return err
	}
	for _, pair := range headers {
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(pair[0]), pair[1])
	}
	var answer emptypb.Empty // what it does not know it keeps
	err = g.conn.Invoke(ctx, method, request, &answer, grpc.UseCompressor(grpcgzip.Name))
	if err != nil {
		code := status.Code(err)
		err = fmt.Errorf("otlp: %w", err)
		if code == codes.InvalidArgument { // the request is the reason
			err = fmt.Errorf("%w: %w", otlp.ErrPermanent, err)
		}
		return err
	}
	return partialOf(answer.ProtoReflect().GetUnknown())
}

// Close implements otlp.Sender.
func (g *otlpGRPC) Close() error { return g.conn.Close() }
