package secure

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"agentstream/edge/transport"
)

// Config names the files of a listener's TLS.
type Config struct {
	Cert string // PEM, the certificate first, then those between it and the authority
	Key  string // PEM
	// PEM, authorities of clients, each of whom must have a certificate then; "": nobody is asked for one
	ClientCA string
	Timeout  time.Duration // for a handshake; default 5 s
	// Failed is called for each handshake that fails; nil: nobody counts. It must not block.
	Failed func(Reason)
	Logger *slog.Logger // nil discards
}

// Reason is why a handshake failed.
type Reason string

// Reasons.
const (
	ReasonTimeout  Reason = "timeout"     // it took too long
	ReasonClosed   Reason = "closed"      // the client left
	ReasonPlain    Reason = "plain"       // the client does not speak TLS
	ReasonClient   Reason = "certificate" // the client has no certificate that is accepted
	ReasonRejected Reason = "rejected"    // the client does not trust the certificate
	ReasonProtocol Reason = "protocol"    // anything else: no common version or cipher, a broken message
)

// reread is how old what is known of the files may be.
const reread = time.Second

// Files hold what is in the files, and read them again when they change. Make them with Open.
type Files struct {
	cfg     Config
	buffers transport.Buffers // of records that wait

	mu     sync.Mutex
	at     time.Time    // when the files were last looked at
	stamps [3]fileStamp // of what was last read, good or not
	now    *tls.Config
	leaf   *x509.Certificate
	err    error // of the last reading
}

// fileStamp is another when a file has changed.
type fileStamp struct {
	modified time.Time
	size     int64
}

// Open reads the files. The error names the one that cannot be used.
func Open(cfg Config) (*Files, error) {
	if cfg.Cert == "" || cfg.Key == "" {
		return nil, errors.New("a certificate and its key are needed, both")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Files{cfg: cfg, stamps: cfg.stamps(), at: time.Now()}
	return f, f.read()
}

// stamps looks at the files. One that is not there has the zero stamp.
func (c *Config) stamps() (stamps [3]fileStamp) {
	for i, path := range []string{c.Cert, c.Key, c.ClientCA} {
		info, err := os.Stat(path)
		if err == nil {
			stamps[i] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// read makes a configuration of the files. It needs mu, or to be alone.
func (f *Files) read() error {
	pair, err := tls.LoadX509KeyPair(f.cfg.Cert, f.cfg.Key)
	if err != nil {
		return err
	}
	var clients *x509.CertPool
	if f.cfg.ClientCA != "" {
		if clients, err = ReadPool(f.cfg.ClientCA); err != nil {
			return err
		}
	}
	f.now, f.leaf = configOf(pair, clients), pair.Leaf
	return nil
}

// ReadPool reads the certificates of authorities from a file.
func ReadPool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: holds no certificate in PEM", path)
	}
	return pool, nil
}

// configOf returns the configuration of handshakes. Each has keys for resumption of its own, so nobody resumes a
// session that another certificate or other authorities have begun.
func configOf(pair tls.Certificate, clients *x509.CertPool) *tls.Config {
	c := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		CipherSuites: []uint16{ // of TLS 1.2, those that HTTP/2 does not forbid (RFC 9113 §9.2.2)
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
	}
	if clients != nil {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}
	return c
}

// current returns the configuration for a handshake that begins now.
func (f *Files) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.now
}

// refresh reads the files again if they have changed. It needs mu.
func (f *Files) refresh() {
	if time.Since(f.at) < reread {
		return
	}
	f.at = time.Now()
	stamps := f.cfg.stamps()
	if stamps == f.stamps {
		return
	}
	f.stamps = stamps
	f.err = f.read()
	if f.err != nil {
		f.cfg.Logger.Warn("tls: the certificate cannot be read again, the last one stays", "file", f.cfg.Cert, "err", f.err)
		return
	}
	f.cfg.Logger.Info("tls: the certificate was read again", "file", f.cfg.Cert, "expires", f.leaf.NotAfter)
}

// Expiry returns when the certificate expires that handshakes have now.
func (f *Files) Expiry() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.leaf.NotAfter
}

// Err returns why the files are not in use as they are, or what is wrong with what is in use; nil: nothing.
func (f *Files) Err() error {
	expiry := f.Expiry()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return fmt.Errorf("the last one stays in use: %w", f.err)
	}
	if time.Now().After(expiry) {
		return fmt.Errorf("%s: expired at %s", f.cfg.Cert, expiry.Format(time.RFC3339))
	}
	return nil
}

// Wrap returns the connection of a client that will speak TLS on c. The handshake is part of the first Read or Write.
func (f *Files) Wrap(c net.Conn) net.Conn {
	w := &wire{Conn: c, try: transport.NewTry(c), buffers: &f.buffers}
	server := tls.Server(w, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current(), nil },
	})
	return &Conn{tls: server, wire: w, files: f}
}
