package natsjs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/tap"
)

// Places keeps what taps need in natskit.TapsBucket. Make it with Open.
type Places struct {
	bucket *natskit.Bucket
	most   int // dead letters of a tap

	mu      sync.Mutex
	tallies map[string]*tally // of dead letters, by tap
}

var (
	_ tap.Places  = (*Places)(nil)
	_ tap.Letters = (*Places)(nil)
)

// Open opens the bucket. The error wraps natskit.ErrNotDeclared when there is none.
func Open(ctx context.Context, nc *nats.Conn) (*Places, error) {
	b, err := natskit.OpenBucket(ctx, nc, natskit.TapsBucket)
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	return &Places{bucket: b, most: MaxLetters, tallies: make(map[string]*tally)}, nil
}

func specKey(name string) string           { return "tap." + name }
func placeKey(name, stream string) string  { return "place." + name + "." + stream }
func ledgerKey(name, stream string) string { return "ledger." + name + "." + stream }
func letterKey(name, id string) string     { return "dead." + name + "." + id }

// ErrExists reports that a tap of that name exists and was asked for something else.
var ErrExists = errors.New("there is a tap of that name for something else: remove it, or use another name")

// ErrNoTap reports that there is no tap of that name.
var ErrNoTap = errors.New("no such tap")

// Begin returns the specification of the tap of that name: what is stored, or spec when nothing is. made says that it
// is new. Types and sinks may differ from what is stored, and replace it. The error wraps ErrExists when the tenant
// differs.
func (p *Places) Begin(ctx context.Context, spec tap.Spec) (have tap.Spec, made bool, err error) {
	if err := spec.Validate(); err != nil {
		return spec, false, err
	}
	for {
		v, err := p.bucket.Read(ctx, specKey(spec.Name))
		if err != nil {
			return spec, false, err
		}
		next := spec
		made = len(v.Data) == 0
		if !made {
			if err := json.Unmarshal(v.Data, &have); err != nil {
				return spec, false, fmt.Errorf("tap: specification of %s: %w", spec.Name, err)
			}
			if have.Tenant != spec.Tenant {
				return have, false, fmt.Errorf("tap %s of tenant %q: %w", spec.Name, have.Tenant, ErrExists)
			}
			next.From, next.Made = have.From, have.Made
			if slices.Equal(next.Types, have.Types) && slices.Equal(next.To, have.To) {
				return have, false, nil
			}
		} else {
			next.Made = time.Now().UTC()
		}
		b, err := json.Marshal(next)
		if err != nil {
			return spec, false, fmt.Errorf("tap: specification of %s: %w", spec.Name, err)
		}
		_, err = p.bucket.Swap(ctx, specKey(spec.Name), b, v.Revision)
		if !errors.Is(err, natskit.ErrSwapped) {
			return next, made, err
		}
	}
}

// List returns all taps, by name.
func (p *Places) List(ctx context.Context) (specs []tap.Spec, err error) {
	values, err := p.bucket.List(ctx, "tap.*")
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		var s tap.Spec
		if err := json.Unmarshal(v.Data, &s); err != nil {
			return nil, fmt.Errorf("tap: specification %s: %w", v.Key, err)
		}
		specs = append(specs, s)
	}
	slices.SortFunc(specs, func(a, b tap.Spec) int { return cmp.Compare(a.Name, b.Name) })
	return specs, nil
}

// Places implements tap.Places.
func (p *Places) Places(ctx context.Context, name string) (places []tap.Standing, err error) {
	values, err := p.bucket.List(ctx, placeKey(name, "*"))
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		var place tap.Standing
		if err := json.Unmarshal(v.Data, &place); err != nil {
			return nil, fmt.Errorf("tap: place %s: %w", v.Key, err)
		}
		place.Revision = v.Revision
		places = append(places, place)
	}
	return places, nil
}

