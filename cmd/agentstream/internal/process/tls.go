package process

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"agentstream/edge"
	"agentstream/edge/secure"
)

// TLSFlags say with which certificate a listener is served.
type TLSFlags struct {
	Cert     string `help:"File with the certificate of the listener and those between it and its authority, in PEM. It is read again when it changes." type:"path" env:"CERT" placeholder:"FILE"`
	Key      string `help:"File with the certificate's key." type:"path" env:"KEY" placeholder:"FILE"`
	ClientCA string `name:"client-ca" help:"File with authorities: only clients are let in that have a certificate of one of them." type:"path" env:"CLIENT_CA" placeholder:"FILE"`
}

// IsSet reports whether TLS is asked for.
func (f *TLSFlags) IsSet() bool { return *f != TLSFlags{} }

// Check refuses files that cannot be used.
func (f *TLSFlags) Check(prefix string) error {
	if !f.IsSet() {
		return nil
	}
	_, err := secure.Open(secure.Config{Cert: f.Cert, Key: f.Key, ClientCA: f.ClientCA})
	return nameFlags(prefix, err)
}

// nameFlags adds the flags to an error.
func nameFlags(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s-cert, --%[1]s-key, --%[1]s-client-ca: %w", prefix, err)
}

// Open reads the files of a listener, nil when there are none. prefix is that of the flags: "tls".
func (f *TLSFlags) Open(prefix string, m *Metrics, log *slog.Logger) (*secure.Files, error) {
	if !f.IsSet() {
		return nil, nil
	}
	failed := func(why secure.Reason) { m.handshakes.WithLabelValues(prefix, string(why)).Inc() }
	files, err := secure.Open(secure.Config{Cert: f.Cert, Key: f.Key, ClientCA: f.ClientCA, Failed: failed, Logger: log})
	if err != nil {
		return nil, nameFlags(prefix, err)
	}
	m.certificates.add(prefix, files.Expiry)
	return files, nil
}

// certificates shows when certificates expire.
type certificates struct {
	desc *prometheus.Desc

	mu  sync.Mutex
	all map[string]func() time.Time // by listener
}

func newCertificates(r instruments) *certificates {
	desc := prometheus.NewDesc("agentstream_certificate_expiry_timestamp_seconds",
		"When the certificate of a listener expires, in Unix time.", []string{"listener"}, nil)
	return register(r, &certificates{desc: desc, all: make(map[string]func() time.Time)})
}

// add adds a listener, or replaces it.
func (c *certificates) add(listener string, expiry func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[listener] = expiry
}

// Describe sends the one description.
func (c *certificates) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect sends a value for each listener.
func (c *certificates) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for listener, expiry := range c.all {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(expiry().Unix()), listener)
	}
}

// CertificateCheck returns what is wrong with a listener's certificate. The node serves all the same.
func CertificateCheck(name string, files *secure.Files) edge.Check {
	return edge.Check{Name: name, Run: func(context.Context) error { return files.Err() }, Optional: true}
}
