package natsjs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	fanjs "agentstream/fanout/natsjs"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// speak stores a pack of one lane, as far as a search for its root looks at one.
func speak(t testing.TB, js jetstream.JetStream, partitions int, key schema.RunKey, lane string) {
	t.Helper()
	if _, err := js.Publish(t.Context(), schema.Subject(key, lane, partitions), []byte("{}\n")); err != nil {
		t.Fatal(err)
	}
}

func TestParent(t *testing.T) {
	k := testkit.NATS(t)
	l, err := fanjs.Open(t.Context(), k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	parent := func(tenant, child, want string) {
		t.Helper()
		got, err := l.Parent(t.Context(), tenant, child)
		if err != nil || got != want {
			t.Fatalf("the root of %s/%s is %q, %v; want %q", tenant, child, got, err, want)
		}
	}
	parent("acme", "kid", "")
	for i := range 40 { // all partitions
		key := schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}
		speak(t, k.JS, k.Partitions, key, "")
		speak(t, k.JS, k.Partitions, key, fmt.Sprint("kid_", i))
		speak(t, k.JS, k.Partitions, key, "")
	}
	for i := range 40 {
		parent("acme", fmt.Sprint("kid_", i), fmt.Sprint("run_", i))
	}
	parent("globex", "kid_1", "")
	parent("acme", "kid_", "")
	parent("acme", "run_1", "")
	// The child speaks in several roots, of several partitions: the last one counts.
	for i := range 12 {
		run := fmt.Sprint("run_", (i*7)%12)
		speak(t, k.JS, k.Partitions, schema.RunKey{Tenant: "acme", Run: run}, "worker")
		parent("acme", "worker", run)
	}
	speak(t, k.JS, k.Partitions, schema.RunKey{Tenant: "globex", Run: "theirs"}, "worker")
	parent("globex", "worker", "theirs")
	parent("acme", "worker", "run_5")
	for _, bad := range []struct{ tenant, child string }{
		{"acme", "*"}, {"acme", ">"}, {"acme", "-"}, {"acme", ""}, {"acme", "a.b"}, {"*", "worker"}, {"", "worker"},
		{"acme", "kid_1 "},
	} {
		if run, err := l.Parent(t.Context(), bad.tenant, bad.child); run != "" || !errors.Is(err, schema.ErrBadID) {
			t.Errorf("%q: %q, %v", bad, run, err)
		}
	}
}

// TestParentUnavailable: what cannot be asked is not "no such child", unless another partition has it.
func TestParentUnavailable(t *testing.T) {
	k := testkit.NATS(t)
	l, err := fanjs.Open(t.Context(), k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	speak(t, k.JS, k.Partitions, key, "kid")
	other := (schema.Partition(key.Run, k.Partitions) + 1) % k.Partitions
	if err := k.JS.DeleteStream(t.Context(), natskit.StreamName(other)); err != nil {
		t.Fatal(err)
	}
	if run, err := l.Parent(t.Context(), "acme", "kid"); err != nil || run != "run" {
		t.Fatalf("%q, %v", run, err)
	}
	if run, err := l.Parent(t.Context(), "acme", "none"); run != "" || !errors.Is(err, schema.ErrUnavailable) {
		t.Fatalf("%q, %v", run, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if run, err := l.Parent(ctx, "acme", "kid"); run != "" || !errors.Is(err, context.Canceled) {
		t.Fatalf("%q, %v", run, err)
	}
}

// BenchmarkParent searches among 100,000 runs of one tenant with two children each.
func BenchmarkParent(b *testing.B) {
	const runs = 100_000
	k := testkit.NATS(b)
	l, err := fanjs.Open(b.Context(), k.Conn)
	if err != nil {
		b.Fatal(err)
	}
	js, err := jetstream.New(k.Conn, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		b.Fatal(err)
	}
	for i := range runs {
		key := schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%026d", i)}
		for _, lane := range []string{"", fmt.Sprintf("run_%026d", runs+2*i), fmt.Sprintf("run_%026d", runs+2*i+1)} {
			if _, err := js.PublishMsgAsync(&nats.Msg{Subject: schema.Subject(key, lane, k.Partitions),
				Data: []byte("{}\n")}); err != nil {
				b.Fatal(err)
			}
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(2 * time.Minute):
		b.Fatal("the log is not filled")
	}
	for _, c := range []struct{ name, child, want string }{
		{"found", fmt.Sprintf("run_%026d", runs+77_777), fmt.Sprintf("run_%026d", 38_888)},
		{"none", "run_nobody", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if run, err := l.Parent(b.Context(), "acme", c.child); err != nil || run != c.want {
					b.Fatalf("%q, %v", run, err)
				}
			}
		})
	}
}
