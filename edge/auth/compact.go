package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// The algorithms that are accepted, fixed here and never read from a token or a provider (RFC 8725
// §3.1). The lists have nothing in common, so that no public key can serve as an HMAC secret.
var (
	publicAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
	secretAlgorithms = []string{"HS256"}
)

// compact is a JWS in compact serialization, taken apart and not yet verified.
type compact struct {
	token   string
	alg     string
	kid     string
	payload []byte // JSON object
}

// header parameters that would bring a key, or a place to fetch one from, with the token. Honest
// issuers of access tokens do not send them. x5c and x5t are common and ignored.
var keyParameters = []string{"jwk", "jku", "x5u"}

// parseCompact accepts three parts of canonical base64url, a header with an algorithm of the list and
// without critical parameters, and a payload that is one JSON object in which no name is twice. The
// libraries below read some of this more generously; what two readers could read in two ways is
// refused before either reads it.
func parseCompact(token string, algorithms []string) (compact, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return compact{}, refuse("not a signed token in compact form")
	}
	raw := make([][]byte, 3)
	for i, p := range parts {
		var err error
		if raw[i], err = base64.RawURLEncoding.Strict().DecodeString(p); err != nil || strings.ContainsAny(p, "\r\n") {
			return compact{}, refuse("a part of the token is not base64url")
		}
	}
	header, err := decodeObject(raw[0])
	if err != nil {
		return compact{}, refuse("header: " + err.Error())
	}
	c := compact{token: token, payload: raw[1]}
	if c.alg, _ = header["alg"].(string); !slices.Contains(algorithms, c.alg) {
		return compact{}, refuse("the algorithm is not in the list")
	}
	return c, c.readHeader(header)
}

func (c *compact) readHeader(header map[string]any) error {
	for _, name := range keyParameters {
		if _, ok := header[name]; ok {
			return refuse("the token brings its own key (" + name + ")")
		}
	}
	if _, ok := header["crit"]; ok {
		return refuse("the token has critical parameters")
	}
	if _, ok := header["b64"]; ok {
		return refuse("the payload is not encoded")
	}
	// Tokens of the same issuer for other purposes carry other types (RFC 8725 §3.11).
	if v, ok := header["typ"]; ok {
		typ, _ := v.(string)
		if typ = strings.TrimPrefix(strings.ToLower(typ), "application/"); typ != "jwt" && typ != "at+jwt" {
			return refuse("the token is of another type")
		}
	}
	if v, ok := header["kid"]; ok {
		if c.kid, ok = v.(string); !ok || c.kid == "" {
			return refuse("the key id is not a text")
		}
	}
	return nil
}

// decodeObject decodes one JSON object whose names are unique at every depth, keeping numbers as text.
func decodeObject(data []byte) (map[string]any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decodeValue(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	return object, nil
}

// maxDepth bounds the nesting of claims.
const maxDepth = 32

var errNotJSON = errors.New("not JSON")

func decodeValue(dec *json.Decoder, depth int) (any, error) {
	t, err := dec.Token()
	if err != nil {
		return nil, errNotJSON // the decoder's text would quote the token
	}
	d, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth == maxDepth {
		return nil, errors.New("nested too deep")
	}
	if d == '[' {
		list := []any{}
		for dec.More() {
			v, err := decodeValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, closing(dec)
	}
	object := map[string]any{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, errNotJSON
		}
		key, _ := name.(string) // the decoder lets nothing else stand there
		if _, twice := object[key]; twice {
			return nil, errors.New("a name is given twice")
		}
		if object[key], err = decodeValue(dec, depth+1); err != nil {
			return nil, err
		}
	}
	return object, closing(dec)
}

func closing(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return errNotJSON
	}
	return nil
}
