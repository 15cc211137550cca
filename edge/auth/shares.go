package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentstream/schema"
)

// sharePrefix begins every share, and the credential of its caller.
const (
	sharePrefix     = "shr_"
	shareCredential = "share:"
)

// MaxShareTTL bounds the life of a share.
const MaxShareTTL = 30 * 24 * time.Hour

// minShareSecret is the least length of SharesConfig.Secret, in bytes.
const minShareSecret = 32

// SharesConfig sets shares up. Secret and Still are needed.
type SharesConfig struct {
	Secret []byte // signs shares, the same at every node; at least 32 bytes
	// Secrets returns the secrets as they are now, the one that signs first; shares of the others are accepted. One of
	// less than 32 bytes is passed over. nil: Secret alone.
	Secrets func() []string
	Still   func(Caller) error // checks whether the credential behind a share still holds; Bearer.Still
	Now     func() time.Time   // default time.Now
}

// Shares makes and accepts shares: tokens with which whoever has one reads one run until it expires, and nothing else.
// Nothing is stored: a share is signed, and says what it is for. It ends early when the credential that made it is
// revoked, and all of them end when the secret changes. Make it with NewShares. It is safe for concurrent use.
type Shares struct{ cfg SharesConfig }

var _ Scheme = (*Shares)(nil)

// NewShares checks the configuration.
func NewShares(cfg SharesConfig) (*Shares, error) {
	if len(cfg.Secret) < minShareSecret || cfg.Still == nil {
		return nil, fmt.Errorf("auth: shares: a secret of %d bytes or more and Still are needed", minShareSecret)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Shares{cfg}, nil
}

// share is what a token says.
type share struct {
	Tenant     string `json:"t"`
	Run        string `json:"r"`
	Credential string `json:"c"` // that made it
	Expires    int64  `json:"e"` // Unix seconds
}

// Issue returns a share of a run of the caller's tenant, and when it expires. The error wraps ErrForbidden for a caller
// that may not read the run, or has a credential for one run alone: who was given a run does not pass it on.
func (s *Shares) Issue(c Caller, run string, ttl time.Duration) (token string, until time.Time, err error) {
	if !c.May(ScopeRead) || c.Run != "" {
		return "", until, ErrForbidden
	}
	if ttl <= 0 || ttl > MaxShareTTL {
		return "", until, fmt.Errorf("auth: a share lives for 1s to %v", MaxShareTTL)
	}
	until = s.cfg.Now().Add(ttl).Truncate(time.Second)
	text, err := json.Marshal(share{Tenant: c.Tenant, Run: run, Credential: c.Credential, Expires: until.Unix()})
	if err != nil {
		return "", until, fmt.Errorf("auth: share of %s/%s: %w", c.Tenant, run, err)
	}
	body := base64.RawURLEncoding.EncodeToString(text)
	return sharePrefix + body + "." + sign(s.secrets()[0], body), until.UTC(), nil
}

// secrets returns those that are long enough; there is always one.
func (s *Shares) secrets() (list [][]byte) {
	if s.cfg.Secrets != nil {
		for _, text := range s.cfg.Secrets() {
			if len(text) >= minShareSecret {
				list = append(list, []byte(text))
			}
		}
	}
	if len(list) == 0 {
		list = append(list, s.cfg.Secret)
	}
	return list
}

// isSigned reports whether one of the secrets has signed a body.
func (s *Shares) isSigned(body, signature string) bool {
	return slices.ContainsFunc(s.secrets(),
		func(secret []byte) bool { return hmac.Equal([]byte(signature), []byte(sign(secret, body))) })
}

func sign(secret []byte, body string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(sharePrefix + body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// HasForm reports whether a token has the prefix of shares.
func (*Shares) HasForm(token string) bool { return strings.HasPrefix(token, sharePrefix) }

// Caller checks a share.
func (s *Shares) Caller(_ context.Context, token string) (Caller, error) {
	body, signature, ok := strings.Cut(strings.TrimPrefix(token, sharePrefix), ".")
	if !ok || !s.isSigned(body, signature) {
		return Caller{}, refuse("the share's signature does not match")
	}
	text, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return Caller{}, refuse("the share cannot be read")
	}
	var r share
	if err := json.Unmarshal(text, &r); err != nil {
		return Caller{}, refuse("the share cannot be read")
	}
	c := Caller{Tenant: r.Tenant, Run: r.Run, Scopes: ScopeRead, Expires: time.Unix(r.Expires, 0),
		Credential: shareCredential + r.Credential}
	if err := (schema.RunKey{Tenant: c.Tenant, Run: c.Run}).Validate(); err != nil {
		return Caller{}, fmt.Errorf("auth: share: %s", err) // nobody but us signs
	}
	if !s.cfg.Now().Before(c.Expires) {
		return Caller{}, refuse("the share has expired")
	}
	return c, s.Still(c)
}

// Still checks the credential that made the caller's share.
func (s *Shares) Still(c Caller) error {
	made, ok := strings.CutPrefix(c.Credential, shareCredential)
	if !ok {
		return refuse("not a caller with a share")
	}
	c.Credential = made
	if err := s.cfg.Still(c); err != nil {
		return errors.Join(refuse("the credential behind the share"), err)
	}
	return nil
}
