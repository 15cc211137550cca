package natsjs_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// countInFiles returns how often a text is in the files below a folder.
func countInFiles(t *testing.T, dir, text string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // the server removes files meanwhile
		}
		b, err := os.ReadFile(path)
		if err == nil {
			n += bytes.Count(b, []byte(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEraseFirst: what is removed of a tenant between messages of others stays in the server's files, unless it is
// erased first; what others wrote stays in either case.
func TestEraseFirst(t *testing.T) {
	for _, erase := range []bool{false, true} {
		t.Run(fmt.Sprintf("erase=%t", erase), func(t *testing.T) {
			s := testkit.NATS(t)
			dir := s.Server.StoreDir()
			gone := persistertest.NewWriter(schema.RunKey{Tenant: "gone", Run: "run"}, "20260105")
			stays := persistertest.NewWriter(schema.RunKey{Tenant: "stays", Run: "run"}, "20260105")
			mark := func(p schema.Pack, with string) schema.Pack {
				p.Body = bytes.ReplaceAll(p.Body, []byte(`"text":"`), []byte(`"text":"`+with))
				return p
			}
			kv, err := s.JS.KeyValue(t.Context(), purgeBucket)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 60 {
				p := mark(gone.Texts("", 1), "SECRET-OF-GONE ")
				p.Batch = fmt.Sprintf("%032x", i)
				if _, err := kv.Create(t.Context(), p.Batch, []byte("{}")); err != nil {
					t.Fatal(err)
				}
				publishPacks(t, s, p, mark(stays.Texts("", 1), "SECRET-OF-STAYS "))
				publishPacks(t, s, mark(stays.Texts("", 1), "SECRET-OF-STAYS "), mark(stays.Texts("", 1), "SECRET-OF-STAYS "))
			}
			blobs, err := natskit.NewBlobs(s.Dial(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, tenant := range []string{"gone", "stays"} {
				text := strings.Repeat("BLOB-OF-"+tenant+" ", 100)
				pieces := func(yield func([]byte, error) bool) { yield([]byte(text), nil) }
				if _, _, err := blobs.Put(t.Context(), schema.RunKey{Tenant: tenant, Run: "run"}, "text/plain",
					pieces); err != nil {
					t.Fatal(err)
				}
			}
			if n := countInFiles(t, dir, "SECRET-OF-GONE"); n < 60 {
				t.Fatalf("only %d texts are in the files", n)
			}
			p := purger(t, s, purgeBucket)
			if erase {
				p.EraseFirst()
			}
			messages, keys, err := p.Purge(t.Context(), schema.RunKey{Tenant: "gone", Run: "run"}, schema.MaxSeq)
			if err != nil || messages < 61 || keys != 60 {
				t.Fatalf("%d messages, %d keys, %v", messages, keys, err)
			}
			left := countInFiles(t, dir, "SECRET-OF-GONE") + countInFiles(t, dir, "BLOB-OF-gone")
			if (left > 0) == erase {
				t.Errorf("%d texts are left in the files", left)
			}
			if n := countInFiles(t, dir, "SECRET-OF-STAYS"); n < 180 {
				t.Errorf("%d texts of the other tenant are left", n)
			}
			if n := countInFiles(t, dir, "BLOB-OF-stays"); n < 100 {
				t.Errorf("%d pieces of the other tenant's blob are left", n)
			}
			for _, tenant := range []string{"gone", "stays"} {
				head, err := p.Head(t.Context(), schema.RunKey{Tenant: tenant, Run: "run"})
				if err != nil || head.HasEvents() != (tenant == "stays") {
					t.Errorf("%s: %+v, %v", tenant, head, err)
				}
			}
		})
	}
}
