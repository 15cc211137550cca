package seal

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentstream/schema"
)

// KeyBytes is the length of a data key.
const KeyBytes = 32

// Deriver is a key service. Implementations are safe for concurrent use.
type Deriver interface {
	// Derive returns the data key of KeyBytes bytes that a version of the tenant's key gives for a label: always the same.
	// Version 0 is the newest; used says which that was. The error wraps schema.ErrKeyGone when the tenant has no such
	// key, and schema.ErrUnavailable when that is not known.
	Derive(ctx context.Context, tenant string, version int, label string) (key []byte, used int, err error)
}

// Config configures Keys. Service must be set.
type Config struct {
	Service Deriver
	Tenants Tenants          // of whom new events are sealed
	Life    time.Duration    // how long a key is remembered; default 5 min. So long a key that is gone still opens
	Now     func() time.Time // default time.Now
}

// Bounds of what is remembered, and of how long the key service is waited for.
const (
	defaultLife = 5 * time.Minute
	mostKeys    = 1 << 14
	askWait     = 5 * time.Second
	goneLife    = 5 * time.Second // so long no key service is asked again for a key that is gone
	awayLife    = time.Second     // or that did not answer
)

// Keys are the data keys of all tenants, as far as they are in use.
type Keys struct {
	cfg Config

	mu  sync.Mutex
	all map[keyName]*cachedKey
}

// keyName names a data key. Version 0 is the newest.
type keyName struct {
	tenant  string
	version int
	month   string // 2006-01
}

// cachedKey is a data key, or why there is none.
type cachedKey struct {
	until time.Time
	key   dataKey
	err   error
	done  chan struct{} // closed when the key service has answered; nil when nobody asks it
}

type dataKey struct {
	bytes   [KeyBytes]byte
	version int
}

// New returns keys. It asks nobody.
func New(cfg Config) (*Keys, error) {
	if cfg.Service == nil {
		return nil, errors.New("seal: config: no key service")
	}
	if cfg.Life < 0 || cfg.Life > 24*time.Hour {
		return nil, fmt.Errorf("seal: config: keys live %v, at most 24h", cfg.Life)
	}
	cfg.Life = cmp.Or(cfg.Life, defaultLife)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Keys{cfg: cfg, all: make(map[keyName]*cachedKey)}, nil
}

// Has reports whether new events of a tenant are sealed.
func (k *Keys) Has(tenant string) bool { return k != nil && k.cfg.Tenants.Has(tenant) }

// Check returns nil when new events of the tenant are not sealed, or its key is there.
func (k *Keys) Check(ctx context.Context, tenant string) error {
	if !k.Has(tenant) {
		return nil
	}
	_, err := k.get(ctx, k.current(tenant))
	return err
}

func (k *Keys) current(tenant string) keyName {
	return keyName{tenant: tenant, month: k.cfg.Now().UTC().Format("2006-01")}
}

