package auth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// Bounds of what an issuer may send.
const (
	maxKeySet = 1 << 20 // bytes
	maxKeys   = 100
	minRSA    = 2048 // bits (RFC 7518 §3.3)
)

// remoteKeys is a key set that is fetched. go-oidc's own one fetches without limit for tokens whose
// key it does not know, reads answers of any size, and keeps withdrawn keys for ever.
type remoteKeys struct {
	cfg    JWTConfig
	client *http.Client
	reach  reach
	algs   []jose.SignatureAlgorithm
	one    chan struct{} // held by who fetches

	mu      sync.RWMutex
	url     string // of the key set; "" until it is discovered
	signIn  SignIn
	keys    []jose.JSONWebKey
	fetched time.Time // of keys
	tried   time.Time // last attempt
}

func newRemoteKeys(cfg JWTConfig) *remoteKeys {
	k := &remoteKeys{cfg: cfg, url: cfg.JWKS, one: make(chan struct{}, 1), reach: newReach(cmp.Or(cfg.JWKS, cfg.Issuer))}
	if k.cfg.Transport == nil {
		k.cfg.Transport = k.reach.transport()
	}
	for _, a := range publicAlgorithms {
		k.algs = append(k.algs, jose.SignatureAlgorithm(a))
	}
	k.client = &http.Client{
		Transport: bounded{k.cfg.Transport},
		Timeout:   cfg.Timeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 {
				return errors.New("too many redirects")
			}
			return k.reach.check(r.URL.String())
		},
	}
	return k
}

// bounded cuts answers at maxKeySet bytes.
type bounded struct{ http.RoundTripper }

// CloseIdleConnections closes those that nobody uses.
func (b bounded) CloseIdleConnections() {
	if c, ok := b.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxKeySet), resp.Body}
	}
	return resp, err
}

// safeURL wants https, and lets http pass to this machine: keys that came over an open wire are
// anybody's keys.
func safeURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return errors.New("not an absolute URL without a password")
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("%s://%s: https is needed", u.Scheme, u.Host)
	}
	return nil
}

// verify checks the signature. When the token names a key that is not known, the set is fetched, at
// most every Pause whatever tokens name: a new key is found with the first fetch.
func (k *remoteKeys) verify(ctx context.Context, c compact) error {
	jws, err := jose.ParseSignedCompact(c.token, k.algs)
	if err != nil {
		return refuse("not a signed token")
	}
	keys, err := k.usable()
	if err == nil {
		known, ok := match(keys, jws, c)
		if ok {
			return nil
		}
		if known && c.kid != "" {
			return refuse("the signature does not match")
		}
	}
	if ferr := k.demand(ctx); ferr != nil && err != nil {
		return fmt.Errorf("auth: keys of %s: %w", k.cfg.Issuer, ErrUnavailable)
	}
	if keys, err = k.usable(); err != nil {
		return err
	}
	if _, ok := match(keys, jws, c); !ok {
		return refuse("no key of the issuer fits")
	}
	return nil
}

// match verifies with the keys that the token may mean. known says that there was one.
func match(keys []jose.JSONWebKey, jws *jose.JSONWebSignature, c compact) (known, ok bool) {
	for i := range keys {
		key := &keys[i]
		if c.kid != "" && key.KeyID != c.kid || key.Algorithm != "" && key.Algorithm != c.alg {
			continue
		}
		known = true
		if _, err := jws.Verify(key); err == nil {
			return true, true
		}
	}
	return known, false
}

// usable returns the keys, or an error that wraps ErrUnavailable when there are none that may be used.
func (k *remoteKeys) usable() ([]jose.JSONWebKey, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.fetched.IsZero() {
		return nil, fmt.Errorf("auth: keys of %s: never fetched: %w", k.cfg.Issuer, ErrUnavailable)
	}
	if age := k.cfg.Now().Sub(k.fetched); age > k.cfg.Stale {
		return nil, fmt.Errorf("auth: keys of %s: %v old: %w", k.cfg.Issuer, age.Round(time.Second), ErrUnavailable)
	}
	return k.keys, nil
}

