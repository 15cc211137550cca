package redact

import "strings"

// secretKind is a kind of known secrets.
type secretKind int

const (
	providerKeys secretKind = iota // API keys and tokens with a beginning of their own
	tokens                         // JSON Web Tokens, signed or encrypted
	privateKeys                    // PEM
	cards                          // numbers of payment cards, by their sum
	kindCount
)

// kindNames are the kinds as a file of rules names them.
var kindNames = [kindCount]string{"provider-keys", "jwt", "private-keys", "cards"}

// Kinds returns the names of the kinds of known secrets.
func Kinds() []string { return append([]string(nil), kindNames[:]...) }

// shape is how a kind of keys is written: a beginning, and bytes of a class after it.
type shape struct {
	begin string
	class class
	least int  // bytes after the beginning
	most  int  // 0: no bound
	mixed bool // both a letter and a digit are among them: the beginning alone is no proof
}

// class is a set of bytes.
type class uint8

const (
	upper class = 1 << iota // A-Z
	lower
	digit
	score // _
	dash  // -
	point // .
	alnum = upper | lower | digit
	url64 = alnum | score | dash
)

// classOf has the class of each byte.
var classOf = func() (t [256]class) {
	for c := range t {
		switch {
		case c >= 'A' && c <= 'Z':
			t[c] = upper
		case c >= 'a' && c <= 'z':
			t[c] = lower
		case c >= '0' && c <= '9':
			t[c] = digit
		case c == '_':
			t[c] = score
		case c == '-':
			t[c] = dash
		case c == '.':
			t[c] = point
		}
	}
	return t
}()

// shapes are the keys of providers, of those that publish how theirs begin. A longer beginning stands before a shorter one.
var shapes = []shape{
	{begin: "sk-ant-", class: url64, least: 16},
	{begin: "sk-proj-", class: url64, least: 16},
	{begin: "sk-svcacct-", class: url64, least: 16},
	{begin: "sk-admin-", class: url64, least: 16},
	{begin: "sk-or-v1-", class: alnum, least: 16},
	{begin: "sk-lf-", class: url64, least: 16},
	{begin: "sk-", class: url64, least: 20, mixed: true},
	{begin: "sk_live_", class: alnum, least: 16},
	{begin: "sk_test_", class: alnum, least: 16},
	{begin: "rk_live_", class: alnum, least: 16},
	{begin: "rk_test_", class: alnum, least: 16},
	{begin: "whsec_", class: alnum, least: 20},
	{begin: "AKIA", class: upper | digit, least: 16, most: 16},
	{begin: "ASIA", class: upper | digit, least: 16, most: 16},
	{begin: "AIza", class: url64, least: 35},
	{begin: "ya29.", class: url64, least: 20},
	{begin: "GOCSPX-", class: url64, least: 20},
	{begin: "ghp_", class: alnum, least: 30},
	{begin: "gho_", class: alnum, least: 30},
	{begin: "ghu_", class: alnum, least: 30},
	{begin: "ghs_", class: alnum, least: 30},
	{begin: "ghr_", class: alnum, least: 30},
	{begin: "github_pat_", class: alnum | score, least: 22},
	{begin: "glpat-", class: url64, least: 20},
	{begin: "xoxb-", class: alnum | dash, least: 16},
	{begin: "xoxp-", class: alnum | dash, least: 16},
	{begin: "xoxa-", class: alnum | dash, least: 16},
	{begin: "xoxr-", class: alnum | dash, least: 16},
	{begin: "xoxs-", class: alnum | dash, least: 16},
	{begin: "xapp-", class: alnum | dash, least: 16},
	{begin: "hf_", class: alnum, least: 30},
	{begin: "gsk_", class: alnum, least: 30},
	{begin: "xai-", class: alnum, least: 30},
	{begin: "pplx-", class: alnum, least: 30},
	{begin: "r8_", class: alnum, least: 30},
	{begin: "nvapi-", class: url64, least: 30},
	{begin: "npm_", class: alnum, least: 30},
	{begin: "pypi-", class: url64, least: 30},
	{begin: "dop_v1_", class: lower | digit, least: 30},
	{begin: "SG.", class: url64 | point, least: 40},
	{begin: "lsv2_pt_", class: alnum | score, least: 20},
	{begin: "lsv2_sk_", class: alnum | score, least: 20},
	{begin: "tvly-", class: url64, least: 20, mixed: true},
	{begin: "hvs.", class: url64, least: 20},
	{begin: "shpat_", class: alnum, least: 30},
	{begin: "AGE-SECRET-KEY-1", class: upper | digit, least: 40},
}

const (
	tokenBegin = "eyJ" // {" in base64
	pemBegin   = "-----BEGIN "
	pemEnd     = "-----END "
	pemKey     = "PRIVATE KEY"
	maxLabel   = 64 // bytes of a line of PEM that begins or ends a key
)

