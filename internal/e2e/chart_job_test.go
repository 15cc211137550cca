//go:build chart

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lxzan/gws"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"agentstream/schema"
)

const chartRun = "run_chart"

// ingressDialer connects to the Ingress, whatever the name.
type ingressDialer string

func (d ingressDialer) Dial(network, _ string) (net.Conn, error) { return net.Dial(network, string(d)) }

// client returns a client of HTTP/2 at the Ingress.
func (p *chartProc) client() *http.Client {
	p.t.Helper()
	tr := &http.Transport{TLSClientConfig: p.ca.Config(p.t, ""), ForceAttemptHTTP2: true, DialContext: p.dialIngress}
	p.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: withToken{tr}}
}

func (p *chartProc) dialIngress(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, p.addr("ingress-nginx", "8443"))
}

// chartURL is the address of the list of runs, and of what is below it.
func chartURL(path string) string {
	return strings.TrimSuffix("https://"+chartHost+"/v1/agent/runs/"+path, "/")
}

// request sends a request over HTTP/2, with the edges' token or another credential, and returns the answer.
func (p *chartProc) request(client *http.Client, credential, method, path, body string, status int) string {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, chartURL(path), strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	req.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(path, "/events") {
		req.Header.Set("Content-Type", "application/x-ndjson")
	}
	resp, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || resp.ProtoMajor != 2 {
		p.t.Fatalf("%s %s: %s %s %s, want %d (%v)", method, path, resp.Proto, resp.Status, text, status, err)
	}
	return string(text)
}

// mainJob: a run is published, watched in three ways, commanded, ended, archived and shared.
func (p *chartProc) mainJob() {
	t := p.t
	t.Helper()
	client := p.client()
	const deltas = 50
	p.request(client, edgeToken, http.MethodPost, chartRun+"/events",
		`{"type":"run.lifecycle","payload":{"state":"running"}}`+"\n"+
			`{"type":"message.start","payload":{"message_id":"m","role":"assistant"}}`, http.StatusOK)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	watchers, watching := p.watchAll(ctx, client)
	for n := range deltas {
		p.request(client, edgeToken, http.MethodPost, chartRun+"/events", keyedEvent(0, n), http.StatusOK)
	}
	p.request(client, edgeToken, http.MethodPost, chartRun+"/messages", `{"content":"and then?"}`, http.StatusAccepted)
	const events = 2 + deltas + 1
	for _, s := range watchers {
		eventually(t, 30*time.Second, s.name+" has every event", func() bool {
			return s.count() >= events || s.failed() != nil
		})
	}
	leave()
	watching.Wait()
	var want []schema.Seq
	for n := range events {
		want = append(want, schema.Seq(n+1))
	}
	for _, s := range watchers {
		if s.err != nil || !slices.Equal(s.seqs, want) {
			t.Errorf("%s: %v, %v", s.name, s.seqs, s.err)
		}
	}
	p.archiveAndShare(client, events)
}

// watchAll watches the run in three ways until ctx ends.
func (p *chartProc) watchAll(ctx context.Context, client *http.Client) ([]*seen, *sync.WaitGroup) {
	watchers := []*seen{{name: "SSE over HTTP/2"}, {name: "WebSocket"}, {name: "gRPC"}}
	var watching sync.WaitGroup
	watching.Go(func() { watchers[0].sse(ctx, client, chartURL(chartRun+"/stream?detail=full"), 2) })
	watching.Go(func() { p.socket(ctx, watchers[1], client) })
	watching.Go(func() { p.watchGRPC(ctx, watchers[2]) })
	return watchers, &watching
}

