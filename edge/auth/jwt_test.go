package auth

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

func TestTokensOfEveryKindOfKey(t *testing.T) {
	i := newIssuer(t, "rsa", "ec", "ec384", "ed")
	for _, discover := range []bool{false, true} {
		j := i.accept(func(c *JWTConfig) {
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
				c, err := Bearer{j}.Authenticate(request("Bearer " + sign(t, tt.method, signers()[tt.key], kid, i.claims())))
				if err != nil {
					t.Errorf("%s kid %q: %v", tt.method.Alg(), kid, err)
					continue
				}
				if c.Tenant != "acme" || c.Subject != "u-1" || c.Scopes != ScopeRead|ScopeWrite || c.Run != "" || c.Credential != "jwt:"+i.server.URL {
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
	if n := i.fetches.Load(); n != 2 {
		t.Errorf("%d fetches of the keys by two authenticators", n)
	}
	if n := i.strays.Load(); n != 0 {
		t.Errorf("%d strange requests", n)
	}
}

func TestClaimsAreMappedAsConfigured(t *testing.T) {
	i := newIssuer(t, "rsa")
	for _, tt := range []struct {
		name   string
		config func(*JWTConfig)
		claims func(jwt.MapClaims)
		tenant string
		scopes Scope
	}{
		{"second audience", nil, func(c jwt.MapClaims) { c["aud"] = []string{"x", "second"} }, "acme", ScopeRead | ScopeWrite},
		{"scopes as a list", nil, func(c jwt.MapClaims) { c["scope"] = []any{"agentstream:command", 7, "read"} }, "acme", ScopeRead | ScopeCommand},
		{"no scopes", nil, func(c jwt.MapClaims) { delete(c, "scope") }, "acme", 0},
		{"scopes of others", nil, func(c jwt.MapClaims) {
			c["scope"] = "other:read agentstream:admin READ agentstream: agentstream:agentstream:read"
		}, "acme", 0},
		{"scopes of another type", nil, func(c jwt.MapClaims) { c["scope"] = map[string]any{"read": true} }, "acme", 0},
		{"own prefix", func(c *JWTConfig) { c.ScopePrefix = "runs/" }, func(c jwt.MapClaims) { c["scope"] = "runs/write agentstream:read" }, "acme", ScopeWrite},
		{"own names", func(c *JWTConfig) { c.TenantClaim, c.ScopeClaim = "org", "scp" },
			func(c jwt.MapClaims) { c["org"], c["scp"] = "zeta", "read" }, "zeta", ScopeRead},
		{"path", func(c *JWTConfig) { c.TenantClaim = "app.org.id" },
			func(c jwt.MapClaims) { c["app"] = map[string]any{"org": map[string]any{"id": "deep"}} }, "deep", ScopeRead | ScopeWrite},
		{"name with dots", func(c *JWTConfig) { c.TenantClaim = "https://example.com/tenant" },
			func(c jwt.MapClaims) { c["https://example.com/tenant"] = "dotted" }, "dotted", ScopeRead | ScopeWrite},
		{"path below a name with dots", func(c *JWTConfig) { c.TenantClaim = "https://example.com/app.tenant" },
			func(c jwt.MapClaims) { c["https://example.com/app"] = map[string]any{"tenant": "both"} }, "both", ScopeRead | ScopeWrite},
		{"within the leeway", nil, func(c jwt.MapClaims) {
			c["exp"] = time.Now().Add(-20 * time.Second).Unix()
			c["nbf"] = time.Now().Add(20 * time.Second).Unix()
			c["iat"] = time.Now().Add(20 * time.Second).Unix()
		}, "acme", ScopeRead | ScopeWrite},
		{"a date with a fraction", nil, func(c jwt.MapClaims) { c["exp"] = float64(time.Now().Unix()) + 60.5 }, "acme", ScopeRead | ScopeWrite},
		{"no subject", nil, func(c jwt.MapClaims) { delete(c, "sub") }, "acme", ScopeRead | ScopeWrite},
	} {
		j := i.accept(func(c *JWTConfig) {
			if tt.config != nil {
				tt.config(c)
			}
		})
		c, err := Bearer{j}.Authenticate(request("Bearer " + i.good(tt.claims)))
		if err != nil || c.Tenant != tt.tenant || c.Scopes != tt.scopes {
			t.Errorf("%s: %+v %v", tt.name, c, err)
		}
	}
}

// hostile is a token that must be refused.
type hostile struct {
	name  string
	token string
}

// hostileTokens are forged, damaged, foreign and outdated tokens. Those that are signed by the
// issuer's key differ from a good one in what their name says, and in nothing else.
func hostileTokens(t testing.TB, i *issuer) []hostile {
	t.Helper()
	rsaKey, attacker := signers()["rsa"], signers()["attacker"]
	good := i.good()
	parts := strings.Split(good, ".")
	payload := parts[1]
	set := func(name string, v any) string { return i.good(func(c jwt.MapClaims) { c[name] = v }) }
	without := func(name string) string { return i.good(func(c jwt.MapClaims) { delete(c, name) }) }
	with := func(h map[string]any) string {
		return sign(t, jwt.SigningMethodRS256, rsaKey, "rsa", i.claims(), h)
	}
	forged := func(h map[string]any) string {
		return sign(t, jwt.SigningMethodRS256, attacker, "rsa", i.claims(), h)
	}
	noAlg := func(alg string) string { return b64(`{"alg":"`+alg+`","typ":"JWT"}`) + "." + payload + "." }
	attackerJWK, err := json.Marshal(jose.JSONWebKey{Key: attacker.Public(), KeyID: "rsa"})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(rsaKey.Public().(*rsa.PublicKey))})
	confused := func(secret []byte) string {
		return sign(t, jwt.SigningMethodHS256, secret, "rsa", i.claims())
	}
	claims := i.claims()
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	doubled := strings.Replace(string(text), `"tenant":"acme"`, `"tenant":"acme","tenant":"evil"`, 1)
	rs256 := `{"alg":"RS256","kid":"rsa","typ":"JWT"}`
	flat := fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2])
	changed := strings.Replace(string(text), "acme", "evil", 1)
	return []hostile{
		{"alg none, no signature", noAlg("none")},
		{"alg None", noAlg("None")},
		{"alg nOnE", noAlg("nOnE")},
		{"alg none with a signature", b64(`{"alg":"none"}`) + "." + payload + "." + parts[2]},
		{"alg empty", b64(`{"alg":""}`) + "." + payload + "." + parts[2]},
		{"no alg", raw(t, `{"kid":"rsa"}`, string(text))},
		{"alg twice", raw(t, `{"alg":"none","alg":"RS256","kid":"rsa"}`, string(text))},
		{"alg a number", raw(t, `{"alg":256,"kid":"rsa"}`, string(text))},
		{"alg in lower case", raw(t, `{"alg":"rs256","kid":"rsa"}`, string(text))},
		{"alg under another case of its name", raw(t, `{"ALG":"RS256","kid":"rsa"}`, string(text))},
		{"key confusion with the PEM", confused(public)},
		{"key confusion with the PKCS 1 PEM", confused(pkcs1)},
		{"key confusion with the DER", confused(der)},
		{"key confusion with the key id", confused([]byte("rsa"))},
		{"HMAC with an empty secret", confused([]byte{})},
		{"another key", forged(nil)},
		{"another key, embedded as jwk", forged(map[string]any{"jwk": json.RawMessage(attackerJWK)})},
		{"the issuer's signature, with a jwk", with(map[string]any{"jwk": json.RawMessage(attackerJWK)})},
		{"another key, fetched by jku", forged(map[string]any{"jku": i.server.URL + "/attacker.json"})},
		{"the issuer's signature, with a jku", with(map[string]any{"jku": i.server.URL + "/keys"})},
		{"another key, fetched by x5u", forged(map[string]any{"x5u": i.server.URL + "/attacker.pem"})},
		{"another key, embedded as x5c", forged(map[string]any{"x5c": []string{base64.StdEncoding.EncodeToString(der)}})},
		{"kid is a path", forged(map[string]any{"kid": "../../../../dev/null"})},
		{"kid is a URL", forged(map[string]any{"kid": i.server.URL + "/attacker.json"})},
		{"kid is SQL", forged(map[string]any{"kid": "x' UNION SELECT 'secret'--"})},
		{"kid is a command", forged(map[string]any{"kid": "rsa|id"})},
		{"kid is unknown", sign(t, jwt.SigningMethodRS256, rsaKey, "elsewhere", i.claims())},
		{"kid is a list", with(map[string]any{"kid": []string{"rsa"}})},
		{"kid is empty", with(map[string]any{"kid": ""})},
		{"kid of a key of another kind", sign(t, jwt.SigningMethodRS256, rsaKey, "ec", i.claims())},
		{"ES256 over the RSA key's id", sign(t, jwt.SigningMethodES256, signers()["ec"], "rsa", i.claims())},
		{"critical parameter", with(map[string]any{"crit": []string{"exp"}})},
		{"unencoded payload", with(map[string]any{"b64": false, "crit": []string{"b64"}})},
		{"unencoded payload, not critical", with(map[string]any{"b64": false})},
		{"a logout token", with(map[string]any{"typ": "logout+jwt"})},
		{"a type that is no text", with(map[string]any{"typ": 7})},
		{"wrong audience", set("aud", "another")},
		{"audiences without ours", set("aud", []string{"a", "b"})},
		{"audience in another case", set("aud", "Agentstream")},
		{"no audience", without("aud")},
		{"empty audiences", set("aud", []string{})},
		{"audience a number", set("aud", []any{"agentstream", 7})},
		{"audience an object", set("aud", map[string]any{"agentstream": true})},
		{"wrong issuer", set("iss", "https://evil.example")},
		{"issuer with a slash", set("iss", i.server.URL+"/")},
		{"no issuer", without("iss")},
		{"issuer a list", set("iss", []string{i.server.URL})},
		{"expired", set("exp", time.Now().Add(-31*time.Second).Unix())},
		{"no expiry", without("exp")},
		{"expiry a text", set("exp", fmt.Sprint(time.Now().Add(time.Hour).Unix()))},
		{"expiry null", set("exp", nil)},
		{"expiry 0", set("exp", 0)},
		{"expiry beyond time", set("exp", 1e300)},
		{"expiry beyond numbers", raw(t, rs256, strings.Replace(string(text), `"exp":`, `"exp":1e999,"x":`, 1))},
		{"expiry negative", set("exp", -1)},
		{"not valid yet", set("nbf", time.Now().Add(40*time.Second).Unix())},
		{"not before is a text", set("nbf", "now")},
		{"issued in the future", set("iat", time.Now().Add(time.Hour).Unix())},
		{"no tenant", without("tenant")},
		{"tenant empty", set("tenant", "")},
		{"tenant is a wildcard", set("tenant", ">")},
		{"tenant with a dot", set("tenant", "a.b")},
		{"tenant with a zero", set("tenant", "a\x00b")},
		{"tenant a list", set("tenant", []string{"acme", "zeta"})},
		{"tenant too long", set("tenant", strings.Repeat("a", 65))},
		{"tenant under another case of its name", i.good(func(c jwt.MapClaims) { c["Tenant"] = c["tenant"]; delete(c, "tenant") })},
		{"subject a number", set("sub", 7)},
		{"subject too long", set("sub", strings.Repeat("s", 300))},
		{"a claim twice", raw(t, rs256, doubled)},
		{"claims are a list", raw(t, rs256, "["+string(text)+"]")},
		{"two objects of claims", raw(t, rs256, string(text)+string(text))},
		{"claims are no JSON", raw(t, rs256, string(text)[:40])},
		{"claims are not UTF-8", raw(t, rs256, strings.Replace(string(text), "u-1", "u-\xff", 1))},
		{"claims nested without end", raw(t, rs256, strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100))},
		{"changed claims", parts[0] + "." + b64(changed) + "." + parts[2]},
		{"signature of another token", parts[0] + "." + parts[1] + "." + strings.Split(set("tenant", "evil"), ".")[2]},
		{"signature cut", good[:len(good)-8]},
		{"signature stripped", parts[0] + "." + parts[1] + "."},
		{"signature left out", parts[0] + "." + parts[1]},
		{"padded", good + "="},
		{"trailing bits", good[:len(good)-1] + string(nextB64(good[len(good)-1]))},
		{"standard alphabet", strings.NewReplacer("-", "+", "_", "/").Replace(sign64(t, i))},
		{"four parts", good + "." + parts[2]},
		{"five parts, encrypted", strings.Join([]string{b64(`{"alg":"dir","enc":"A128GCM"}`), "", b64("iv"), b64("text"), b64("tag")}, ".")},
		{"two signatures, JSON serialization", fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q},{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2], parts[0], parts[2])},
		{"flattened JSON serialization", flat},
		{"JSON serialization in compact clothes", flat + ".x.y"},
		{"empty parts", ".."},
		{"text", "hello"},
		{"huge", good + strings.Repeat("A", 9<<10)},
		{"not ASCII", parts[0] + ".é." + parts[2]},
		{"line break inside", parts[0] + "\n." + parts[1] + "." + parts[2]},
		{"space inside", parts[0] + " ." + parts[1] + "." + parts[2]},
	}
}

