package export

import (
	"fmt"
	"io"
	"time"

	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/persister/export"
	"agentstream/schema"
)

// exportMeter shows how an export goes on: a line that is drawn over on a terminal, else a line now and
// then. It is used by one goroutine.
type exportMeter struct {
	*terminal.Meter
	quiet bool

	runs   int   // planned
	events int64 // planned
	whole  bool  // nothing more will be planned
	shorts int   // notices of runs that are not complete
}

// exportNotices is how many runs are named in notices.
const exportNotices = 20

func newExportMeter(w io.Writer, s terminal.Screen, quiet bool) *exportMeter {
	return &exportMeter{Meter: terminal.NewMeter(w, s), quiet: quiet}
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
	m.Meter.Progress(func() string {
		line := m.line(s, time.Since(m.Start))
		if part, known := m.part(s); known && m.Screen.Terminal {
			line = terminal.Bar(part) + line
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

// line returns how far the export is after a time.
func (m *exportMeter) line(s export.Summary, after time.Duration) string {
	seconds := after.Seconds()
	text := fmt.Sprintf("%d of %d runs · %d events · %s · %.0f events/s", s.Runs+s.Skipped+s.Gone, m.runs, s.Events,
		terminal.ByteCount(s.Lines), float64(s.Events)/seconds)
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
		m.Notice("run %s: the archive has no events behind %d, and should have", key, through)
	} else if !m.quiet {
		m.Notice("run %s: begins with event %d; those before have expired", key, first)
	}
	if m.shorts == exportNotices {
		m.Notice("more of these are not shown")
	}
}

func (m *exportMeter) summary(s export.Summary) {
	if m.quiet {
		return
	}
	took := time.Since(m.Start)
	text := fmt.Sprintf("exported %d runs: %d rows of %d events (%s) into %d files (%s) in %.1f s, %.0f events/s",
		s.Runs, s.Rows, s.Events, terminal.ByteCount(s.Lines), s.Files, terminal.ByteCount(s.Bytes), took.Seconds(),
		float64(s.Events)/took.Seconds())
	if s.Skipped > 0 {
		text += fmt.Sprintf("; %d runs were there already", s.Skipped)
	}
	if s.Gone > 0 {
		text += fmt.Sprintf("; %d runs have no events any more", s.Gone)
	}
	m.Notice("%s", text)
}
