package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// OIDC is how people sign in at an OpenID Connect issuer, by authorization code and PKCE. The zero OIDC offers none.
type OIDC struct {
	Issuer    string `json:"issuer"`
	Authorize string `json:"authorization_endpoint"` // these two as the issuer's document names them
	Token     string `json:"token_endpoint"`
	ClientID  string `json:"client_id"` // of a public client, whose redirect URI is the console's address
	Scope     string `json:"scope"`
	Audience  string `json:"audience,omitempty"` // sent along for issuers that ask for one
}

// origin returns what the page may connect to besides its own server.
func (o OIDC) origin() string {
	u, err := url.Parse(o.Token)
	if err != nil || o.ClientID == "" || o.Authorize == "" || u.Host == "" {
		return ""
	}
	return " " + u.Scheme + "://" + u.Host
}

// policy allows what the page is made of, and nothing else. Images of runs are blobs that the page has fetched, or
// data.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'%s; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is one file of the page.
type file struct {
	content []byte
	packed  []byte // the content by gzip; nil: it is not worth it
	tag     string // its ETag, without quotes
	kind    string // its media type
	fixed   bool   // its name is of its content: a browser need not ask for it again
}

// Patterns are what Handler answers.
var Patterns = []string{"GET /", "GET /console", "GET /console/", "GET /console/{file}", "GET /console/{folder}/{file}"}

// Handler returns the handler of / and of all that is below /console/. It sends a browser that asks for / to /console/
// and answers everybody else there 404. sign is asked for each request: an issuer may be away when the node starts.
func Handler(sign func() OIDC) http.Handler {
	files := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, below := strings.CutPrefix(r.URL.Path, "/console/")
		switch {
		case r.URL.Path == "/" && !strings.Contains(r.Header.Get("Accept"), "text/html"):
			http.Error(w, "see /console/ with a browser, and docs/dialects/native.md for requests", http.StatusNotFound)
			return
		case !below:
			http.Redirect(w, r, "/console/", http.StatusFound)
			return
		case name == "":
			name = "index.html"
		}
		at := sign()
		f, ok := files[name]
		if name == "sign-in.json" {
			f, ok = signIn(at), true
		}
		if !ok {
			http.Error(w, "the console has no such file", http.StatusNotFound)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		content, tag := f.content, f.tag
		if f.packed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && r.Header.Get("Range") == "" {
			content, tag = f.packed, tag+"-gzip"
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("Vary", "Accept-Encoding")
		h.Set("ETag", `"`+tag+`"`)
		h.Set("Cache-Control", cacheable(f))
		h.Set("Content-Security-Policy", fmt.Sprintf(policy, at.origin()))
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// cacheable returns how long a browser keeps a file without asking for it.
func cacheable(f file) string {
	if f.fixed {
		return "public, max-age=31536000, immutable"
	}
	return "no-cache"
}

// signIn returns the file that tells the page how people sign in: null, or an OIDC.
func signIn(o OIDC) file {
	content := []byte("null")
	if o.origin() != "" {
		content, _ = json.Marshal(o) // texts always encode
	}
	return newFile("sign-in.json", content)
}

func newFile(name string, content []byte) file {
	sum := sha256.Sum256(content)
	return file{content: content, tag: hex.EncodeToString(sum[:12]), kind: mediaType(name)}
}

func pack(content []byte) []byte {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err := zip.Write(content)
	if err := errors.Join(err, zip.Close()); err != nil {
		panic(err) // a buffer takes everything
	}
	return packed.Bytes()
}

// load reads the files that are part of the program, by their names below /console/.
func load() map[string]file {
	out := map[string]file{}
	root, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the folder is named above
	}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		out[name] = newFile(name, content)
		return err
	})
	if err != nil {
		panic(err) // an embedded folder can be read
	}
	page := out["index.html"].content
	for _, part := range [][2]string{{"app.js", "app-%s.js"}, {"style.css", "style-%s.css"}} {
		content := out[part[0]].content
		if path.Ext(part[0]) == ".js" {
			content = link(out, part[0])
		}
		f := newFile(part[0], content)
		f.fixed = true
		name := fmt.Sprintf(part[1], f.tag)
		out[name] = f
		page = bytes.Replace(page, []byte(`"`+part[0]+`"`), []byte(`"`+name+`"`), 1)
	}
	out["index.html"] = newFile("index.html", page)
	for name, f := range out {
		f.packed = pack(f.content)
		out[name] = f
	}
	return out
}

// mediaType returns the media type of a file by its name. The system's table is asked last: it differs by machine.
func mediaType(name string) string {
	switch ext := path.Ext(name); ext {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".json":
		return "application/json"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return mime.TypeByExtension(ext)
	}
}
