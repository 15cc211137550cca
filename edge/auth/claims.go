package auth

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"agentstream/schema"
)

// claimsReader turns the payload of a verified token into a caller.
type claimsReader struct {
	validator   *jwt.Validator
	credential  string
	tenantClaim string
	scopeClaim  string
	scopePrefix string
	leeway      time.Duration
}

func newClaimsReader(cfg JWTConfig) *claimsReader {
	return &claimsReader{
		validator: jwt.NewValidator(
			jwt.WithIssuer(cfg.Issuer), jwt.WithAudience(cfg.Audiences...), jwt.WithExpirationRequired(),
			jwt.WithIssuedAt(), jwt.WithLeeway(cfg.Leeway), jwt.WithTimeFunc(cfg.Now)),
		credential: "jwt:" + cfg.Issuer, tenantClaim: cfg.TenantClaim,
		scopeClaim: cfg.ScopeClaim, scopePrefix: cfg.ScopePrefix, leeway: cfg.Leeway,
	}
}

// maxSubject bounds the sub claim, in bytes.
const maxSubject = 255

// read checks the registered claims (RFC 7519 §4.1) and maps the configured ones.
func (cr *claimsReader) read(payload []byte) (Caller, error) {
	claims, err := decodeObject(payload)
	if err != nil {
		return Caller{}, refuse("claims: " + err.Error())
	}
	for _, name := range []string{"exp", "nbf", "iat"} {
		if v, ok := claims[name]; ok && !isDate(v) {
			return Caller{}, refuse(name + " is not a date")
		}
	}
	if err := cr.validator.Validate(jwt.MapClaims(claims)); err != nil {
		return Caller{}, refuse(whichClaim(err))
	}
	exp, err := jwt.MapClaims(claims).GetExpirationTime()
	if err != nil || exp == nil {
		return Caller{}, refuse("exp is missing")
	}
	// The leeway counts here as well: a token that was just let in would end its stream at once.
	c := Caller{Credential: cr.credential, Expires: exp.Add(cr.leeway)}
	c.Tenant, _ = lookup(claims, cr.tenantClaim).(string)
	if schema.ValidTenant(c.Tenant) != nil {
		return Caller{}, refuse("the tenant claim is missing or not an id")
	}
	if v, ok := claims["sub"]; ok {
		if c.Subject, ok = v.(string); !ok || len(c.Subject) > maxSubject {
			return Caller{}, refuse("sub is not a short text")
		}
	}
	c.Scopes = cr.scopes(lookup(claims, cr.scopeClaim))
	return c, nil
}

// isDate reports whether v is a NumericDate before the year 10000. Beyond, converting it to a time would
// overflow.
func isDate(v any) bool {
	n, ok := v.(json.Number)
	if !ok {
		return false
	}
	f, err := n.Float64()
	return err == nil && !math.IsNaN(f) && f >= 0 && f < 253402300800
}

// whichClaim names the check that failed. The library's own text may quote claims.
func whichClaim(err error) string {
	for _, row := range []struct {
		err  error
		text string
	}{
		{jwt.ErrTokenInvalidIssuer, "another issuer"},
		{jwt.ErrTokenInvalidAudience, "for another audience"},
		{jwt.ErrTokenExpired, "expired"},
		{jwt.ErrTokenNotValidYet, "not valid yet"},
		{jwt.ErrTokenUsedBeforeIssued, "issued in the future"},
		{jwt.ErrTokenRequiredClaimMissing, "iss, aud or exp is missing"},
	} {
		if errors.Is(err, row.err) {
			return row.text
		}
	}
	return "iss or aud has another type"
}

// lookup finds a claim. A name with dots is tried whole first, because names may be URLs, and then as
// a path into objects.
func lookup(claims map[string]any, path string) any {
	if v, ok := claims[path]; ok {
		return v
	}
	for i := range len(path) {
		if path[i] != '.' {
			continue
		}
		if inner, ok := claims[path[:i]].(map[string]any); ok {
			if v := lookup(inner, path[i+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}

// scopes reads a text with spaces (RFC 8693 §4.2) or a list. What is not a scope of ours is passed
// over: it is for somebody else.
func (cr *claimsReader) scopes(v any) (all Scope) {
	add := func(name string) { all |= scopeOf(strings.TrimPrefix(name, cr.scopePrefix)) }
	switch v := v.(type) {
	case string:
		for name := range strings.FieldsSeq(v) {
			add(name)
		}
	case []any:
		for _, e := range v {
			if name, ok := e.(string); ok {
				add(name)
			}
		}
	}
	return all
}