// get returns a data key. Of those who want one that is not remembered one asks the key service, the others wait.
func (k *Keys) get(ctx context.Context, name keyName) (dataKey, error) {
	for {
		k.mu.Lock()
		e := k.all[name]
		if e == nil {
			e = new(cachedKey)
			k.makeRoom()
			k.all[name] = e
		}
		if k.cfg.Now().Before(e.until) {
			defer k.mu.Unlock()
			return e.key, e.err
		}
		if e.done == nil {
			e.done = make(chan struct{})
			k.mu.Unlock()
			return k.ask(ctx, name, e)
		}
		done := e.done
		k.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return dataKey{}, fmt.Errorf("%w: %w", schema.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// ask asks the key service, for all who wait for it.
func (k *Keys) ask(ctx context.Context, name keyName, e *cachedKey) (dataKey, error) {
	one, cancel := context.WithTimeout(ctx, askWait)
	key, used, err := k.cfg.Service.Derive(one, name.tenant, name.version, label(name))
	cancel()
	if err == nil && (len(key) != KeyBytes || used < 1 || name.version > 0 && used != name.version) {
		err = fmt.Errorf("the key service gave %d bytes of version %d: %w", len(key), used, schema.ErrUnavailable)
	}
	if err != nil {
		err = fmt.Errorf("data key of tenant %s for %s: %w", name.tenant, name.month, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	close(e.done)
	e.done, e.err, e.key = nil, err, dataKey{version: used}
	copy(e.key.bytes[:], key)
	switch {
	case err == nil:
		e.until = k.cfg.Now().Add(k.cfg.Life)
		if name.version == 0 { // what is sealed now is opened by its name
			k.note(keyName{name.tenant, used, name.month}, e)
		}
	case errors.Is(err, schema.ErrKeyGone):
		e.until = k.cfg.Now().Add(goneLife)
	case ctx.Err() == nil:
		e.until = k.cfg.Now().Add(awayLife)
	}
	return e.key, err
}

// note remembers a key by another name, unless the key service is being asked about that. Under the lock.
func (k *Keys) note(name keyName, of *cachedKey) {
	if e := k.all[name]; e == nil || e.done == nil {
		k.makeRoom()
		k.all[name] = &cachedKey{until: of.until, key: of.key}
	}
}

// makeRoom forgets keys when there are many: those that have ended, or else any. Under the lock.
func (k *Keys) makeRoom() {
	if len(k.all) < mostKeys {
		return
	}
	now := k.cfg.Now()
	for name, e := range k.all {
		if e.done == nil && !now.Before(e.until) {
			delete(k.all, name)
		}
	}
	for name, e := range k.all {
		if len(k.all) <= mostKeys*3/4 {
			return
		}
		if e.done == nil {
			delete(k.all, name)
		}
	}
}

// label returns what a data key is for, in the words of the key service. It names the tenant, so that tenants that were given one key by
// mistake still have data keys of their own.
func label(name keyName) string { return "agentstream data key 1 " + name.tenant + " " + name.month }

// Tenants are those of whom new events are sealed. The zero value is none.
type Tenants struct {
	all   bool
	named map[string]bool
}

// ParseTenants reads a list of tenants; * is all of them.
func ParseTenants(list []string) (t Tenants, err error) {
	for _, name := range list {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case name == "*":
			t.all = true
		case schema.ValidTenant(name) != nil:
			return Tenants{}, fmt.Errorf("seal: %.80q is no tenant", name)
		default:
			if t.named == nil {
				t.named = make(map[string]bool)
			}
			t.named[name] = true
		}
	}
	return t, nil
}

// Has reports whether a tenant is one of them. Those whose names begin with _ are the server's own: what they hold says
// who has done what, also that a key was deleted.
func (t Tenants) Has(tenant string) bool {
	return (t.all || t.named[tenant]) && !strings.HasPrefix(tenant, "_")
}

// IsEmpty reports whether nobody's events are sealed.
func (t Tenants) IsEmpty() bool { return !t.all && len(t.named) == 0 }

// sub derives the key of one pack or blob.
func (d *dataKey) sub(purpose string, salt []byte) []byte {
	h := hmac.New(sha256.New, d.bytes[:])
	h.Write([]byte(purpose))
	h.Write(salt)
	return h.Sum(nil)
}

// check returns what tells a key apart from another one of the same name: one that was made after it was deleted.
func (d *dataKey) check() string {
	return encoding.EncodeToString(d.sub("agentstream check 1", nil)[:4])
}

// open returns the key that sealed content names. The error wraps schema.ErrKeyGone when there is another one of its name.
func (k *Keys) open(ctx context.Context, name keyName, check string) (dataKey, error) {
	key, err := k.get(ctx, name)
	if err == nil && key.check() != check {
		err = fmt.Errorf("data key of tenant %s for %s, version %d: the key of that name is another one: %w", name.tenant,
			name.month, name.version, schema.ErrKeyGone)
	}
	return key, err
}

// keyText is how sealed content names its data key: version and month.
func keyText(version int, month string) string { return strconv.Itoa(version) + "." + month }

// maxVersion bounds the version of a key that is read.
const maxVersion = 1 << 30

// parseKey reads keyText.
func parseKey(tenant, version, month string) (keyName, bool) {
	n, err := strconv.Atoi(version)
	if err != nil || n < 1 || n > maxVersion || strconv.Itoa(n) != version {
		return keyName{}, false
	}
	at, err := time.Parse("2006-01", month)
	if err != nil || at.Format("2006-01") != month {
		return keyName{}, false
	}
	return keyName{tenant: tenant, version: n, month: month}, true
}
