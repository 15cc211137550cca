package authtest

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// Token is a token that must be refused.
type Token struct {
	Name string
	Text string
}

// Hostile returns forged, damaged, foreign and outdated tokens.
func (i *Issuer) Hostile() []Token {
	i.t.Helper()
	return slices.Concat(i.badSignatures(), i.badClaims(), i.badForms())
}

// badSignatures returns tokens that are signed with another key or in another way, or say how they want to be
// checked.
func (i *Issuer) badSignatures() []Token {
	t := i.t
	rsaKey, attacker := Signers()["rsa"], Signers()["attacker"]
	parts := strings.Split(i.Good(), ".")
	payload, text := parts[1], i.text()
	with := func(h map[string]any) string { return Sign(t, jwt.SigningMethodRS256, rsaKey, "rsa", i.Claims(), h) }
	forged := func(h map[string]any) string {
		return Sign(t, jwt.SigningMethodRS256, attacker, "rsa", i.Claims(), h)
	}
	noAlg := func(alg string) string { return b64(`{"alg":"`+alg+`","typ":"JWT"}`) + "." + payload + "." }
	confused := func(secret []byte) string { return Sign(t, jwt.SigningMethodHS256, secret, "rsa", i.Claims()) }
	jwk, err := json.Marshal(jose.JSONWebKey{Key: attacker.Public(), KeyID: "rsa"})
	if err != nil {
		t.Fatal(err)
	}
	attackerJWK := json.RawMessage(jwk)
	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY",
		Bytes: x509.MarshalPKCS1PublicKey(rsaKey.Public().(*rsa.PublicKey))})
	return []Token{
		{"alg none, no signature", noAlg("none")},
		{"alg None", noAlg("None")},
		{"alg nOnE", noAlg("nOnE")},
		{"alg none with a signature", b64(`{"alg":"none"}`) + "." + payload + "." + parts[2]},
		{"alg empty", b64(`{"alg":""}`) + "." + payload + "." + parts[2]},
		{"no alg", raw(t, `{"kid":"rsa"}`, text)},
		{"alg twice", raw(t, `{"alg":"none","alg":"RS256","kid":"rsa"}`, text)},
		{"alg a number", raw(t, `{"alg":256,"kid":"rsa"}`, text)},
		{"alg in lower case", raw(t, `{"alg":"rs256","kid":"rsa"}`, text)},
		{"alg under another case of its name", raw(t, `{"ALG":"RS256","kid":"rsa"}`, text)},
		{"key confusion with the PEM", confused(public)},
		{"key confusion with the PKCS 1 PEM", confused(pkcs1)},
		{"key confusion with the DER", confused(der)},
		{"key confusion with the key id", confused([]byte("rsa"))},
		{"HMAC with an empty secret", confused([]byte{})},
		{"another key", forged(nil)},
		{"another key, embedded as jwk", forged(map[string]any{"jwk": attackerJWK})},
		{"the issuer's signature, with a jwk", with(map[string]any{"jwk": attackerJWK})},
		{"another key, fetched by jku", forged(map[string]any{"jku": i.URL + "/attacker.json"})},
		{"the issuer's signature, with a jku", with(map[string]any{"jku": i.URL + "/keys"})},
		{"another key, fetched by x5u", forged(map[string]any{"x5u": i.URL + "/attacker.pem"})},
		{"another key, embedded as x5c", forged(map[string]any{"x5c": []string{base64.StdEncoding.EncodeToString(der)}})},
		{"kid is a path", forged(map[string]any{"kid": "../../../../dev/null"})},
		{"kid is a URL", forged(map[string]any{"kid": i.URL + "/attacker.json"})},
		{"kid is SQL", forged(map[string]any{"kid": "x' UNION SELECT 'secret'--"})},
		{"kid is a command", forged(map[string]any{"kid": "rsa|id"})},
		{"kid is unknown", Sign(t, jwt.SigningMethodRS256, rsaKey, "elsewhere", i.Claims())},
		{"kid is a list", with(map[string]any{"kid": []string{"rsa"}})},
		{"kid is empty", with(map[string]any{"kid": ""})},
		{"kid of a key of another kind", Sign(t, jwt.SigningMethodRS256, rsaKey, "ec", i.Claims())},
		{"ES256 over the RSA key's id", Sign(t, jwt.SigningMethodES256, Signers()["ec"], "rsa", i.Claims())},
		{"critical parameter", with(map[string]any{"crit": []string{"exp"}})},
		{"unencoded payload", with(map[string]any{"b64": false, "crit": []string{"b64"}})},
		{"unencoded payload, not critical", with(map[string]any{"b64": false})},
		{"a logout token", with(map[string]any{"typ": "logout+jwt"})},
		{"a type that is no text", with(map[string]any{"typ": 7})},
	}
}

