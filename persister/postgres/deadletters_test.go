package postgres_test

import (
	"testing"

	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
)

func TestLetters(t *testing.T) {
	persistertest.DeadLetterSuite(t, func(t *testing.T) (persistertest.Store, func(string) func()) {
		dsn := testkit.Postgres(t)
		s, p := open(t, dsn), pool(t, dsn)
		return s, func(text string) func() {
			exec(t, p, `alter table agent_run_events add constraint refuse check (line not like '%`+text+`%')`)
			return func() { exec(t, p, `alter table agent_run_events drop constraint refuse`) }
		}
	})
}
