package doctor

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/edge/auth"
)

// keys looks at a file of API keys. "" is none.
func (x *examination) keys(path string) {
	if path == "" {
		return
	}
	b, err := os.ReadFile(path)
	if err != nil {
		x.find("API keys cannot be read: %v; mend: --api-keys, or who owns the file", err)
		return
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o022 != 0 {
		x.find("others may write %s, and so make keys; mend: chmod 600 %s", path, path)
	}
	keys, err := auth.ParseKeys(b)
	if err != nil {
		x.find("the edges take no change of %s: %v; mend: take the line out, or agentstream auth new-key --append", path, err)
	}
	for _, key := range keys {
		if !key.Expires.IsZero() {
			x.expiry("API key "+key.ID+" of "+key.Tenant, key.Expires,
				"agentstream auth new-key, then take the old line out of "+path)
		}
	}
}

// certificate looks at a file of certificates.
func (x *examination) certificate(path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		x.find("the certificate cannot be read: %v; mend: --tls-cert", err)
		return
	}
	block, _ := pem.Decode(b)
	if block == nil {
		x.find("%s holds no certificate; mend: --tls-cert", path)
		return
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		x.find("%s holds no certificate; mend: --tls-cert", path)
		return
	}
	x.expiry("the certificate "+path, c.NotAfter, "renew the file in place: it is read again by itself")
}

// issuer fetches the keys of an issuer of tokens. "" is none.
func (x *examination) issuer(ctx context.Context, url string) {
	if url == "" {
		return
	}
	j, err := auth.NewJWT(auth.JWTConfig{Issuer: url, Audiences: []string{"agentstream"}, Discover: true,
		TenantClaim: "tenant", ScopeClaim: "scope"})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err = j.Warm(ctx)
	}
	if err != nil {
		x.find("the issuer of tokens gives no keys: %v; mend: --oidc-issuer, or what is between", err)
	}
}

// objects writes and removes an object.
func (x *examination) objects(ctx context.Context, f *archive.BlobFlags) {
	b, err := f.OpenBlobs()
	if err != nil {
		x.find("objects cannot be kept: %v; mend: --blobs", err)
		return
	}
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	name := "_doctor/20000101/" + rand.Text() + ".1.jsonl.zst"
	if err := b.Put(ctx, name, strings.NewReader("doctor")); err != nil {
		x.find("no object can be written: %v; mend: the rights of the bucket's user, or of the folder", err)
		return
	}
	if err := b.Delete(ctx, name); err != nil {
		x.find("no object can be removed: %v; mend: the rights of the bucket's user: retention and deletion need them", err)
	}
}
