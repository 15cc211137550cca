package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"agentstream/schema"
)

// writings are the ways in which a server may repeat a text within JSON.
var writings = map[string]func(string) string{
	"plain":   quote,
	"unicode": func(s string) string { return `"` + eachByte(s, `\u%04x`) + `"` },
	"upper":   func(s string) string { return `"` + eachByte(s, `\u%04X`) + `"` },
	"json within JSON": func(s string) string {
		return quote(`{"error":"` + eachByte(s, `\u%04x`) + `"}`)
	},
	"thrice":        func(s string) string { return quote(quote(quote(s))) },
	"query":         func(s string) string { return quote("?key=" + url.QueryEscape(s)) },
	"every byte":    func(s string) string { return quote(eachByte(s, "%%%02x")) },
	"EVERY BYTE":    func(s string) string { return quote(eachByte(s, "%%%02X")) },
	"html":          func(s string) string { return quote(html.EscapeString(s)) },
	"html numbers":  func(s string) string { return quote(eachByte(s, "&#%d;")) },
	"JavaScript":    func(s string) string { return quote(eachByte(s, `\x%02x`)) },
	"escaped slash": func(s string) string { return strings.ReplaceAll(quote(s), "/", `\/`) },
}

func eachByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// within takes the quotes off.
func within(s string) string { return s[1 : len(s)-1] }

// bare undoes every escape of a text.
func bare(s string) string {
	v := unescapedText{b: []byte(s)}
	for {
		next, more := v.unescape()
		if !more {
			return string(v.b)
		}
		v = next
	}
}

// inner are the letters of an API key; parts of it are looked for as well.
const inner = "sk-a1/B2+c3=d4&e5"

// TestFilter: a secret is in no event, however it is written and wherever its text is cut. All other text is as it was.
func TestFilter(t *testing.T) {
	for name, write := range writings {
		for seed := range uint64(200) {
			rng := rand.New(rand.NewPCG(seed, 9))
			f := newFilter(appendForms(nil, inner, minSecret))
			texts := []string{"Your key is ", inner, ", s sk sk-a and 100% \\ & \"ü\n\"."}
			whole := `"` + within(quote(texts[0])) + within(write(inner)) + within(quote(texts[2])) + `"`
			var events []schema.Event
			for _, piece := range cutJSON(rng, whole) {
				events = append(events, schema.Event{Type: schema.TypeTextDelta,
					Payload: fmt.Appendf(nil, `{"text":"%s","index":0}`, piece)})
			}
			events = append(events, schema.Event{Type: schema.TypeBlockEnd, Payload: []byte(`{"index":0,"message_id":"m"}`)},
				schema.Event{Type: schema.TypeMessageEnd,
					Payload: []byte(`{"message_id":"m","content":[{"type":"text","text":` + whole + `}]}`)})
			var text, all string
			for len(events) > 0 { // they come in any number at a time
				n := 1 + rng.IntN(len(events))
				for _, e := range f.Events(events[:n]) {
					var p struct{ Text string }
					if err := json.Unmarshal(e.Payload, &p); err != nil {
						t.Fatalf("%s: %v: %s", name, err, e.Payload)
					}
					text += p.Text
					all += string(e.Payload)
				}
				events = events[n:]
			}
			if strings.Contains(bare(text), inner) || strings.Contains(bare(all), inner) {
				t.Fatalf("%s, %d: %s", name, seed, all)
			}
			if !strings.HasPrefix(text, texts[0]) || !strings.HasSuffix(text, texts[2]) || !strings.Contains(text, hidden) {
				t.Fatalf("%s, %d: %q", name, seed, text)
			}
		}
	}
}

// cutJSON cuts the inside of a JSON string into pieces, never within an escape.
func cutJSON(rng *rand.Rand, s string) (pieces []string) {
	s = s[1 : len(s)-1]
	from := 0
	for i := 0; i < len(s); {
		switch {
		case s[i] == '\\' && s[i+1] == 'u':
			i += 6
		case s[i] == '\\':
			i += 2
		case s[i] >= 0x80:
			for i++; i < len(s) && s[i]&0xc0 == 0x80; i++ {
			}
		default:
			i++
		}
		if rng.IntN(3) == 0 {
			pieces = append(pieces, s[from:i])
			from = i
		}
	}
	return append(pieces, s[from:])
}

// TestCredentials: what a request may authenticate with is looked for, and ordinary words are not.
func TestCredentials(t *testing.T) {
	u, err := url.Parse("http://x/v1/models/g:generateContent?alt=sse&key=AIza-1234567&stream=true")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	basic, err := http.NewRequest(http.MethodGet, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	basic.SetBasicAuth("somebody", "hunter2")
	for name, value := range map[string]string{
		"Authorization": "Bearer sk-bearer-1", "Proxy-Authorization": basic.Header.Get("Authorization"),
		"X-Api-Key": "sk-x-api",
		"Cookie":    "theme=darkmode; session=s3ss10n-cookie", "Helicone-Auth": "Bearer hel-0001",
		"Cf-Access-Client-Secret": "cf-secret-1",
		"X-Amz-Security-Token":    "amz/token+1=", "X-Vendor": "vendor-value-0123456789",
		"Content-Type": "application/json; charset=utf-8", "Accept": "text/event-stream", "Anthropic-Version": "2023-06-01",
		"X-Stainless-Lang": "python", "User-Agent": "OpenAI/Python 2.0.0", "Openai-Organization": "org-12345678",
	} {
		h.Set(name, value)
	}
	got := "\n" + strings.Join(credentials(h, u), "\n") + "\n"
	for _, want := range []string{
		"sk-bearer-1", "somebody:hunter2", "hunter2", "sk-x-api", "s3ss10n-cookie", "hel-0001", "cf-secret-1", "amz/token+1=",
		"vendor-value-0123456789", "AIza-1234567",
		strings.TrimRight(strings.TrimPrefix(basic.Header.Get("Authorization"), "Basic "), "="),
	} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("%q is not looked for", want)
		}
	}
	for _, word := range []string{"darkmode", "application/json", "charset", "python", "text/event-stream",
		"org-12345678", "Bearer", "2023-06-01", "true"} {
		if strings.Contains(got, "\n"+word+"\n") {
			t.Errorf("%q is taken for a credential", word)
		}
	}
}

// TestCredentialsInParts: a credential that is a part of a value, behind a colon, in base64 or in JSON, is looked for
// by itself: an answer may repeat that part alone.
func TestCredentialsInParts(t *testing.T) {
	const secret = "hunter2-0123"
	pair := base64.StdEncoding.EncodeToString([]byte("somebody:" + secret))
	for name, value := range map[string]string{
		"Authorization":   "ApiKey " + pair,
		"X-Fal-Key":       "id-1:" + secret,
		"X-Gateway-Token": base64.RawURLEncoding.EncodeToString([]byte("v1:" + secret)),
		"X-Portkey-Config": `{"targets":[{"provider":"openai","api_key":"` + secret +
			`"}],"model":"gpt-4o-mini-2024-07-18"}`,
		"X-Vendor-Credentials": `{"basic":{"password":"somebody:` + secret + `"}}`,
		"Cookie":               "theme=darkmode; auth=v2:" + secret,
	} {
		got := credentials(http.Header{name: {value}}, new(url.URL))
		if !slices.Contains(got, secret) {
			t.Errorf("%s: %s: the credential is not looked for in %q", name, value, got)
		}
		for _, word := range []string{"gpt-4o-mini-2024-07-18", "openai", "darkmode"} {
			if slices.Contains(got, word) {
				t.Errorf("%s: %q is taken for a credential", name, word)
			}
		}
	}
}
