package deadletter

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentstream/persister"
)

// Stored is a dead letter as a store keeps it. Subject, Stream and Detail have passed persister.Text.
type Stored struct {
	persister.DeadLetter
	Name  string    // its ID in lower-case hex, 64 digits
	Size  int       // bytes of the body; Body is nil when the query did not ask for bodies
	Since time.Time // when it was stored, by the store's clock
	Tries int       // failed tries of Redrive
	Tried time.Time // the last of them; zero: never
	Error string    // of the last try
}

// Query selects dead letters. Zero fields select all.
type Query struct {
	Names  []string // whole names
	Prefix string   // of the name, in hex
	Tenant string
	Run    string
	Stream string
	Reason string
	Since  time.Time // stored at this time or later
	Before time.Time // stored earlier
	After  *Stored   // those that follow this one, which need not exist any more
	Limit  int       // at most; must be positive
	Bodies bool      // with bodies; without them a page is small whatever the dead letters hold
}

// Contents returns the dead letters without the store's fields.
func Contents(stored []Stored) []persister.DeadLetter {
	out := make([]persister.DeadLetter, len(stored))
	for i := range stored {
		out[i] = stored[i].DeadLetter
	}
	return out
}

// FailedTry is a dead letter that was tried again and stays.
type FailedTry struct {
	Name  string
	Error string
}

// ErrName reports that a text is neither the name of a dead letter nor the beginning of one.
var ErrName = errors.New("not the name of a dead letter")

// nameDigits is the length of a name.
const nameDigits = 64

// IDs returns the ids of names. An error wraps ErrName.
func IDs(names []string) ([][]byte, error) {
	ids := make([][]byte, len(names))
	for i, name := range names {
		id, err := hex.DecodeString(name)
		if err != nil || len(name) != nameDigits {
			return nil, fmt.Errorf("%.80q: %w", name, ErrName)
		}
		ids[i] = id
	}
	return ids, nil
}

// Range returns the least and the greatest id whose name has the prefix. An error wraps ErrName.
func Range(prefix string) (least, greatest []byte, err error) {
	if len(prefix) > nameDigits {
		return nil, nil, fmt.Errorf("%.80q: %w", prefix, ErrName)
	}
	pad := nameDigits - len(prefix)
	ids, err := IDs([]string{prefix + strings.Repeat("0", pad), prefix + strings.Repeat("f", pad)})
	if err != nil {
		return nil, nil, fmt.Errorf("%.80q: %w", prefix, ErrName)
	}
	return ids[0], ids[1], nil
}
