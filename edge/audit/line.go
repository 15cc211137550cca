package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentstream/edge/auth"
	"agentstream/schema"
)

// Action is what was done. Wire names: they are part of the type of a line's event.
type Action string

// The actions.
const (
	Opened    Action = "opened"    // a run was read, or all of a tenant (run *)
	Decided   Action = "decided"   // a command to a run: an approval, an answer, a pause, …
	Cancelled Action = "cancelled" // a run
	Archived  Action = "archived"  // a session
	Deleted   Action = "deleted"   // a session, a run, a tenant, a dead letter
	Shared    Action = "shared"    // a link to a run was made
	Exported  Action = "exported"  // a run as a file
	Refused   Action = "refused"   // somebody who is known may not do something
	Held      Action = "held"      // a legal hold was placed or lifted
	Retained  Action = "retained"  // how long runs are kept was changed
	Redacted  Action = "redacted"  // texts in runs that are stored were hidden
	Keyed     Action = "keyed"     // a credential was made or taken back
	Merged    Action = "merged"    // lines that could not be kept apart while the log was away
)

// TypePrefix begins the types of the events of a feed.
const TypePrefix = "custom.audit."

// actionOf are the commands that are lines. What a person says to an agent is no decision about it.
var actionOf = map[string]Action{
	"command.cancel":           Cancelled,
	schema.TypeSessionDeleted:  Deleted,
	schema.TypeSessionArchived: Archived,
	schema.TypeCommandMessage:  "",
	schema.TypeSessionUpdated:  "",
}

// ActionOf returns what it is to store an event of a type; "" when that is no line.
func ActionOf(typ string) Action {
	if !schema.IsCommand(typ) {
		return ""
	}
	if a, known := actionOf[typ]; known {
		return a
	}
	return Decided
}

// Line is one line of a feed.
type Line struct {
	Action     Action     `json:"action"`
	Run        string     `json:"run_id,omitempty"`     // "*": all runs of the tenant
	Caller     string     `json:"caller,omitempty"`     // who, within the tenant
	Credential string     `json:"credential,omitempty"` // what was shown, by its name
	Via        string     `json:"via,omitempty"`        // the protocol, or the command of an administrator
	Route      string     `json:"route,omitempty"`      // of a refusal
	Event      string     `json:"event,omitempty"`      // type of the event that was stored
	Seq        schema.Seq `json:"seq,omitempty"`        // its number in the run
	Reason     string     `json:"reason,omitempty"`     // of a refusal; of a hold
	Detail     string     `json:"detail,omitempty"`     // what more is to be said of the action
	Count      int        `json:"count,omitempty"`      // lines that this one stands for; 0: itself
}

// By returns a line about what a caller did.
func By(c auth.Caller, a Action, run, via string) Line {
	return Line{Action: a, Run: run, Caller: schema.CutText(c.Subject, maxText),
		Credential: schema.CutText(c.Credential, maxText), Via: via}
}

// maxText bounds a text of a line, in bytes.
const maxText = 255

// event returns the line as an event of its time.
func (l *Line) event(at time.Time) (schema.Event, error) {
	l.Reason, l.Detail = schema.CutText(l.Reason, maxText), schema.CutText(l.Detail, maxText)
	payload, err := json.Marshal(l)
	e := schema.Event{Type: TypePrefix + string(l.Action), TS: at.UTC().Format(schema.TimeLayout), Actor: "user",
		Payload: payload}
	if err == nil {
		err = e.Prepare(Run)
	}
	if err != nil {
		return e, fmt.Errorf("audit: line %s: %w", l.Action, err)
	}
	return e, nil
}

// Run is the id of the run that is a tenant's feed, within the tenant that FeedOf names.
const Run = "audit"

// What the ids of the tenants of feeds begin with: that of a tenant, and that of one whose id leaves no room for it.
const (
	reserved = "_audit"
	whole    = reserved + "-"
	hashed   = reserved + "_"
)

// FeedOf names the audit feed of a tenant.
func FeedOf(tenant string) schema.RunKey {
	if IsReserved(tenant) { // who reads a feed is in that feed
		return schema.RunKey{Tenant: tenant, Run: Run}
	}
	if name := whole + tenant; len(name) <= schema.MaxTenantID {
		return schema.RunKey{Tenant: name, Run: Run}
	}
	sum := sha256.Sum256([]byte(tenant))
	return schema.RunKey{Tenant: hashed + tenant[:24] + "-" + hex.EncodeToString(sum[:16]), Run: Run}
}

// IsReserved reports whether an id is that of the tenant of a feed. No credential is for it.
func IsReserved(tenant string) bool {
	return strings.HasPrefix(tenant, whole) || strings.HasPrefix(tenant, hashed)
}
