package natsjs_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// TestFullStore fills what a server may store: from then on appends are refused at once, with a key and without,
// until there is room.
func TestFullStore(t *testing.T) {
	s, err := natskit.Serve(natskit.Embedded{StoreDir: t.TempDir(), MaxStore: 1 << 20, Listen: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := natskit.Dial(s.ClientURL(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	declare(t, nc)
	l, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := natsjs.OpenKeys(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := producers.NewAppender(producers.AppenderConfig{Log: l, Keys: keys})
	big := text("", strings.Repeat("x", 100<<10))
	opt := producers.AppendOptions{Within: time.Hour} // nobody waits so long for room
	for n := 0; err == nil; n++ {
		if n > 20 {
			t.Fatal("it is never full")
		}
		_, err = a.Append(t.Context(), key, []schema.Event{big}, opt)
	}
	for _, k := range []string{"", "k"} {
		opt.IdempotencyKey = k
		if _, err = a.Append(t.Context(), key, []schema.Event{big}, opt); !errors.Is(err, producers.ErrFull) {
			t.Errorf("key %q: %v", k, err)
		}
	}
	purge(t, nc)
	if _, err := a.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: "run_2"}, []schema.Event{big}, opt); err != nil {
		t.Errorf("with room: %v", err)
	}
}

// purge empties the log.
func purge(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for p := range 2 {
		st, err := js.Stream(t.Context(), natskit.StreamName(p))
		if err == nil {
			err = st.Purge(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSilentStream has a server meet the end of its disk. It answers no publish from then on, also when there is room
// again, so nobody waits for its answers once that is known. When it has been begun anew, all is well at once.
func TestSilentStream(t *testing.T) {
	disk := testkit.SmallDisk(t, 16)
	port := testkit.FreePort(t)
	serve := func() func() {
		s, err := natskit.Serve(natskit.Embedded{StoreDir: disk + "/nats", Listen: "127.0.0.1", Port: port})
		if err != nil {
			t.Fatal(err)
		}
		return func() { s.Shutdown(); s.WaitForShutdown() }
	}
	stop := serve()
	defer func() { stop() }()
	nc, err := natskit.Dial("nats://127.0.0.1:"+strconv.Itoa(port), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	declare(t, nc)
	l, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := natsjs.OpenKeys(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := producers.NewAppender(producers.AppenderConfig{Log: l, Keys: natsjs.FailFast(nc, keys),
		Timeout: 1500 * time.Millisecond})
	put := func(key string) error {
		_, err := a.Append(t.Context(), runKey("run_1"), []schema.Event{text("", strings.Repeat("x", 4<<10))},
			producers.AppendOptions{IdempotencyKey: key, Within: time.Hour}) // nobody waits so long
		return err
	}
	for _, k := range []string{"", "a"} {
		if err := put(k); err != nil {
			t.Fatal(err)
		}
	}
	free := testkit.Fill(t, disk)
	// The first one finds out. It cannot know what became of what it sent.
	if err := put(""); !errors.Is(err, producers.ErrUnanswered) {
		t.Error(err)
	}
	if err := put("b"); err == nil {
		t.Error("stored on a full disk")
	}
	// Once a second somebody tries. All others are refused at once: what they bring is not sent to the log.
	unsent := func(size uint64, try func() error) (quick, tried int) {
		for quick < 20 && tried < 20 {
			before := nc.Stats().OutBytes
			err := try()
			if err == nil {
				t.Error("stored without an answer")
			}
			if errors.Is(err, producers.ErrFull) && nc.Stats().OutBytes-before < size {
				quick++
			} else {
				tried++
			}
		}
		return quick, tried
	}
	refusedAtOnce := func(when string) {
		t.Helper()
		for _, k := range []string{"", "c"} {
			if quick, tried := unsent(4<<10, func() error { return put(k) }); quick < 20 {
				t.Errorf("%s, key %q: %d were refused at once, %d tried", when, k, quick, tried)
			}
		}
	}
	refusedAtOnce("full")
	heard := natsjs.FailFast(nc, keys)
	begin := func(n int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		_, err := heard.Claim(ctx, fmt.Sprint("id", n), producers.KeyRecord{Digest: strings.Repeat("x", 100)})
		return err
	}
	for n := 0; err == nil; n++ { // small ones may fit what the file has already
		if err = begin(n); n > 1000 {
			t.Fatal("keys are stored on a full disk")
		}
	}
	n := 0
	if quick, tried := unsent(100, func() error { n--; return begin(n) }); quick < 20 {
		t.Errorf("%d keys were refused at once, %d tried", quick, tried)
	}
	if _, err := l.Head(t.Context(), runKey("run_1"), ""); err != nil {
		t.Errorf("it cannot be read: %v", err)
	}
	free()
	refusedAtOnce("with room")
	stop()
	stop = serve()
	for range 20 {
		if err = put(""); err == nil {
			break
		}
	}
	if errKey := put("d"); err != nil || errKey != nil {
		t.Errorf("begun anew: %v, %v", err, errKey)
	}
}

func runKey(run string) schema.RunKey { return schema.RunKey{Tenant: "acme", Run: run} }

// TestLostQuorumIsNotAFullDisk: a leader whose followers are gone answers reads for a while, and no publish. That is no
// full disk: what is appended meanwhile, with a key and without, waits its time, is told that no answer came, and is
// stored once the followers are back.
func TestLostQuorumIsNotAFullDisk(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprint("keyed ", keyed), func(t *testing.T) { lostQuorum(t, keyed) })
	}
}

func lostQuorum(t *testing.T, keyed bool) {
	c := testkit.NATSCluster(t)
	stream, key := natskit.StreamName(schema.Partition("run_1", c.Partitions)), ""
	if keyed {
		stream, key = "KV_"+natskit.KeysBucket, "key"
	}
	left := c.Leader(t, stream)
	nc, err := natskit.Dial(c.Servers[left].ClientURL(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	l, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := natsjs.OpenKeys(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	a, err := producers.NewAppender(producers.AppenderConfig{Log: l, Keys: natsjs.FailFast(nc, keys)})
	if err != nil {
		t.Fatal(err)
	}
	put := func(within time.Duration) error {
		opt := producers.AppendOptions{IdempotencyKey: key, Within: within}
		_, err := a.Append(t.Context(), runKey("run_1"), []schema.Event{text("", "x")}, opt)
		return err
	}
	if err := put(time.Minute); err != nil {
		t.Fatal(err)
	}
	if keyed {
		key = "another key"
	}
	for i := range c.Servers {
		if i != left {
			c.Stop(i)
		}
	}
	for range 2 {
		if err := put(5 * time.Second); err == nil || errors.Is(err, producers.ErrFull) {
			t.Error(err)
		}
	}
	for i := range c.Servers {
		if i != left {
			c.Start(t, i)
		}
	}
	if err := put(time.Minute); err != nil {
		t.Errorf("with all servers: %v", err)
	}
}
