package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
)

// Scheme is one kind of bearer token.
type Scheme interface {
	// HasForm reports whether a token has the form of this scheme. It checks nothing.
	HasForm(token string) bool
	// Caller checks a token. The error wraps ErrUnauthorized or ErrUnavailable and holds nothing of the
	// token.
	Caller(ctx context.Context, token string) (Caller, error)
	// Still checks a caller again whose credential was accepted before, without the credential: whether
	// it was revoked, or may less. The error wraps ErrUnauthorized, also for a caller of another scheme.
	Still(c Caller) error
}

// Bearer authenticates by `Authorization: Bearer` alone (RFC 6750 §2.1). A token in the query string
// or in a form is never looked at. Schemes are asked in their order. Safe for concurrent use.
type Bearer []Scheme

// maxToken bounds a token, in bytes. A whole header is bounded by the server.
const maxToken = 8 << 10

// Authenticate returns the caller of a request. The error wraps ErrUnauthorized or ErrUnavailable.
func (b Bearer) Authenticate(r *http.Request) (Caller, error) {
	token, err := bearerToken(r.Header)
	if err != nil {
		return Caller{}, err
	}
	refusal := refuse("no scheme has tokens of this form")
	for _, s := range b {
		if !s.HasForm(token) {
			continue
		}
		c, err := s.Caller(r.Context(), token)
		if err == nil {
			return c, nil
		}
		if !errors.Is(refusal, ErrUnavailable) { // "come again" must not become "you are nobody"
			refusal = err
		}
	}
	return Caller{}, refusal
}

// Still checks a caller again; see Scheme.
func (b Bearer) Still(c Caller) error {
	refusal := refuse("no scheme gives such credentials")
	for _, s := range b {
		if err := s.Still(c); err == nil {
			return nil
		} else if c.Credential != "" {
			refusal = err
		}
	}
	return refusal
}

// bearerToken reads the one Authorization header. Two of them are refused: a proxy in front may look
// at the other one.
func bearerToken(h http.Header) (string, error) {
	values := h.Values("Authorization")
	switch {
	case len(values) == 0:
		return "", refuse("no Authorization header")
	case len(values) > 1:
		return "", refuse("more than one Authorization header")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimLeft(token, " ")
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return "", refuse("the Authorization scheme is not Bearer")
	case token == "":
		return "", refuse("the token is empty")
	case len(token) > maxToken:
		return "", refuse("the token is too long")
	case !visible(token):
		return "", refuse("the token has characters that no token has")
	}
	return token, nil
}

// visible reports whether s is printable ASCII without spaces.
func visible(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// StaticToken lets in who brings one token. Make it with NewStaticToken.
type StaticToken struct {
	sum    [sha256.Size]byte
	tokens func() []string // as they are now; nil: the one of sum
	caller Caller
}

// NewStaticToken returns every bearer of the token the same caller. It fails for a token that could not
// be in a header.
func NewStaticToken(token string, c Caller) (*StaticToken, error) {
	if token == "" || len(token) > maxToken || !visible(token) {
		return nil, errors.New("auth: a token is printable ASCII without spaces")
	}
	c.Credential = "token"
	return &StaticToken{sum: sha256.Sum256([]byte(token)), caller: c}, nil
}

// NewStaticTokens is NewStaticToken for tokens that can be replaced: now returns those that are accepted, the new one
// and the one before while they change. It fails when none can be in a header. One that is taken away lets nobody in
// any more; what was begun with it goes on.
func NewStaticTokens(now func() []string, c Caller) (*StaticToken, error) {
	list := now()
	if len(list) == 0 {
		return nil, errors.New("auth: there is no token")
	}
	s, err := NewStaticToken(list[0], c)
	if err == nil {
		s.tokens = now
	}
	return s, err
}

// HasForm is true of everything: such a token has no form.
func (*StaticToken) HasForm(string) bool { return true }

// Caller compares in constant time.
func (s *StaticToken) Caller(_ context.Context, token string) (Caller, error) {
	if !s.match(token) {
		return Caller{}, refuse("another token")
	}
	return s.caller, nil
}

// match reports whether a token is one of ours. It takes the same time for all.
func (s *StaticToken) match(token string) bool {
	got := sha256.Sum256([]byte(token))
	if s.tokens == nil {
		return subtle.ConstantTimeCompare(got[:], s.sum[:]) == 1
	}
	same := 0
	for _, t := range s.tokens() {
		sum := sha256.Sum256([]byte(t))
		same |= subtle.ConstantTimeCompare(got[:], sum[:])
	}
	return same == 1
}

// Still accepts its own caller: the token lives as long as the process.
func (s *StaticToken) Still(c Caller) error {
	if c.Credential != s.caller.Credential || c.Tenant != s.caller.Tenant {
		return refuse("not a caller of the static token")
	}
	return nil
}
