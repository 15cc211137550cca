package jsonl

import (
	"strconv"
	"strings"
)

// Coding is a content coding (RFC 9110 §8.4.1), as Content-Encoding names it.
type Coding string

// The codings. Identity is none.
const (
	Identity Coding = ""
	Gzip     Coding = "gzip"
	Zstd     Coding = "zstd"
)

// Negotiate picks the coding that the client likes best, from the values of Accept-Encoding (RFC 9110
// §12.5.3); of equals zstd, then gzip, then none. A client that names neither and refuses everything
// else gets no coding: that is always understood.
func Negotiate(accept []string) Coding {
	weights := map[string]int{}
	for _, value := range accept {
		for item := range strings.SplitSeq(value, ",") {
			name, params, _ := strings.Cut(item, ";")
			if name = strings.ToLower(strings.TrimSpace(name)); name == "x-gzip" {
				name = "gzip"
			}
			if name != "" {
				weights[name] = weight(params)
			}
		}
	}
	of := func(c Coding) int {
		if w, ok := weights[string(c)]; ok {
			return w
		}
		return weights["*"]
	}
	best, most := Identity, 0
	if w, ok := weights["identity"]; ok {
		most = max(w-1, 0) // one that is liked as much wins: it was named to be used
	}
	for _, c := range []Coding{Zstd, Gzip} {
		if w := of(c); w > most {
			best, most = c, w
		}
	}
	return best
}

// weight reads ";q=0.5" as thousandths; what is malformed counts as a refusal.
func weight(params string) int {
	for p := range strings.SplitSeq(params, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(p), "=")
		if !ok || !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return int(q * 1000)
	}
	return 1000
}
