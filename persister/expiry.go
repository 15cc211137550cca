package persister

import (
	"errors"
	"math"
	"time"

	"agentstream/schema"
)

// ErrHeld reports that a legal hold keeps what was to be removed.
var ErrHeld = errors.New("under legal hold")

// Day is the unit in which retention is configured.
const Day = 24 * time.Hour

// KeepForEver in an [Override] is a number of days that never passes.
const KeepForEver = math.MaxInt32

// Override is a tenant's own retention, in days; nil means the deployment's, KeepForEver never.
type Override struct {
	Completed *int // runs in state done
	Ended     *int // runs in state error or aborted
}

// Hold is a legal hold. What it names is neither expired nor deleted.
type Hold struct {
	Key    schema.RunKey // Run "" is the whole tenant
	Reason string
	Placed time.Time
}

// EndedRun is a run that is over, as far as retention must know it.
type EndedRun struct {
	Key   schema.RunKey
	State schema.RunState
	Place Place
	Ended time.Time // time of its newest event, but not after that was stored: producers' clocks may be ahead
	Bytes int64     // of its blob
	Held  bool
}

// EndedQuery asks for runs that are over and have not expired, in the order of day, tenant and run.
type EndedQuery struct {
	Through string    // days (YYYYMMDD) up to this one
	After   *EndedRun // behind this one; nil: from the first
	Warm    bool      // only runs that the blob holds whole and whose rows are still there
	Limit   int

	// Unwanted asks instead for all runs whose session was deleted and which are not marked as such yet, also those
	// that go on or have expired.
	Unwanted bool
}

// Scrap is something that has been marked as gone and is still to be removed. It is stored in the
// transaction that marks, and until it is discarded its work can be done again without harm.
type Scrap struct {
	ID      int64
	Key     schema.RunKey
	Day     string
	After   schema.Seq // rows behind it and up to Through are to go
	Through schema.Seq
	URI     string // blob that is to go; "" for none
	Why     string // one of the Scrap reasons
}

// Reasons of scraps. What is cold leaves the tables alone; what is expired or deleted the log as well.
const (
	ScrapExpired = "expired"
	ScrapCold    = "cold"
	ScrapDeleted = "deleted"
)

// Tombstone is the row of a run that has expired or is to be forgotten.
type Tombstone struct {
	Key     schema.RunKey
	Day     string
	Deleted bool // else expired
	Since   time.Time
}

// Remains counts what a store still has of a run or a tenant, beside the marks themselves.
type Remains struct {
	Runs      int // rows of agent_runs without a mark
	Events    int
	Lanes     int
	Letters   int // dead letters
	Scraps    int
	Overrides int
	Holds     int
	Marks     int // runs that are marked as deleted: they go last, after a pause
}

// Nothing reports whether nothing but marks is left.
func (r Remains) Nothing() bool {
	r.Marks = 0
	return r == Remains{}
}
