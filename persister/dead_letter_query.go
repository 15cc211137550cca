package persister

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// StoredDeadLetter is a dead letter as a store keeps it. Subject, Stream and Detail are as Text made them.
type StoredDeadLetter struct {
	DeadLetter
	Name  string    // its ID in lower-case hex, 64 digits
	Size  int       // bytes of the body; Body is nil when bodies were not asked for
	Since time.Time // when it was put there, by the store's clock
	Tries int       // how often it was tried again in vain
	Tried time.Time // the last time; zero: never
	Error string    // why that failed
}

// DeadLetterQuery selects dead letters. Zero fields select all.
type DeadLetterQuery struct {
	Names  []string // whole names
	Prefix string   // of the name, in hex
	Tenant string
	Run    string
	Stream string
	Reason string
	Since  time.Time         // put there then or later
	Before time.Time         // put there earlier
	After  *StoredDeadLetter // those that come behind this one, which need not be there any more
	Limit  int               // at most; must be positive
	Bodies bool              // with bodies; without them a page is small whatever the letters are
}

// Contents returns the letters without what a store knows of them.
func Contents(letters []StoredDeadLetter) []DeadLetter {
	out := make([]DeadLetter, len(letters))
	for i := range letters {
		out[i] = letters[i].DeadLetter
	}
	return out
}

// FailedTry is a letter that was tried again and stays.
type FailedTry struct {
	Name  string
	Error string
}

// ErrDeadLetterName reports that a text is not the name of a dead letter, nor the beginning of one.
var ErrDeadLetterName = errors.New("not the name of a dead letter")

// nameDigits is the length of a name.
const nameDigits = 64

// DeadLetterIDs returns the ids of names. An error wraps ErrDeadLetterName.
func DeadLetterIDs(names []string) ([][]byte, error) {
	ids := make([][]byte, len(names))
	for i, name := range names {
		id, err := hex.DecodeString(name)
		if err != nil || len(name) != nameDigits {
			return nil, fmt.Errorf("%.80q: %w", name, ErrDeadLetterName)
		}
		ids[i] = id
	}
	return ids, nil
}

// DeadLetterRange returns the least and the greatest id whose name begins so. An error wraps ErrDeadLetterName.
func DeadLetterRange(prefix string) (least, greatest []byte, err error) {
	if len(prefix) > nameDigits {
		return nil, nil, fmt.Errorf("%.80q: %w", prefix, ErrDeadLetterName)
	}
	pad := nameDigits - len(prefix)
	ids, err := DeadLetterIDs([]string{prefix + strings.Repeat("0", pad), prefix + strings.Repeat("f", pad)})
	if err != nil {
		return nil, nil, fmt.Errorf("%.80q: %w", prefix, ErrDeadLetterName)
	}
	return ids[0], ids[1], nil
}
