package doctor

import (
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/tap"
	"agentstream/tap/natsjs"
)

// TestLog plants a tap that falls behind and a backup that was long ago, by the clock of the doctor.
func TestLog(t *testing.T) {
	server := testkit.NATS(t)
	nc, js := server.Conn, server.JS
	look := func(later time.Duration, words ...string) {
		t.Helper()
		x := examine()
		x.now = func() time.Time { return time.Now().Add(later) }
		x.rights(t.Context(), nc)
		one(t, x, words...)
	}
	look(100 * time.Hour)
	if _, err := js.Publish(t.Context(), "agent.0.acme.run_1", []byte("an event")); err != nil {
		t.Fatal(err)
	}
	look(100 * time.Hour)
	places, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := places.Begin(t.Context(), tap.Spec{Name: "bills", To: []string{"file:///dev/null"}}); err != nil {
		t.Fatal(err)
	}
	look(30 * time.Hour)
	look(40*time.Hour, "tap bills has not delivered", "agentstream tap list")
	if err := places.Forget(t.Context(), js, "bills"); err != nil {
		t.Fatal(err)
	}
	bucket, err := natskit.OpenBucket(t.Context(), nc, natskit.TapsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Put(t.Context(), natskit.BackupKey, []byte(time.Now().UTC().Format(time.RFC3339Nano))); err != nil {
		t.Fatal(err)
	}
	look(47 * time.Hour)
	look(49*time.Hour, "the last backup is of", "agentstream backup")
}
