package tap

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"agentstream/schema"
)

// ledger is where in each run of a partition the sink is. It is needed when messages have left the log before the tap
// has read them: it says what of the archive is new. What is stored of it is older than the place, so that a few events
// may come twice then. Runs that have ended are left out after ledgerRest.
type ledger struct {
	at   time.Time // when the log stored the newest message that is in it
	runs map[schema.RunKey]ledgerRun
}

// ledgerRun is the place in one run.
type ledgerRun struct {
	last  schema.Seq
	at    time.Time // as ledger.at, of the run
	final bool
}

const (
	ledgerRest = 90 * time.Minute // longer than skewOfArchive
	ledgerMost = 20_000           // runs; of more those are left out whose last event is oldest
)

// note notes what was delivered of a run.
func (l *ledger) note(key schema.RunKey, last schema.Seq, at time.Time, final bool) {
	if have := l.runs[key]; last > have.last {
		l.runs[key] = ledgerRun{last, at, final}
	}
	if at.After(l.at) {
		l.at = at
	}
}

// prune leaves out what is not needed any more.
func (l *ledger) prune() {
	for key, r := range l.runs {
		if r.final && l.at.Sub(r.at) > ledgerRest {
			delete(l.runs, key)
		}
	}
	over := len(l.runs) - ledgerMost
	if over <= 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(l.runs),
		func(a, b schema.RunKey) int { return cmp.Compare(l.runs[a].at.UnixNano(), l.runs[b].at.UnixNano()) })
	for _, key := range keys[:over] {
		delete(l.runs, key)
	}
}

// ledgerForm is a ledger as it is stored: gzip of JSON.
type ledgerForm struct {
	At   time.Time         `json:"at"`
	Runs []ledgerRunStored `json:"runs"`
}

type ledgerRunStored struct {
	Tenant string    `json:"t"`
	Run    string    `json:"r"`
	Last   int64     `json:"s"`
	At     time.Time `json:"at"`
	Final  bool      `json:"f,omitempty"`
}

// encode returns the stored form.
func (l *ledger) encode() ([]byte, error) {
	form := ledgerForm{At: l.at, Runs: make([]ledgerRunStored, 0, len(l.runs))}
	for key, r := range l.runs {
		form.Runs = append(form.Runs, ledgerRunStored{key.Tenant, key.Run, int64(r.last), r.at, r.final})
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(form); err != nil {
		return nil, fmt.Errorf("tap: encode a ledger: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("tap: encode a ledger: %w", err)
	}
	return b.Bytes(), nil
}

// mostLedger bounds a ledger's JSON.
const mostLedger = 64 << 20

// decodeLedger reads the stored form; the empty ledger for nothing.
func decodeLedger(b []byte) (*ledger, error) {
	l := &ledger{runs: map[schema.RunKey]ledgerRun{}}
	if len(b) == 0 {
		return l, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("tap: read a ledger: %w", err)
	}
	var form ledgerForm
	if err := json.NewDecoder(io.LimitReader(z, mostLedger)).Decode(&form); err != nil {
		return nil, fmt.Errorf("tap: read a ledger: %w", err)
	}
	l.at = form.At
	for _, r := range form.Runs {
		l.runs[schema.RunKey{Tenant: r.Tenant, Run: r.Run}] = ledgerRun{schema.Seq(r.Last), r.At, r.Final}
	}
	return l, nil
}
