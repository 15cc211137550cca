package dialecttest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Golden compares with a file of testdata, or writes it.
func Golden(t *testing.T, write bool, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if write {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	g, w := bytes.Split(got, []byte{'\n'}), bytes.Split(want, []byte{'\n'})
	for i := range min(len(g), len(w)) {
		if !bytes.Equal(g[i], w[i]) {
			t.Fatalf("%s: line %d (go test -update writes it)\ngot  %s\nwant %s", path, i+1, g[i], w[i])
		}
	}
	if len(g) != len(w) {
		t.Fatalf("%s: %d lines, want %d (go test -update writes it)", path, len(g), len(w))
	}
}
