package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
)

// TestSecret: a secret that came from a file is what the file says now; while it is replaced it has two lines, and a
// file that is away or empty changes nothing. One that was given otherwise stays.
func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old\n")
	t.Setenv("SOME_TOKEN_FILE", path)
	synctest.Test(t, func(t *testing.T) {
		s := cli.NewSecret("old", "SOME_TOKEN")
		fixed := cli.NewSecret("flag", "SOME_TOKEN")
		for _, step := range []struct {
			text string
			want []string
		}{{"old\n", []string{"old"}}, {"new\nold\n", []string{"new", "old"}}, {"", []string{"new", "old"}},
			{"new\r\n", []string{"new"}}} {
			write(step.text)
			time.Sleep(2 * time.Second)
			if got := s.Lines(); !slices.Equal(got, step.want) {
				t.Errorf("%q: %q, want %q", step.text, got, step.want)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := s.Value(); got != "new" {
			t.Errorf("without the file it is %q", got)
		}
		if got := fixed.Value(); got != "flag" {
			t.Errorf("a flag's value is %q", got)
		}
	})
}
