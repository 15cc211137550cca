package keyservice_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"agentstream/internal/keyservice"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type service interface {
	keyservice.Keeper
	Derive(ctx context.Context, tenant string, version int, label string) ([]byte, int, error)
}

// transit is a stand-in for the transit engine of a Vault, after its documented HTTP API.
type transit struct {
	mu     sync.Mutex
	keys   map[string]int
	mayGo  map[string]bool
	epochs int
	epoch  map[string]int
}

func (v *transit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fail := func(status int, text string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": []string{text}})
	}
	data := func(d any) { _ = json.NewEncoder(w).Encode(map[string]any{"request_id": "1", "data": d}) }
	if r.Header.Get("X-Vault-Token") != "token" {
		fail(http.StatusForbidden, "permission denied")
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/transit/")
	parts := strings.Split(path, "/")
	if !ok || len(parts) < 1 {
		fail(http.StatusNotFound, "no handler for route")
		return
	}
	if path == "keys" && r.URL.Query().Get("list") == "true" {
		if len(v.keys) == 0 {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"errors":[]}`)
			return
		}
		var names []string
		for name := range v.keys {
			names = append(names, name)
		}
		data(map[string]any{"keys": names})
		return
	}
	name := parts[1]
	version := v.keys[name]
	switch what := r.Method + " " + parts[0] + " " + strings.Join(parts[2:], "/"); {
	case what == "POST keys " && version == 0:
		v.keys[name], v.epochs = 1, v.epochs+1
		v.epoch[name] = v.epochs
		w.WriteHeader(http.StatusNoContent)
	case version == 0 && what == "GET keys ":
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"errors":[]}`)
	case version == 0 && parts[0] == "hmac":
		fail(http.StatusBadRequest, "encryption key not found")
	case version == 0:
		fail(http.StatusBadRequest, "no existing key named "+name+" could be found")
	case what == "GET keys ":
		data(map[string]any{"name": name, "latest_version": version, "keys": map[string]int64{fmt.Sprint(version): 1764377000}})
	case what == "POST keys rotate":
		v.keys[name]++
		w.WriteHeader(http.StatusNoContent)
	case what == "POST keys config":
		v.mayGo[name] = true
		w.WriteHeader(http.StatusNoContent)
	case what == "DELETE keys " && !v.mayGo[name]:
		fail(http.StatusBadRequest, "error deleting policy: deletion is not allowed for this key")
	case what == "DELETE keys ":
		delete(v.keys, name)
		delete(v.mayGo, name)
		w.WriteHeader(http.StatusNoContent)
	case what == "POST hmac sha2-256":
		var ask struct {
			Input   string `json:"input"`
			Version int    `json:"key_version"`
		}
		if json.NewDecoder(r.Body).Decode(&ask) != nil || ask.Version > version {
			fail(http.StatusBadRequest, "invalid key version")
			return
		}
		if ask.Version > 0 {
			version = ask.Version
		}
		input, _ := base64.StdEncoding.DecodeString(ask.Input)
		h := hmac.New(sha256.New, fmt.Appendf(nil, "%s %d %d", name, v.epoch[name], version))
		h.Write(input)
		data(map[string]any{"hmac": fmt.Sprintf("vault:v%d:%s", version, base64.StdEncoding.EncodeToString(h.Sum(nil)))})
	default:
		fail(http.StatusMethodNotAllowed, "unsupported operation")
	}
}

func services(t *testing.T) map[string]service {
	t.Helper()
	file, err := keyservice.NewFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&transit{keys: map[string]int{}, mayGo: map[string]bool{}, epoch: map[string]int{}})
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	at, err := keyservice.ParseAddress("vault+" + server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]service{"file": file, "vault": keyservice.NewVault(at.Vault, func() string { return "token" })}
}