// Move implements tap.Places.
func (p *Places) Move(ctx context.Context, name string, place tap.Standing) (uint64, error) {
	b, err := json.Marshal(place)
	if err != nil {
		return 0, fmt.Errorf("tap: place of %s: %w", name, err)
	}
	key := placeKey(name, place.Offset.Stream)
	if place.Revision == 0 { // a removed one has left a mark
		v, err := p.bucket.Read(ctx, key)
		if err != nil {
			return 0, err
		}
		if len(v.Data) > 0 {
			return 0, fmt.Errorf("tap: %s: %w", key, persister.ErrOvertaken)
		}
		if err := p.requireTap(ctx, name); err != nil {
			return 0, err
		}
		place.Revision = v.Revision
	}
	revision, err := p.bucket.Swap(ctx, key, b, place.Revision)
	if errors.Is(err, natskit.ErrSwapped) {
		err = fmt.Errorf("%w: %w", persister.ErrOvertaken, err)
	}
	return revision, err
}

// requireTap returns nil when there is a tap of that name. Otherwise the error ends the tap: it was removed while it
// ran.
func (p *Places) requireTap(ctx context.Context, name string) error {
	v, err := p.bucket.Read(ctx, specKey(name))
	if err == nil && len(v.Data) == 0 {
		err = tap.Stop(fmt.Errorf("tap %s: %w", name, ErrNoTap))
	}
	return err
}

// Ledger implements tap.Places.
func (p *Places) Ledger(ctx context.Context, name, stream string) ([]byte, error) {
	v, err := p.bucket.Read(ctx, ledgerKey(name, stream))
	return v.Data, err
}

// SaveLedger implements tap.Places.
func (p *Places) SaveLedger(ctx context.Context, name, stream string, ledger []byte) error {
	return p.bucket.Put(ctx, ledgerKey(name, stream), ledger)
}

// Put implements tap.Letters.
func (p *Places) Put(ctx context.Context, name string, l tap.Letter) error {
	h := sha256.New()
	for _, part := range []string{l.Tenant, l.Run, strconv.FormatInt(l.Seq, 10), l.Stream,
		strconv.FormatUint(l.Position, 10), l.Reason} {
		h.Write([]byte(strconv.Quote(part)))
	}
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("tap: dead letter of %s: %w", name, err)
	}
	key := letterKey(name, hex.EncodeToString(h.Sum(nil)[:12]))
	if v, err := p.bucket.Read(ctx, key); err != nil || len(v.Data) > 0 { // of a batch that comes again
		return err
	}
	return p.putWithin(ctx, name, key, b)
}

// Letters returns the dead letters of a tap, oldest first.
func (p *Places) Letters(ctx context.Context, name string) (letters []tap.Letter, err error) {
	values, err := p.bucket.List(ctx, letterKey(name, "*"))
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		var l tap.Letter
		if err := json.Unmarshal(v.Data, &l); err != nil {
			return nil, fmt.Errorf("tap: dead letter %s: %w", v.Key, err)
		}
		l.ID = v.Key[strings.LastIndexByte(v.Key, '.')+1:]
		letters = append(letters, l)
	}
	return letters, nil
}

// Drop removes a dead letter.
func (p *Places) Drop(ctx context.Context, name, id string) error {
	return p.bucket.Remove(ctx, letterKey(name, id))
}

// Remove removes all that is kept of a tap. Members that still run end at their next batch. The error wraps ErrNoTap
// when there is none.
func (p *Places) Remove(ctx context.Context, name string) error {
	if err := p.requireTap(ctx, name); err != nil {
		return err
	}
	for _, filter := range []string{placeKey(name, "*"), ledgerKey(name, "*"), letterKey(name, "*"), specKey(name)} {
		values, err := p.bucket.List(ctx, filter)
		if err != nil {
			return err
		}
		for _, v := range values {
			if err := p.bucket.Remove(ctx, v.Key); err != nil {
				return err
			}
		}
	}
	return nil
}
