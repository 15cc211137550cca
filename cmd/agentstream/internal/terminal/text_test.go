package terminal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestSanitize(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain ä 漢 🙂 e\u0301 👩\u200d👩", "plain ä 漢 🙂 e\u0301 👩\u200d👩"},
		{"\x1b[2J\a\x00\x7f", "␛[2J␇␀␡"}, {"a\tb", "a    b"}, {"a\r\nb", "a␍␊b"},
		{"\u009b31m", "<U+009B>31m"}, {"\u202etxt", "<U+202E>txt"}, {"\U000e0041", "<U+E0041>"}, {"\xff", "\uFFFD"},
	} {
		if got := Sanitize(c.in); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestScreenOf(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	if s := ScreenOf(&bytes.Buffer{}, none); s.Terminal || s.Color {
		t.Errorf("a buffer is %+v", s)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if s := ScreenOf(file, none); s.Terminal || s.Color {
		t.Errorf("a file is %+v", s)
	}
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("no pseudo terminal: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	env := func(pairs ...string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1], true
				}
			}
			return "", false
		}
	}
	if s := ScreenOf(tty, env("TERM", "xterm")); !s.Terminal || !s.Color || s.Width == nil {
		t.Errorf("a terminal is %+v", s)
	}
	if s := ScreenOf(tty, env("NO_COLOR", "1")); !s.Terminal || s.Color {
		t.Errorf("with NO_COLOR it is %+v", s)
	}
	if s := ScreenOf(tty, env("NO_COLOR", "")); !s.Color {
		t.Errorf("with an empty NO_COLOR it is %+v", s)
	}
	if s := ScreenOf(tty, env("TERM", "dumb")); s.Terminal || s.Color {
		t.Errorf("a dumb terminal is %+v", s)
	}
}
