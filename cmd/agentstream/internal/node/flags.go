package node

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/process"
	metisserve "agentstream/protocols/metis/serve"
	"agentstream/schema"
)

// DefaultAdmin is the operators' address unless --admin-listen says another.
const DefaultAdmin = "127.0.0.1:8081"

// ListenFlags say where clients and operators are served.
type ListenFlags struct {
	Listen      string `help:"Address for clients; without a port, 8080." default:"127.0.0.1:8080" env:"AGENTSTREAM_LISTEN" placeholder:"HOST:PORT"`
	AdminListen string `help:"Address for /metrics, /debug/pprof and health; off switches it off. Never expose it." default:"127.0.0.1:8081" env:"AGENTSTREAM_ADMIN_LISTEN" placeholder:"HOST:PORT"`
	SpareAdmin  string `kong:"-"` // address for operators where AdminListen is in use; "": none
	process.AdminFlags
	TLS        process.TLSFlags `embed:"" prefix:"tls-" envprefix:"AGENTSTREAM_TLS_"`
	KeepAlive  time.Duration    `help:"Silence after which a stream gets a comment." default:"15s" env:"AGENTSTREAM_KEEP_ALIVE"`
	WriteLimit time.Duration    `name:"write-timeout" help:"How long a client may take for 64 KiB before it is cut; it resumes with its cursor." default:"30s" env:"AGENTSTREAM_WRITE_TIMEOUT"`
	Drain      time.Duration    `help:"Window over which streams are ended at shutdown." default:"5s" env:"AGENTSTREAM_DRAIN"`
	DrainDelay time.Duration    `help:"How long a shutdown goes on serving, not ready, before it ends streams: as long as balancers take to notice." default:"0s" env:"AGENTSTREAM_DRAIN_DELAY"`
	Tenant     string           `help:"Tenant of everybody who is let in by --auth-token, or without authentication." default:"default" env:"AGENTSTREAM_TENANT"`
	NATSIngest bool             `name:"nats-ingest" help:"Also take events that are published over NATS on ingest.<tenant>.<run>. Who may publish where is NATS's to decide." env:"AGENTSTREAM_NATS_INGEST"`
	Increments bool             `name:"session-increments" help:"Show runs that were not created as sessions with incremental streaming in the sessions API; sessions have a setting of their own." env:"AGENTSTREAM_SESSION_INCREMENTS"`
	PublicURL  string           `name:"public-url" help:"How clients reach this node, where that is not as their requests say: the beginning of the addresses that it gives them." env:"AGENTSTREAM_PUBLIC_URL" placeholder:"URL"`
	Console    bool             `help:"Serve the console at /console/." default:"true" negatable:"" env:"AGENTSTREAM_CONSOLE"`
	AuthToken  string           `help:"One bearer token that may do everything." env:"AGENTSTREAM_AUTH_TOKEN" placeholder:"TOKEN"`
	AuthFlags
	LimitFlags
	MetisFlags
	Rules      process.RedactFlags `embed:""`
	Sealing    process.SealFlags   `embed:""`
	OTLPSettle time.Duration       `name:"otlp-settle" help:"Silence after which a trace of OpenTelemetry whose root has come is complete, and becomes messages, calls and children." default:"5s" env:"AGENTSTREAM_OTLP_SETTLE"`
	process.SpanFlags
	process.MemoryFlags
}

// maxSettle is the longest --otlp-settle: what a node has left behind is settled by another one soon after.
const maxSettle = time.Minute

// checkOTLP refuses what traces cannot be settled with.
func (f *ListenFlags) checkOTLP() error {
	if f.OTLPSettle < 0 || f.OTLPSettle > maxSettle {
		return fmt.Errorf("--otlp-settle %v is not between 0s and %v", f.OTLPSettle, maxSettle)
	}
	return nil
}

// MetisFlags set the metis protocol up.
type MetisFlags struct {
	MetisRoot      bool          `help:"Serve the metis protocol at / too, and not only below /metis." env:"AGENTSTREAM_METIS_ROOT"`
	MetisHeartbeat time.Duration `help:"Silence after which a metis client is sent a ping." default:"30s" env:"AGENTSTREAM_METIS_HEARTBEAT"`
	MetisBacklog   int           `help:"Events that may wait for a metis client before it is cut; it resumes with its cursor." default:"1000" env:"AGENTSTREAM_METIS_BACKLOG"`
}

// metis returns the protocol as the flags have it.
func (f *ListenFlags) metis() metisserve.Config {
	return metisserve.Config{Root: f.MetisRoot, Heartbeat: f.MetisHeartbeat, Backlog: f.MetisBacklog,
		PublicURL: f.PublicURL,
		Secure:    f.TLS.IsSet()}
}

// checkMetis refuses what the metis protocol cannot be served with.
func (f *ListenFlags) checkMetis() error {
	if f.PublicURL != "" {
		u, err := url.Parse(f.PublicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("--public-url %q is not http://HOST or https://HOST, with a path or without", f.PublicURL)
		}
	}
	if f.MetisHeartbeat != 0 && f.MetisHeartbeat < time.Second {
		return fmt.Errorf("--metis-heartbeat %v is less than a second", f.MetisHeartbeat)
	}
	if f.MetisBacklog < 0 {
		return fmt.Errorf("--metis-backlog must be a number of events, not %d", f.MetisBacklog)
	}
	return nil
}

// Check refuses flags that cannot be served. mayBeOpen: authentication may be missing.
func (f *ListenFlags) Check(mayBeOpen bool) error {
	host, err := f.host()
	if err != nil {
		return err
	}
	if err := schema.ValidTenant(f.Tenant); err != nil {
		return fmt.Errorf("--tenant: %w", err)
	}
	if err := f.checkAuth(mayBeOpen, host); err != nil {
		return err
	}
	if _, _, err := f.Limits(); err != nil {
		return err
	}
	if err := f.checkOTLP(); err != nil {
		return err
	}
	if err := f.checkMetis(); err != nil {
		return err
	}
	if err := f.TLS.Check("tls"); err != nil {
		return err
	}
	if err := f.AdminTLS.Check("admin-tls"); err != nil {
		return err
	}
	if f.AdminListen == "off" {
		return nil
	}
	if _, _, err := net.SplitHostPort(f.AdminListen); err != nil {
		return fmt.Errorf("--admin-listen must be HOST:PORT or off, not %q", f.AdminListen)
	}
	return nil
}

// clientsPort is where clients are served when --listen names only a host.
const clientsPort = "8080"

// host returns the host of --listen, to which it adds a port that is missing.
func (f *ListenFlags) host() (string, error) {
	host, _, err := net.SplitHostPort(f.Listen)
	if addr := new(net.AddrError); errors.As(err, &addr) && addr.Err == "missing port in address" &&
		strings.Trim(f.Listen, "[]") != "" {
		host = strings.Trim(f.Listen, "[]")
		f.Listen, err = net.JoinHostPort(host, clientsPort), nil
	}
	if err != nil {
		return "", fmt.Errorf("--listen must be HOST:PORT or HOST, not %q", f.Listen)
	}
	return host, nil
}

// IsExposed reports whether others than this machine would be let in without a credential.
func (f *ListenFlags) IsExposed() bool {
	host, err := f.host()
	return err == nil && f.Open() && !Loopback(host)
}

// Loopback reports whether only this machine reaches a host.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
