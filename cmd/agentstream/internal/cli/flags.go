package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/edge/secure"
	"agentstream/internal/natskit"
)

// NATSFlags say where the log is.
type NATSFlags struct {
	NATS     string `name:"nats" help:"NATS servers." env:"AGENTSTREAM_NATS" default:"nats://127.0.0.1:4222" placeholder:"URL,…"`
	Creds    string `name:"nats-creds" help:"NATS credentials file." env:"AGENTSTREAM_NATS_CREDS" type:"path" placeholder:"FILE"`
	NATSCA   string `name:"nats-ca" help:"File with the authorities of the NATS servers' certificates; the servers must speak TLS then." env:"AGENTSTREAM_NATS_CA" type:"path" placeholder:"FILE"`
	NATSCert string `name:"nats-cert" help:"File with the certificate that NATS servers are shown; with --nats-key. Both are read again at each connection." env:"AGENTSTREAM_NATS_CERT" type:"path" placeholder:"FILE"`
	NATSKey  string `name:"nats-key" help:"File with the key of --nats-cert." env:"AGENTSTREAM_NATS_KEY" type:"path" placeholder:"FILE"`
	NATSSync string `name:"nats-sync" help:"What the servers' sync_interval is: always, interval or unknown. A client cannot see it. It decides which durability claim is made." enum:"always,interval,unknown" default:"unknown" env:"AGENTSTREAM_NATS_SYNC"`
}

// Dial connects as the role. Errors of the connection are logged.
func (f *NATSFlags) Dial(role string, log *slog.Logger) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: we closed it
				log.Warn("nats: disconnected", "err", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("nats: connected again", "server", nc.ConnectedServerName()) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			log.Warn("nats: asynchronous error", "err", err)
		}),
	}
	if f.Creds != "" {
		opts = append(opts, nats.UserCredentials(f.Creds))
	}
	secured, err := f.tls()
	if err != nil {
		return nil, err
	}
	opts = append(opts, secured...)
	urls, user := natskit.SplitUser(f.NATS)
	if user {
		now := NewSecret(f.NATS, "AGENTSTREAM_NATS")
		opts = append(opts, nats.UserInfoHandler(func() (string, string) { return natskit.UserOf(now.Value()) }))
	}
	nc, err := natskit.Dial(urls, "agentstream "+role, opts...)
	if err != nil {
		return nil, fmt.Errorf("--nats: %w", err)
	}
	return nc, nil
}

// tls returns the options of connections over TLS.
func (f *NATSFlags) tls() ([]nats.Option, error) {
	if (f.NATSCert == "") != (f.NATSKey == "") {
		return nil, errors.New("--nats-cert, --nats-key: one without the other")
	}
	var own nats.TLSCertHandler
	var roots nats.RootCAsHandler
	if f.NATSCert != "" {
		own = func() (tls.Certificate, error) { return tls.LoadX509KeyPair(f.NATSCert, f.NATSKey) }
	}
	if f.NATSCA != "" {
		roots = func() (*x509.CertPool, error) { return secure.ReadPool(f.NATSCA) }
	}
	if own == nil && roots == nil {
		return nil, nil
	}
	return []nats.Option{nats.ClientTLSConfig(own, roots)}, nil
}

// LayoutFlags say how the log is laid out. All roles that declare it must agree on the partitions.
type LayoutFlags struct {
	Partitions int           `help:"Streams that the log is divided into. Fixed for the life of a deployment; 0: as it is, 8 when new." default:"0" env:"AGENTSTREAM_PARTITIONS"`
	Replicas   int           `help:"Copies of each stream; 0: as it is, 1 when new." default:"0" env:"AGENTSTREAM_REPLICAS"`
	BlobBytes  string        `name:"blob-bytes" help:"What the blobs of all runs may take of each server: 100GiB. Default: as it is, no bound when new." env:"AGENTSTREAM_BLOB_BYTES" placeholder:"SIZE"`
	Window     time.Duration `help:"How long the stream keeps events; older ones are served from the archive. 0: as it is, 72h when new." default:"0" env:"AGENTSTREAM_WINDOW"`
}

// Layout returns the layout that the flags ask for; zero values leave what is there.
func (f *LayoutFlags) Layout() (natskit.Layout, error) {
	l := natskit.Layout{Partitions: f.Partitions, Replicas: f.Replicas, MaxAge: f.Window}
	if f.BlobBytes == "" {
		return l, nil
	}
	n, err := ParseSize(f.BlobBytes)
	if err != nil {
		return l, fmt.Errorf("--blob-bytes %w", err)
	}
	if l.BlobBytes = n; n == 0 { // off
		l.BlobBytes = -1
	}
	return l, nil
}

// Declare makes the log, or adjusts it; see natskit.Layout for alone.
func (f *LayoutFlags) Declare(ctx context.Context, js jetstream.JetStream, alone bool) error {
	l, err := f.Layout()
	if err != nil {
		return err
	}
	l.Alone = alone
	return natskit.Declare(ctx, js, l)
}

// PostgresFlags say where the archive is.
type PostgresFlags struct {
	Postgres string `help:"PostgreSQL connection string. The environment variable, or its _FILE form, keeps the password out of the process list." env:"AGENTSTREAM_POSTGRES" placeholder:"DSN"`
}

// FreshDSN returns a function that returns a connection string as it is now, where it comes from a file.
func FreshDSN(dsn string) func() string { return NewSecret(dsn, "AGENTSTREAM_POSTGRES").Value }

// ErrNoPostgres reports that --postgres is missing.
var ErrNoPostgres = errors.New("--postgres (or AGENTSTREAM_POSTGRES, AGENTSTREAM_POSTGRES_FILE) is required")
