package auth

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Caller is who sends a request, as its credential says.
type Caller struct {
	Tenant  string    // passes schema.ValidTenant; ids mean something only within it
	Subject string    // who within the tenant, for logs and actor; may be empty
	Scopes  Scope     // what it may do
	Expires time.Time // when the credential ends; streams end with it. Zero: never
	Run     string    // the one run that it may see (tickets); "": any of the tenant
	// Credential names what was shown without giving it away ("key:ci-7", "jwt:https://issuer"), so that
	// what was derived from it can be checked again.
	Credential string
}

// May reports whether the caller has all of these scopes.
func (c Caller) May(s Scope) bool { return c.Scopes&s == s }

// Scope is a set of permissions.
type Scope uint8

// The scopes.
const (
	ScopeRead    Scope = 1 << iota // streams, snapshots, pages, lists
	ScopeWrite                     // begin runs, append events
	ScopeCommand                   // cancel, pause, approve, answer, …
	ScopeOperate                   // how the node is, dead letters
	ScopeAudit                     // the tenant's audit feed

	ScopeAll = ScopeRead | ScopeWrite | ScopeCommand | ScopeOperate | ScopeAudit
)

var scopeNames = []struct {
	scope Scope
	name  string
}{{ScopeRead, "read"}, {ScopeWrite, "write"}, {ScopeCommand, "command"}, {ScopeOperate, "operate"},
	{ScopeAudit, "audit"}}

// String returns the names, separated by commas; "" for none.
func (s Scope) String() string { return strings.Join(s.Names(), ",") }

// Names returns the names of the scopes in the set.
func (s Scope) Names() []string {
	var names []string
	for _, n := range scopeNames {
		if s&n.scope != 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// scopeOf returns the scope of a name; 0 for a name that is none.
func scopeOf(name string) Scope {
	for _, n := range scopeNames {
		if n.name == name {
			return n.scope
		}
	}
	return 0
}

// ParseScopes reads names of scopes: "read", "write", "command", "operate", "audit". At least one is needed.
func ParseScopes(names []string) (Scope, error) {
	var all Scope
	for _, name := range names {
		s := scopeOf(name)
		if s == 0 {
			return 0, fmt.Errorf("auth: scope %q is none of read, write, command, operate, audit", name)
		}
		all |= s
	}
	if all == 0 {
		return 0, errors.New("auth: no scopes")
	}
	return all, nil
}

// One sentinel for each decision of a caller.
var (
	// ErrUnauthorized reports that a request brings no valid credential.
	ErrUnauthorized = errors.New("no valid credential")
	// ErrForbidden reports that the credential does not allow this.
	ErrForbidden = errors.New("not allowed")
	// ErrOtherRun reports that the credential is for another run alone. To its caller there is no such run.
	ErrOtherRun = errors.New("credential is for another run")
	// ErrExpired reports that the credential of an open stream has ended.
	ErrExpired = errors.New("credential has expired")
	// ErrUnavailable reports that credentials cannot be checked now: no keys of the issuer are known, or
	// tickets cannot be kept. It says nothing about the credential.
	ErrUnavailable = errors.New("credentials cannot be checked now")
)

// Refusal is an ErrUnauthorized that says which check failed. The text is for the log: it holds
// nothing of the credential, and clients do not learn it.
type Refusal struct{ Check string }

func (r *Refusal) Error() string { return r.Check + ": " + ErrUnauthorized.Error() }

// Unwrap makes a refusal an ErrUnauthorized.
func (r *Refusal) Unwrap() error { return ErrUnauthorized }

func refuse(check string) error { return &Refusal{Check: check} }
