package sentence

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// inner is what only this program's authors know: its packages, types and values of Go, texts of its libraries.
var inner = []*regexp.Regexp{
	regexp.MustCompile(`(^|[ :])(auth|blob|dialect|edge|ends|fanout|grpc|jetstream|json|live|nats|natsjs|natskit|pgx|` +
		`poll|producers|publish|rest|schema|strconv|transport|ws): `),
	regexp.MustCompile(`\*[a-z]\w*\.[A-Z]|\b(interface ?\{|struct ?\{|map\[|\[\]byte|chan )|\bGo (value|struct)`),
	regexp.MustCompile(`%!|<nil>|0xc[0-9a-f]{9}|goroutine|\.go:\d`),
	regexp.MustCompile(`SQLSTATE|context (canceled|deadline)|unexpected EOF|\bEOF\b|dial tcp|connection refused`),
	regexp.MustCompile(`\[[A-Za-z]-[A-Za-z0-9_-]+\]\{`), // an expression in place of words
}

// quoted is what a message repeats of a request.
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"|'[^']*'`)

// aside is what a message names of a request, and says beside.
var aside = regexp.MustCompile(`\([^()]*\)|/[A-Za-z0-9_/~-]+|\{[^{}]*\}`)

// small words say nothing by themselves.
var small = strings.Fields("a an the of or and to in is are it its be as by at for with without not no that this " +
	"from has have must one than more most may on which where there was were")

// telling is a word that can say something.
var telling = regexp.MustCompile(`[a-z]{3}`)

// Check returns an error unless a message says one thing, once, to a person.
func Check(message string) error {
	unquoted := quoted.ReplaceAllString(message, "Q")
	switch {
	case strings.TrimSpace(message) == "":
		return fmt.Errorf("nothing is said")
	case !utf8.ValidString(message) || strings.ContainsRune(unquoted, utf8.RuneError):
		return fmt.Errorf("%q is cut within a character", message)
	}
	for _, re := range inner {
		if found := re.FindString(unquoted); found != "" {
			return fmt.Errorf("%q names %q, which nobody knows outside", message, found)
		}
	}
	plain := aside.ReplaceAllString(unquoted, "Q")
	if parts := strings.Split(plain, ": "); len(parts) > 2 {
		return fmt.Errorf("%q is a trail of %d parts", message, len(parts))
	}
	return checkOnce(message, plain)
}

// checkOnce finds two words of some meaning that stand together twice.
func checkOnce(message, plain string) error {
	seen := map[string]bool{}
	last := ""
	for _, word := range strings.FieldsFunc(strings.ToLower(plain), func(r rune) bool {
		return r == ' ' || strings.ContainsRune(`:;,."…`, r)
	}) {
		if word == "q" {
			last = ""
		}
		if slices.Contains(small, word) || !telling.MatchString(word) {
			continue
		}
		if pair := last + " " + word; last != "" && seen[pair] {
			return fmt.Errorf("%q says %q twice", message, pair)
		} else if last != "" {
			seen[pair] = true
		}
		if word == last {
			return fmt.Errorf("%q says %q twice", message, word)
		}
		last = word
	}
	return nil
}

// names are where protocols have the text of a refusal.
var names = []string{"message", "detail", "errorText", "description", "reason", "error"}

// Of returns the messages in a body that is JSON, or a text of it.
func Of(body []byte) []string {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return nil
	}
	return collect(nil, v)
}

func collect(found []string, v any) []string {
	switch v := v.(type) {
	case []any:
		for _, below := range v {
			found = collect(found, below)
		}
	case map[string]any:
		for name, below := range v {
			text, is := below.(string)
			if is && slices.Contains(names, name) && strings.Contains(text, " ") {
				found = append(found, text)
			}
			found = collect(found, below)
		}
	}
	return found
}
