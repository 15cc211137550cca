package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// localCA is a certificate authority of one folder, for one person and one machine.
type localCA struct{ dir string }

// How long certificates are good. Browsers refuse those of servers that are good for longer than 825 days.
const (
	caYears   = 10
	certDays  = 365
	renewDays = 30 // before the end
)

// tlsFolder is the authority's, in --data.
const tlsFolder = "tls"

// The authority's certificate, that of the server, and their keys.
const (
	caFile, caKeyFile     = "ca.pem", "ca-key.pem"
	certFile, certKeyFile = "cert.pem", "key.pem"
)

func (l localCA) path(name string) string { return filepath.Join(l.dir, name) }

// useLocalTLS serves clients with a certificate of the local authority, which is made where there is none.
func (c *DevCmd) useLocalTLS() error {
	if !c.LocalTLS {
		return nil
	}
	if c.TLS.IsSet() {
		return errors.New("--tls: --tls-cert, --tls-key and --tls-client-ca are there as well; one of both is a mistake")
	}
	l := localCA{filepath.Join(c.Data, tlsFolder)}
	if err := l.prepare(c.hostNames()); err != nil {
		return fmt.Errorf("--tls: %w", err)
	}
	c.TLS.Cert, c.TLS.Key = l.path(certFile), l.path(certKeyFile)
	return nil
}

// hostNames returns by what clients may call this server.
func (c *DevCmd) hostNames() []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" && !net.ParseIP(host).IsUnspecified() {
		names = append(names, host)
	}
	if u, err := url.Parse(c.PublicURL); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// prepare makes what is missing: the authority once, the certificate also for other names and before it expires.
func (l localCA) prepare(names []string) error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(l.dir, 0o700); err != nil {
		return err
	}
	ca, err := tls.LoadX509KeyPair(l.path(caFile), l.path(caKeyFile))
	if errors.Is(err, os.ErrNotExist) {
		ca, err = l.issue(caFile, caKeyFile, nil, &x509.Certificate{
			Subject:  pkix.Name{CommonName: "agentstream dev, " + filepath.Base(filepath.Dir(l.dir))},
			NotAfter: time.Now().AddDate(caYears, 0, 0), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign})
	}
	if err != nil {
		return err
	}
	now, err := tls.LoadX509KeyPair(l.path(certFile), l.path(certKeyFile))
	if err == nil && l.isGood(now.Leaf, ca.Leaf, names) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: names[0]}, NotAfter: time.Now().AddDate(0, 0, certDays),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	_, err = l.issue(certFile, certKeyFile, &ca, leaf)
	return err
}

// isGood reports whether a certificate is the authority's, for all names, and for some time.
func (l localCA) isGood(cert, ca *x509.Certificate, names []string) bool {
	if cert.CheckSignatureFrom(ca) != nil || time.Until(cert.NotAfter) < renewDays*24*time.Hour {
		return false
	}
	return !slices.ContainsFunc(names, func(name string) bool { return cert.VerifyHostname(name) != nil })
}

// issue makes a key and a certificate of a template, signed by ca or, without one, by itself.
func (l localCA) issue(file, keyFile string, ca *tls.Certificate, template *x509.Certificate) (tls.Certificate, error) {
	var none tls.Certificate
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return none, err
	}
	template.NotBefore = time.Now().Add(-time.Hour) // clocks of other machines
	parent, signer := template, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return none, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return none, err
	}
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if err := os.WriteFile(l.path(keyFile), keyText, 0o600); err != nil {
		return none, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(l.path(file), text, 0o600); err != nil {
		return none, err
	}
	return tls.X509KeyPair(text, keyText)
}
