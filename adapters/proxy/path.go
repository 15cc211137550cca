package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// cleanPath resolves dot segments and removes empty ones, so that no path leads out of the upstream's base. Escapes
// stay as they are. A dot segment that only shows when a segment is unescaped further than its server should, or that
// is written for servers that take other characters for a slash, is refused: no API has such paths.
func cleanPath(u *url.URL) (path, raw string, refused *refusal) {
	if u.Host != "" || u.Opaque != "" || u.Path != "" && u.Path[0] != '/' {
		return "", "", &refusal{http.StatusBadRequest, "bad_target", "the target must be a path: this is no forward proxy"}
	}
	var kept []string
	list := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i, segment := range list {
		plain, err := url.PathUnescape(segment)
		if err != nil || hidesDots(plain) {
			return "", "", &refusal{http.StatusBadRequest, "bad_path", "the path has a segment that leads elsewhere"}
		}
		last := i == len(list)-1
		switch plain {
		case "", ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, segment)
			continue
		}
		if last && len(kept) > 0 {
			kept = append(kept, "") // it is a folder
		}
	}
	raw = "/" + strings.Join(kept, "/")
	path, err := url.PathUnescape(raw)
	if err != nil {
		return "", "", &refusal{http.StatusBadRequest, "bad_path", "the path cannot be read"}
	}
	return path, raw, nil
}

// maxUnescapes bounds how often a segment is unescaped to see what it hides.
const maxUnescapes = 4

// hidesDots reports whether a segment, which is unescaped, is read as a dot segment somewhere.
func hidesDots(segment string) bool {
	for n := range maxUnescapes {
		if strings.ContainsFunc(segment, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return true
		}
		for i, part := range strings.FieldsFunc(segment, func(r rune) bool { return r == '/' || r == '\\' }) {
			name, _, params := strings.Cut(part, ";")
			plain := n == 0 && i == 0 && !params && part == segment // "..": it is resolved
			if (name == "." || name == "..") && !plain {
				return true
			}
		}
		more, err := url.PathUnescape(segment)
		if err != nil || more == segment {
			return false
		}
		segment = more
	}
	return true
}
