package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// minSecret is the least length of an HMAC secret, in bytes (RFC 7518 §3.2: the size of the hash).
const minSecret = 32

// JWTConfig is which tokens are accepted. Issuer and Audiences are needed, and exactly one source of
// keys: Discover, JWKS or Secret.
type JWTConfig struct {
	Issuer    string   // the iss claim, compared exactly
	Audiences []string // one of them must be in the aud claim

	Discover bool   // keys from the issuer's OpenID Connect discovery document
	JWKS     string // URL of a key set (RFC 7517)
	Secret   []byte // HS256, at least 32 bytes; everybody who can check tokens can make them: development only

	TenantClaim string // name, or path with dots; default "tenant"
	ScopeClaim  string // the same; a text with spaces or a list; default "scope"
	ScopePrefix string // of our scopes in that claim; plain names are accepted as well; default "agentstream:"

	Leeway  time.Duration // for exp, nbf and iat; default 30 s
	Refresh time.Duration // how often keys are fetched: how long a withdrawn key lives; default 5 min
	Pause   time.Duration // least time between two fetches, whatever tokens name; default 10 s
	Stale   time.Duration // how long keys are used while the issuer is away; default 1 h
	Timeout time.Duration // of one fetch; default 5 s

	Transport http.RoundTripper // for fetches; default: one that reaches this machine only for an issuer on it
	Now       func() time.Time  // default time.Now
	Logger    *slog.Logger      // nil discards
}

func (c JWTConfig) withDefaults() JWTConfig {
	c.TenantClaim = cmp.Or(c.TenantClaim, "tenant")
	c.ScopeClaim = cmp.Or(c.ScopeClaim, "scope")
	c.ScopePrefix = cmp.Or(c.ScopePrefix, "agentstream:")
	c.Leeway = cmp.Or(c.Leeway, 30*time.Second)
	c.Refresh = cmp.Or(c.Refresh, 5*time.Minute)
	c.Pause = cmp.Or(c.Pause, 10*time.Second)
	c.Stale = cmp.Or(c.Stale, time.Hour)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c JWTConfig) validate() error {
	if c.Issuer == "" {
		return errors.New("auth: jwt: an issuer is needed")
	}
	if len(c.Audiences) == 0 {
		return errors.New("auth: jwt: an audience is needed")
	}
	for _, a := range c.Audiences {
		if a == "" {
			return errors.New("auth: jwt: an audience is empty")
		}
	}
	sources := 0
	for _, given := range []bool{c.Discover, c.JWKS != "", len(c.Secret) > 0} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		return fmt.Errorf("auth: jwt: %d sources of keys, one is needed: discovery, a key set's URL or a secret", sources)
	}
	if len(c.Secret) > 0 && len(c.Secret) < minSecret {
		return fmt.Errorf("auth: jwt: the secret has %d bytes, at least %d are needed", len(c.Secret), minSecret)
	}
	if c.Discover {
		if err := safeURL(c.Issuer); err != nil {
			return fmt.Errorf("auth: jwt: issuer: %w", err)
		}
	}
	if c.JWKS != "" {
		if err := safeURL(c.JWKS); err != nil {
			return fmt.Errorf("auth: jwt: key set: %w", err)
		}
	}
	for _, d := range []time.Duration{c.Leeway, c.Refresh, c.Pause, c.Stale, c.Timeout} {
		if d < 0 {
			return fmt.Errorf("auth: jwt: %v is negative", d)
		}
	}
	return nil
}

// JWT accepts JSON Web Tokens (RFC 7519) of one issuer. Make it with NewJWT; Run keeps its keys fresh.
type JWT struct {
	claims     *claimsReader
	algorithms []string
	secret     []byte      // of HS256
	keys       *remoteKeys // nil with a secret
}

// NewJWT checks the configuration. It fetches nothing.
func NewJWT(cfg JWTConfig) (*JWT, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	j := &JWT{claims: newClaimsReader(cfg), algorithms: publicAlgorithms}
	if len(cfg.Secret) > 0 {
		j.secret, j.algorithms = cfg.Secret, secretAlgorithms
		return j, nil
	}
	j.keys = newRemoteKeys(cfg)
	return j, nil
}

// HasForm reports whether a token has three parts.
func (j *JWT) HasForm(token string) bool { return strings.Count(token, ".") == 2 }

// Caller checks form, algorithm, signature and claims, in this order.
func (j *JWT) Caller(ctx context.Context, token string) (Caller, error) {
	c, err := parseCompact(token, j.algorithms)
	if err != nil {
		return Caller{}, err
	}
	if j.keys != nil {
		err = j.keys.verify(ctx, c)
	} else {
		err = verifySecret(c, j.secret)
	}
	if err != nil {
		return Caller{}, err
	}
	return j.claims.read(c.payload)
}

// Still accepts callers with a token of this issuer: a token is good until it expires.
func (j *JWT) Still(c Caller) error {
	if c.Credential != j.claims.credential {
		return refuse("not a caller with a token of this issuer")
	}
	return nil
}

// SignIn returns where people sign in; zero when that was not discovered, or not yet. A nil JWT has none.
func (j *JWT) SignIn() SignIn {
	if j == nil || j.keys == nil {
		return SignIn{}
	}
	j.keys.mu.RLock()
	defer j.keys.mu.RUnlock()
	return j.keys.signIn
}

// verifySecret checks an HMAC.
func verifySecret(c compact, secret []byte) error {
	parser := jwt.NewParser(jwt.WithValidMethods(secretAlgorithms), jwt.WithStrictDecoding(),
		jwt.WithoutClaimsValidation())
	_, err := parser.Parse(c.token, func(*jwt.Token) (any, error) { return secret, nil })
	if err != nil {
		return refuse("the signature does not match")
	}
	return nil
}

// Run fetches keys every Refresh until ctx ends, at once and more often while it fails. With a secret
// it only waits.
func (j *JWT) Run(ctx context.Context) error {
	if j.keys == nil {
		<-ctx.Done()
		return nil
	}
	return j.keys.run(ctx)
}

// Warm fetches the keys once, so that a server can say at its start that it could not.
func (j *JWT) Warm(ctx context.Context) error {
	if j.keys == nil {
		return nil
	}
	return j.keys.fetch(ctx)
}

// Check reports whether keys are known that may be used, for readiness.
func (j *JWT) Check(context.Context) error {
	if j.keys == nil {
		return nil
	}
	_, err := j.keys.usable()
	return err
}