// byFirst are the shapes by their first byte.
var byFirst = func() (t [256][]shape) {
	for _, s := range shapes {
		t[s.begin[0]] = append(t[s.begin[0]], s)
	}
	return t
}()

// suspectFirst are the bytes that a known secret begins with, apart from the digits of cards.
var suspectFirst = func() (t [256]bool) {
	for c := range t {
		t[c] = len(byFirst[c]) > 0 || byte(c) == tokenBegin[0] || byte(c) == pemBegin[0]
	}
	return t
}()

// suspectPair are the first two bytes of known secrets.
var suspectPair = func() (t [256][256]bool) {
	for _, s := range shapes {
		t[s.begin[0]][s.begin[1]] = true
	}
	t[tokenBegin[0]][tokenBegin[1]] = true
	t[pemBegin[0]][pemBegin[1]] = true
	return t
}()

// secret is a known secret in a text, or the beginning of one.
type secret struct {
	kind     secretKind
	from, to int
	class    class // bytes that it goes on with, where it ends with the text; 0 for PEM and for cards
	whole    bool  // false: it ends with the text, and what follows decides
	sure     bool  // of one that is not whole: its beginning is there, and some of what follows that
}

// sureBytes are how many bytes after its beginning make a secret that is cut off one that is hidden all the same.
const sureBytes = 8

// next returns the first known secret of a text from an index on, in kinds that are looked for. ok false: there is none.
func (r *Rules) next(text string, i int) (s secret, ok bool) {
	for ; i < len(text); i++ {
		c := text[i]
		if classOf[c] == digit {
			if r.kinds[cards] >= 0 {
				if s, ok = cardAt(text, i); ok {
					return s, true
				}
			}
			if !suspectFirst[c] {
				continue
			}
		}
		if !suspectFirst[c] || !isStart(text, i) {
			continue
		}
		if r.kinds[providerKeys] >= 0 && len(byFirst[c]) > 0 {
			if s, ok = keyAt(text, i); ok {
				return s, true
			}
		}
		if c == tokenBegin[0] && r.kinds[tokens] >= 0 {
			if s, ok = tokenAt(text, i); ok {
				return s, true
			}
		}
		if c == pemBegin[0] && r.kinds[privateKeys] >= 0 {
			if s, ok = pemAt(text, i); ok {
				return s, true
			}
		}
	}
	return s, false
}

// isStart reports whether a secret may begin at an index: not within a word. The letter of an escape, as in JSON that a
// string holds, belongs to no word.
func isStart(text string, i int) bool {
	return i == 0 || classOf[text[i-1]]&alnum == 0 || text[i] == pemBegin[0] ||
		i > 1 && text[i-2] == '\\' && strings.IndexByte("nrtbf", text[i-1]) >= 0
}

// run returns where the bytes of a class end that begin at an index.
func run(text string, i int, c class) int {
	for i < len(text) && classOf[text[i]]&c != 0 {
		i++
	}
	return i
}

// keyAt finds the key of a provider.
func keyAt(text string, i int) (s secret, ok bool) {
	rest := text[i:]
	for _, sh := range byFirst[text[i]] {
		if len(rest) < len(sh.begin) {
			if strings.HasPrefix(sh.begin, rest) {
				return secret{kind: providerKeys, from: i, to: len(text), class: sh.class}, true
			}
			continue
		}
		if !strings.HasPrefix(rest, sh.begin) {
			continue
		}
		body := i + len(sh.begin)
		end := run(text, body, sh.class)
		n := end - body
		cut := end == len(text)
		switch {
		case sh.most > 0 && n > sh.most:
			continue // a longer word
		case n >= sh.least && (!sh.mixed || isMixed(text[body:end])):
			return secret{kind: providerKeys, from: i, to: end, class: sh.class, whole: true}, true
		case cut:
			return secret{kind: providerKeys, from: i, to: end, class: sh.class,
				sure: n >= sureBytes && (!sh.mixed || isMixed(text[body:end]))}, true
		}
	}
	return s, false
}

// isMixed reports whether a text has both letters and digits.
func isMixed(text string) bool {
	var all class
	for i := range len(text) {
		all |= classOf[text[i]]
	}
	return all&digit != 0 && all&(upper|lower) != 0
}

// leastPart is the shortest part of a JSON Web Token that is looked at, in bytes.
const leastPart = 8

// headers of JSON Web Tokens begin with one of these: {"alg, {"typ, {"kid, {"enc, {"cty, {"x5t.
var tokenHeaders = [...]string{"eyJhbG", "eyJ0eX", "eyJraW", "eyJlbm", "eyJjdH", "eyJ4NX"}

