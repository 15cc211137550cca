package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"agentstream/internal/fair"
	"agentstream/schema"
)

// ErrNoTicket reports that a store has no such ticket: it never had, or it has been taken or has expired.
var ErrNoTicket = errors.New("no such ticket")

// ErrTickets reports that a tenant has been given as many tickets as it may have open.
var ErrTickets = errors.New("more tickets than this tenant may have open")

// TicketStore keeps tickets until they are taken. Ids are hashes, 64 hex digits.
type TicketStore interface {
	// Put keeps a record, for ttl or somewhat longer.
	Put(ctx context.Context, id string, record []byte, ttl time.Duration) error
	// Redeem removes a record that is wanted and hands it to exactly one caller, over all nodes. The others get an
	// error that wraps ErrNoTicket; so does everybody when it is unknown who was first, and who does not
	// want the record, which stays. wanted must not block.
	Redeem(ctx context.Context, id string, wanted func(record []byte) bool) error
}

// TicketsConfig sets tickets up. Store and Still are needed.
type TicketsConfig struct {
	Store TicketStore
	Still func(Caller) error // checks at redemption whether the credential behind a ticket still holds; Bearer.Still
	TTL   time.Duration      // between issue and redemption; default 60 s, at most MaxTicketTTL
	Now   func() time.Time   // default time.Now
}

// MaxTicketTTL bounds the life of a ticket: URLs end up in histories and in proxies' logs.
const MaxTicketTTL = 10 * time.Minute

// Terms are what tickets of one kind are good for. A ticket is redeemed only as one of its own kind.
type Terms struct {
	Prefix string        // begins every ticket: 1 to 16 lower-case letters and "_"; default "tkt_"
	TTL    time.Duration // between issue and redemption, at most MaxTicketTTL; default TicketsConfig.TTL
	Scopes Scope         // a ticket has those of them that its caller has; default ScopeRead
}

// Validate checks what is set.
func (t Terms) Validate() error {
	name, ok := strings.CutSuffix(t.Prefix, "_")
	if t.Prefix != "" && (!ok || len(name) < 1 || len(name) > 16 ||
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "") {
		return fmt.Errorf("auth: tickets: prefix %q is not lower-case letters and an underscore", t.Prefix)
	}
	if t.TTL != 0 && (t.TTL < time.Second || t.TTL > MaxTicketTTL) {
		return fmt.Errorf("auth: tickets: life %v is not within 1s to %v", t.TTL, MaxTicketTTL)
	}
	return nil
}

// Tickets issues and redeems tokens that open one stream or conversation of one run once, for clients that can set no
// header (EventSource, WebSocket in browsers). Make it with NewTickets. It is safe for concurrent use.
type Tickets struct {
	cfg    TicketsConfig
	terms  Terms
	issued *fair.Quota
}

// NewTickets checks the configuration.
func NewTickets(cfg TicketsConfig) (*Tickets, error) {
	if cfg.Store == nil || cfg.Still == nil {
		return nil, errors.New("auth: tickets: store and Still are needed")
	}
	cfg.TTL = cmp.Or(cfg.TTL, time.Minute)
	if err := (Terms{TTL: cfg.TTL}).Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return (&Tickets{cfg: cfg, issued: fair.NewQuota(ticketsAtOnce, MaxTicketTTL)}).Of(Terms{}), nil
}

// Of returns the tickets of a kind, which lie in the same store. The terms must be valid.
func (t *Tickets) Of(terms Terms) *Tickets {
	terms = Terms{Prefix: cmp.Or(terms.Prefix, "tkt_"), TTL: cmp.Or(terms.TTL, t.cfg.TTL),
		Scopes: cmp.Or(terms.Scopes, ScopeRead)}
	return &Tickets{cfg: t.cfg, terms: terms, issued: t.issued}
}

// ticketRecord is what a store keeps. Times are Unix milliseconds; 0 is never.
type ticketRecord struct {
	Tenant     string `json:"tenant"`
	Run        string `json:"run"`
	Subject    string `json:"subject,omitempty"`
	Credential string `json:"credential,omitempty"`
	Expires    int64  `json:"expires,omitempty"` // of the credential
	Deadline   int64  `json:"deadline"`          // of the ticket
	Scopes     Scope  `json:"scopes,omitempty"`  // 0: ScopeRead
}

// Issue makes a ticket for a run of the caller's tenant and says until when it can be redeemed. The error wraps
// ErrForbidden for a caller who has none of the scopes or may not see that run, ErrExpired for one whose credential has
// ended, ErrTickets for a tenant that has had very many lately, ErrUnavailable when the ticket cannot be kept.
func (t *Tickets) Issue(ctx context.Context, c Caller, run string) (ticket string, until time.Time, err error) {
	scopes := t.terms.Scopes & c.Scopes
	if scopes == 0 || c.Run != "" && c.Run != run {
		return "", time.Time{}, ErrForbidden
	}
	now := t.cfg.Now()
	until = now.Add(t.terms.TTL)
	r := ticketRecord{Tenant: c.Tenant, Run: run, Subject: c.Subject, Credential: c.Credential, Scopes: scopes}
	if !c.Expires.IsZero() {
		if !now.Before(c.Expires) {
			return "", time.Time{}, ErrExpired
		}
		r.Expires = c.Expires.UnixMilli()
		if c.Expires.Before(until) {
			until = c.Expires
		}
	}
	until = until.Truncate(time.Millisecond)
	r.Deadline = until.UnixMilli()
	if !t.issued.Count(c.Tenant, now) {
		return "", time.Time{}, fmt.Errorf("auth: ticket for %s/%s: %w", c.Tenant, run, ErrTickets)
	}
	record, err := json.Marshal(r)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("auth: ticket for %s/%s: %w", c.Tenant, run, err)
	}
	ticket = t.terms.Prefix + rand.Text() + rand.Text() // 260 bits
	if err := t.cfg.Store.Put(ctx, ticketID(ticket), record, until.Sub(now)); err != nil {
		return "", time.Time{}, fmt.Errorf("auth: keep a ticket for %s/%s: %w: %w", c.Tenant, run, ErrUnavailable, err)
	}
	return ticket, until, nil
}

