package backup

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSplitPassword: no password is left in what the list of processes shows, and nothing that libpq refuses.
func TestSplitPassword(t *testing.T) {
	for _, c := range []struct{ dsn, bare, secret string }{
		{"postgres://admin:p%40ss@db:5432/runs?sslmode=verify-full&pool_max_conns=4", "postgres://admin@db:5432/runs?sslmode=verify-full", "p@ss"},
		{"postgresql://db/runs", "postgresql://db/runs", ""},
		{"postgres://admin@db/runs?password=p%40ss&sslmode=disable", "postgres://admin@db/runs?sslmode=disable", "p@ss"},
		{"host=db user=admin password=secret dbname=runs", "host=db user=admin  dbname=runs", "secret"},
		{`host=db password='it\'s \\ this' pool_min_conns=2 dbname=runs`, "host=db   dbname=runs", `it's \ this`},
		{"host=db dbname=runs", "host=db dbname=runs", ""},
	} {
		if bare, secret := splitPassword(c.dsn); bare != c.bare || secret != c.secret {
			t.Errorf("%s: %q and %q, want %q and %q", c.dsn, bare, secret, c.bare, c.secret)
		}
	}
}

// TestManifestNamesFilesOfItsFolder: a manifest is read with its version alone, and no file outside of its folder is
// opened for it.
func TestManifestNamesFilesOfItsFolder(t *testing.T) {
	folder := t.TempDir()
	if _, err := readManifest(folder); !errors.Is(err, ErrNoBackup) {
		t.Errorf("a folder without a manifest: %v", err)
	}
	f, err := save(folder, "streams/a", func(w io.Writer) error {
		_, err := io.WriteString(w, "bytes")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.check(folder); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "streams", "a"), []byte("bytez"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.check(folder); !errors.Is(err, errDamaged) {
		t.Errorf("a changed file: %v", err)
	}
	f.Name = "../" + filepath.Base(folder) + "/streams/a"
	if err := f.check(folder); !errors.Is(err, errDamaged) {
		t.Errorf("a file outside of the folder: %v", err)
	}
	if err := writeManifest(folder, Contents{Version: formatVersion + 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := readManifest(folder); !errors.Is(err, ErrNoBackup) {
		t.Errorf("another version: %v", err)
	}
}
