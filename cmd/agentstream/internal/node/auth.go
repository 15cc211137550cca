package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/edge"
	"agentstream/edge/auth"
	authjs "agentstream/edge/auth/natsjs"
	"agentstream/schema/seal"
)

// AuthFlags say who is let in, beside --auth-token.
type AuthFlags struct {
	APIKeys     string        `name:"api-keys" help:"File of hashed API keys (agentstream auth new-key). Changes take effect by themselves." type:"path" env:"AGENTSTREAM_API_KEYS" placeholder:"FILE"`
	OIDCIssuer  string        `name:"oidc-issuer" help:"Accept JSON Web Tokens of this OpenID Connect issuer; its keys are discovered." env:"AGENTSTREAM_OIDC_ISSUER" placeholder:"URL"`
	OIDCClient  string        `name:"oidc-client-id" help:"With --oidc-issuer: people sign in to the console there, as this public client; its redirect URI is the console's address." env:"AGENTSTREAM_OIDC_CLIENT_ID" placeholder:"ID"`
	OIDCScope   string        `name:"oidc-scope" help:"Scopes that the console asks the issuer for." default:"openid" env:"AGENTSTREAM_OIDC_SCOPE" placeholder:"TEXT"`
	JWKSURL     string        `name:"jwks-url" help:"Accept JSON Web Tokens signed with a key of this set." env:"AGENTSTREAM_JWKS_URL" placeholder:"URL"`
	HMACSecret  string        `name:"hmac-secret" help:"Accept JSON Web Tokens signed with this secret (HS256, 32 bytes or more). For development: who can check such tokens can make them." env:"AGENTSTREAM_HMAC_SECRET" placeholder:"TEXT"`
	Issuer      string        `help:"Issuer that tokens must name. --oidc-issuer is one already; default agentstream with --hmac-secret." env:"AGENTSTREAM_ISSUER" placeholder:"URL"`
	Audience    []string      `help:"Audience that tokens must be for; one of several is enough. Default agentstream with --hmac-secret." env:"AGENTSTREAM_AUDIENCE" placeholder:"NAME"`
	TenantClaim string        `help:"Claim that holds the tenant; dots lead into objects." default:"tenant" env:"AGENTSTREAM_TENANT_CLAIM" placeholder:"NAME"`
	ScopeClaim  string        `help:"Claim that holds the scopes: a text with spaces or a list." default:"scope" env:"AGENTSTREAM_SCOPE_CLAIM" placeholder:"NAME"`
	ScopePrefix string        `help:"What stands before read, write and command in that claim; the plain names are accepted as well." default:"agentstream:" env:"AGENTSTREAM_SCOPE_PREFIX" placeholder:"TEXT"`
	CORSOrigin  []string      `name:"cors-origin" help:"Exact origins of pages that may read answers and open WebSockets." env:"AGENTSTREAM_CORS_ORIGIN" placeholder:"https://HOST"`
	Audit       bool          `help:"Record who opened, decided, shared, exported and deleted what, and who was refused, in an audit feed of each tenant; nothing is recorded without authentication." default:"true" negatable:"" env:"AGENTSTREAM_AUDIT"`
	ShareSecret string        `name:"share-secret" help:"Signs share links, the same at every node (32 bytes or more). Without it none are made; dev makes one for as long as it runs." env:"AGENTSTREAM_SHARE_SECRET" placeholder:"TEXT"`
	TicketTTL   time.Duration `name:"ticket-ttl" help:"How long a stream ticket can be redeemed, 1s to 10m." default:"60s" env:"AGENTSTREAM_TICKET_TTL"`
}

// devName is the issuer and the audience of development tokens that name none.
const devName = "agentstream"

// hasTokens reports whether JSON Web Tokens are accepted.
func (f *AuthFlags) hasTokens() bool {
	return f.OIDCIssuer != "" || f.JWKSURL != "" || f.HMACSecret != ""
}

