package redact

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// harmless are the headers of requests whose values are no credentials. Of every other one it is taken that it may be:
// each gateway has its own.
var harmless = map[string]bool{
	"Accept": true, "Cache-Control": true, "Connection": true, "Date": true, "Dnt": true, "Expect": true,
	"Forwarded": true,
	"Host":      true, "Http-Referer": true, "Idempotency-Key": true, "Keep-Alive": true, "Max-Forwards": true,
	"Origin": true,
	"Pragma": true, "Priority": true, "Range": true, "Referer": true, "Te": true, "Traceparent": true, "Tracestate": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "User-Agent": true, "Via": true, "Warning": true,
	"Anthropic-Beta": true, "Anthropic-Version": true, "Anthropic-Dangerous-Direct-Browser-Access": true,
	"Openai-Beta": true, "Openai-Organization": true, "Openai-Project": true,
	"X-App": true, "X-Client-Request-Id": true, "X-Goog-Api-Client": true, "X-Goog-User-Project": true, "X-Real-Ip": true,
	"X-Request-Id": true, "X-Title": true, "X-Correlation-Id": true,
}

// harmlessPrefixes of headers.
var harmlessPrefixes = []string{
	"Agentstream-", "Accept-", "Access-Control-", "Content-", "If-", "Sec-Ch-", "Sec-Fetch-", "X-Forwarded-",
	"X-Stainless-",
}

// harmlessQuery are parameters that are no credentials.
var harmlessQuery = map[string]bool{
	"after": true, "alt": true, "$alt": true, "api-version": true, "before": true, "beta": true, "include": true,
	"include[]": true, "limit": true, "order": true, "prettyPrint": true, "starting_after": true, "stream": true,
}

// credential are words in the names of headers and parameters that hold one.
var credential = []string{"auth", "cred", "key", "pass", "secret", "session", "sign", "token"}

// Shortest values, in bytes, that are looked for: shorter ones are ordinary words. minOther is that of values whose
// names do not say that they are credentials.
const (
	minSecret  = 6
	minCookie  = 8
	minOther   = 12
	minLetters = 16 // of letters alone, where the name does not say that it is a credential
)

// Of returns the filter of a request.
func Of(h http.Header, u *url.URL) *Filter { return newFilter(credentials(h, u)) }

// credentials returns the values by which a request may authenticate, in every form that an answer may repeat them in.
func credentials(h http.Header, u *url.URL) (list []string) {
	for name, values := range h {
		if isHarmless(name) {
			continue
		}
		for _, v := range values {
			list = appendSecret(list, v, shortest(name))
		}
	}
	for name, values := range u.Query() {
		if harmlessQuery[name] {
			continue
		}
		for _, v := range values {
			list = appendSecret(list, v, shortest(name))
		}
	}
	return longestFirst(list)
}

// longestFirst sorts values, of which others may be parts, and leaves out those that are there twice.
func longestFirst(list []string) []string {
	slices.SortFunc(list, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(list)
}

// spell returns values with other spellings of each: in letters of one case, as servers write what they compare without
// it, and in hexadecimal digits, as they write bytes.
func spell(list []string) []string {
	all := slices.Clone(list)
	for _, v := range list {
		digits := hex.EncodeToString([]byte(v))
		all = append(all, strings.ToLower(v), strings.ToUpper(v), digits, strings.ToUpper(digits))
	}
	return longestFirst(all)
}

// Caller identifies who makes a request, by the values that it may authenticate with. It is safe to keep: the values
// cannot be found from it.
func Caller(h http.Header, u *url.URL) (id [16]byte) {
	var list []string
	add := func(name string, values []string, harmless bool) {
		if harmless || !isCredential(name) {
			return
		}
		for _, v := range values {
			list = append(list, strings.ToLower(name)+"\x00"+v)
		}
	}
	for name, values := range h {
		add(name, values, isHarmless(name))
	}
	for name, values := range u.Query() {
		add(name, values, harmlessQuery[name])
	}
	slices.Sort(list)
	whole := sha256.Sum256([]byte(strings.Join(list, "\x00\x00")))
	copy(id[:], whole[:])
	return id
}

// isCredential reports whether the name of a header or parameter speaks of a credential.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	return name == "cookie" || slices.ContainsFunc(credential,
		func(word string) bool { return strings.Contains(name, word) })
}

