package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// clipLines keeps the first lines of a text.
func clipLines(s string, most int) string {
	s = strings.TrimRight(s, "\r\n")
	lines := strings.SplitN(s, "\n", most+1)
	if len(lines) <= most {
		return s
	}
	return strings.Join(lines[:most], "\n") + fmt.Sprintf("\n… %d more lines", 1+strings.Count(lines[most], "\n"))
}

// compactJSON puts a value on one line; damaged JSON comes as it is.
func compactJSON(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return string(v)
	}
	return b.String()
}

// arguments writes a tool's input the way a call is written: name=value, in their order.
func arguments(v json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(v))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return compactJSON(v)
	}
	var b strings.Builder
	for dec.More() {
		name, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return compactJSON(v)
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s=%s", name, compactJSON(value))
	}
	return b.String()
}

// plain returns a string's text, and any other value as JSON on one line.
func plain(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return compactJSON(v)
}

// clock prints an offset within nine columns up to a hundred hours.
func clock(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%s%.3fs", sign, d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%s%dm%04.1fs", sign, int(d.Minutes()), (d % time.Minute).Truncate(100*time.Millisecond).Seconds())
	}
	return fmt.Sprintf("%s%dh%02dm%02ds", sign, int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
}
