package metis

import (
	"fmt"
	"strings"
	"testing"
)

// TestFilterIsBounded: a filter names at most 128 types.
func TestFilterIsBounded(t *testing.T) {
	for _, n := range []int{MaxChoices, MaxChoices + 1} {
		names := strings.TrimSuffix(strings.Repeat(`"text.delta",`, n), ",")
		_, err := ParseSubscribe(fmt.Appendf(nil, `{"type":"subscribe","filter":{"event_types":[%s]}}`, names))
		if refused := CodeOf(err) == CodeInvalidFilter; refused != (n > MaxChoices) {
			t.Errorf("%d names: %v", n, err)
		}
	}
}
