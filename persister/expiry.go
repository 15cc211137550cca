package persister

import (
	"errors"
	"math"
	"time"

	"agentstream/schema"
)

// ErrHeld reports that a legal hold forbids the removal.
var ErrHeld = errors.New("under legal hold")

// Day is the unit in which retention is configured.
const Day = 24 * time.Hour

// KeepForEver in an [Override] means that runs never expire.
const KeepForEver = math.MaxInt32

// Override is a tenant's own retention, in days. nil means that the deployment's applies.
type Override struct {
	Completed *int // runs in state done
	Ended     *int // runs in state error or aborted
}

// Hold is a legal hold. Runs under it neither expire nor are deleted.
type Hold struct {
	Key    schema.RunKey // Run "" is the whole tenant
	Reason string
	Placed time.Time
}

// EndedRun is a run that has ended, as retention sees it.
type EndedRun struct {
	Key   schema.RunKey
	State schema.RunState
	Place Place
	Ended time.Time // time of its newest event, at most the time at which it was stored: producers' clocks may be ahead
	Bytes int64     // of its blob
	Held  bool
}

// EndedQuery selects runs that have ended and have not expired, in the order of day, tenant and run.
type EndedQuery struct {
	Through string    // days (YYYYMMDD) up to this one
	After   *EndedRun // after this one; nil: from the first
	Warm    bool      // only runs that the blob holds completely and whose rows still exist
	Limit   int

	// Unwanted selects instead all runs whose session was deleted and which are not yet marked as deleted, also those
	// that have not ended or have expired.
	Unwanted bool
}

// Scrap describes events that are marked as removed and must still be removed from their places. It is stored in the
// transaction that marks them. Until it is discarded, the removal can be done again without harm.
type Scrap struct {
	ID      int64
	Key     schema.RunKey
	Day     string
	After   schema.Seq // rows after it and up to Through are to be removed
	Through schema.Seq
	URI     string // blob to remove; "" for none
	Why     string // one of the Scrap reasons
}

// Reasons of scraps. Cold events are removed from the tables only, expired and deleted ones from the log as well.
const (
	ScrapExpired = "expired"
	ScrapCold    = "cold"
	ScrapDeleted = "deleted"
)

// Tombstone is the row that remains of a run that has expired or was deleted.
type Tombstone struct {
	Key     schema.RunKey
	Day     string
	Deleted bool // else expired
	Since   time.Time
}

// Remains counts what a store still has of a run or a tenant.
type Remains struct {
	Runs      int // rows of agent_runs that are not marked as deleted
	Events    int
	Lanes     int
	Letters   int // dead letters
	Scraps    int
	Overrides int
	Holds     int
	Marks     int // rows of agent_runs that are marked as deleted: they are removed last, after a pause
}

// Nothing reports whether nothing is left but rows marked as deleted.
func (r Remains) Nothing() bool {
	r.Marks = 0
	return r == Remains{}
}