// tokenAt finds a JSON Web Token: three parts of base64, or five of an encrypted one, of which the first is JSON.
func tokenAt(text string, i int) (s secret, ok bool) {
	rest := text[i:]
	if len(rest) < len(tokenBegin) {
		return secret{kind: tokens, from: i, to: len(text), class: url64 | point}, strings.HasPrefix(tokenBegin, rest)
	}
	if !strings.HasPrefix(rest, tokenBegin) {
		return s, false
	}
	s = secret{kind: tokens, from: i, class: url64 | point}
	points, at := 0, i
	for {
		end := run(text, at, url64)
		if points == 0 && end-at < leastPart && end < len(text) {
			return s, false
		}
		s.to = end
		if end < len(text) && text[end] == '.' && points < 4 {
			points, at = points+1, end+1
			continue
		}
		break
	}
	if s.to < at { // it ends with a point
		s.to = at
	}
	s.whole = points >= 2
	if s.whole {
		return s, true
	}
	if s.to < len(text) {
		return s, false
	}
	for _, h := range tokenHeaders {
		s.sure = s.sure || strings.HasPrefix(rest, h) && len(rest) >= len(h)+sureBytes
	}
	return s, true
}

// pemAt finds a private key in PEM, up to the end of its last line, or of the text.
func pemAt(text string, i int) (s secret, ok bool) {
	rest := text[i:]
	s = secret{kind: privateKeys, from: i, to: len(text)}
	if len(rest) < len(pemBegin) {
		return s, strings.HasPrefix(pemBegin, rest)
	}
	if !strings.HasPrefix(rest, pemBegin) {
		return s, false
	}
	label := rest[len(pemBegin):min(len(rest), len(pemBegin)+maxLabel)]
	name, _, closed := strings.Cut(label, "-----")
	if !closed {
		return s, len(rest) < len(pemBegin)+maxLabel && isLabel(strings.TrimRight(name, "-"))
	}
	if !isLabel(name) || !strings.Contains(name, pemKey) {
		return s, false
	}
	s.sure = true
	if n := pemLength(rest[len(pemBegin):]); n >= 0 {
		s.to, s.whole = i+len(pemBegin)+n, true
	}
	return s, true
}

// pemLength returns how long a text is up to where a key in PEM ends, -1 where it does not.
func pemLength(text string) int {
	at := strings.Index(text, pemEnd)
	if at < 0 {
		return -1
	}
	label := text[at+len(pemEnd) : min(len(text), at+len(pemEnd)+maxLabel)]
	n := strings.Index(label, "-----")
	if n < 0 {
		return -1
	}
	return at + len(pemEnd) + n + len("-----")
}

func isLabel(name string) bool {
	for i := range len(name) {
		if classOf[name[i]]&(upper|digit) == 0 && name[i] != ' ' {
			return false
		}
	}
	return true
}

// Digits of the numbers of cards.
const (
	leastDigits = 13
	mostDigits  = 19
)

// cardAt finds the number of a payment card: digits, in groups or not, that begin as one of the known networks and have
// the right sum (Luhn).
func cardAt(text string, i int) (s secret, ok bool) {
	if text[i] < '2' || text[i] > '6' || i > 0 && classOf[text[i-1]]&(alnum|point) != 0 && !isStart(text, i) {
		return s, false
	}
	if i > 1 && classOf[text[i-1]]&(dash|point) != 0 && classOf[text[i-2]] == digit {
		return s, false // a part of a longer number
	}
	var digits [mostDigits]byte
	n, end := 0, i
	for j := i; j < len(text); j++ {
		c := text[j]
		if classOf[c] == digit {
			if n == mostDigits {
				return s, false
			}
			digits[n] = c
			n, end = n+1, j+1
			continue
		}
		if c != ' ' && c != '-' || end != j {
			break
		}
	}
	open := end == len(text) || end == len(text)-1 && (text[end] == ' ' || text[end] == '-')
	s = secret{kind: cards, from: i, to: end}
	if isCard(digits[:n]) && (end == len(text) || classOf[text[end]]&alnum == 0) {
		s.whole = true
		return s, true
	}
	s.to = len(text)
	return s, open && n < mostDigits
}

// isCard reports whether digits are the number of a card.
func isCard(d []byte) bool {
	if len(d) < leastDigits {
		return false
	}
	two, four := int(d[0]-'0')*10+int(d[1]-'0'), 0
	for _, c := range d[:4] {
		four = four*10 + int(c-'0')
	}
	known := d[0] == '4' || two >= 51 && two <= 55 || four >= 2221 && four <= 2720 || two == 34 || two == 37 ||
		two == 36 || two == 38 || two == 30 || two == 35 || four == 6011 || two == 65 || two == 62 || two == 64
	if !known {
		return false
	}
	sum := 0
	for i := range d {
		n := int(d[len(d)-1-i] - '0')
		if i%2 == 1 {
			n *= 2
			if n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}