// nextB64 gives the neighbour of a last digit, which differs in the bits that are left over.
func nextB64(c byte) byte {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return digits[strings.IndexByte(digits, c)^1]
}

// sign64 gives a good token with a digit that the alphabets write differently.
func sign64(t testing.TB, i *issuer) string {
	t.Helper()
	for n := range 1000 {
		token := i.good(func(c jwt.MapClaims) { c["n"] = n })
		if strings.ContainsAny(token, "-_") {
			return token
		}
	}
	t.Fatal("no such token")
	return ""
}

func TestHostileTokensAreRefused(t *testing.T) {
	i := newIssuer(t, "rsa", "ec", "ec384", "ed")
	logs := new(logBuffer)
	j := i.accept(func(c *JWTConfig) { c.Logger = logs.logger() })
	if _, err := (Bearer{j}).Authenticate(request("Bearer " + i.good())); err != nil {
		t.Fatalf("the good token is refused: %v", err)
	}
	checks := map[string]int{}
	table := hostileTokens(t, i)
	for _, tt := range table {
		c, err := Bearer{j}.Authenticate(request("Bearer " + tt.token))
		var r *Refusal
		if !errors.Is(err, ErrUnauthorized) || !errors.As(err, &r) || c != (Caller{}) {
			t.Errorf("%s: %+v %v", tt.name, c, err)
			continue
		}
		checks[r.Check]++
		clean(t, err.Error(), tt.token)
	}
	if len(table) < 35 || len(checks) < 20 {
		t.Errorf("only %d tokens, refused by %d checks", len(table), len(checks))
	}
	t.Logf("%d tokens, refused by %d different checks", len(table), len(checks))
	if n := i.fetches.Load(); n != 1 {
		t.Errorf("%d fetches: tokens cause fetches", n)
	}
	if n := i.strays.Load(); n != 0 {
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
	claims := jwt.MapClaims{"iss": "dev", "aud": "agentstream", "tenant": "acme", "scope": "read", "exp": time.Now().Add(time.Hour).Unix()}
	c, err := Bearer{j}.Authenticate(request("bearer  " + sign(t, jwt.SigningMethodHS256, secret, "", claims)))
	if err != nil || c.Tenant != "acme" || c.Scopes != ScopeRead {
		t.Errorf("%+v %v", c, err)
	}
	for name, token := range map[string]string{
		"another secret":    sign(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), "", claims),
		"another hash":      sign(t, jwt.SigningMethodHS512, secret, "", claims),
		"a shorter hash":    sign(t, jwt.SigningMethodHS384, secret, "", claims),
		"an asymmetric key": sign(t, jwt.SigningMethodRS256, signers()["rsa"], "", claims),
		"no algorithm":      sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", claims) + "x",
		"expired":           sign(t, jwt.SigningMethodHS256, secret, "", jwt.MapClaims{"iss": "dev", "aud": "agentstream", "tenant": "acme", "exp": 1}),
	} {
		if _, err := (Bearer{j}).Authenticate(request("Bearer " + token)); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeadersThatAreNoCredential(t *testing.T) {
	i := newIssuer(t, "rsa")
	j, good := i.accept(), i.good()
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
