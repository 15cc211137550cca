package sentence

import (
	"slices"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, good := range []string{
		"there is nothing here", "cursor must be a seq, a whole number from 0 to 9, not \"x: y: z\"",
		"answer in state running: nobody has asked that; it waits for answer \"q1\", answer \"q2\"",
		`run id "a: b": it must have 1 to 128 of the characters A-Z a-z 0-9 _ -, a tenant at most 64`,
	} {
		if err := Check(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "  ", "cut \xff", "natskit: keep a blob of a/b: more than 5 bytes",
		"reading the body: reading: request body: it is cut",
		"json: cannot unmarshal string into Go value of type int", "ERROR: duplicate key (SQLSTATE 23505)",
		"the first 2 of 4 events are stored: 2 of 4 events are stored", "read: unexpected EOF", "bad *schema.Event",
		"the body is not UTF-8: body is not UTF-8", "name is not one of [A-Za-z0-9_-]{1,64}", "run run has ended",
	} {
		if Check(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestOf(t *testing.T) {
	body := `{"error":{"code":"X","message":"it is so","list":[{"detail":"and so"}]},"type":"no message",` +
		`"errorText":"or so"}`
	got := Of([]byte(body))
	slices.Sort(got)
	if !slices.Equal(got, []string{"and so", "it is so", "or so"}) || Of([]byte("not JSON")) != nil {
		t.Errorf("%q", got)
	}
}
