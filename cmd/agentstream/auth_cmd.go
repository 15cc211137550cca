package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/schema"
)

// AuthCmd makes credentials.
type AuthCmd struct {
	NewKey NewKeyCmd `cmd:"" help:"Make an API key."`
	Token  TokenCmd  `cmd:"" help:"Make a development token for a server with --hmac-secret."`
}

// NewKeyCmd makes an API key. The key is printed once and kept nowhere; the file gets its hash.
type NewKeyCmd struct {
	Tenant string        `help:"Tenant of the key." required:"" placeholder:"ID"`
	Scopes []string      `help:"What the key may do: read, write, command, operate, audit." default:"read" placeholder:"NAME"`
	ID     string        `name:"id" help:"Name of the key, [a-z0-9-]; it is part of the key and in logs. Random when absent." placeholder:"ID"`
	TTL    time.Duration `name:"ttl" help:"How long the key lives; 0: until it is taken out of the file." default:"0"`
	Note   string        `help:"A word about it, for people." placeholder:"TEXT"`
	archive.AuditFlags
	cli.NATSFlags
	Append string `help:"Add the line to this file (--api-keys of the server) instead of printing it." type:"path" placeholder:"FILE"`
	JSON   bool   `name:"json" help:"Print one JSON object."`

	cli.Streams `kong:"-"`
}

// Run prints the key to standard output, and the line for the file after it.
func (c *NewKeyCmd) Run(ctx context.Context, log *slog.Logger) error {
	scopes, err := auth.ParseScopes(c.Scopes)
	if err != nil {
		return fmt.Errorf("--scopes: %w", err)
	}
	if c.TTL < 0 {
		return fmt.Errorf("--ttl %v: negative", c.TTL)
	}
	var expires time.Time
	if c.TTL > 0 {
		expires = time.Now().UTC().Add(c.TTL).Truncate(time.Second)
	}
	text, key, err := auth.NewAPIKey(c.ID, c.Tenant, scopes, expires)
	if err != nil {
		return err
	}
	if audit.IsReserved(c.Tenant) {
		return fmt.Errorf("--tenant %q: that of an audit feed, which keys of its tenant read with the scope audit", c.Tenant)
	}
	made := audit.Line{Action: audit.Keyed, Detail: "key:" + key.ID + " for " + strings.Join(key.Scopes, ",")}
	if err := c.RecordIfReachable(ctx, &c.NATSFlags, &c.Streams, c.Tenant, "auth new-key", made, log); err != nil {
		return err
	}
	key.Note = c.Note
	line, err := key.Line()
	if err != nil {
		return err
	}
	if c.Append == "" {
		return c.Print(c.JSON, map[string]string{"key": text, "line": string(line)},
			"key, shown this once:\n%s\n\nline for the file of --api-keys:\n%s", text, bytes.TrimSuffix(line, []byte("\n")))
	}
	if err := appendLine(c.Append, line); err != nil {
		return fmt.Errorf("--append: %w", err)
	}
	return c.Print(c.JSON, map[string]string{"key": text}, "%s", text)
}

// appendLine adds a line in one write, after what may lack its newline.
func appendLine(path string, line []byte) error {
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(have) > 0 && have[len(have)-1] != '\n' {
		line = append([]byte{'\n'}, line...)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Sync(), f.Close())
}

// TokenCmd makes a development token.
type TokenCmd struct {
	HMACSecret  string        `name:"hmac-secret" help:"The server's." required:"" env:"AGENTSTREAM_HMAC_SECRET" placeholder:"TEXT"`
	Issuer      string        `help:"The server's." env:"AGENTSTREAM_ISSUER" default:"agentstream"`
	Audience    []string      `help:"The server's." env:"AGENTSTREAM_AUDIENCE" default:"agentstream"`
	TenantClaim string        `help:"The server's." env:"AGENTSTREAM_TENANT_CLAIM" default:"tenant"`
	ScopeClaim  string        `help:"The server's." env:"AGENTSTREAM_SCOPE_CLAIM" default:"scope"`
	Tenant      string        `help:"Tenant of the token." required:"" placeholder:"ID"`
	Scopes      []string      `help:"What the token allows." default:"read,write,command" placeholder:"NAME"`
	Subject     string        `help:"Who it is for." default:"dev"`
	TTL         time.Duration `name:"ttl" help:"How long it lives." default:"1h"`
	JSON        bool          `name:"json" help:"Print one JSON object."`

	cli.Streams `kong:"-"`
}

// Run prints the token.
func (c *TokenCmd) Run() error {
	scopes, err := auth.ParseScopes(c.Scopes)
	if err != nil {
		return fmt.Errorf("--scopes: %w", err)
	}
	if err := schema.ValidTenant(c.Tenant); err != nil {
		return fmt.Errorf("--tenant: %w", err)
	}
	if len(c.HMACSecret) < 32 {
		return fmt.Errorf("--hmac-secret: %d bytes, at least 32 are needed", len(c.HMACSecret))
	}
	now := time.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": c.Issuer, "aud": c.Audience, "sub": c.Subject, "iat": now.Unix(), "exp": now.Add(c.TTL).Unix(),
		c.TenantClaim: c.Tenant, c.ScopeClaim: scopes.Names(),
	}).SignedString([]byte(c.HMACSecret))
	if err != nil {
		return fmt.Errorf("sign a token: %w", err)
	}
	return c.Print(c.JSON, map[string]string{"token": token}, "%s", token)
}
