package postgres_test

import (
	"testing"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// BenchmarkReads is what one read costs a caller: a short replay, a page of the list, a head.
func BenchmarkReads(b *testing.B) {
	admin, dsn := owned(b)
	s, p := open(b, dsn), pool(b, admin)
	w := persistertest.NewWriter(key, day)
	appendPacks(b, s, w.Texts("", 100), w.Texts("kid", 100))
	fillRuns(b, p, 20_000)
	exec(b, p, `vacuum analyze agent_run_events`)
	reads := map[string]func() error{
		"head": func() error { _, err := s.Head(b.Context(), key, ""); return err },
		"packs200": func() (err error) {
			for _, e := range s.Packs(b.Context(), key, 0, schema.MaxSeq) {
				err = e
			}
			return err
		},
		"runs50": func() error { _, err := s.Runs(b.Context(), "acme", schema.RunsQuery{Limit: 50}); return err },
		"parent": func() error { _, err := s.Parent(b.Context(), "acme", "kid_7778"); return err },
	}
	for _, name := range []string{"head", "packs200", "runs50", "parent"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := reads[name](); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