// TestLifeOfAKey: a version always gives the same for a label; versions, labels and tenants give different keys; a key that
// was deleted is gone, and one that is made anew is another.
func TestLifeOfAKey(t *testing.T) {
	for name, s := range services(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if list, err := s.List(ctx); err != nil || len(list) != 0 {
				t.Errorf("%v, %v", list, err)
			}
			for _, change := range []error{second(s.Derive(ctx, "acme", 0, "x")), s.Rotate(ctx, "acme"), s.Delete(ctx, "acme")} {
				if !errors.Is(change, schema.ErrKeyGone) {
					t.Errorf("without a key: %v", change)
				}
			}
			if err := errors.Join(s.Create(ctx, "acme"), s.Create(ctx, "globex")); err != nil {
				t.Fatal(err)
			}
			if err := s.Create(ctx, "acme"); !errors.Is(err, keyservice.ErrExists) {
				t.Errorf("made twice: %v", err)
			}
			first := derive(t, s, "acme", 0, 1, "x")
			if err := s.Rotate(ctx, "acme"); err != nil {
				t.Fatal(err)
			}
			all := [][]byte{first, derive(t, s, "acme", 0, 2, "x"), derive(t, s, "acme", 1, 1, "y"), derive(t, s, "globex", 0, 1, "x")}
			for i, a := range all {
				for _, b := range all[:i] {
					if bytes.Equal(a, b) {
						t.Errorf("key %d comes twice", i)
					}
				}
			}
			if !bytes.Equal(derive(t, s, "acme", 1, 1, "x"), first) {
				t.Error("a version gives another key later")
			}
			if list, err := s.List(ctx); err != nil || len(list) != 2 {
				t.Errorf("%v, %v", list, err)
			}
			if err := s.Delete(ctx, "acme"); err != nil {
				t.Fatal(err)
			}
			for version := range 3 {
				if err := second(s.Derive(ctx, "acme", version, "x")); !errors.Is(err, schema.ErrKeyGone) {
					t.Errorf("version %d of what was deleted: %v", version, err)
				}
			}
			if err := s.Create(ctx, "acme"); err != nil {
				t.Fatal(err)
			}
			key, _, err := s.Derive(ctx, "acme", 0, "x")
			if err != nil || bytes.Equal(key, first) {
				t.Errorf("the new key is that of before: %v", err)
			}
		})
	}
}

func second[A, B any](_ A, _ B, err error) error { return err }

func derive(t *testing.T, s service, tenant string, version, want int, label string) []byte {
	t.Helper()
	key, used, err := s.Derive(t.Context(), tenant, version, label)
	if err != nil || used != want || len(key) != 32 {
		t.Fatalf("%s, version %d: %d bytes of version %d, %v", tenant, version, len(key), used, err)
	}
	return key
}

// TestAwayIsNotGone: a service that cannot answer never says that a key is gone.
func TestAwayIsNotGone(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "keys")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := keyservice.NewFile(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Create(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(folder, "acme.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(folder, "acme.key"), []byte("1 AAAA\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, schema.ErrUnavailable) || errors.Is(err, schema.ErrKeyGone) || strings.Contains(err.Error(), "token") {
			t.Errorf("%s: %v", name, err)
		}
	}
	check("damaged", second(file.Derive(t.Context(), "acme", 0, "x")))
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	check("not mounted", second(file.Derive(t.Context(), "acme", 0, "x")))
	for name, handler := range map[string]http.HandlerFunc{
		"sealed": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			fmt.Fprint(w, `{"errors":["Vault is sealed"]}`)
		},
		"forbidden": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			fmt.Fprint(w, `{"errors":["permission denied"]}`)
		},
		"no JSON":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"empty":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":{"hmac":"vault:vx:"}}`) },
		"elsewhere": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://127.0.0.1:1/", 307) },
	} {
		server := httptest.NewServer(handler)
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		v := keyservice.NewVault(u, func() string { return "token" })
		check(name, second(v.Derive(t.Context(), "acme", 0, "x")))
		server.Close()
		check(name+", down", second(v.Derive(t.Context(), "acme", 0, "x")))
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestAddresses: what is no address of a key service is refused, and no error shows what may be a password.
func TestAddresses(t *testing.T) {
	for _, text := range []string{"", "file:", "vault", "vault+https://", "vault+https://user:hunter2@host", "https://host",
		"vault+https://host?token=hunter2", "aws-kms:x"} {
		if a, err := keyservice.ParseAddress(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %+v, %v", text, a, err)
		}
	}
	for _, text := range []string{"file:/keys", "vault+https://host:8200", "vault+http://host/team/transit"} {
		if _, err := keyservice.ParseAddress(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
