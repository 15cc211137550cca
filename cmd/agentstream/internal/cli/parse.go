package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseSince reads a time, or how long ago it was; the zero time for "".
func ParseSince(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s must be a time (2006-01-02T15:04:05Z, 2006-01-02) or a duration (24h), not %q", flag, text)
}

// ParseSize reads a number of bytes, with KiB, MiB or GiB after it. off is 0.
func ParseSize(text string) (int64, error) {
	if text == "off" {
		return 0, nil
	}
	number, unit := text, int64(1)
	for suffix, times := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = rest, times
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("must be a size such as 400MiB, or off, not %q", text)
	}
	return n * unit, nil
}
