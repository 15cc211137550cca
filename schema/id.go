package schema

import (
	"crypto/rand"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// Limits of ids, in bytes. A run id is at most 128 because a subject holds tenant, run and child.
const (
	MaxRunID    = 128
	MaxTenantID = 64
	MaxEventID  = 128
)

// RootLane is the child token of events that the root run itself emits. No child may be called so.
const RootLane = "-"

// RunKey names a run: runs of different tenants never meet, even with the same id.
type RunKey struct {
	Tenant string
	Run    string
}

// String returns "tenant/run", for logs and errors.
func (k RunKey) String() string { return k.Tenant + "/" + k.Run }

// Validate wraps ErrBadID when tenant or run is not in the allow-list.
func (k RunKey) Validate() error {
	if err := ValidTenant(k.Tenant); err != nil {
		return err
	}
	return ValidRunID(k.Run)
}

// ValidRunID accepts [A-Za-z0-9_-]{1,128} except "-", which is the token of the root lane. The same
// rule holds for child ids, which are run ids (native §3.6). The allow-list is what keeps wildcards,
// dots and control characters out of subjects.
func ValidRunID(id string) error {
	if !token(id, MaxRunID) || id == RootLane {
		return fmt.Errorf("run id %s: %w", quote(id), ErrBadID)
	}
	return nil
}

// ValidTenant accepts [A-Za-z0-9_-]{1,64}.
func ValidTenant(id string) error {
	if !token(id, MaxTenantID) {
		return fmt.Errorf("tenant %s: %w", quote(id), ErrBadID)
	}
	return nil
}

// ValidEventID accepts [A-Za-z0-9_-]{1,128}. Ids that are minted here are evt_ and a ULID.
func ValidEventID(id string) error {
	if !token(id, MaxEventID) {
		return fmt.Errorf("event id %s: %w", quote(id), ErrBadID)
	}
	return nil
}

func token(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !tokenByte[s[i]] {
			return false
		}
	}
	return true
}

var tokenByte = func() (t [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-" {
		t[c] = true
	}
	return t
}()

// quote prints hostile ids safely and shortly.
func quote(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", strings.ToValidUTF8(s[:40], ""), len(s))
	}
	return fmt.Sprintf("%q", s)
}

// Prefixes of minted ids.
const (
	EventPrefix = "evt_"
	RunPrefix   = "run_"
)

// IDs mints ids that grow: every id is greater, as text, than all that this value minted before
// and than the floor it was given. Safe for concurrent use; the zero value is not usable.
type IDs struct {
	mu      sync.Mutex
	entropy io.Reader
	last    ulid.ULID
	text    [len(EventPrefix) + ulid.EncodedSize]byte // last as an event id, when it was minted as one
	stamp   atomic.Pointer[stamp]
}

// stamp is a millisecond as text.
type stamp struct {
	milli int64
	text  string
}

// NewIDs returns a minter with cryptographic entropy.
func NewIDs() *IDs { return &IDs{entropy: rand.Reader} }

// maxSkew is how far another writer's clock is believed to be ahead.
const maxSkew = 24 * time.Hour

// Event mints an event id at now that is greater than floor (another evt_ id or ""), so that ids
// grow along a run's log even when its writers' clocks disagree. A floor that is more than a day
// ahead of now is passed over: producers may bring ids of their own, and one from the end of time
// must not push the ids of all other runs there.
func (g *IDs) Event(now time.Time, floor string) string {
	return string(g.AppendEvent(make([]byte, 0, len(g.text)), now, floor))
}

// AppendEvent is Event, appended to dst.
func (g *IDs) AppendEvent(dst []byte, now time.Time, floor string) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if floor != "" && floor != string(g.text[:]) { // nearly always it is the one that was minted last
		if f, err := ulid.ParseStrict(strings.TrimPrefix(floor, EventPrefix)); err == nil && f.Compare(g.last) > 0 &&
			f.Time() <= ulid.Timestamp(now.Add(maxSkew)) {
			g.last = f
		}
	}
	id := g.next(now)
	copy(g.text[:], EventPrefix)
	_ = id.MarshalTextTo(g.text[len(EventPrefix):]) // there is room
	return append(dst, g.text[:]...)
}

// Stamp writes a UTC time as TimeLayout says, once for all that ask within a millisecond.
func (g *IDs) Stamp(now time.Time) string {
	s, milli := g.stamp.Load(), now.UnixMilli()
	if s == nil || s.milli != milli {
		s = &stamp{milli, now.Format(TimeLayout)}
		g.stamp.Store(s)
	}
	return s.text
}

// Run mints a run id.
func (g *IDs) Run(now time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return RunPrefix + g.next(now).String()
}

// next is monotonic in the sense of the ULID specification: within one millisecond, and when the
// clock is behind the last id, it counts the random part up by one.
func (g *IDs) next(now time.Time) ulid.ULID {
	ms := ulid.Timestamp(now)
	if ms <= g.last.Time() && g.last != (ulid.ULID{}) {
		for i := len(g.last) - 1; i >= 0; i-- {
			g.last[i]++
			if g.last[i] != 0 {
				break
			}
		}
		return g.last
	}
	id, err := ulid.New(ms, g.entropy)
	if err != nil { // the clock is after the year 10889, or the kernel has no entropy
		panic(fmt.Sprintf("schema: mint id: %v", err))
	}
	id[6] &= 0x7f // leave room to count up within the millisecond
	g.last = id
	return id
}

// Seq numbers the events of one root run: 1, 2, 3 … without holes. 0 is before the first event.
type Seq int64

// MaxSeq is the largest seq a JavaScript client can hold exactly (2^53-1).
const MaxSeq Seq = 1<<53 - 1

// String prints the number.
func (s Seq) String() string { return strconv.FormatInt(int64(s), 10) }

// ParseCursor reads a resume position: the seq of the last event a client has. It accepts only
// decimal digits, without sign or space, up to MaxSeq; the error wraps ErrBadCursor. The empty
// text is the start of the run.
func ParseCursor(s string) (Seq, error) {
	if s == "" {
		return 0, nil
	}
	if len(s) > 16 {
		return 0, fmt.Errorf("%w, but %s", ErrBadCursor, quote(s))
	}
	var n Seq
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("%w, but %s", ErrBadCursor, quote(s))
		}
		n = n*10 + Seq(s[i]-'0')
	}
	if n > MaxSeq {
		return 0, fmt.Errorf("%w, but %s", ErrBadCursor, quote(s))
	}
	return n, nil
}
