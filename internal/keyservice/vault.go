package keyservice

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentstream/schema"
)

// Vault is the transit engine of a Vault: tenant T has the key agentstream-T there. A data key is what the engine's HMAC
// says about the label, so the key itself never leaves the Vault.
type Vault struct {
	base   *url.URL // of the engine
	token  func() string
	client *http.Client
}

// NewVault returns the key service of the transit engine that is mounted at the path of base; transit by default. token is
// asked for each request.
func NewVault(base *url.URL, token func() string) *Vault {
	at := *base
	at.Path = "/v1/" + cmp.Or(strings.Trim(at.Path, "/"), "transit") + "/"
	return &Vault{base: &at, token: token, client: &http.Client{
		Timeout:       10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would have the token
	}}
}

const vaultPrefix = "agentstream-"

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 4 << 20

// vaultError is an answer that says what is wrong.
type vaultError struct {
	status int
	texts  []string
}

// Error returns what the server says.
func (e *vaultError) Error() string {
	return fmt.Sprintf("vault: %d %s", e.status, strings.Join(e.texts, "; "))
}

// isMissing reports whether the server knows no such key.
func (e *vaultError) isMissing() bool {
	return e.status == http.StatusNotFound || e.status == http.StatusBadRequest && slices.ContainsFunc(e.texts,
		func(s string) bool {
			return strings.Contains(s, "key not found") || strings.Contains(s, "no existing key")
		})
}

// Derive implements seal.Deriver.
func (v *Vault) Derive(ctx context.Context, tenant string, version int, label string) ([]byte, int, error) {
	ask := map[string]any{"input": base64.StdEncoding.EncodeToString([]byte(label))}
	if version > 0 {
		ask["key_version"] = version
	}
	var answer struct {
		HMAC string `json:"hmac"`
	}
	err := v.do(ctx, http.MethodPost, "hmac/"+vaultPrefix+tenant+"/sha2-256", ask, &answer)
	if err != nil {
		return nil, 0, decide(tenant, err)
	}
	parts := strings.Split(answer.HMAC, ":") // vault:v1:…
	if len(parts) != 3 {
		return nil, 0, errAway(errors.New("vault: the answer is no HMAC"))
	}
	used, err := strconv.Atoi(strings.TrimPrefix(parts[1], "v"))
	key, bad := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || bad != nil {
		return nil, 0, errAway(errors.New("vault: the answer is no HMAC"))
	}
	return key, used, nil
}

// decide turns an error into what it means for a tenant.
func decide(tenant string, err error) error {
	if of := new(vaultError); errors.As(err, &of) && of.isMissing() {
		return errGone(tenant)
	}
	return errAway(err)
}

// vaultKey is what the engine says about a key.
type vaultKey struct {
	Latest int                        `json:"latest_version"`
	Keys   map[string]json.RawMessage `json:"keys"`
}

// Create makes the first version of a tenant's key. It wraps ErrExists when there is one.
func (v *Vault) Create(ctx context.Context, tenant string) error {
	if err := schema.ValidTenant(tenant); err != nil {
		return err
	}
	var have vaultKey
	err := v.do(ctx, http.MethodGet, "keys/"+vaultPrefix+tenant, nil, &have)
	if err == nil {
		return fmt.Errorf("tenant %s: %w", tenant, ErrExists)
	}
	if err = decide(tenant, err); !errors.Is(err, schema.ErrKeyGone) {
		return err
	}
	if err := v.do(ctx, http.MethodPost, "keys/"+vaultPrefix+tenant, map[string]any{"type": "aes256-gcm96"}, nil); err != nil {
		return errAway(err)
	}
	return nil
}

// Rotate adds a version, which is that of new content.
func (v *Vault) Rotate(ctx context.Context, tenant string) error {
	if err := v.do(ctx, http.MethodPost, "keys/"+vaultPrefix+tenant+"/rotate", nil, nil); err != nil {
		return decide(tenant, err)
	}
	return nil
}

// Delete removes all versions of a tenant's key for ever.
func (v *Vault) Delete(ctx context.Context, tenant string) error {
	name := "keys/" + vaultPrefix + tenant
	if err := v.do(ctx, http.MethodGet, name, nil, nil); err != nil {
		return decide(tenant, err)
	}
	if err := v.do(ctx, http.MethodPost, name+"/config", map[string]any{"deletion_allowed": true}, nil); err != nil {
		return errAway(err)
	}
	if err := v.do(ctx, http.MethodDelete, name, nil, nil); err != nil {
		return errAway(err)
	}
	return nil
}

// List returns the keys of all tenants, by name. A Vault does not know which were deleted.
func (v *Vault) List(ctx context.Context) (list []Info, err error) {
	var names struct {
		Keys []string `json:"keys"`
	}
	err = v.do(ctx, http.MethodGet, "keys?list=true", nil, &names)
	if of := new(vaultError); errors.As(err, &of) && of.status == http.StatusNotFound {
		return nil, nil // there is none
	}
	if err != nil {
		return nil, errAway(err)
	}
	for _, name := range names.Keys {
		tenant, ours := strings.CutPrefix(name, vaultPrefix)
		if !ours || schema.ValidTenant(tenant) != nil {
			continue
		}
		var key vaultKey
		if err := v.do(ctx, http.MethodGet, "keys/"+name, nil, &key); err != nil {
			return nil, errAway(err)
		}
		list = append(list, Info{Tenant: tenant, Version: key.Latest, Made: key.birth()})
	}
	return list, nil
}

// birth returns when the newest version was made.
func (k *vaultKey) birth() time.Time {
	raw := k.Keys[strconv.Itoa(k.Latest)]
	var seconds int64
	if json.Unmarshal(raw, &seconds) == nil { // symmetric keys: seconds since 1970
		return time.Unix(seconds, 0)
	}
	return time.Time{}
}

// do sends a request, and reads what is under data in the answer into out, unless that is nil.
func (v *Vault) do(ctx context.Context, method, path string, body, out any) error {
	name, query, _ := strings.Cut(path, "?")
	at := *v.base
	at.Path += name
	at.RawQuery = query
	var send io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		send = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), send)
	if err != nil {
		return err
	}
	req.Header.Set("X-Vault-Token", v.token())
	req.Header.Set("X-Vault-Request", "true")
	resp, err := v.client.Do(req)
	if err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		var said struct {
			Errors []string `json:"errors"`
		}
		_ = json.Unmarshal(text, &said) // a proxy in front says something else
		return &vaultError{status: resp.StatusCode, texts: said.Errors}
	}
	if out == nil {
		return nil
	}
	answer := struct{ Data any }{out}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("vault: the answer is no JSON of it: %w", err)
	}
	return nil
}
