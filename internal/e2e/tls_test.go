package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lxzan/gws"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	agentstream "agentstream/clients/go"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

const tlsRun = "run_tls"

// secured is a process that serves over TLS, and what its clients trust.
type secured struct {
	*proc
	ca  *testkit.Authority
	dir string // of the server's certificate
}

// startSecured starts a dev server with a certificate of an authority of the test.
func startSecured(t *testing.T, args ...string) *secured {
	t.Helper()
	s := &secured{ca: testkit.NewAuthority(t), dir: t.TempDir()}
	cert, key := s.ca.Issue(t, s.dir, "127.0.0.1", "localhost")
	s.proc = newProc(t, "dev", append([]string{"--no-demo", "--data", t.TempDir(), "--tls-cert", cert, "--tls-key",
		key}, args...)...)
	s.start()
	return s
}

// client returns a client of HTTP/1.1 or, with h2, of HTTP/2. Without keep its connections have one request each.
func (s *secured) client(t *testing.T, h2, keep bool) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: s.ca.Config(t, ""), ForceAttemptHTTP2: h2, DisableKeepAlives: !keep}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (s *secured) at(path string) string { return "https://" + s.addr + path }

// seen are the numbers of events that a client was sent.
type seen struct {
	name string
	mu   sync.Mutex
	seqs []schema.Seq
	err  error
}

