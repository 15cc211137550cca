package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oasdiff/yaml"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// What follows up to the end of its function stands in docs/taps.md as it is here.

// tap hands every pack of the log to handle: each run's packs in order, each at least once. It goes on
// where an earlier tap of that name has stopped. It returns when ctx ends or handle fails. A pack that is
// not done within limit is given to whoever asks next.
func tap(ctx context.Context, js jetstream.JetStream, name string, limit time.Duration,
	handle func(jetstream.Msg) error) error {
	stream, err := js.Stream(ctx, "AGENT_0")
	if err != nil {
		return err
	}
	partitions, err := strconv.Atoi(stream.CachedInfo().Config.Metadata["agentstream-partitions"])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var readers sync.WaitGroup
	for p := range partitions {
		consumer, err := js.CreateOrUpdateConsumer(ctx, "AGENT_"+strconv.Itoa(p), jetstream.ConsumerConfig{
			Durable:       name,
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       limit,
			MaxAckPending: 1, // keeps the order, also when a pack is delivered again
		})
		if err != nil {
			cancel(err)
			break
		}
		readers.Go(func() {
			for ctx.Err() == nil {
				msg, err := consumer.Next(jetstream.FetchContext(ctx))
				if errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) {
					continue
				}
				if err == nil {
					if err = handle(msg); err != nil {
						_ = msg.Nak() // at once to whoever asks next
					} else {
						err = msg.DoubleAck(ctx)
					}
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	readers.Wait()
	return context.Cause(ctx)
}

// table is a store of events as a tap has it: (tenant, run, seq) is its key, and what is there already
// is passed over.
type table struct {
	mu     sync.Mutex
	t      *testing.T
	header headerRules
	rows   map[schema.RunKey][]string
	days   map[schema.RunKey]string
	fail   func(n int) bool // whether the handler dies in the middle of its nth pack
	packs  int
	again  int
	more   chan struct{}
}

var errDied = errors.New("the handler died")

func (b *table) handle(msg jetstream.Msg) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := msg.Headers()
	if err := b.header.check(h); err != nil {
		b.t.Errorf("%s: %v: %v", msg.Subject(), h, err)
	}
	part := strings.Split(msg.Subject(), ".") // agent, partition, tenant, run, child
	key := schema.RunKey{Tenant: part[2], Run: part[3]}
	if day := b.days[key]; day != "" && day != h.Get("Agent-Day") {
		b.t.Errorf("%s: day %s, was %s", key, h.Get("Agent-Day"), day)
	}
	b.days[key] = h.Get("Agent-Day")
	first, err := strconv.Atoi(h.Get("Agent-Seq"))
	if err != nil {
		return err
	}
	lines := bytes.Split(bytes.TrimSuffix(msg.Data(), []byte("\n")), []byte("\n"))
	if h.Get("Agent-Count") != strconv.Itoa(len(lines)) || first > len(b.rows[key])+1 {
		b.t.Errorf("%s: %d lines from %d behind %d: %v", key, len(lines), first, len(b.rows[key]), h)
	}
	b.packs++
	for i, line := range lines {
		if b.fail(b.packs) && i == len(lines)/2 {
			return errDied
		}
		if first+i <= len(b.rows[key]) {
			b.again++
			continue
		}
		b.insert(key, part[4], first+i, string(line))
	}
	var last struct{ ID string }
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil || last.ID != h.Get("Agent-Last-Id") {
		b.t.Errorf("%s: last is %s, the header says %s, %v", key, last.ID, h.Get("Agent-Last-Id"), err)
	}
	select {
	case b.more <- struct{}{}:
	default:
	}
	return nil
}

func (b *table) insert(key schema.RunKey, child string, seq int, line string) {
	e, err := schema.DecodeLine([]byte(line))
	if err != nil || e.RunID != key.Run || int(e.Seq) != seq || e.ChildID != strings.TrimPrefix(child, schema.RootLane) {
		b.t.Errorf("%s %d of %s is %.200s: %v", key, seq, child, line, err)
	}
	b.rows[key] = append(b.rows[key], line)
}

// headerRules is what asyncapi.yaml says of a message's headers: those that it does not name are refused.
type headerRules struct {
	required []string
	values   map[string]func(string) bool
}

func (r headerRules) check(h nats.Header) error {
	for _, name := range r.required {
		if len(h[name]) == 0 {
			return fmt.Errorf("%s is missing", name)
		}
	}
	for name, values := range h {
		if ok := r.values[name]; ok == nil || len(values) != 1 || !ok(values[0]) {
			return fmt.Errorf("%s: %q", name, values)
		}
	}
	return nil
}

// headerSchema is as much of JSON Schema as the document uses for headers.
type headerSchema struct {
	Ref        string `json:"$ref"`
	AllOf      []headerSchema
	Required   []string
	Properties map[string]struct {
		Pattern string
		Enum    []string
	}
}

func readHeaderRules(t *testing.T, name string) headerRules {
	t.Helper()
	text, err := os.ReadFile("../../schema/contracts/asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]json.RawMessage
		}
	}
	if _, err := yaml.Unmarshal(text, &doc, yaml.DecodeOpts{}); err != nil {
		t.Fatal(err)
	}
	rules := headerRules{values: map[string]func(string) bool{}}
	var add func(s headerSchema)
	add = func(s headerSchema) {
		if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
			var named headerSchema
			if err := json.Unmarshal(doc.Components.Schemas[name], &named); err != nil {
				t.Fatal(err)
			}
			add(named)
		}
		for _, part := range s.AllOf {
			add(part)
		}
		rules.required = append(rules.required, s.Required...)
		for name, p := range s.Properties {
			pattern := regexp.MustCompile(p.Pattern)
			rules.values[name] = func(v string) bool { return pattern.MatchString(v) && (len(p.Enum) == 0 || slices.Contains(p.Enum, v)) }
		}
	}
	add(headerSchema{Ref: "#/components/schemas/" + name})
	if len(rules.required) < 5 || len(rules.values) < 11 {
		t.Fatalf("%s: %v, %d values", name, rules.required, len(rules.values))
	}
	return rules
}

// TestTapReadsTheLog: the tap of docs/taps.md, which dies again and again while the log is written,
// has every event of every run once and in order, and headers are what asyncapi.yaml says.
func TestTapReadsTheLog(t *testing.T) {
	k := testkit.NATS(t)
	log, err := pubjs.Open(t.Context(), k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	want := map[schema.RunKey][]string{}
	var all [][]schema.Pack
	for i, s := range append(schematest.All(), schematest.Generate(600, 6)) {
		for _, tenant := range []string{"acme", "globex"} {
			packs := schematest.Packs(schema.RunKey{Tenant: tenant, Run: fmt.Sprintf("run_%d", i)}, s, 15)
			packs[0].Batch = fmt.Sprintf("%032x", i)
			want[packs[0].Key] = schematest.Lines(packs)
			all = append(all, packs)
		}
	}
	copies := watchCopies(t, k.Conn)
	b := &table{
		t: t, header: readHeaderRules(t, "storedHeaders"), more: make(chan struct{}, 1),
		rows: map[schema.RunKey][]string{}, days: map[schema.RunKey]string{}, fail: func(n int) bool { return n%40 == 7 },
	}
	written := 0
	var writers sync.WaitGroup
	for _, packs := range all {
		written += len(packs)
	}
	for part := range slices.Chunk(all, 8) {
		writers.Go(func() {
			for _, packs := range part {
				if err := write(t.Context(), log, packs); err != nil {
					t.Error(err)
				}
			}
		})
	}
	deaths := b.until(k, want)
	writers.Wait()
	for key, lines := range want {
		if !slices.Equal(b.rows[key], lines) {
			t.Errorf("%s: %d events, want %d", key, len(b.rows[key]), len(lines))
		}
	}
	if len(b.rows) != len(want) || deaths < 5 || b.again < 5 {
		t.Errorf("%d runs, want %d; %d deaths, %d events seen again", len(b.rows), len(want), deaths, b.again)
	}
	if n := copies(written); n != written {
		t.Errorf("%d copies of %d packs", n, written)
	}
	t.Logf("%d packs of %d runs, %d deaths, %d events seen again", written, len(want), deaths, b.again)
}

// until runs taps, one after another, until all is there, and says how often one died.
func (b *table) until(k *testkit.Server, want map[schema.RunKey][]string) (deaths int) {
	missing := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for key, lines := range want {
			if len(b.rows[key]) < len(lines) {
				return true
			}
		}
		return false
	}
	deadline, end := context.WithTimeout(b.t.Context(), 60*time.Second)
	defer end()
	for missing() {
		ctx, stop := context.WithCancel(deadline)
		done := make(chan error, 1)
		go func() { done <- tap(ctx, k.JS, "analytics", time.Second, b.handle) }()
		for missing() && ctx.Err() == nil && len(done) == 0 {
			select {
			case <-b.more:
			case err := <-done:
				done <- err
			case <-ctx.Done():
			}
		}
		stop()
		if err := <-done; errors.Is(err, errDied) {
			deaths++
		} else if !errors.Is(err, context.Canceled) || deadline.Err() != nil {
			b.t.Fatal(err)
		}
	}
	return deaths
}

func write(ctx context.Context, log *pubjs.Log, packs []schema.Pack) error {
	var at uint64
	for i := range packs {
		var err error
		if at, err = log.Append(ctx, &packs[i], at); err != nil {
			return err
		}
	}
	return nil
}

// watchCopies listens to the copies, and returns how many came once there are so many.
func watchCopies(t *testing.T, nc *nats.Conn) func(want int) int {
	t.Helper()
	headers := readHeaderRules(t, "copyHeaders")
	sub, err := nc.SubscribeSync(schema.LivePrefix + ".>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(want int) (n int) {
		for n < want {
			msg, err := sub.NextMsg(10 * time.Second)
			if err != nil {
				t.Error(err)
				return n
			}
			if err := headers.check(msg.Header); err != nil ||
				schema.LivePrefix+strings.TrimPrefix(msg.Header.Get("Nats-Subject"), schema.StorePrefix) != msg.Subject {
				t.Errorf("%s: %v: %v", msg.Subject, msg.Header, err)
			}
			n++
		}
		return n
	}
}

// TestTapMayOnlyRead: the rights of docs/taps.md are what the tap needs, and are not enough to write, or
// to read what is internal.
func TestTapMayOnlyRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/taps.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
	for line := range strings.Lines(string(page)) {
		if right, ok := strings.CutPrefix(strings.TrimSpace(line), "publish "); ok {
			for p := range 2 {
				rights.Publish.Allow = append(rights.Publish.Allow,
					strings.ReplaceAll(right, "AGENT_0", fmt.Sprintf("AGENT_%d", p)))
			}
		} else if right, ok := strings.CutPrefix(strings.TrimSpace(line), "subscribe "); ok {
			rights.Subscribe.Allow = append(rights.Subscribe.Allow, right)
		}
	}
	if len(rights.Publish.Allow) != 8 || len(rights.Subscribe.Allow) != 1 {
		t.Fatalf("%v", rights)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true, Users: []*server.User{
			{Username: "all", Password: "all"}, {Username: "analytics", Password: "analytics", Permissions: rights},
		}})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("server is not ready")
	}
	dial := func(user string, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
		nc, err := nats.Connect(s.ClientURL(),
			append(opts, nats.UserInfo(user, user), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return nc, js
	}
	admin, adminJS := dial("all")
	if err := natskit.Declare(t.Context(), adminJS, natskit.Layout{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	log, err := pubjs.Open(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run_1"}, schematest.ByName("children"), 5)
	if err := write(t.Context(), log, packs); err != nil {
		t.Fatal(err)
	}
	kv, err := adminJS.KeyValue(t.Context(), natskit.TicketsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(t.Context(), "secret", []byte("x")); err != nil {
		t.Fatal(err)
	}
	_, js := dial("analytics", nats.CustomInboxPrefix("_INBOX.analytics"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n := 0
	err = tap(ctx, js, "analytics", time.Second, func(jetstream.Msg) error {
		if n++; n == len(packs) {
			cancel()
		}
		return nil
	})
	if n != len(packs) {
		t.Fatalf("%d of %d packs: %v", n, len(packs), err)
	}
	for what, do := range map[string]func(context.Context) error{
		"write": func(ctx context.Context) error {
			_, err := js.Publish(ctx, "agent.0.acme.run_1.-", []byte("x"))
			return err
		},
		"read a bucket":   func(ctx context.Context) error { _, err := js.Stream(ctx, "KV_AGENT_TICKETS"); return err },
		"delete a stream": func(ctx context.Context) error { return js.DeleteStream(ctx, "AGENT_0") },
		"consume a bucket": func(ctx context.Context) error {
			_, err := js.CreateOrUpdateConsumer(ctx, "KV_AGENT_TICKETS", jetstream.ConsumerConfig{Durable: "analytics"})
			return err
		},
		"be the archive": func(ctx context.Context) error {
			_, err := js.CreateOrUpdateConsumer(ctx, "AGENT_0", jetstream.ConsumerConfig{Durable: "persist"})
			return err
		},
	} {
		short, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if err := do(short); err == nil {
			t.Errorf("a tap may %s", what)
		}
		stop()
	}
	head, err := log.Head(t.Context(), packs[0].Key, "")
	if err != nil || head.Last != packs[len(packs)-1].Last() {
		t.Errorf("the run ends at %d, %v", head.Last, err)
	}
}

// TestTapOfTheDocs: what docs/taps.md shows is what runs above.
func TestTapOfTheDocs(t *testing.T) {
	source, err := os.ReadFile("tap_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/taps.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// tap hands every pack")
	code, _, ok := strings.Cut(code, "\n}\n")
	if code = "// tap hands every pack" + code + "\n}\n"; !ok || !strings.Contains(string(page), "```go\n"+code+"```\n") {
		t.Errorf("docs/taps.md shows another tap than\n%s", code)
	}
}