// Open reports whether nothing is asked of anybody.
func (f *ListenFlags) Open() bool { return f.AuthToken == "" && f.APIKeys == "" && !f.hasTokens() }

// checkAuth refuses what contradicts itself. Who may be open is so only to this machine.
func (f *ListenFlags) checkAuth(mayBeOpen bool, host string) error {
	if f.Open() && !mayBeOpen {
		return errors.New("no authentication is configured: give --oidc-issuer, --jwks-url, --api-keys or --auth-token (for a load test on this machine: --insecure-no-auth)")
	}
	if f.Open() && !Loopback(host) {
		return fmt.Errorf("--listen %q: without authentication (--auth-token, --api-keys, --oidc-issuer, …) only a loopback address is served", f.Listen)
	}
	if !f.hasTokens() && (f.Issuer != "" || len(f.Audience) > 0) {
		return errors.New("--issuer, --audience: there are no tokens to check: give --oidc-issuer, --jwks-url or --hmac-secret as well")
	}
	if f.OIDCClient != "" && f.OIDCIssuer == "" {
		return errors.New("--oidc-client-id: there is no --oidc-issuer to sign in at")
	}
	if f.TicketTTL != 0 && (f.TicketTTL < time.Second || f.TicketTTL > auth.MaxTicketTTL) {
		return fmt.Errorf("--ticket-ttl %v: 1s to %v is allowed", f.TicketTTL, auth.MaxTicketTTL)
	}
	for line := range strings.Lines(f.ShareSecret) {
		if n := len(strings.TrimSpace(line)); n < 32 {
			return fmt.Errorf("--share-secret: %d bytes, at least 32 are needed", n)
		}
	}
	if _, err := f.jwt(nil); err != nil {
		return err
	}
	return nil
}

// jwt makes the authenticator for tokens; nil when none are accepted.
func (f *AuthFlags) jwt(log *slog.Logger) (*auth.JWT, error) {
	if !f.hasTokens() {
		return nil, nil
	}
	cfg := auth.JWTConfig{
		Issuer: f.Issuer, Audiences: f.Audience, JWKS: f.JWKSURL, Discover: f.OIDCIssuer != "", Secret: []byte(f.HMACSecret),
		TenantClaim: f.TenantClaim, ScopeClaim: f.ScopeClaim, ScopePrefix: f.ScopePrefix, Logger: log,
	}
	if f.OIDCIssuer != "" {
		if f.Issuer != "" && f.Issuer != f.OIDCIssuer {
			return nil, errors.New("--issuer: not that of --oidc-issuer")
		}
		cfg.Issuer = f.OIDCIssuer
	}
	if f.HMACSecret != "" {
		cfg.Issuer, cfg.Audiences = f.devNames()
	}
	j, err := auth.NewJWT(cfg)
	if err != nil {
		return nil, fmt.Errorf("--oidc-issuer, --jwks-url, --hmac-secret, --issuer, --audience: %w", err)
	}
	return j, nil
}

// devNames returns the issuer and the audiences of development tokens.
func (f *AuthFlags) devNames() (issuer string, audiences []string) {
	issuer, audiences = f.Issuer, f.Audience
	if issuer == "" {
		issuer = devName
	}
	if len(audiences) == 0 {
		audiences = []string{devName}
	}
	return issuer, audiences
}

// Gate is a node's authentication.
type Gate struct {
	Authenticate func(*http.Request) (auth.Caller, error)
	Still        func(auth.Caller) error
	Tickets      *auth.Tickets
	Shares       *auth.Shares // nil: none are made
	Checks       []edge.Check
	many         bool        // callers are of several tenants
	jwt          *auth.JWT   // nil when no tokens are accepted
	open         *auth.Open  // nil when a credential is asked for
	bearer       auth.Bearer // else these are accepted
}

