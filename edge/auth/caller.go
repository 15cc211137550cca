package auth

import (
	"errors"
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

// May says whether the caller has all of these scopes.
func (c Caller) May(s Scope) bool { return c.Scopes&s == s }

// Scope is a set of permissions.
type Scope uint8

// The scopes.
const (
	ScopeRead    Scope = 1 << iota // streams, snapshots, pages, lists
	ScopeWrite                     // begin runs, append events
	ScopeCommand                   // cancel, pause, approve, answer, …

	ScopeAll = ScopeRead | ScopeWrite | ScopeCommand
)

// One sentinel for each decision of a caller.
var (
	// ErrUnauthorized says that a request brings no valid credential.
	ErrUnauthorized = errors.New("no valid credential")
	// ErrForbidden says that the credential does not allow this.
	ErrForbidden = errors.New("not allowed")
	// ErrExpired says that the credential of an open stream has ended.
	ErrExpired = errors.New("credential has expired")
)