// failed returns what went wrong so far.
func (s *seen) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// archiveAndShare ends the run, waits until the persisters have it, and reads it by a link.
func (p *chartProc) archiveAndShare(client *http.Client, events int) {
	t := p.t
	t.Helper()
	p.request(client, edgeToken, http.MethodPost, chartRun+"/events",
		`{"type":"message.end","payload":{"message_id":"m"}}`+"\n"+
			`{"type":"run.lifecycle","payload":{"state":"done"}}`, http.StatusOK)
	eventually(t, 30*time.Second, "the run is archived", func() bool {
		list := p.request(client, edgeToken, http.MethodGet, "", "", http.StatusOK)
		return strings.Contains(list, `"run_id":"`+chartRun+`"`) && strings.Contains(list,
			fmt.Sprintf(`"last_seq":%d,`, events+2))
	})
	var share struct{ Share string }
	text := p.request(client, edgeToken, http.MethodPost, chartRun+"/shares?ttl=1h", "", http.StatusCreated)
	if err := json.Unmarshal([]byte(text), &share); err != nil || share.Share == "" {
		t.Fatalf("%s: %v", text, err)
	}
	if read := splitEvents(t, []byte(p.request(client, share.Share, http.MethodGet, chartRun+"/events?limit=1000", "",
		http.StatusOK))); len(read) != events+2 {
		t.Errorf("the link reads %d events", len(read))
	}
	p.request(client, share.Share, http.MethodPost, chartRun+"/messages", `{"content":"no"}`, http.StatusForbidden)
	p.request(client, "wrong", http.MethodGet, chartRun+"/events", "", http.StatusUnauthorized)
}

// socket watches the run over a WebSocket, let in by a ticket, as a browser is.
func (p *chartProc) socket(ctx context.Context, s *seen, client *http.Client) {
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, chartURL(chartRun+"/tickets"), nil)
	resp, err := client.Do(req)
	if err != nil {
		s.fail(err)
		return
	}
	defer resp.Body.Close()
	var ticket struct{ Ticket string }
	if err := json.NewDecoder(resp.Body).Decode(&ticket); err != nil || ticket.Ticket == "" {
		s.fail(fmt.Errorf("ticket: %s %w", resp.Status, err))
		return
	}
	on := &onMessage{to: s, ctx: ctx, done: make(chan struct{})}
	conn, _, err := gws.NewClient(on, &gws.ClientOption{ReadMaxPayloadSize: 8 << 20,
		Addr:          "wss" + strings.TrimPrefix(chartURL(chartRun+"/stream?detail=full&ticket="+ticket.Ticket), "https"),
		RequestHeader: http.Header{"Origin": {"https://" + chartHost}}, TlsConfig: p.ca.Config(p.t, ""),
		NewDialer: func() (gws.Dialer, error) { return ingressDialer(p.addr("ingress-nginx", "8443")), nil }})
	if err != nil {
		s.fail(err)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	defer stop()
	conn.ReadLoop()
	<-on.done
}

// watchGRPC watches the run over gRPC.
func (p *chartProc) watchGRPC(ctx context.Context, s *seen) {
	file, err := agentProto()
	if err != nil {
		s.fail(err)
		return
	}
	conn, err := grpc.NewClient("passthrough:///"+chartHost,
		grpc.WithTransportCredentials(credentials.NewTLS(p.ca.Config(p.t, ""))),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return p.dialIngress(ctx, "tcp", "")
		}))
	if err != nil {
		s.fail(err)
		return
	}
	defer conn.Close()
	called := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+edgeToken)
	stream, err := conn.NewStream(called, &grpc.StreamDesc{ServerStreams: true}, "/agent.v1.AgentRun/Stream")
	if err == nil {
		err = errors.Join(stream.SendMsg(streamRequest(file, chartRun)), stream.CloseSend())
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

// leaveOpen opens a stream that goes on while everything ends. What is returned is closed when it has ended.
func (p *chartProc) leaveOpen() <-chan struct{} {
	t := p.t
	t.Helper()
	client := p.client()
	p.request(client, edgeToken, http.MethodPost, "run_open/events",
		`{"type":"run.lifecycle","payload":{"state":"running"}}`, http.StatusOK)
	s, ended := &seen{name: "a stream that is left open"}, make(chan struct{})
	go func() {
		defer close(ended)
		s.sse(t.Context(), client, chartURL("run_open/stream?detail=full"), 2)
	}()
	eventually(t, 10*time.Second, s.name, func() bool { return s.count() == 1 })
	return ended
}