func (s *seen) add(data []byte) {
	var e struct{ Seq schema.Seq }
	if err := json.Unmarshal(data, &e); err != nil {
		s.fail(fmt.Errorf("%q: %w", data, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seqs = append(s.seqs, e.Seq)
}

func (s *seen) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

// count returns how many events there are.
func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seqs)
}

// sse watches the run on one connection, which must last.
func (s *seen) sse(ctx context.Context, client *http.Client, url string, major int) {
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	resp, err := client.Do(req)
	if err != nil {
		s.fail(err)
		return
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != major || resp.StatusCode != http.StatusOK {
		s.fail(fmt.Errorf("%s %s", resp.Proto, resp.Status))
		return
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			s.add([]byte(data))
		}
	}
	if ctx.Err() == nil {
		s.fail(fmt.Errorf("the stream has ended: %w", lines.Err()))
	}
}

// onMessage is what a WebSocket's events go to.
type onMessage struct {
	gws.BuiltinEventHandler
	to   *seen
	ctx  context.Context
	done chan struct{}
}

func (o *onMessage) OnMessage(_ *gws.Conn, m *gws.Message) {
	o.to.add(m.Bytes())
	_ = m.Close()
}

func (o *onMessage) OnPing(c *gws.Conn, payload []byte) { _ = c.WritePong(payload) }

func (o *onMessage) OnClose(_ *gws.Conn, err error) {
	if o.ctx.Err() == nil {
		o.to.fail(fmt.Errorf("the WebSocket is closed: %w", err))
	}
	close(o.done)
}

// socket watches the run over a WebSocket.
func (s *seen) socket(ctx context.Context, cfg *tls.Config, url string) {
	on := &onMessage{to: s, ctx: ctx, done: make(chan struct{})}
	conn, _, err := gws.NewClient(on, &gws.ClientOption{Addr: "wss" + strings.TrimPrefix(url, "https"), TlsConfig: cfg,
		ReadMaxPayloadSize: 8 << 20})
	if err != nil {
		s.fail(err)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	defer stop()
	conn.ReadLoop()
	<-on.done
}

// grpc watches the run over gRPC.
func (s *seen) grpc(ctx context.Context, cfg *tls.Config, addr string) {
	file, err := agentProto()
	if err != nil {
		s.fail(err)
		return
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		s.fail(err)
		return
	}
	defer conn.Close()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/agent.v1.AgentRun/Stream")
	if err == nil {
		err = errors.Join(stream.SendMsg(streamRequest(file, tlsRun)), stream.CloseSend())
	}
	for err == nil {
		m := newMessage(file, "Event")
		if err = stream.RecvMsg(m); err == nil {
			e := eventOf(m)
			s.add(e.AppendLine(nil))
		}
	}
	if ctx.Err() == nil {
		s.fail(err)
	}
}

// write posts events, each over a connection of its own in every second request, until ctx ends. It returns how many
// are in the run, and counts the requests that fail.
func (s *secured) write(ctx context.Context, t *testing.T, failed *atomic.Int64) (stored int) {
	kept, fresh := s.client(t, true, true), s.client(t, true, false)
	for n := 0; ctx.Err() == nil; n++ {
		client := kept
		if n%2 == 1 {
			client = fresh
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.at("/v1/agent/runs/"+tlsRun+"/events"),
			strings.NewReader(keyedEvent(0, n)))
		req.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := client.Do(req)
		if err != nil {
			failed.Add(1)
			t.Log(err)
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			failed.Add(1)
			t.Log(resp.Status)
			continue
		}
		stored++
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return stored
}

// The main job over TLS: a run is written over HTTP/2 and watched by server-sent events over both versions of HTTP, by
// a WebSocket and by gRPC, while the certificate is replaced three times. No request fails, no stream is broken off,
// and everybody has every event once, in order.
func TestTLSWhileCertificatesAreReplaced(t *testing.T) {
	beside(t)
	s := startSecured(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	writing, enough := context.WithCancel(ctx)
	defer enough()
	var failed atomic.Int64
	stored := make(chan int, 1)
	go func() { stored <- s.write(writing, t, &failed) }()
	stream := s.at("/v1/agent/runs/" + tlsRun + "/stream?detail=full")
	serial := func() string {
		c, err := (&tls.Dialer{Config: s.ca.Config(t, "")}).DialContext(ctx, "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	eventually(t, 20*time.Second, "the run", func() bool {
		resp, err := s.client(t, true, true).Get(s.at("/v1/agent/runs/" + tlsRun))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	watchers := []*seen{{name: "SSE, HTTP/2"}, {name: "SSE, HTTP/1.1"}, {name: "WebSocket"}, {name: "gRPC"}}
	var watching sync.WaitGroup
	watching.Go(func() { watchers[0].sse(ctx, s.client(t, true, true), stream, 2) })
	watching.Go(func() { watchers[1].sse(ctx, s.client(t, false, true), stream, 1) })
	watching.Go(func() { watchers[2].socket(ctx, s.ca.Config(t, ""), stream) })
	watching.Go(func() { watchers[3].grpc(ctx, s.ca.Config(t, ""), s.addr) })
	for range 3 {
		before := serial()
		s.ca.Issue(t, s.dir, "127.0.0.1", "localhost")
		eventually(t, 20*time.Second, "the new certificate", func() bool { return serial() != before })
	}
	enough()
	all := <-stored
	if n := failed.Load(); n > 0 || all < 50 {
		t.Errorf("%d requests failed while certificates were replaced, %d events are stored", n, all)
	}
	for _, w := range watchers {
		eventually(t, 30*time.Second, w.name+" has all", func() bool { return w.count() >= all })
	}
	cancel()
	watching.Wait()
	for _, w := range watchers {
		if w.err != nil {
			t.Errorf("%s: %v", w.name, w.err)
		}
		for i, seq := range w.seqs {
			if seq != schema.Seq(i+1) {
				t.Errorf("%s: event %d has seq %d", w.name, i+1, seq)
				break
			}
		}
	}
}

// Clients that need a certificate get in with one, and nobody else does.
func TestTLSOfClients(t *testing.T) {
	beside(t)
	own := t.TempDir()
	ca := testkit.NewAuthority(t)
	ca.Issue(t, own, "agent")
	s := startSecured(t, "--tls-client-ca", ca.CA)
	_, err := s.client(t, true, true).Get(s.at("/healthz"))
	if err == nil {
		t.Error("a client without a certificate is let in")
	}
	cfg := ca.Config(t, own)
	cfg.RootCAs = s.ca.Pool
	tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(s.at("/healthz"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	_, metrics := getText("http://" + s.admin + "/metrics")
	if !strings.Contains(metrics, `agentstream_tls_handshakes_failed_total{listener="tls",reason="certificate"}`) {
		t.Error("the refusal is not counted")
	}
	if !strings.Contains(metrics, `agentstream_certificate_expiry_timestamp_seconds{listener="tls"}`) {
		t.Error("the expiry is not shown")
	}
}

// dev --tls makes an authority that a client can trust, keeps its key from others, and keeps it over a restart.
func TestDevTLS(t *testing.T) {
	beside(t)
	data := t.TempDir()
	p := newProc(t, "dev", "--no-demo", "--tls", "--data", data)
	p.start()
	ask := func() *agentstream.Client {
		pool := readPool(t, data+"/tls/ca.pem")
		c, err := agentstream.New(agentstream.Config{BaseURL: "https://" + p.addr, RootCAs: pool, FailFast: true})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	client := ask()
	defer client.Close()
	if _, err := client.Publisher().AppendLines(t.Context(), "run_a", []byte(keyedEvent(0, 0)+"\n")); err != nil {
		t.Error(err)
	}
	for name, mode := range map[string]string{"tls": "drwx------", "tls/ca-key.pem": "-rw-------",
		"tls/key.pem": "-rw-------"} {
		if got := modeOf(t, data+"/"+name); got != mode {
			t.Errorf("%s is %s, want %s", name, got, mode)
		}
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command(path, "runs", "--server", "https://"+p.addr, "--ca", data+"/tls/ca.pem").CombinedOutput()
	if err != nil {
		t.Errorf("runs: %v %s", err, out)
	}
	first := readText(t, data+"/tls/ca.pem")
	p.stop()
	p.start()
	if readText(t, data+"/tls/ca.pem") != first {
		t.Error("the authority is another one after a restart")
	}
	if said := p.log.String(); !strings.Contains(said, "NODE_EXTRA_CA_CERTS") || !strings.Contains(said, "https://") {
		t.Errorf("it is not said how to trust it: %s", tail(said, 2000))
	}
}

// streamRequest asks for all of a run.
func streamRequest(file protoreflect.FileDescriptor, run string) *dynamicpb.Message {
	req := newMessage(file, "StreamRequest")
	set := func(name string, v any) {
		req.Set(req.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(v))
	}
	set("run_id", run)
	set("detail", protoreflect.EnumNumber(1))
	return req
}

func newMessage(file protoreflect.FileDescriptor, name string) *dynamicpb.Message {
	return dynamicpb.NewMessage(file.Messages().ByName(protoreflect.Name(name)))
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readPool(t *testing.T, path string) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(readText(t, path))) {
		t.Fatalf("%s holds no certificate", path)
	}
	return pool
}

func modeOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().String()
}
