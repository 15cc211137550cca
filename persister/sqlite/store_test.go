package sqlite_test

import (
	"testing"

	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/persister/sqlite"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// open returns a store on a fresh, migrated file.
func open(t testing.TB) (*sqlite.Store, string) {
	t.Helper()
	path := sqlite.Migrated(t, "it's 100% a ?#&.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, path
}

func TestConformance(t *testing.T) {
	fresh := func(t *testing.T) persistertest.Store { s, _ := open(t); return s }
	persistertest.Run(t, fresh)
	persistertest.RunArchive(t, fresh)
}
