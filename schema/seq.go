package schema

import (
	"fmt"
	"strconv"
)

// Seq numbers the events of one root run: 1, 2, 3 … without holes. 0 is before the first event.
type Seq int64

// MaxSeq is the largest seq a JavaScript client can hold exactly (2^53-1).
const MaxSeq Seq = 1<<53 - 1

// String prints the number.
func (s Seq) String() string { return strconv.FormatInt(int64(s), 10) }

// ParseCursor reads a resume position: the seq of the last event a client has. It accepts only
// decimal digits, without sign or space, up to MaxSeq; the error wraps ErrBadCursor. The empty
// text is the start of the run.
func ParseCursor(s string) (Seq, error) {
	if s == "" {
		return 0, nil
	}
	if len(s) > 16 {
		return 0, fmt.Errorf("cursor %s: %w", quote(s), ErrBadCursor)
	}
	var n Seq
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("cursor %s: %w", quote(s), ErrBadCursor)
		}
		n = n*10 + Seq(s[i]-'0')
	}
	if n > MaxSeq {
		return 0, fmt.Errorf("cursor %s: %w", quote(s), ErrBadCursor)
	}
	return n, nil
}
