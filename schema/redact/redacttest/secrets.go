package redacttest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Secret is a generated secret. Rule is the rule of Rules that finds it. Core is a part that no text holds by chance: when
// it is somewhere, the secret has leaked.
type Secret struct {
	Kind, Rule, Text, Core string
}

// Rules is a file of rules that finds all secrets, for every tenant.
const Rules = `{"*":{"rules":[
	{"name":"keys","known":["provider-keys"]},
	{"name":"jwt","known":["jwt"]},
	{"name":"pem","known":["private-keys"]},
	{"name":"card","known":["cards"]},
	{"name":"own","pattern":"ACME-[0-9a-f]{24}"},
	{"name":"path","path":"$.output.password"}
]}}`

const (
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	hex     = "0123456789abcdef"
	caps    = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
)

func random(rng *rand.Rand, from string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = from[rng.IntN(len(from))]
	}
	return string(b)
}

// Secrets returns one secret of every kind.
func Secrets(seed uint64) []Secret {
	rng := rand.New(rand.NewPCG(seed, 4711))
	var list []Secret
	key := func(kind, begin, from string, n int) {
		body := random(rng, from, n-2) + "a7"
		if from == caps {
			body = random(rng, from, n)
		}
		list = append(list, Secret{kind, "keys", begin + body, body[len(body)/2:]})
	}
	key("anthropic", "sk-ant-api03-", letters+"-_", 90)
	key("openai", "sk-proj-", letters+"-_", 100)
	key("openai, old", "sk-", letters, 48)
	key("aws", "AKIA", caps, 16)
	key("google", "AIza", letters+"-_", 35)
	key("github", "ghp_", letters, 36)
	key("slack", "xoxb-", letters, 40)
	key("stripe", "sk_live_", letters, 24)
	key("hugging face", "hf_", letters, 34)
	key("groq", "gsk_", letters, 52)
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	claims := random(rng, letters, 30)
	token := part(`{"alg":"HS256","typ":"JWT"}`) + "." + part(`{"sub":"`+claims+`"}`) + "." + random(rng, letters, 43)
	list = append(list, Secret{"jwt", "jwt", token, token[len(token)-30:]})
	var pem strings.Builder
	pem.WriteString("-----BEGIN RSA PRIVATE KEY-----\n")
	for range 12 {
		pem.WriteString(random(rng, letters+"+/", 64) + "\n")
	}
	core := pem.String()[100:130]
	pem.WriteString("-----END RSA PRIVATE KEY-----")
	list = append(list, Secret{"pem", "pem", pem.String(), core})
	card := Card(rng)
	list = append(list, Secret{"card", "card", card, card[4:]},
		Secret{"card, in groups", "card", group(Card(rng)), ""})
	list[len(list)-1].Core = list[len(list)-1].Text[5:]
	own := random(rng, hex, 24)
	return append(list, Secret{"own", "own", "ACME-" + own, own[8:]})
}

// Card returns the number of a card with the right sum.
func Card(rng *rand.Rand) string {
	for {
		number := "4" + random(rng, "0123456789", 14)
		sum := 0
		for i := range number {
			n := int(number[len(number)-1-i] - '0')
			if i%2 == 0 {
				n *= 2
				if n > 9 {
					n -= 9
				}
			}
			sum += n
		}
		return number + fmt.Sprint((10-sum%10)%10)
	}
}

func group(card string) string {
	return card[:4] + " " + card[4:8] + " " + card[8:12] + " " + card[12:]
}

// Leak returns the kinds of the secrets that bytes hold a core of, as it is or as JSON writes it.
func Leak(b []byte, list []Secret) (kinds []string) {
	for _, s := range list {
		escaped := strings.ReplaceAll(s.Core, "\n", `\n`)
		if bytes.Contains(b, []byte(s.Core)) || bytes.Contains(b, []byte(escaped)) {
			kinds = append(kinds, s.Kind)
		}
	}
	return kinds
}
