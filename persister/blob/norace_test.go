//go:build !race

package blob_test

import (
	"testing"

	"agentstream/persister/blob"
	"agentstream/schema/schematest"
)

// TestIdentity: what a log held, what rows hold and what is read from an object is the same, byte for byte and
// head for head, resumed after every event, with rows from everywhere on: of all scenarios.
func TestIdentity(t *testing.T) {
	for name, open := range map[string]func(testing.TB) tables{"sqlite": openSQLite, "postgres": openPostgres} {
		for kind, objects := range map[string]func(testing.TB) (blob.ObjectStore, string){"folder": openFolder, "s3": openS3} {
			t.Run(name+" and "+kind, func(t *testing.T) {
				store, base := objects(t)
				b := newBench(t, open(t), store, base, nil)
				for _, s := range append(schematest.All(), schematest.Generate(300, 3)) {
					b.identical(s, name == "sqlite" && kind == "folder")
				}
			})
		}
	}
}