func isHarmless(header string) bool {
	begins := func(p string) bool { return strings.HasPrefix(header, p) }
	return harmless[header] || slices.ContainsFunc(harmlessPrefixes, begins)
}

func shortest(name string) int {
	name = strings.ToLower(name)
	if name == "cookie" { // most of them hold settings
		return minCookie
	}
	if isCredential(name) {
		return minSecret
	}
	return minOther
}

// schemes of authentication that one word follows.
var schemes = []string{"basic", "bearer", "key", "token"}

// appendSecret adds a value and its parts: behind a scheme, in a list of parameters or cookies, in JSON, and in base64.
func appendSecret(list []string, v string, least int) []string {
	v = strings.Trim(strings.TrimSpace(v), `"`)
	if strings.HasPrefix(v, "{") {
		var object any
		_ = json.Unmarshal([]byte(v), &object) // what is none has no members
		list = appendMembers(list, "", object)
	}
	scheme, _, _ := strings.Cut(v, " ")
	if !slices.Contains(schemes, strings.ToLower(scheme)) {
		list = appendForms(list, v, least)
	}
	for word := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == ' ' || r == ',' || r == ';' }) {
		if slices.Contains(schemes, strings.ToLower(word)) {
			continue
		}
		list = appendForms(list, word, least)
		if _, value, ok := strings.Cut(word, "="); ok && strings.Trim(value, "=") != "" {
			list = appendForms(list, strings.Trim(value, `"`), least)
		}
		if least < minOther { // of others a part is too often an ordinary word
			list = appendPair(list, word, least)
		}
	}
	return list
}

// appendPair adds the second of two values with a colon between them, which may both be in base64, as those of Basic
// are.
func appendPair(list []string, pair string, least int) []string {
	word := strings.TrimRight(pair, "=")
	for _, from := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		plain, err := from.DecodeString(word)
		if err == nil && isText(plain) {
			list = appendForms(appendForms(list, word, least), string(plain), least)
			pair = string(plain)
			break
		}
	}
	if _, second, ok := strings.Cut(pair, ":"); ok {
		list = appendForms(list, second, least)
	}
	return list
}

// isText reports whether bytes are characters that a credential is made of.
func isText(b []byte) bool {
	return utf8.Valid(b) && !slices.ContainsFunc([]rune(string(b)), unicode.IsControl)
}

// appendMembers adds the strings of a JSON value whose names speak of a credential.
func appendMembers(list []string, name string, v any) []string {
	switch v := v.(type) {
	case string:
		if isCredential(name) {
			list = appendSecret(list, v, minSecret)
		}
	case []any:
		for _, one := range v {
			list = appendMembers(list, name, one)
		}
	case map[string]any:
		for name, one := range v {
			list = appendMembers(list, name, one)
		}
	}
	return list
}

// appendForms adds a value as it is, in HTML, and in base64. Escapes of JSON and of URLs are the filter's.
func appendForms(list []string, v string, least int) []string {
	word := least > minSecret && len(v) < minLetters && strings.TrimFunc(v, unicode.IsLetter) == ""
	if word || len(v) < least || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' }) {
		return list
	}
	list = append(list, v)
	if in := html.EscapeString(v); in != v {
		list = append(list, in)
	}
	raw := base64.RawStdEncoding.EncodeToString([]byte(v))
	list = append(list, raw)
	if safe := base64.RawURLEncoding.EncodeToString([]byte(v)); safe != raw {
		list = append(list, safe)
	}
	if decoded, err := url.QueryUnescape(v); err == nil && decoded != v && len(decoded) >= least {
		list = append(list, decoded)
	}
	return list
}
