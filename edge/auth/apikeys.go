package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"agentstream/schema"
)

// keyPrefix begins every API key: ask_<id>_<random>.
const keyPrefix = "ask_"

// APIKey is what is kept of a key: one line of the file.
type APIKey struct {
	ID      string    `json:"id"`   // [a-z0-9-]{1,32}; part of the key, and in logs
	Hash    string    `json:"hash"` // "sha256:" and 64 hex digits, of the whole key
	Tenant  string    `json:"tenant"`
	Scopes  []string  `json:"scopes"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Note    string    `json:"note,omitempty"`   // for people
}

// hashPrefix names the hash. A fast one is right: the random part has 260 bits, and nobody guesses
// that, salted or not.
const hashPrefix = "sha256:"

// NewAPIKey makes a key. The text is shown to its owner once; the record goes into the file. An empty
// id becomes a random one.
func NewAPIKey(id, tenant string, scopes Scope, expires time.Time) (text string, key APIKey, err error) {
	if id == "" {
		id = strings.ToLower(rand.Text()[:8])
	}
	text = keyPrefix + id + "_" + rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(text))
	key = APIKey{ID: id, Hash: hashPrefix + hex.EncodeToString(sum[:]), Tenant: tenant, Scopes: scopes.Names(),
		Expires: expires}
	if _, err := key.entry(); err != nil {
		return "", APIKey{}, err
	}
	return text, key, nil
}

// Line returns the record as a line of the file, with its newline.
func (k APIKey) Line() ([]byte, error) {
	b, err := json.Marshal(k)
	return append(b, '\n'), err
}

// keyEntry is a record that was checked.
type keyEntry struct {
	sum    [sha256.Size]byte
	caller Caller
}

func (k APIKey) entry() (keyEntry, error) {
	var e keyEntry
	if !validKeyID(k.ID) {
		return e, fmt.Errorf("auth: key id %q is not [a-z0-9-]{1,32}", k.ID)
	}
	text, ok := strings.CutPrefix(k.Hash, hashPrefix)
	sum, err := hex.DecodeString(text)
	if !ok || err != nil || len(sum) != len(e.sum) {
		return e, fmt.Errorf("auth: key %s: hash is not sha256: and 64 hex digits", k.ID)
	}
	copy(e.sum[:], sum)
	if err := schema.ValidTenant(k.Tenant); err != nil {
		return e, fmt.Errorf("auth: key %s: %w", k.ID, err)
	}
	scopes, err := ParseScopes(k.Scopes)
	if err != nil {
		return e, fmt.Errorf("auth: key %s: %w", k.ID, err)
	}
	e.caller = Caller{Tenant: k.Tenant, Subject: keyCredential + k.ID, Scopes: scopes, Expires: k.Expires,
		Credential: keyCredential + k.ID}
	return e, nil
}

// keyCredential begins the credential of callers with a key.
const keyCredential = "key:"

func validKeyID(id string) bool {
	if id == "" || len(id) > 32 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// APIKeysConfig is where keys are kept.
type APIKeysConfig struct {
	Path   string           // the file: one JSON object per line; empty lines and lines with # are passed over
	Every  time.Duration    // how often the file is looked at, at most: how long a revoked key lives; default 1 s
	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // nil discards
}

// APIKeys accepts the keys of a file, and takes a change of the file over by itself. Make it with
// OpenAPIKeys.
type APIKeys struct {
	cfg APIKeysConfig

	mu     sync.Mutex
	looked time.Time
	stamp  fileStamp
	sum    [sha256.Size]byte   // of the file that keys are from
	keys   map[string]keyEntry // by id
	broken error               // why the newest file could not be read
}

// fileStamp distinguishes two states of a file.
type fileStamp struct {
	info    fs.FileInfo
	changed time.Time
	size    int64
}

func stampOf(info fs.FileInfo) fileStamp { return fileStamp{info, info.ModTime(), info.Size()} }

func (s fileStamp) same(o fileStamp) bool {
	return s.info != nil && o.info != nil && os.SameFile(s.info, o.info) && s.changed.Equal(o.changed) && s.size == o.size
}

// OpenAPIKeys reads the file. It fails when the file cannot be read or has a line that is no key.
func OpenAPIKeys(cfg APIKeysConfig) (*APIKeys, error) {
	cfg.Every = cmp.Or(cfg.Every, time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &APIKeys{cfg: cfg}
	if err := a.reload(); err != nil {
		return nil, err
	}
	a.looked = cfg.Now()
	return a, nil
}

// HasForm reports whether a token has the prefix of keys.
func (*APIKeys) HasForm(token string) bool { return strings.HasPrefix(token, keyPrefix) }

// Caller looks the key up by its id and compares the hash in constant time.
func (a *APIKeys) Caller(_ context.Context, token string) (Caller, error) {
	sum := sha256.Sum256([]byte(token))
	id, _, ok := strings.Cut(strings.TrimPrefix(token, keyPrefix), "_")
	if !ok || !validKeyID(id) {
		return Caller{}, refuse("not an API key")
	}
	e, known := a.entry(id)
	if subtle.ConstantTimeCompare(sum[:], e.sum[:]) != 1 || !known {
		return Caller{}, refuse("no such API key")
	}
	if a.isExpired(e) {
		return Caller{}, refuse("the API key has expired")
	}
	return e.caller, nil
}

// Still looks the caller's key up again: it must be in the file, for the same tenant, with no fewer
// scopes, and not have expired.
func (a *APIKeys) Still(c Caller) error {
	id, ok := strings.CutPrefix(c.Credential, keyCredential)
	if !ok {
		return refuse("not a caller with an API key")
	}
	e, known := a.entry(id)
	switch {
	case !known:
		return refuse("the API key was revoked")
	case a.isExpired(e):
		return refuse("the API key has expired")
	case e.caller.Tenant != c.Tenant || !e.caller.May(c.Scopes):
		return refuse("the API key allows less by now")
	}
	return nil
}

// isExpired reports whether a key is past its time.
func (a *APIKeys) isExpired(e keyEntry) bool {
	return !e.caller.Expires.IsZero() && !a.cfg.Now().Before(e.caller.Expires)
}

// entry returns a key, having looked at the file when that is due.
func (a *APIKeys) entry(id string) (keyEntry, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look()
	e, ok := a.keys[id]
	return e, ok
}

// look reads the file when it has changed. The keys that were good stay when it cannot be read: half
// a file must not lock everybody out. That is logged, and Check says it.
func (a *APIKeys) look() {
	now := a.cfg.Now()
	if now.Sub(a.looked) < a.cfg.Every {
		return
	}
	a.looked = now
	before := a.broken
	if a.broken = a.reload(); a.broken != nil && (before == nil || before.Error() != a.broken.Error()) {
		a.cfg.Logger.LogAttrs(context.Background(), slog.LevelError,
			"auth: the keys file cannot be read; the keys that were read before stay in force",
			slog.Any("error", a.broken))
	}
}

// settled is the age from which a file's time distinguishes it from later states: clocks of file systems
// are coarse.
const settled = 2 * time.Second

// reload reads the file when its stamp has changed.
func (a *APIKeys) reload() error {
	info, err := os.Stat(a.cfg.Path)
	if err != nil {
		a.stamp = fileStamp{}
		return fmt.Errorf("auth: keys file: %w", err)
	}
	stamp := stampOf(info)
	if stamp.same(a.stamp) {
		return a.broken
	}
	a.stamp = fileStamp{}
	text, err := os.ReadFile(a.cfg.Path)
	if err != nil {
		return fmt.Errorf("auth: keys file: %w", err)
	}
	if time.Since(info.ModTime()) > settled {
		a.stamp = stamp
	}
	sum := sha256.Sum256(text)
	if a.keys != nil && sum == a.sum {
		return nil
	}
	_, keys, err := parseKeysFile(text)
	if err != nil {
		return fmt.Errorf("auth: keys file %s: %w", a.cfg.Path, err)
	}
	if a.keys != nil {
		a.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "auth: keys file read again", slog.Int("keys", len(keys)))
	}
	a.sum, a.keys = sum, keys
	return nil
}

// ParseKeys reads a file of keys as an edge does: all lines or none. The error names the line and quotes nothing of it.
func ParseKeys(text []byte) ([]APIKey, error) {
	list, _, err := parseKeysFile(text)
	return list, err
}

// parseKeysFile reads all lines or none.
func parseKeysFile(text []byte) (list []APIKey, keys map[string]keyEntry, err error) {
	keys = make(map[string]keyEntry)
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var k APIKey
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&k); err != nil {
			return nil, nil, fmt.Errorf("line %d: not a key", n) // the decoder's text may quote the line
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return nil, nil, fmt.Errorf("line %d: more than one key", n)
		}
		e, err := k.entry()
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", n, err)
		}
		if _, twice := keys[k.ID]; twice {
			return nil, nil, fmt.Errorf("line %d: key %s is there twice", n, k.ID)
		}
		keys[k.ID] = e
		list = append(list, k)
	}
	return list, keys, nil
}

// Check reports whether the newest file could be read, for readiness.
func (a *APIKeys) Check(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look()
	return a.broken
}