// badClaims returns tokens that have an honest signature and say something wrong.
func (i *Issuer) badClaims() []Token {
	set := func(name string, v any) string { return i.Good(func(c jwt.MapClaims) { c[name] = v }) }
	without := func(name string) string { return i.Good(func(c jwt.MapClaims) { delete(c, name) }) }
	return []Token{
		{"wrong audience", set("aud", "another")},
		{"audiences without ours", set("aud", []string{"a", "b"})},
		{"audience in another case", set("aud", "Agentstream")},
		{"no audience", without("aud")},
		{"empty audiences", set("aud", []string{})},
		{"audience a number", set("aud", []any{"agentstream", 7})},
		{"audience an object", set("aud", map[string]any{"agentstream": true})},
		{"wrong issuer", set("iss", "https://evil.example")},
		{"issuer with a slash", set("iss", i.URL+"/")},
		{"no issuer", without("iss")},
		{"issuer a list", set("iss", []string{i.URL})},
		{"expired", set("exp", time.Now().Add(-31*time.Second).Unix())},
		{"no expiry", without("exp")},
		{"expiry a text", set("exp", fmt.Sprint(time.Now().Add(time.Hour).Unix()))},
		{"expiry null", set("exp", nil)},
		{"expiry 0", set("exp", 0)},
		{"expiry beyond time", set("exp", 1e300)},
		{"expiry beyond numbers", raw(i.t, rs256, strings.Replace(i.text(), `"exp":`, `"exp":1e999,"x":`, 1))},
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
		{"tenant under another case of its name",
			i.Good(func(c jwt.MapClaims) { c["Tenant"] = c["tenant"]; delete(c, "tenant") })},
		{"subject a number", set("sub", 7)},
		{"subject too long", set("sub", strings.Repeat("s", 300))},
	}
}

// rs256 is an honest header.
const rs256 = `{"alg":"RS256","kid":"rsa","typ":"JWT"}`

// text is the JSON of honest claims.
func (i *Issuer) text() string {
	b, err := json.Marshal(i.Claims())
	if err != nil {
		i.t.Fatal(err)
	}
	return string(b)
}

// badForms returns what is no token, or none that two readers would read alike.
func (i *Issuer) badForms() []Token {
	t, good, text := i.t, i.Good(), i.text()
	parts := strings.Split(good, ".")
	doubled := strings.Replace(text, `"tenant":"acme"`, `"tenant":"acme","tenant":"evil"`, 1)
	changed := strings.Replace(text, "acme", "evil", 1)
	another := strings.Split(i.Good(func(c jwt.MapClaims) { c["tenant"] = "evil" }), ".")[2]
	flat := fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2])
	return []Token{
		{"a claim twice", raw(t, rs256, doubled)},
		{"claims are a list", raw(t, rs256, "["+text+"]")},
		{"two objects of claims", raw(t, rs256, text+text)},
		{"claims are no JSON", raw(t, rs256, text[:40])},
		{"claims are not UTF-8", raw(t, rs256, strings.Replace(text, "u-1", "u-\xff", 1))},
		{"claims nested without end", raw(t, rs256, strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100))},
		{"changed claims", parts[0] + "." + b64(changed) + "." + parts[2]},
		{"signature of another token", parts[0] + "." + parts[1] + "." + another},
		{"signature cut", good[:len(good)-8]},
		{"signature stripped", parts[0] + "." + parts[1] + "."},
		{"signature left out", parts[0] + "." + parts[1]},
		{"padded", good + "="},
		{"trailing bits", good[:len(good)-1] + string(nextB64(good[len(good)-1]))},
		{"standard alphabet", strings.NewReplacer("-", "+", "_", "/").Replace(sign64(t, i))},
		{"four parts", good + "." + parts[2]},
		{"five parts, encrypted", strings.Join([]string{b64(`{"alg":"dir","enc":"A128GCM"}`), "", b64("iv"),
			b64("text"), b64("tag")}, ".")},
		{"two signatures, JSON serialization",
			fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q},{"protected":%q,"signature":%q}]}`,
				parts[1], parts[0], parts[2], parts[0], parts[2])},
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

// nextB64 returns the neighbour of a last digit, which differs in the bits that are left over.
func nextB64(c byte) byte {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return digits[strings.IndexByte(digits, c)^1]
}

// sign64 returns a good token with a digit that the alphabets write differently.
func sign64(t testing.TB, i *Issuer) string {
	t.Helper()
	for n := range 1000 {
		token := i.Good(func(c jwt.MapClaims) { c["n"] = n })
		if strings.ContainsAny(token, "-_") {
			return token
		}
	}
	t.Fatal("no such token")
	return ""
}
