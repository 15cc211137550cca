package ws

import (
	"crypto/sha1"
	"encoding/base64"
	"iter"
	"net/http"
	"slices"
	"strings"

	"agentstream/edge/dialect"
)

// Refusals of Open; all wrap dialect.ErrBadRequest.
var (
	// ErrNotUpgrade reports that the request does not ask for a WebSocket, or not in a way that can be
	// granted.
	ErrNotUpgrade = dialect.Refuse(dialect.ErrBadRequest, "the request is no upgrade to WebSocket")
	// ErrVersion reports that the client speaks another version than 13; the answer is 426 with
	// Sec-WebSocket-Version: 13 (RFC 6455 §4.4).
	ErrVersion = dialect.Refuse(dialect.ErrBadRequest, "the version of WebSocket is not 13")
	// ErrSubprotocol reports that the client offers subprotocols and ours is not among them.
	ErrSubprotocol = dialect.Refuse(dialect.ErrBadRequest, "no subprotocol that is offered is served here")
)

// IsUpgrade reports whether a request asks for a WebSocket, rightly or not.
func IsUpgrade(r *http.Request) bool {
	return hasToken(r.Header.Values("Upgrade"), "websocket")
}

// handshake is what the answer to an upgrade says.
type handshake struct {
	key         string
	subprotocol string
}

// check reads an upgrade (RFC 6455 §4.2.1).
func check(r *http.Request, subprotocols []string) (handshake, error) {
	h := r.Header
	switch {
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
		return handshake{}, dialect.Refuse(ErrNotUpgrade, "a WebSocket is opened over HTTP/1.1, not %s", r.Proto)
	case r.Method != http.MethodGet:
		return handshake{}, dialect.Refuse(ErrNotUpgrade, "a WebSocket is opened by GET")
	case !IsUpgrade(r) || !hasToken(h.Values("Connection"), "upgrade"):
		return handshake{}, ErrNotUpgrade
	case len(h.Values("Sec-WebSocket-Version")) != 1 || h.Get("Sec-WebSocket-Version") != "13":
		return handshake{}, ErrVersion
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		// Its bytes would be read as frames.
		return handshake{}, dialect.Refuse(ErrNotUpgrade, "a request for a WebSocket has no body")
	}
	keys := h.Values("Sec-WebSocket-Key")
	if len(keys) != 1 {
		return handshake{}, dialect.Refuse(ErrNotUpgrade, "Sec-WebSocket-Key must be given once, not %d times", len(keys))
	}
	if raw, err := base64.StdEncoding.DecodeString(keys[0]); err != nil || len(raw) != 16 {
		return handshake{}, dialect.Refuse(ErrNotUpgrade, "Sec-WebSocket-Key is not 16 bytes in base64")
	}
	hs := handshake{key: keys[0]}
	if offered := h.Values("Sec-WebSocket-Protocol"); len(offered) > 0 {
		if hs.subprotocol = firstOf(offered, subprotocols); hs.subprotocol == "" {
			return handshake{}, ErrSubprotocol
		}
	}
	return hs, nil
}

// acceptGUID is RFC 6455 §1.3.
const acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// appendAnswer appends the 101 with the response's own headers, but those that the upgrade decides.
func (hs handshake) appendAnswer(dst []byte, own http.Header) []byte {
	sum := sha1.Sum([]byte(hs.key + acceptGUID))
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ")
	b.WriteString(base64.StdEncoding.EncodeToString(sum[:]))
	b.WriteString("\r\n")
	if hs.subprotocol != "" {
		b.WriteString("Sec-WebSocket-Protocol: " + hs.subprotocol + "\r\n")
	}
	_ = own.WriteSubset(&b, decided) // a Builder takes everything
	b.WriteString("\r\n")
	return append(dst, b.String()...)
}

var decided = map[string]bool{
	"Upgrade": true, "Connection": true, "Content-Length": true, "Content-Type": true, "Transfer-Encoding": true,
	"Trailer":              true,
	"Sec-Websocket-Accept": true, "Sec-Websocket-Protocol": true, "Sec-Websocket-Extensions": true,
}

// hasToken looks for a token in comma-separated lists, in whatever case.
func hasToken(lists []string, token string) bool {
	for item := range tokens(lists) {
		if strings.EqualFold(item, token) {
			return true
		}
	}
	return false
}

// firstOf returns the first token of comma-separated lists that is known; "" when none is.
func firstOf(lists, known []string) string {
	for item := range tokens(lists) {
		if slices.Contains(known, item) {
			return item
		}
	}
	return ""
}

// tokens walks comma-separated lists.
func tokens(lists []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, list := range lists {
			for item := range strings.SplitSeq(list, ",") {
				if !yield(strings.Trim(item, " \t")) {
					return
				}
			}
		}
	}
}
