package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lxzan/gws"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/cmd/agentstream/internal/archive"
	retentioncmd "agentstream/cmd/agentstream/internal/retention"
	"agentstream/persister/blob"
	"agentstream/persister/persistertest"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// watcher is a WebSocket that waits.
type watcher struct {
	gws.BuiltinEventHandler
	first  chan string
	closed chan error
}

func (w *watcher) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	select {
	case w.first <- m.Data.String():
	default:
	}
}

func (w *watcher) OnPing(c *gws.Conn, payload []byte) { _ = c.WritePong(payload) }
func (w *watcher) OnClose(_ *gws.Conn, err error)     { w.closed <- err }

// asBytes hands messages of gRPC through.
type asBytes struct{}

func (asBytes) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (asBytes) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (asBytes) Name() string                       { return "proto" }

func (h *keptHouse) addr() string {
	addr, _, _ := strings.Cut(strings.TrimPrefix(h.url, "http://"), "/")
	return addr
}

// rpc begins a Stream call from a cursor.
func (h *keptHouse) rpc(ctx context.Context, run string, after uint64) grpc.ClientStream {
	h.Helper()
	conn, err := grpc.NewClient(h.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = conn.Close() })
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/agent.v1.AgentRun/Stream",
		grpc.ForceCodec(asBytes{}))
	request := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), run)
	request = protowire.AppendVarint(protowire.AppendTag(request, 2, protowire.VarintType), after)
	if err == nil {
		err = errors.Join(s.SendMsg(&request), s.CloseSend())
	}
	if err != nil {
		h.Fatal(err)
	}
	return s
}

// TestSocketsOfGoneRuns: WebSockets and gRPC calls of runs that have expired, in whole and in part, and of one that
// is deleted while they wait.
func TestSocketsOfGoneRuns(t *testing.T) { bothHouses(t, socketsOfGoneRuns) }

func socketsOfGoneRuns(h *keptHouse) {
	t := h.T
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, whole := endedRun("whole", 10)
	w, part := endedRun("part", 10)
	h.stored(whole, part)
	if r := h.keep(100*24*time.Hour, retention.Policy{}); r.Expired != 2 {
		t.Fatalf("%+v", r)
	}
	h.stored(goOn(w))
	var m []byte
	for _, run := range []string{"whole", "part"} {
		call := h.rpc(ctx, run, 3)
		if err := call.RecvMsg(&m); status.Code(err) != codes.OutOfRange ||
			!strings.Contains(err.Error(), schema.CodeCursorExpired) {
			t.Errorf("gRPC of %s: %v", run, err)
		}
		if first := call.Trailer().Get("agentstream-first-seq"); !slices.Equal(first, []string{"11"}) {
			t.Errorf("gRPC of %s: first kept is %q", run, first)
		}
	}
	if err := h.rpc(ctx, "part", 10).RecvMsg(&m); err != nil {
		t.Errorf("what is kept: %v", err)
	}

	const create = `{"type":"run.lifecycle","payload":{"state":"running","reason":null}}`
	if status, body := h.do("POST", "/doomed/events", create, "Content-Type", "application/x-ndjson"); status > 299 {
		t.Fatalf("%d %s", status, body)
	}
	watch := &watcher{first: make(chan string, 1), closed: make(chan error, 1)}
	conn, _, err := gws.NewClient(watch, &gws.ClientOption{Addr: strings.Replace(h.url, "http:", "ws:", 1) +
		"/doomed/stream?detail=full"})
	if err != nil {
		t.Fatal(err)
	}
	go conn.ReadLoop()
	call := h.rpc(ctx, "doomed", 0)
	if err := call.RecvMsg(&m); err != nil {
		t.Fatal(err)
	}
	select {
	case <-watch.first:
	case err := <-watch.closed:
		t.Fatal(err)
	}
	c := retentioncmd.DeleteRunCmd{Tenant: "acme", RunID: "doomed"}
	c.StoreFlags = h.where
	c.NATS, c.Blobs, c.Yes, c.Out, c.Err = h.server.Server.ClientURL(), h.folder, true, io.Discard, io.Discard
	if err := c.Run(ctx, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		err = call.RecvMsg(&m)
	}
	if status.Code(err) != codes.NotFound {
		t.Errorf("gRPC: %v", err)
	}
	select {
	case err := <-watch.closed:
		var ce *gws.CloseError
		if !errors.As(err, &ce) || ce.Code != 1008 {
			t.Errorf("WebSocket: %v", err)
		}
	case <-ctx.Done():
		t.Error("the WebSocket is not told")
	}
	if err := h.rpc(ctx, "doomed", 0).RecvMsg(&m); status.Code(err) != codes.NotFound {
		t.Errorf("gRPC, again: %v", err)
	}
}

