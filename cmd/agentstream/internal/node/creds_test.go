package node_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/natskit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// operated is a server in operator mode: it lets in who has a token that the account has signed.
type operated struct {
	t       *testing.T
	server  *server.Server
	account nkeys.KeyPair
}

// newKey makes a key and its public name.
func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	t.Helper()
	key, err := create()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return key, public
}

func operate(t *testing.T) *operated {
	t.Helper()
	operator, operatorID := newKey(t, nkeys.CreateOperator)
	account, accountID := newKey(t, nkeys.CreateAccount)
	_, systemID := newKey(t, nkeys.CreateAccount)
	resolver := &server.MemAccResolver{}
	for _, id := range []string{accountID, systemID} {
		claims := jwt.NewAccountClaims(id)
		if id == accountID {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		token, err := claims.Encode(operator)
		if err != nil {
			t.Fatal(err)
		}
		if err := resolver.Store(id, token); err != nil {
			t.Fatal(err)
		}
	}
	trusted := jwt.NewOperatorClaims(operatorID)
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true,
		StoreDir:         t.TempDir(),
		TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: resolver, SystemAccount: systemID})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	return &operated{t, s, account}
}

// issue writes credentials of a new user that end after a while in the place of those in a file.
func (o *operated) issue(file string, life time.Duration) {
	user, id := newKey(o.t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(id)
	claims.Expires = time.Now().Add(life).Unix()
	token, err := claims.Encode(o.account)
	if err != nil {
		o.t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		o.t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		o.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		o.t.Fatal(err)
	}
}

// TestCredsAreReplacedUnderLoad: users' tokens that end in seconds are replaced in the file of --nats-creds, before
// they end and a while after, while the file is missing and while it is broken. Every append is answered, and each
// event is stored once, in order.
func TestCredsAreReplacedUnderLoad(t *testing.T) {
	o, file := operate(t), filepath.Join(t.TempDir(), "user.creds")
	o.issue(file, 2*time.Second)
	var logged syncBuffer
	flags := cli.NATSFlags{NATS: o.server.ClientURL(), Creds: file}
	nc, err := flags.Dial("test", slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := natskit.Declare(t.Context(), js, natskit.Layout{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	log, err := pubjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writing sync.WaitGroup
	var stored [4]atomic.Int64
	for i := range stored {
		writing.Go(func() {
			key := schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}
			for ctx.Err() == nil {
				events := []schema.Event{{Type: "text.delta", Payload: fmt.Appendf(nil, `{"text":"%d"}`, stored[i].Load())}}
				if _, err := app.Append(t.Context(), key, events, producers.AppendOptions{Within: 15 * time.Second}); err != nil {
					t.Errorf("event %d of %s: %v", stored[i].Load(), key.Run, err)
					return
				}
				stored[i].Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	gone := func() {
		waitFor(t, "it has ended", func() bool { return !nc.IsConnected() })
		time.Sleep(500 * time.Millisecond)
	}
	rotate := []func(){
		func() { time.Sleep(time.Second); o.issue(file, 3*time.Second) }, // in time
		func() { spoil(t, file, nil); gone(); o.issue(file, 2*time.Second) },
		func() { gone(); o.issue(file, 2*time.Second) }, // late
		func() { spoil(t, file, []byte("half of a")); gone(); o.issue(file, time.Hour) },
	}
	for n, replace := range rotate {
		before := nc.Stats().Reconnects
		replace()
		waitFor(t, fmt.Sprintf("connection %d", n), func() bool { return nc.Stats().Reconnects > before && nc.IsConnected() })
	}
	stop()
	writing.Wait()
	for i := range stored {
		n, key := int64(0), schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}
		for p, err := range log.Since(t.Context(), key, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(p.Body, fmt.Appendf(nil, `"text":"%d"`, n)) {
				t.Fatalf("event %d of %s is %s", n, key.Run, p.Body)
			}
			n++
		}
		if n == 0 || n != stored[i].Load() {
			t.Errorf("%s: %d events were acknowledged, %d are stored", key.Run, stored[i].Load(), n)
		}
	}
	if bytes.Contains(logged.Bytes(), []byte("BEGIN")) || bytes.Contains(logged.Bytes(), []byte("eyJ")) {
		t.Errorf("credentials are logged: %s", logged.Bytes())
	}
}

// spoil puts something else into the place of a file; nil: nothing.
func spoil(t *testing.T, file string, text []byte) {
	t.Helper()
	err := os.Remove(file)
	if err == nil && text != nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// syncBuffer keeps what is logged.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// Bytes returns what was logged.
func (s *syncBuffer) Bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.b.Bytes())
}
