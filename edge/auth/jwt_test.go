package auth

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"agentstream/edge/auth/authtest"
)

func TestTokensOfEveryKindOfKey(t *testing.T) {
	i := authtest.New(t, "rsa", "ec", "ec384", "ed")
	for _, discover := range []bool{false, true} {
		j := accept(t, i, func(c *JWTConfig) {
			if discover {
				c.Discover, c.JWKS = true, ""
			}
		})
		for _, tt := range []struct {
			method jwt.SigningMethod
			key    string
		}{
			{jwt.SigningMethodRS256, "rsa"}, {jwt.SigningMethodRS512, "rsa"}, {jwt.SigningMethodPS256, "rsa"},
			{jwt.SigningMethodES256, "ec"}, {jwt.SigningMethodES384, "ec384"}, {jwt.SigningMethodEdDSA, "ed"},
		} {
			for _, kid := range []string{tt.key, ""} { // a token need not name its key
				c, err := Bearer{j}.Authenticate(request("Bearer " +
					authtest.Sign(t, tt.method, authtest.Signers()[tt.key], kid, i.Claims())))
				if err != nil {
					t.Errorf("%s kid %q: %v", tt.method.Alg(), kid, err)
					continue
				}
				if c.Tenant != "acme" || c.Subject != "u-1" || c.Scopes != ScopeRead|ScopeWrite || c.Run != "" ||
					c.Credential != "jwt:"+i.URL {
					t.Errorf("%+v", c)
				}
				if left := time.Until(c.Expires); left < time.Hour || left > time.Hour+30*time.Second {
					t.Errorf("expires in %v: not exp and the leeway", left)
				}
				if err := (Bearer{j}).Still(c); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if n := i.Fetches.Load(); n != 2 {
		t.Errorf("%d fetches of the keys by two authenticators", n)
	}
	if n := i.Strays.Load(); n != 0 {
		t.Errorf("%d strange requests", n)
	}
}

func TestClaimsAreMappedAsConfigured(t *testing.T) {
	i := authtest.New(t, "rsa")
	for _, tt := range []struct {
		name   string
		config func(*JWTConfig)
		claims func(jwt.MapClaims)
		tenant string
		scopes Scope
	}{
		{"second audience", nil, func(c jwt.MapClaims) { c["aud"] = []string{"x", "second"} }, "acme",
			ScopeRead | ScopeWrite},
		{"scopes as a list", nil, func(c jwt.MapClaims) { c["scope"] = []any{"agentstream:command", 7, "read"} },
			"acme", ScopeRead | ScopeCommand},
		{"no scopes", nil, func(c jwt.MapClaims) { delete(c, "scope") }, "acme", 0},
		{"scopes of others", nil, func(c jwt.MapClaims) {
			c["scope"] = "other:read agentstream:admin READ agentstream: agentstream:agentstream:read"
		}, "acme", 0},
		{"scopes of another type", nil, func(c jwt.MapClaims) { c["scope"] = map[string]any{"read": true} }, "acme", 0},
		{"own prefix", func(c *JWTConfig) { c.ScopePrefix = "runs/" },
			func(c jwt.MapClaims) { c["scope"] = "runs/write agentstream:read" }, "acme", ScopeWrite},
		{"own names", func(c *JWTConfig) { c.TenantClaim, c.ScopeClaim = "org", "scp" },
			func(c jwt.MapClaims) { c["org"], c["scp"] = "zeta", "read" }, "zeta", ScopeRead},
		{"path", func(c *JWTConfig) { c.TenantClaim = "app.org.id" },
			func(c jwt.MapClaims) { c["app"] = map[string]any{"org": map[string]any{"id": "deep"}} }, "deep",
			ScopeRead | ScopeWrite},
		{"name with dots", func(c *JWTConfig) { c.TenantClaim = "https://example.com/tenant" },
			func(c jwt.MapClaims) { c["https://example.com/tenant"] = "dotted" }, "dotted", ScopeRead | ScopeWrite},
		{"path below a name with dots", func(c *JWTConfig) { c.TenantClaim = "https://example.com/app.tenant" },
			func(c jwt.MapClaims) { c["https://example.com/app"] = map[string]any{"tenant": "both"} }, "both",
			ScopeRead | ScopeWrite},
		{"within the leeway", nil, func(c jwt.MapClaims) {
			c["exp"] = time.Now().Add(-20 * time.Second).Unix()
			c["nbf"] = time.Now().Add(20 * time.Second).Unix()
			c["iat"] = time.Now().Add(20 * time.Second).Unix()
		}, "acme", ScopeRead | ScopeWrite},
		{"a date with a fraction", nil, func(c jwt.MapClaims) { c["exp"] = float64(time.Now().Unix()) + 60.5 }, "acme",
			ScopeRead | ScopeWrite},
		{"no subject", nil, func(c jwt.MapClaims) { delete(c, "sub") }, "acme", ScopeRead | ScopeWrite},
	} {
		j := accept(t, i, func(c *JWTConfig) {
			if tt.config != nil {
				tt.config(c)
			}
		})
		c, err := Bearer{j}.Authenticate(request("Bearer " + i.Good(tt.claims)))
		if err != nil || c.Tenant != tt.tenant || c.Scopes != tt.scopes {
			t.Errorf("%s: %+v %v", tt.name, c, err)
		}
	}
}

func TestHostileTokensAreRefused(t *testing.T) {
	i := authtest.New(t, "rsa", "ec", "ec384", "ed")
	logs := new(logBuffer)
	j := accept(t, i, func(c *JWTConfig) { c.Logger = logs.logger() })
	if _, err := (Bearer{j}).Authenticate(request("Bearer " + i.Good())); err != nil {
		t.Fatalf("the good token is refused: %v", err)
	}
	checks := map[string]int{}
	table := i.Hostile()
	for _, tt := range table {
		c, err := Bearer{j}.Authenticate(request("Bearer " + tt.Text))
		var r *Refusal
		if !errors.Is(err, ErrUnauthorized) || !errors.As(err, &r) || c != (Caller{}) {
			t.Errorf("%s: %+v %v", tt.Name, c, err)
			continue
		}
		checks[r.Check]++
		clean(t, err.Error(), tt.Text)
	}
	if len(table) < 35 || len(checks) < 20 {
		t.Errorf("only %d tokens, refused by %d checks", len(table), len(checks))
	}
	t.Logf("%d tokens, refused by %d different checks", len(table), len(checks))
	if n := i.Fetches.Load(); n != 1 {
		t.Errorf("%d fetches: tokens cause fetches", n)
	}
	if n := i.Strays.Load(); n != 0 {
		t.Errorf("%d requests to where tokens point", n)
	}
	if s := logs.String(); s != "" {
		t.Errorf("logged: %s", s)
	}
}

func TestHMAC(t *testing.T) {
	secret := []byte(strings.Repeat("0123456789abcdef", 2))
	j, err := NewJWT(JWTConfig{Issuer: "dev", Audiences: []string{"agentstream"}, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.MapClaims{"iss": "dev", "aud": "agentstream", "tenant": "acme", "scope": "read",
		"exp": time.Now().Add(time.Hour).Unix()}
	c, err := Bearer{j}.Authenticate(request("bearer  " + authtest.Sign(t, jwt.SigningMethodHS256, secret, "", claims)))
	if err != nil || c.Tenant != "acme" || c.Scopes != ScopeRead {
		t.Errorf("%+v %v", c, err)
	}
	for name, token := range map[string]string{
		"another secret":    authtest.Sign(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), "", claims),
		"another hash":      authtest.Sign(t, jwt.SigningMethodHS512, secret, "", claims),
		"a shorter hash":    authtest.Sign(t, jwt.SigningMethodHS384, secret, "", claims),
		"an asymmetric key": authtest.Sign(t, jwt.SigningMethodRS256, authtest.Signers()["rsa"], "", claims),
		"no algorithm":      authtest.Sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", claims) + "x",
		"expired": authtest.Sign(t, jwt.SigningMethodHS256, secret, "",
			jwt.MapClaims{"iss": "dev", "aud": "agentstream", "tenant": "acme", "exp": 1}),
	} {
		if _, err := (Bearer{j}).Authenticate(request("Bearer " + token)); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeadersThatAreNoCredential(t *testing.T) {
	i := authtest.New(t, "rsa")
	j, good := accept(t, i), i.Good()
	for name, header := range map[string][]string{
		"none":                 nil,
		"empty":                {""},
		"scheme alone":         {"Bearer"},
		"scheme and space":     {"Bearer "},
		"token alone":          {good},
		"basic":                {"Basic " + good},
		"another scheme":       {"BearerX " + good},
		"twice":                {"Bearer " + good, "Bearer " + good},
		"two in one":           {"Bearer " + good + ", Bearer " + good},
		"tab":                  {"Bearer\t" + good},
		"in quotes":            {`Bearer "` + good + `"`},
		"an API key elsewhere": {"Bearer ask_id_" + strings.Repeat("A", 52)},
		"a ticket":             {"Bearer tkt_" + strings.Repeat("A", 52)},
	} {
		c, err := Bearer{j}.Authenticate(request(header...))
		if !errors.Is(err, ErrUnauthorized) || c != (Caller{}) {
			t.Errorf("%s: %+v %v", name, c, err)
		}
	}
	r := request()
	r.URL.RawQuery = "access_token=" + good + "&token=" + good + "&authorization=Bearer+" + good
	if _, err := (Bearer{j}).Authenticate(r); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("a token in the query: %v", err)
	}
}

func TestJWTConfigIsChecked(t *testing.T) {
	secret := []byte(strings.Repeat("s", 32))
	for name, cfg := range map[string]JWTConfig{
		"no issuer":            {Audiences: []string{"a"}, Secret: secret},
		"no audience":          {Issuer: "i", Secret: secret},
		"empty audience":       {Issuer: "i", Audiences: []string{""}, Secret: secret},
		"no keys":              {Issuer: "i", Audiences: []string{"a"}},
		"two sources":          {Issuer: "i", Audiences: []string{"a"}, Secret: secret, JWKS: "https://x/keys"},
		"short secret":         {Issuer: "i", Audiences: []string{"a"}, Secret: secret[:31]},
		"open wire":            {Issuer: "i", Audiences: []string{"a"}, JWKS: "http://issuer.example/keys"},
		"a file":               {Issuer: "i", Audiences: []string{"a"}, JWKS: "file:///keys"},
		"password in the URL":  {Issuer: "i", Audiences: []string{"a"}, JWKS: "https://u:p@issuer.example/keys"},
		"issuer that is none":  {Issuer: "i", Audiences: []string{"a"}, Discover: true},
		"issuer over the wire": {Issuer: "http://issuer.example", Audiences: []string{"a"}, Discover: true},
		"negative leeway":      {Issuer: "i", Audiences: []string{"a"}, Secret: secret, Leeway: -1},
	} {
		if _, err := NewJWT(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), string(secret)) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
