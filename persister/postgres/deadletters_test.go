package postgres_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
)

// TestDeadLettersView: the view shows all that is known of a dead letter, with its bytes.
func TestDeadLettersView(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	letters := persistertest.SampleDeadLetters()
	if err := s.PutDeadLetters(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		var got persister.DeadLetter
		var id string
		var since time.Time
		var headers []byte
		var size int
		err := p.QueryRow(t.Context(), `select id, reason, error, set_aside, coalesce(koder_user_id, ''), coalesce(run_id, ''), coalesce(seq, 0), stream, position::bigint, subject, size, headers, body
			from agent_v_dead_letters where reason = $1`, l.Reason).Scan(&id, &got.Reason, &got.Detail, &since, &got.Key.Tenant, &got.Key.Run, &got.Seq,
			&got.Stream, &got.Position, &got.Subject, &size, &headers, &got.Body)
		got.Header = persister.ParseHeaderBytes(headers)
		if err != nil || id != fmt.Sprintf("%x", l.ID()) || since.IsZero() || size != len(l.Body) ||
			!reflect.DeepEqual(got, l) {
			t.Errorf("%s %s %d %+v, %v", id, since, size, got, err)
		}
	}
}