// Bounds of what a node gives out to one tenant. The store keeps what is not redeemed for MaxTicketTTL, of all tenants
// in one place: at once as many as a tenant's clients need that all come back together, and then as many as a tenth of
// a store of 100,000 loses in that time.
const ticketsAtOnce = 10_000

// ticketID is what a store knows of a ticket: whoever reads the store cannot redeem.
func ticketID(ticket string) string {
	sum := sha256.Sum256([]byte(ticket))
	return hex.EncodeToString(sum[:])
}

// ticketLen is the length of a ticket without its prefix, in bytes.
const ticketLen = 2 * 26

// Redeem takes a ticket for a run and checks everything again. The caller has the ticket's scopes for that run alone,
// and its stream ends when the credential behind the ticket does. A ticket for another run stays as it is and is
// answered as one that is not there; any other is used up also when it is refused. The error wraps ErrUnauthorized, or
// ErrUnavailable when the store does not answer.
func (t *Tickets) Redeem(ctx context.Context, ticket, run string) (Caller, error) {
	return t.redeem(ctx, ticket, func(r string) bool { return r == run })
}

// RedeemAny takes a ticket for whichever run it is of, which the caller says.
func (t *Tickets) RedeemAny(ctx context.Context, ticket string) (Caller, error) {
	return t.redeem(ctx, ticket, func(string) bool { return true })
}

func (t *Tickets) redeem(ctx context.Context, ticket string, wanted func(run string) bool) (Caller, error) {
	if rest, ok := strings.CutPrefix(ticket, t.terms.Prefix); !ok || len(rest) != ticketLen {
		return Caller{}, refuse("not a ticket of this kind")
	}
	var r ticketRecord
	var bad error
	err := t.cfg.Store.Redeem(ctx, ticketID(ticket), func(record []byte) bool {
		bad = json.Unmarshal(record, &r)
		return bad != nil || wanted(r.Run)
	})
	if errors.Is(err, ErrNoTicket) {
		return Caller{}, refuse("no such ticket for this run, or it was used, or it has expired")
	}
	if err != nil {
		return Caller{}, fmt.Errorf("auth: take a ticket: %w: %w", ErrUnavailable, err)
	}
	if bad != nil {
		return Caller{}, fmt.Errorf("auth: ticket's record: %w", bad)
	}
	now := t.cfg.Now()
	if now.UnixMilli() >= r.Deadline {
		return Caller{}, refuse("the ticket has expired")
	}
	c := Caller{Tenant: r.Tenant, Run: r.Run, Subject: r.Subject, Credential: r.Credential,
		Scopes: cmp.Or(r.Scopes, ScopeRead)}
	if err := (schema.RunKey{Tenant: c.Tenant, Run: c.Run}).Validate(); err != nil {
		return Caller{}, fmt.Errorf("auth: ticket's record: %s", err) // nobody but us writes records
	}
	if r.Expires != 0 {
		c.Expires = time.UnixMilli(r.Expires)
		if !now.Before(c.Expires) {
			return Caller{}, refuse("the credential behind the ticket has expired")
		}
	}
	if err := t.cfg.Still(c); err != nil {
		return Caller{}, err
	}
	return c, nil
}

// maxMemoryTickets bounds what MemoryTickets keeps.
const maxMemoryTickets = 100_000

// MemoryTickets keeps tickets in this process: for tests, and where one node serves alone.
type MemoryTickets struct {
	mu      sync.Mutex
	now     func() time.Time
	tickets map[string]memoryTicket
}

type memoryTicket struct {
	record []byte
	until  time.Time
}

// NewMemoryTickets makes an empty store; a nil clock is time.Now.
func NewMemoryTickets(now func() time.Time) *MemoryTickets {
	if now == nil {
		now = time.Now
	}
	return &MemoryTickets{now: now, tickets: make(map[string]memoryTicket)}
}

// Put keeps the record. Expired ones are thrown out when there is no place.
func (m *MemoryTickets) Put(_ context.Context, id string, record []byte, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if len(m.tickets) >= maxMemoryTickets {
		for id, t := range m.tickets {
			if !now.Before(t.until) {
				delete(m.tickets, id)
			}
		}
		if len(m.tickets) >= maxMemoryTickets {
			return errors.New("too many open tickets")
		}
	}
	m.tickets[id] = memoryTicket{record: record, until: now.Add(ttl)}
	return nil
}

// Redeem removes the record when it is wanted.
func (m *MemoryTickets) Redeem(_ context.Context, id string, wanted func([]byte) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tickets[id]
	if !ok || !m.now().Before(t.until) || !wanted(t.record) {
		return ErrNoTicket
	}
	delete(m.tickets, id)
	return nil
}
