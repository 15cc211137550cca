package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestErrorsOfAddresses: an address that is in use is named once, with its flag.
func TestErrorsOfAddresses(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = net.Listen("tcp", ln.Addr().String())
	got := errorText(fmt.Errorf("--listen: %w", err))
	if want := "--listen " + ln.Addr().String() + ": address already in use"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestErrorsAreSentences: whatever is typed wrongly is answered in one line, which says what must be what, and what it
// was; a second one says where to look, or what to do.
func TestErrorsAreSentences(t *testing.T) {
	_, call := program(t)
	away := []string{"AGENTSTREAM_SERVER=http://127.0.0.1:1"}
	for line, want := range map[string]string{
		"tial demo":                             `there is no command or argument tial, did you mean one of "tap", "tail"?`,
		"retension show":                        `there is no command or argument retension, did you mean "retention"?`,
		"tail demo --form 3":                    `there is no flag --form, did you mean "--from"?`,
		"edge --audit-tokn x":                   "there is no flag --audit-tokn",
		"tail":                                  "<run> is missing",
		"answer demo":                           "is missing",
		"export":                                "--output=PATH must be given",
		"tail demo --from x":                    `--from must be a whole number, not "x"`,
		"dev --partitions 1.5":                  `--partitions must be a whole number, not "1.5"`,
		"dev --window soon":                     `--window must be a duration such as 90s or 24h, not "soon"`,
		"demo --script nope":                    `--script must be one of "tour", "plan", "failure", "quick", not "nope"`,
		"demo --level loud":                     `--level must be one of "debug", "info", "warn", "error", not "loud"`,
		"replay demo --speed fast":              `--speed must be a number, not "fast"`,
		"replay demo --speed -1":                `--speed must be a number, not "-1"`,
		"replay demo --speed=-1":                `--speed must be more than 0, not -1`,
		"runs --since yesterday":                `--since must be a time (2006-01-02T15:04:05Z, 2006-01-02) or a duration (24h), not "yesterday"`,
		"dev --listen nonsense:x:y":             `--listen must be HOST:PORT or HOST, not "nonsense:x:y"`,
		"dev --memory 3x --data off":            `--memory must be a size such as 400MiB, or off, not "3x"`,
		"proxy --edge http://h --upstream nope": `--upstream must be NAME=URL, not "nope"`,
		"publish --format word -":               `not "word"`,
		"tail demo":                             "tail run demo: no server at 127.0.0.1:1: connection refused",
		"runs --limit=-1":                       "--limit must be 0 or more, not -1",
	} {
		out, errs, status := call(away, strings.Fields(line)...)
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		for len(lines) > 0 && strings.HasPrefix(lines[0], "time=") { // of the log
			lines = lines[1:]
		}
		if status == 0 || out != "" || len(lines) == 0 || len(lines) > 2 || !strings.HasPrefix(lines[0], "agentstream: ") ||
			!strings.Contains(lines[0], want) {
			t.Errorf("%s: status %d, %q, want %q", line, status, errs, want)
		}
	}
}