// NewGate puts the node's authentication together. Keys of an issuer are fetched once, so that a
// mistake is seen at the start; an issuer that is away does not keep the node from starting.
func NewGate(ctx context.Context, f *ListenFlags, nc *nats.Conn, keys *seal.Keys, log *slog.Logger) (*Gate, error) {
	g := &Gate{}
	if err := g.schemes(ctx, f, log); err != nil {
		return nil, err
	}
	if err := g.share(f.ShareSecret); err != nil {
		return nil, err
	}
	g.lock(keys)
	store, err := authjs.OpenTickets(ctx, nc)
	if err != nil {
		return nil, err
	}
	g.Tickets, err = auth.NewTickets(auth.TicketsConfig{Store: store, Still: g.Still, TTL: f.TicketTTL})
	return g, err
}

// share makes what signs shares, and accepts them beside what the node accepts otherwise.
func (g *Gate) share(secret string) (err error) {
	if secret == "" {
		return nil
	}
	now := cli.NewSecret(secret, "AGENTSTREAM_SHARE_SECRET")
	g.Shares, err = auth.NewShares(auth.SharesConfig{Secret: []byte(now.Lines()[0]), Secrets: now.Lines, Still: g.Still})
	if err != nil {
		return fmt.Errorf("--share-secret: %w", err)
	}
	schemes := append(auth.Bearer{g.Shares}, g.bearer...)
	if g.open == nil {
		g.Authenticate, g.Still = schemes.Authenticate, schemes.Still
		return nil
	}
	g.Authenticate = func(r *http.Request) (auth.Caller, error) {
		c, err := g.open.Authenticate(r) // whose checks of the request are not about a credential
		if err == nil && g.Shares.HasForm(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
			return schemes.Authenticate(r)
		}
		return c, err
	}
	g.Still = func(c auth.Caller) error {
		if err := g.Shares.Still(c); err == nil {
			return nil
		}
		return g.open.Still(c)
	}
	return nil
}

func (g *Gate) schemes(ctx context.Context, f *ListenFlags, log *slog.Logger) error {
	all := auth.Caller{Tenant: f.Tenant, Scopes: auth.ScopeAll}
	if f.Open() {
		o, err := auth.NewOpen(all, f.CORSOrigin)
		if err != nil {
			return fmt.Errorf("--cors-origin: %w", err)
		}
		g.open, g.Authenticate, g.Still = o, o.Authenticate, o.Still
		log.Warn("no authentication: everybody on this machine may do everything", "tenant", f.Tenant)
		return nil
	}
	var bearer auth.Bearer
	if f.APIKeys != "" {
		keys, err := auth.OpenAPIKeys(auth.APIKeysConfig{Path: f.APIKeys, Logger: log})
		if err != nil {
			return fmt.Errorf("--api-keys: %w", err)
		}
		g.many, bearer = true, append(bearer, keys)
		g.Checks = append(g.Checks, edge.Check{Name: "api keys", Run: keys.Check, Optional: true})
	}
	j, err := f.jwt(log)
	if err != nil {
		return err
	}
	if j != nil {
		g.many, g.jwt, bearer = true, j, append(bearer, j)
		g.Checks = append(g.Checks, edge.Check{Name: "issuer", Run: j.Check, Optional: true})
		if err := j.Warm(ctx); err != nil {
			log.Warn("auth: keys cannot be fetched; tokens are answered 503 until they are", "err", err)
		}
		if f.HMACSecret != "" {
			log.Warn("auth: tokens with a shared secret are for development")
		}
	}
	if f.AuthToken != "" {
		s, err := auth.NewStaticTokens(cli.NewSecret(f.AuthToken, "AGENTSTREAM_AUTH_TOKEN").Lines, all)
		if err != nil {
			return fmt.Errorf("--auth-token: %w", err)
		}
		bearer = append(bearer, s)
	}
	g.bearer, g.Authenticate, g.Still = bearer, bearer.Authenticate, bearer.Still
	return nil
}

// run keeps the issuer's keys fresh until ctx ends.
func (g *Gate) run(ctx context.Context) error {
	if g.jwt == nil {
		<-ctx.Done()
		return nil
	}
	return g.jwt.Run(ctx)
}
