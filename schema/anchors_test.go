package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentstream/schema"
)

// The anchors of a run fit the header of a pack, whatever its children are called and do.
func TestAnchorsAreBounded(t *testing.T) {
	var h schema.Head
	child := func(i int) string { return fmt.Sprintf("%s%03d", strings.Repeat("c", schema.MaxRunID-3), i) }
	start := []byte(`{"message_id":"m","role":"assistant"}`)
	for i := range schema.MaxAnchors {
		if err := h.Advance(schema.TypeMessageStart, child(i), "evt_1", start); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Advance(schema.TypeMessageStart, child(schema.MaxAnchors), "evt_1", start); !errors.Is(err, schema.ErrTooLarge) {
		t.Fatalf("one more: %v", err)
	}
	if err := h.Advance(schema.TypeMessageStart, child(0), "evt_1", start); err != nil {
		t.Fatalf("a lane that is open already: %v", err)
	}
	h.Last = schema.MaxSeq
	for lane := range h.Anchors {
		h.Anchors[lane] = schema.MaxSeq
	}
	if n := len(schema.FormatAnchors(h.Anchors)); n > 48<<10 {
		t.Fatalf("%d bytes of anchors", n)
	}
	if err := h.Advance(schema.TypeMessageEnd, child(7), "evt_1", []byte(`{"message_id":"m"}`)); err != nil {
		t.Fatal(err)
	}
	if err := h.Advance(schema.TypeMessageStart, child(schema.MaxAnchors), "evt_1", start); err != nil {
		t.Fatalf("after one has ended: %v", err)
	}
}
