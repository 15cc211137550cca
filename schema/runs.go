package schema

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RunsQuery asks for one page of a tenant's runs, newest first: by the time of their first event,
// then by id. That order never changes, so pages stay exact while runs are added.
type RunsQuery struct {
	States []RunState // in one of these now, without doubles; empty: in any
	Since  time.Time  // began at this time or later; zero: no bound
	Until  time.Time  // began before this time; zero: no bound
	After  RunCursor  // behind this run; zero: from the newest
	Limit  int        // most runs, at least 1
	Oldest bool       // the other way round: oldest first
	Waits  bool       // waiting for somebody now, as RunInfo.Waiting reports
	Models bool       // with RunInfo.Session, Model and Cost

	Words  []string // all of them in id, title, agent, model, tags or first words; lower case
	Title  string   // exactly
	Tag    string   // exactly; "" of all these is any
	Model  string   // exactly
	Reason string   // in the reason
	Order  RunOrder // "" is by start

	Sessions bool   // leave out runs whose session is archived or deleted
	Archived bool   // with Sessions, archived ones are not left out
	Agent    string // sessions of this agent; "": of any, and runs that are no sessions
}

// RunInfo is what is kept of a run beside its events. Times are the producers'.
type RunInfo struct {
	ID      string
	State   RunState // "" before the first run.lifecycle
	Reason  string   // the reason in the newest run.lifecycle, cut to MaxReason bytes; "" for none
	Last    Seq      // newest event
	Started time.Time
	Updated time.Time // of the newest event
	Usage   Usage     // summed over the run and its children
	Turn    Turn      // whether its root lane works; "" also for one of which that was not kept yet
	Stop    string    // with TurnClosed: what TurnOf returns, cut to MaxReason bytes
	Held    time.Time // when it has come to its state; zero where that was not kept yet
	Asked   time.Time // of the oldest question without an answer, see Ask; zero: there is none
	// what MergeSession has made of its session.* events; nil: it has none, or neither Sessions nor Models was asked
	// for
	Session json.RawMessage

	Opening string // with Models: first words of its first message; "" when there is none
	Place   int64  // with RunsQuery.Order: by what the run stands where it does

	Model string   // with Models: of the newest message that has ended and names one; "" when that is not known
	Cost  *float64 // with Models: in US dollars, of the messages of which it is known; nil when there is none

	// with Models: whose messages' cost is not known, at most MaxUnpriced, sorted; "" is a model without a name
	Unpriced []string
}

// CostsQuery asks what models have cost a tenant. Costs are computed from the prices of now.
type CostsQuery struct {
	Run    string // of the messages of this run; "": by day, of all runs
	By     CostsBy
	Child  *string   // with Run: of this child alone, "" is the run itself; nil: of all
	After  Seq       // ByMessage: whose message.end comes later in the run
	Beyond *string   // ByChild: whose id sorts after this one; nil: from the run itself on
	Since  time.Time // ByDay: from this UTC day on
	Until  time.Time // ByDay: up to and with this UTC day
	Limit  int       // most costs, at least 1
}

// CostsBy is what each cost is of.
type CostsBy int

const (
	ByMessage CostsBy = iota // in the order of the run
	ByChild                  // in the order of their ids: the run itself first
	ByDay                    // and model, newest day first
)

// Cost is what messages have used, and what that has cost.
type Cost struct {
	Seq      Seq    // ByMessage: of its message.end
	Child    string // ByMessage and ByChild: "" is the run itself
	Day      string // ByMessage and ByDay: UTC, YYYY-MM-DD
	Model    string // ByMessage and ByDay: "" when no message names one
	Messages int64
	Unpriced int64 // messages with usage whose cost is not known

	Input, Output, CacheRead, CacheWrite int64 // tokens; Input is without those of a cache

	USD *float64 // of the messages of which it is known; nil when there is none
}

// MaxUnpriced bounds how many models a list names for which there is no price.
const MaxUnpriced = 8

// EndTime returns the time of the run's end, zero while it goes on.
func (r *RunInfo) EndTime() time.Time {
	if r.State.Final() {
		return r.Updated
	}
	return time.Time{}
}

// What a run may wait for; "" is nothing.
const (
	WaitsForAnswer   = "answer"   // to a question, or the result of a call that a client carries out
	WaitsForApproval = "approval" // of its plan
	WaitsForResume   = "resume"   // it is paused
)

// Waiting returns what somebody has to do so that the run goes on, by its state, then by its questions.
func (r *RunInfo) Waiting() string {
	switch {
	case r.State == StateAwaitingApproval:
		return WaitsForApproval
	case r.State == StatePaused:
		return WaitsForResume
	case !r.Asked.IsZero():
		return WaitsForAnswer
	}
	return ""
}

// WaitStart returns since when the run waits: the time of its oldest open question, or else, while it waits, of
// its newest event; zero when it waits for nothing.
func (r *RunInfo) WaitStart() time.Time {
	switch {
	case r.Waiting() == "":
		return time.Time{}
	case !r.Asked.IsZero():
		return r.Asked
	case !r.Held.IsZero():
		return r.Held
	}
	return r.Updated
}

// RunOrder is an order of a list of runs. All but the one by start change while runs go on: then a page behind a cursor
// has what is behind that place now.
type RunOrder string

// The orders, the greatest first.
const (
	OrderStarted  RunOrder = ""         // by the time of the first event
	OrderUpdated  RunOrder = "updated"  // by the time of the newest event, in ms
	OrderDuration RunOrder = "duration" // from the first to the newest event, in ms
	OrderEvents   RunOrder = "events"   // by the number of events
)

// Cursor returns the place of the run in the list.
func (r *RunInfo) Cursor() RunCursor { return RunCursor{Started: r.Started, ID: r.ID, Place: r.Place} }

