package natskit

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func TestSplitUser(t *testing.T) {
	for _, c := range []struct {
		urls, plain string
		user        bool
	}{
		{"nats://a:b@h1:4222,nats://a:b@h2:4222", "nats://h1:4222,nats://h2:4222", true},
		{"nats://a:p%40s@h:1", "nats://h:1", true},
		{"nats://token@h:1", "nats://token@h:1", false},
		{"nats://a:b@h1:1,nats://c:d@h2:1", "nats://a:b@h1:1,nats://c:d@h2:1", false},
		{"nats://a:b@h1:1,nats://h2:1", "nats://a:b@h1:1,nats://h2:1", false},
		{"127.0.0.1:4222", "127.0.0.1:4222", false},
	} {
		if plain, user := SplitUser(c.urls); plain != c.plain || user != c.user {
			t.Errorf("%s: %s %t", c.urls, plain, user)
		}
	}
	if name, password := UserOf("nats://a:p%40s@h:1"); name != "a" || password != "p@s" {
		t.Errorf("%q %q", name, password)
	}
}

// TestPasswordIsReplaced: after the server has another password, a connection comes back with the one of now, by
// itself.
func TestPasswordIsReplaced(t *testing.T) {
	opts := &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, Username: "u", Password: "old"}
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	password := make(chan string, 1)
	password <- "old"
	again := make(chan struct{}, 10)
	nc, err := Dial("nats://"+s.Addr().String(), "test", nats.UserInfoHandler(func() (string, string) {
		p := <-password
		password <- p
		return "u", p
	}), nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	<-password
	password <- "new"
	changed := opts.Clone()
	changed.Password = "new"
	if err := s.ReloadOptions(changed); err != nil {
		t.Fatal(err)
	}
	select {
	case <-again:
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not come back: %v", nc.LastError())
	}
}