// TestDeleteLooksElsewhere: a command that is told another place for objects does not say that all is gone.
func TestDeleteLooksElsewhere(t *testing.T) {
	bothHouses(t, func(h *keptHouse) {
		_, p := endedRun("archived", 10)
		h.stored(p)
		a, err := (&archive.ArchiverFlags{}).NewArchiver(h.store, h.store, nil, h.blobs, blob.Hooks{},
			slog.New(slog.DiscardHandler))
		if err == nil {
			err = a.One(h.Context(), p.Key)
		}
		if err != nil {
			h.Fatal(err)
		}
		var said bytes.Buffer
		c := retentioncmd.DeleteRunCmd{Tenant: "acme", RunID: "archived"}
		c.StoreFlags = h.where
		c.NATS, c.Blobs, c.Yes, c.Out, c.Err = h.server.Server.ClientURL(), h.T.TempDir(), true, io.Discard, &said
		if err := c.Run(h.Context(), slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), "1 blobs were not there") ||
			!strings.Contains(said.String(), "archived.10.jsonl.zst is not there") {
			h.Errorf("%v, %s", err, &said)
		}
	})
}

// oldRun is a run of some days ago.
func oldRun(tenant, run string, days int, state schema.RunState) schema.Pack {
	at := time.Now().AddDate(0, 0, -days)
	w := persistertest.NewWriter(schema.RunKey{Tenant: tenant, Run: run}, at.UTC().Format("20060102"))
	w.At(at)
	return w.Pack("", persistertest.Lifecycle(schema.StateRunning),
		persistertest.Event(schema.TypeTextDelta, `{"text":"x"}`), persistertest.Lifecycle(state))
}

// TestRetentionCommands walks the commands of operators.
func TestRetentionCommands(t *testing.T) { bothHouses(t, retentionCommands) }