// MaxReason bounds the reason that is kept of a run, in bytes.
const MaxReason = 1000

// RunCursor is a place in a list of runs. The zero RunCursor is before the newest.
type RunCursor struct {
	Started time.Time
	ID      string
	Place   int64 // of RunInfo
}

// IsZero reports whether the cursor is before the newest run.
func (c RunCursor) IsZero() bool { return c.ID == "" }

// String returns the cursor as a token that is safe in a URL; "" for the zero one.
func (c RunCursor) String() string {
	if c.IsZero() {
		return ""
	}
	text := fmt.Sprintf("1.%d.%d.%s", c.Started.Unix(), c.Started.Nanosecond(), c.ID)
	if c.Place != 0 {
		text += fmt.Sprintf(".%d", c.Place)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// maxRunCursor bounds a cursor's token, in bytes.
const maxRunCursor = 256

// ParseRunCursor reads what String wrote. The error wraps ErrBadCursor.
func ParseRunCursor(token string) (RunCursor, error) {
	if token == "" {
		return RunCursor{}, nil
	}
	bad := fmt.Errorf("cursor %s is not from a list of runs: %w", quote(token), ErrBadCursor)
	if len(token) > maxRunCursor {
		return RunCursor{}, bad
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return RunCursor{}, bad
	}
	parts := strings.SplitN(string(text), ".", 5)
	if len(parts) < 4 || parts[0] != "1" || ValidRunID(parts[3]) != nil {
		return RunCursor{}, bad
	}
	sec, err1 := strconv.ParseInt(parts[1], 10, 64)
	nano, err2 := strconv.ParseUint(parts[2], 10, 30)
	c := RunCursor{Started: time.Unix(sec, int64(nano)).UTC(), ID: parts[3]}
	if len(parts) == 5 {
		c.Place, _ = strconv.ParseInt(parts[4], 10, 64) // 0 is not what String writes
	}
	if err1 != nil || err2 != nil || c.Started.Year() < 0 || c.Started.Year() > 9999 || c.String() != token {
		return RunCursor{}, bad
	}
	return c, nil
}

// Usage is what models were paid for, summed up: whole numbers by name, as the provider names them
// (input_tokens, output_tokens, …). The zero Usage is nothing.
type Usage map[string]int64

// Bounds of a usage. What is beyond them is not counted.
const (
	MaxUsageNames = 64
	maxUsageName  = 64 // bytes
)

// UsageOf takes the whole numbers from the usage object of a message.end's payload. Numbers below 0,
// fractions, and what is nested are left out. It returns nil for a payload without usage.
func UsageOf(payload []byte) Usage {
	var u Usage
	_ = eachField(payload, func(name string, v []byte) error { // a damaged payload has no usage
		if name == "usage" {
			u = parseUsage(v)
		}
		return nil
	})
	return u
}

func parseUsage(object []byte) Usage {
	var u Usage
	_ = eachField(object, func(name string, v []byte) error { // anything but an object has no fields
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil || n < 0 || bytes.HasPrefix(v, []byte("-")) || !usageName(name) {
			return nil
		}
		if u == nil {
			u = make(Usage)
		}
		if _, known := u[name]; known || len(u) < MaxUsageNames {
			u[name] = n
		}
		return nil
	})
	return u
}

// usageName keeps out what a database or a label could trip over.
func usageName(s string) bool {
	if s == "" || len(s) > maxUsageName {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '.' && !tokenByte[c] {
			return false
		}
	}
	return true
}

// Plus returns the sum of both; neither is changed. It stops at the greatest int64.
func (u Usage) Plus(v Usage) Usage {
	if len(v) == 0 {
		return u
	}
	sum := maps.Clone(u)
	if sum == nil {
		sum = make(Usage, len(v))
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		have, known := sum[name]
		if !known && len(sum) >= MaxUsageNames {
			continue
		}
		if n := v[name]; have > math.MaxInt64-n {
			sum[name] = math.MaxInt64
		} else {
			sum[name] = have + n
		}
	}
	return sum
}

// Minus returns the usage without a part of it; neither is changed. No sum falls below 0, and a name of which nothing
// is left goes.
func (u Usage) Minus(part Usage) Usage {
	rest := maps.Clone(u)
	for name, n := range part {
		if rest[name] -= n; rest[name] <= 0 {
			delete(rest, name)
		}
	}
	return rest
}

// String returns the usage as one JSON object with sorted names, {} when there is none.
func (u Usage) String() string {
	if len(u) == 0 {
		return "{}"
	}
	b, _ := json.Marshal(map[string]int64(u)) // numbers always encode
	return string(b)
}

// ParseUsage reads what String wrote, leniently: what is no usage counts as none.
func ParseUsage(object string) Usage { return parseUsage([]byte(object)) }

// CutReason cuts a reason to MaxReason bytes, between characters.
func CutReason(s string) string { return CutText(s, MaxReason) }

// CutText cuts a text to n bytes, between characters.
func CutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

// Feeds are the runs of a tenant that never end, and that ingest fills. A protocol that has some names them. The zero
// value has none.
type Feeds struct {
	Prefix string                // the ids of all begin with it; "": there are none
	Is     func(run string) bool // reports whether an id that begins so is a feed's; nil: each is
}

// Has reports whether a run is a feed, by its id.
func (f Feeds) Has(run string) bool {
	return f.Prefix != "" && strings.HasPrefix(run, f.Prefix) && (f.Is == nil || f.Is(run))
}

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
	Type string // of the event; TapGap, or "" for a record that is a place alone
	// the event as clients get it; of a gap a TapLoss in JSON. It is not used after the record's receiver has returned
	Line   []byte
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
