package schema

import "time"

// TapQuery asks for the events of all runs of a tenant.
type TapQuery struct {
	Tenant string
	Types  []string  // as text.* or run.lifecycle; none: all
	Cursor string    // go on after the record that had it; "": begin as From and New say
	From   time.Time // without a cursor: events of this time or later; zero: all that is kept
	New    bool      // without a cursor: what is stored from now on
}

// TapRecord is an event of a tenant, or a word about a gap, with the place after it.
type TapRecord struct {
	Type   string // of the event; TapGap, or "" for a record that is a place alone
	Line   []byte // the event as clients get it; of a gap a TapLoss in JSON. It is not used after the record's receiver has returned
	Cursor string // opaque; never empty
}

// TapGap is the type of a record that says that events are missing.
const TapGap = "tap.gap"

// TapLoss is what a tap cannot deliver, for ever.
type TapLoss struct {
	Run       string `json:"run_id,omitempty"` // empty: it is not known which runs
	First     Seq    `json:"first_seq,omitempty"`
	Last      Seq    `json:"last_seq,omitempty"`
	Partition *int   `json:"partition,omitempty"` // of a loss whose runs are not known
	Reason    string `json:"reason"`
}

// Reasons of a TapLoss.
const (
	TapExpired   = "expired"   // neither the log nor the archive has the events any more
	TapWindow    = "window"    // the events have left the log, and there is no archive
	TapMalformed = "malformed" // what the log has there is no event
)
