package main

import (
	"fmt"
	"io"
	"time"

	"agentstream/persister/export"
	"agentstream/schema"
)

// exportMeter shows how an export goes on: a line that is drawn over on a terminal, else a line now and
// then. It is used by one goroutine.
type exportMeter struct {
	*meter
	quiet bool

	runs   int   // planned
	events int64 // planned
	whole  bool  // nothing more will be planned
	shorts int   // notices of runs that are not complete
}

// exportNotices is how many runs are named in notices.
const exportNotices = 20

func newExportMeter(w io.Writer, s Screen, quiet bool) *exportMeter {
	return &exportMeter{meter: newMeter(w, s), quiet: quiet}
}

func (m *exportMeter) hooks() export.Hooks {
	return export.Hooks{
		Planned: func(runs int, events int64, last bool) {
			m.runs, m.events, m.whole = m.runs+runs, m.events+events, last
		},
		Progress: m.progress,
		Short:    m.short,
	}
}

func (m *exportMeter) progress(s export.Summary) {
	if m.quiet {
		return
	}
	m.meter.progress(func() string {
		line := m.line(s, time.Since(m.start))
		if part, known := m.part(s); known && m.screen.Terminal {
			line = bar(part) + line
		}
		return line
	})
}

// part is how much is done, from 0 to 1; false while that cannot be known.
func (m *exportMeter) part(s export.Summary) (float64, bool) {
	runs := s.Runs + s.Skipped + s.Gone
	switch {
	case !m.whole:
		return 0, false
	case m.events > 0:
		return min(1, float64(s.Events)/float64(m.events)), true
	case m.runs > 0:
		return min(1, float64(runs)/float64(m.runs)), true
	}
	return 0, false
}

// line says where the export is after a time.
func (m *exportMeter) line(s export.Summary, after time.Duration) string {
	seconds := after.Seconds()
	text := fmt.Sprintf("%d of %d runs · %d events · %s · %.0f events/s", s.Runs+s.Skipped+s.Gone, m.runs, s.Events,
		byteCount(s.Lines), float64(s.Events)/seconds)
	if part, known := m.part(s); known && part > 0 {
		text += fmt.Sprintf(" · %s left", time.Duration(seconds*(1-part)/part*1e9).Round(time.Second))
	}
	return text
}

// short names the first runs that are not complete; the summary counts them all.
func (m *exportMeter) short(key schema.RunKey, first, through schema.Seq, missing bool) {
	if m.shorts++; m.shorts > exportNotices {
		return
	}
	if missing {
		m.notice("run %s: the archive has no events behind %d, and should have", key, through)
	} else if !m.quiet {
		m.notice("run %s: begins with event %d; those before have expired", key, first)
	}
	if m.shorts == exportNotices {
		m.notice("more of these are not shown")
	}
}

func (m *exportMeter) summary(s export.Summary) {
	if m.quiet {
		return
	}
	took := time.Since(m.start)
	text := fmt.Sprintf("exported %d runs: %d rows of %d events (%s) into %d files (%s) in %.1f s, %.0f events/s",
		s.Runs, s.Rows, s.Events, byteCount(s.Lines), s.Files, byteCount(s.Bytes), took.Seconds(), float64(s.Events)/took.Seconds())
	if s.Skipped > 0 {
		text += fmt.Sprintf("; %d runs were there already", s.Skipped)
	}
	if s.Gone > 0 {
		text += fmt.Sprintf("; %d runs have no events any more", s.Gone)
	}
	m.notice("%s", text)
}
