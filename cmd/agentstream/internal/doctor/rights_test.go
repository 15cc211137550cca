package doctor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
)

// users starts a NATS server whose users are the roles, each with its name as the password and what change makes of its
// rights, and one more, all, who may do everything.
func users(t *testing.T, change func(*natskit.Role)) func(user string) *nats.Conn {
	t.Helper()
	opts := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Users: []*server.User{{Username: "all", Password: "all"}}}
	for _, r := range natskit.Roles() {
		change(&r)
		opts.Users = append(opts.Users, &server.User{Username: r.Name, Password: r.Name, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: r.Publish},
			Subscribe: &server.SubjectPermission{Allow: r.Subscribe}}})
	}
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	at := s.Addr().(*net.TCPAddr)
	return func(user string) *nats.Conn {
		nc, err := natskit.Dial(fmt.Sprintf("nats://%s:%s@%s", user, user, at), t.Name(),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
}

// without returns subjects without one of them.
func without(subjects []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(subjects), func(s string) bool { return s == one })
}

// TestRights takes each right from each role, one at a time, by narrowing it: the doctor names the role, the subject and
// the command. With all of them nothing is found.
func TestRights(t *testing.T) {
	connect := users(t, func(*natskit.Role) {})
	js, err := jetstream.New(connect("all"))
	if err != nil {
		t.Fatal(err)
	}
	if err := natskit.Declare(t.Context(), js, natskit.Layout{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	for _, r := range natskit.Roles() {
		x := examine()
		if x.ownRights(t.Context(), connect(r.Name)) {
			t.Errorf("%s in order: %q", r.Name, x.found)
		}
	}
	x := examine()
	x.rights(t.Context(), connect("edge"))
	one(t, x)
	roles := natskit.Roles()
	for n := range max(len(roles[0].Publish), len(roles[1].Publish)) {
		lacks := make(map[string]string) // subject, by role
		connect := users(t, func(r *natskit.Role) {
			if s := r.Publish[n%len(r.Publish)]; s != "$SYS.REQ.USER.INFO" {
				lacks[r.Name] = s
				r.Publish = without(r.Publish, s)
				if narrow, all := strings.CutSuffix(s, ">"); all && n%2 == 0 {
					r.Publish = append(r.Publish, narrow+"one") // a part of it is not enough
				}
			}
		})
		for role, subject := range lacks {
			x := examine()
			x.rights(t.Context(), connect(role))
			one(t, x, "of the role "+role+" ", "publish to "+subject+";", "agentstream migrate --nats-permissions")
		}
	}
}

// TestRightsToRead plants a right to subscribe that is missing, one that is denied, a user of another name, and one that
// may not ask.
func TestRightsToRead(t *testing.T) {
	connect := users(t, func(r *natskit.Role) {
		switch r.Name {
		case "edge":
			r.Subscribe = without(r.Subscribe, "live.agent.>")
		case "worker":
			r.Publish = without(r.Publish, "$SYS.REQ.USER.INFO")
		}
	})
	x := examine()
	x.rights(t.Context(), connect("edge"))
	one(t, x, "the NATS user edge", "subscribe to live.agent.>;", "--nats-permissions")
	x = examine()
	x.role = "persist"
	x.rights(t.Context(), connect("proxy"))
	one(t, x, "the NATS user proxy of the role persist", "$JS.API.STREAM.PURGE.>", "--nats-permissions")
	x = examine()
	x.role = "worker"
	if x.ownRights(t.Context(), connect("worker")) {
		t.Error("rights are known that may not be asked for")
	}
	one(t, x, "of the role worker may not ask", "$SYS.REQ.USER.INFO", "--nats-permissions")
}

// TestReplicas plants a server of three that is away, and a stream that has one copy where the others have three.
func TestReplicas(t *testing.T) {
	c := testkit.NATSCluster(t)
	nc := c.Dial(t)
	look := func(until func([]string) bool) []string {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; <-time.After(200 * time.Millisecond) {
			x := examine()
			x.streams(t.Context(), nc)
			if until(x.found) {
				return x.found
			}
			if time.Now().After(end) {
				t.Fatalf("found %q", x.found)
			}
		}
	}
	fine := func(found []string) bool { return len(found) == 0 }
	look(fine)
	away := (c.Leader(t, natskit.StreamName(0)) + 1) % 3
	name := c.Servers[away].Name()
	c.Stop(away)
	for _, text := range look(func(found []string) bool {
		return len(found) > 0 && !slices.ContainsFunc(found, func(s string) bool { return !strings.Contains(s, "offline") })
	}) {
		if !strings.Contains(text, "the replica on "+name+" is offline; mend: start that NATS server") {
			t.Errorf("found %q", text)
		}
	}
	c.Start(t, away)
	look(fine)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, natskit.StreamName(1))
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Replicas = 1
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	found := look(func(found []string) bool { return len(found) == 1 })
	if !strings.Contains(found[0], natskit.StreamName(1)+": replicas: 1 → 3; mend: agentstream migrate --partitions 2 --replicas 3") {
		t.Errorf("found %q", found)
	}
}