func retentionCommands(h *keptHouse) {
	t := h.T
	h.stored(oldRun("acme", "done", 100, schema.StateDone), oldRun("acme", "failed", 40, schema.StateError),
		oldRun("acme", "held", 200, schema.StateDone),
		oldRun("acme", "young", 5, schema.StateDone), oldRun("beta", "kept", 200, schema.StateDone),
		oldRun("beta", "gone", 40, schema.StateAborted))
	var out bytes.Buffer
	type command interface {
		Run(ctx context.Context, log *slog.Logger) error
	}
	run := func(c command, flags *archive.StoreFlags, want ...string) {
		t.Helper()
		out.Reset()
		*flags = h.where
		flags.Out, flags.Err = &out, &out
		if err := c.Run(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		for _, text := range want {
			if no, ok := strings.CutPrefix(text, "!"); ok == strings.Contains(out.String(), no) {
				t.Errorf("%T: want %q, is:\n%s", c, text, out.String())
			}
		}
	}
	refused := func(c command, flags *archive.StoreFlags, want string) {
		t.Helper()
		*flags = h.where
		flags.Out, flags.Err = io.Discard, io.Discard
		if err := c.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v, want %q", c, err, want)
		}
	}
	add := &retentioncmd.HoldAddCmd{Tenant: "acme", RunID: "held", Reason: "case 7"}
	run(add, &add.StoreFlags)
	list := &retentioncmd.HoldListCmd{}
	run(list, &list.StoreFlags, "acme", "held", `"case 7"`)
	other := &retentioncmd.HoldListCmd{Tenant: "beta", JSON: true}
	run(other, &other.StoreFlags, "!held")
	for text, want := range map[string]string{"90": "--completed", "-1d": "--completed", "36501d": "--completed",
		"999999999999d": "--completed", "1.5d": "--completed", "": "required"} {
		c := &retentioncmd.SetCmd{Tenant: "beta", Completed: text}
		refused(c, &c.StoreFlags, want)
	}
	bad := &retentioncmd.SetCmd{Tenant: "a/b", Completed: "1d"}
	refused(bad, &bad.StoreFlags, "tenant")
	set := &retentioncmd.SetCmd{Tenant: "beta", Completed: "never"}
	run(set, &set.StoreFlags)
	set = &retentioncmd.SetCmd{Tenant: "beta", Ended: "10d"} // the other stays
	run(set, &set.StoreFlags)
	show := &retentioncmd.ShowCmd{}
	run(show, &show.StoreFlags, "beta", "never", "10d")
	for _, text := range []string{"-5d", "0d", "0s", "-1h", "soon", "99999999d"} {
		c := &retentioncmd.PlanCmd{RetentionFlags: retentioncmd.RetentionFlags{KeepCompleted: text}}
		refused(c, &c.StoreFlags, "--keep-completed")
	}
	forever := &retentioncmd.PlanCmd{RetentionFlags: retentioncmd.RetentionFlags{KeepCompleted: "2500000h",
		KeepEnded: "never"}}
	run(forever, &forever.StoreFlags, "aborted", "!acme") // beta's own times are before the flags
	plan := &retentioncmd.PlanCmd{Runs: true}
	run(plan, &plan.StoreFlags, "expire acme/done", "expire acme/failed", "expire beta/gone", "!held", "!young", "!kept")
	do := &retentioncmd.RunCmd{}
	do.NATS, do.Blobs = h.server.Server.ClientURL(), h.folder
	run(do, &do.StoreFlags, "removed: 3 runs, 9 events")
	run(do, &do.StoreFlags, "removed: 0 runs, 0 events")
	late := &retentioncmd.HoldAddCmd{Tenant: "acme", RunID: "done", Reason: "late"}
	run(late, &late.StoreFlags, "had expired")
	clear := &retentioncmd.ClearCmd{Tenant: "beta"}
	run(clear, &clear.StoreFlags)
	run(plan, &plan.StoreFlags, "expire beta/kept")

	gone := &retentioncmd.DeleteTenantCmd{Tenant: "acme"}
	gone.NATS, gone.Blobs, gone.Yes = h.server.Server.ClientURL(), h.folder, true
	refused(gone, &gone.StoreFlags, "legal hold")
	for _, id := range []string{"held", "done"} {
		lift := &retentioncmd.HoldRemoveCmd{Tenant: "acme", RunID: id}
		run(lift, &lift.StoreFlags)
		refused(lift, &lift.StoreFlags, "no such hold")
	}
	gone.Yes = false
	gone.StoreFlags = h.where
	gone.In, gone.Out, gone.Err = strings.NewReader("beta\n"), io.Discard, io.Discard
	if err := gone.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "another name") {
		t.Errorf("another name was typed: %v", err)
	}
	gone.Yes = true
	run(gone, &gone.StoreFlags, "removed: 4 runs", "left: nothing")
	if _, list := h.do("GET", "", ""); strings.Contains(list, "young") {
		t.Errorf("listed: %s", list)
	}
	run(plan, &plan.StoreFlags, "expire beta/kept") // nobody else's
}
