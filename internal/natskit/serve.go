package natskit

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	neturl "net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Embedded is how an embedded server runs. StoreDir is required; two processes must never share it.
type Embedded struct {
	StoreDir   string
	Listen     string // host of a TCP listener, loopback; "" for in-process connections only
	Port       int    // with Listen; -1 for a free one
	SyncAlways bool   // fsync every message before its acknowledgement
	MaxStore   int64  // bytes; default 8 GiB
}

// Serve starts an embedded server and waits until it is ready. The caller owns it and must call
// Shutdown and WaitForShutdown.
func Serve(e Embedded) (*server.Server, error) {
	if e.StoreDir == "" {
		return nil, errors.New("natskit: embedded server: no store directory")
	}
	if e.MaxStore == 0 {
		e.MaxStore = 8 << 30
	}
	if err := closeFolder(e.StoreDir); err != nil {
		return nil, fmt.Errorf("natskit: embedded server: %w", err)
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "agentstream", DontListen: e.Listen == "", Host: e.Listen, Port: e.Port,
		JetStream: true, StoreDir: e.StoreDir, SyncAlways: e.SyncAlways, NoSigs: true, NoLog: true,
		JetStreamMaxMemory: 256 << 20, JetStreamMaxStore: e.MaxStore,
	})
	if err != nil {
		return nil, fmt.Errorf("natskit: embedded server: %w", err)
	}
	go s.Start() // Start returns when the server is up; the server's own goroutines end with Shutdown
	if !s.ReadyForConnections(30 * time.Second) {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("natskit: embedded server in %s: not ready (is its port or its store held by another process?)", e.StoreDir)
	}
	return s, nil
}

// closeFolder makes the folder, or one that is there, accessible to its owner alone. The server's files in it are
// readable by a group.
func closeFolder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, 0o700) // it is a folder
}

// pingEvery finds a connection whose other end is gone without a word, a machine that was switched off, after two
// or three of them.
const pingEvery = 2 * time.Second

// hosts returns the servers of a list of addresses, without users and passwords.
func hosts(urls string) string {
	var names []string
	for _, at := range strings.Split(urls, ",") {
		at = strings.TrimSpace(at)
		names = append(names, at[strings.LastIndexAny(at, "/@")+1:])
	}
	return strings.Join(names, ", ")
}

// SplitUser takes the user and the password out of a list of addresses, if all have the same: a client can then be
// given them anew at each connection. user reports whether there was one.
func SplitUser(urls string) (plain string, user bool) {
	var list []string
	name, password := UserOf(urls)
	for at := range strings.SplitSeq(urls, ",") {
		u, err := neturl.Parse(strings.TrimSpace(at))
		if err != nil || u.User == nil {
			return urls, false
		}
		other, _ := u.User.Password()
		if _, set := u.User.Password(); !set || u.User.Username() != name || other != password { // a token, or several users
			return urls, false
		}
		u.User = nil
		list = append(list, u.String())
	}
	return strings.Join(list, ","), true
}

// UserOf returns the user and the password of the first address of a list.
func UserOf(urls string) (name, password string) {
	first, _, _ := strings.Cut(urls, ",")
	u, err := neturl.Parse(strings.TrimSpace(first))
	if err != nil || u.User == nil {
		return "", ""
	}
	password, _ = u.User.Password()
	return u.User.Username(), password
}

// Dial connects and reconnects for ever. name shows in the server's list of connections.
func Dial(url, name string, opts ...nats.Option) (*nats.Conn, error) {
	base := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond),
		nats.ReconnectJitter(300*time.Millisecond, time.Second), nats.RetryOnFailedConnect(false),
		nats.PingInterval(pingEvery),
		nats.IgnoreAuthErrorAbort(), // else two refusals while a server is put in order close it for good
	}
	nc, err := nats.Connect(url, append(append(base, opts...), wire())...)
	if bad := new(neturl.Error); errors.As(err, &bad) { // its text is the address, password and all
		return nil, fmt.Errorf("natskit: connect %s: the address cannot be read as a URL", name)
	}
	if err != nil && isAway(err) {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("natskit: connect %s to %s: %w", name, hosts(url), err)
	}
	return nc, nil
}

// ErrUnreachable reports that no server answers. Another attempt may find one.
var ErrUnreachable = errors.New("no server answers")

// isAway reports whether an error of Connect is that nobody was there. A server that refuses was.
func isAway(err error) bool {
	unknown, failed := new(net.DNSError), new(net.OpError)
	untrusted := new(tls.CertificateVerificationError)
	switch {
	case errors.As(err, &untrusted):
		return false
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), errors.Is(err, io.EOF), errors.Is(err,
		os.ErrDeadlineExceeded):
		return true
	}
	return errors.As(err, &unknown) || errors.As(err, &failed) && failed.Op != "remote error" // which is an alert of TLS
}