// demand fetches for a request, unless there was an attempt less than Pause ago. A client that leaves
// does not stop the fetch: it would use the attempt up for everybody.
func (k *remoteKeys) demand(ctx context.Context) error {
	k.mu.RLock()
	before := k.tried
	k.mu.RUnlock()
	select {
	case k.one <- struct{}{}:
		defer func() { <-k.one }()
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.RLock()
	tried := k.tried
	k.mu.RUnlock()
	if !tried.Equal(before) { // somebody has fetched while we waited
		return nil
	}
	if !tried.IsZero() && k.cfg.Now().Sub(tried) < k.cfg.Pause {
		return errors.New("fetched a moment ago")
	}
	return k.load(context.WithoutCancel(ctx))
}

// fetch fetches now.
func (k *remoteKeys) fetch(ctx context.Context) error {
	select {
	case k.one <- struct{}{}:
		defer func() { <-k.one }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return k.load(ctx)
}

// load fetches the set and puts it in place of the old one. The caller holds one.
func (k *remoteKeys) load(ctx context.Context) error {
	k.mu.Lock()
	k.tried = k.cfg.Now()
	at := k.url
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Timeout)
	defer cancel()
	var signIn SignIn
	if k.cfg.Discover {
		var err error
		if at, signIn, err = k.discover(ctx); err != nil {
			return err
		}
	}
	keys, err := k.get(ctx, at)
	if err != nil {
		return fmt.Errorf("auth: fetch keys: %w", err)
	}
	k.mu.Lock()
	k.url, k.signIn, k.keys, k.fetched = at, signIn, keys, k.cfg.Now()
	k.mu.Unlock()
	return nil
}

// SignIn is where an issuer lets people sign in, and where a code becomes a token. Both may be on other hosts than the
// issuer.
type SignIn struct {
	Authorize string `json:"authorization_endpoint"`
	Token     string `json:"token_endpoint"`
}

// discover reads where the issuer's keys are, and where people sign in (OpenID Connect Discovery §4). The document must
// name the issuer that was asked. It is read again with every refresh: issuers move their keys.
func (k *remoteKeys) discover(ctx context.Context) (keys string, in SignIn, err error) {
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, k.client), k.cfg.Issuer)
	if err != nil {
		return "", in, fmt.Errorf("auth: discover %s: %s", k.cfg.Issuer, clip(err.Error())) // it quotes the whole answer
	}
	var doc struct {
		SignIn
		JWKS string `json:"jwks_uri"`
	}
	if err := p.Claims(&doc); err != nil {
		return "", in, fmt.Errorf("auth: discover %s: %w", k.cfg.Issuer, err)
	}
	if err := k.reach.check(doc.JWKS); err != nil {
		return "", in, fmt.Errorf("auth: discover %s: jwks_uri: %w", k.cfg.Issuer, err)
	}
	if k.reach.check(doc.Authorize) == nil && k.reach.check(doc.Token) == nil {
		in = doc.SignIn
	}
	return doc.JWKS, in, nil
}

func clip(s string) string {
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

func (k *remoteKeys) get(ctx context.Context, at string) ([]jose.JSONWebKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", at, resp.StatusCode)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	keys, err := parseKeys(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return keys, nil
}

// parseKeys takes the public signing keys of a set and passes over all others (RFC 7517 §5). A set
// without any is an error: a mistake of the issuer's must not lock everybody out at once.
func parseKeys(body []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("not a key set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys, at most %d are read", len(set.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && isSigningKey(&key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("no public signing key in the set")
	}
	return keys, nil
}

// run refreshes until ctx ends.
func (k *remoteKeys) run(ctx context.Context) error {
	defer k.client.CloseIdleConnections()
	const first, most = time.Second, 30 * time.Second
	wait := first
	for {
		next := k.cfg.Refresh
		if err := k.fetch(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "auth: keys cannot be fetched",
				slog.String("issuer", k.cfg.Issuer), slog.Any("error", err))
			next = min(wait, k.cfg.Refresh)
			wait = min(2*wait, most)
		} else {
			wait = first
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}
