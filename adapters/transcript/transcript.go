package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// Names of the formats.
const (
	SWEAgent   = "swe-agent"
	OpenHands  = "openhands"
	GeminiCLI  = "gemini-cli"
	ClaudeCode = "claude-code"
)

// ErrFormat reports that Decode does not know a format.
var ErrFormat = errors.New("unknown transcript format")

// Formats returns the names that Decode takes.
func Formats() []string { return []string{SWEAgent, OpenHands, GeminiCLI, ClaudeCode} }

// Config of a Decode. The zero value works.
type Config struct {
	RunID   string   // for the paths of children; without it they have none
	ChildID string   // lane of the events; "" is the run itself
	Path    []string // run ids from the root to that lane
	TurnID  string   // turn of the events
	// Lifecycle asks for the run's own run.lifecycle events, at the beginning, at the end and where the
	// transcript has that it was paused.
	Lifecycle bool
	// MaxLineBytes bounds one line; a longer one cannot be read. Default 16 MiB.
	MaxLineBytes int
	// MaxDocumentBytes bounds a format that is one document; the rest of a larger one is not read. Default
	// 64 MiB.
	MaxDocumentBytes int
}

func (c Config) withDefaults() Config {
	if c.MaxLineBytes <= 0 {
		c.MaxLineBytes = 16 << 20
	}
	if c.MaxDocumentBytes <= 0 {
		c.MaxDocumentBytes = 64 << 20
	}
	return c
}

func (c Config) lane() provider.Config {
	return provider.Config{ChildID: c.ChildID, Path: c.Path, TurnID: c.TurnID, MaxFrameBytes: c.MaxLineBytes}
}

// Decode reads a transcript. Errors come last, after the events that end what was open: ErrFormat,
// before anything is read, and the reader's own. A damaged transcript is no error: its run ends so.
func Decode(format string, r io.Reader, cfg Config) iter.Seq2[schema.Event, error] {
	return func(yield func(schema.Event, error) bool) {
		s := &recorder{cfg: cfg.withDefaults()}
		var err error
		switch format {
		case SWEAgent:
			err = s.document(r, yield)
		case OpenHands, GeminiCLI, ClaudeCode:
			err = s.lines(format, r, yield)
		default:
			err = fmt.Errorf("decode %q: %w", format, ErrFormat)
		}
		if err != nil && !errors.Is(err, errLeft) {
			yield(schema.Event{}, err)
		}
	}
}

// errLeft reports that the caller wants no more.
var errLeft = errors.New("caller left")

// teller is what the lines of a format mean.
type teller interface {
	// line takes one object. Nothing of it may be kept without a copy.
	line(all provider.Fields)
	// finish ends what is open and returns how the run went.
	finish() verdict
}

// verdict is how a run ended. known is false where the transcript does not have it.
type verdict struct {
	state  schema.RunState
	reason string
	known  bool
}

// lines reads a format of one object per line.
func (s *recorder) lines(format string, r io.Reader, yield func(schema.Event, error) bool) error {
	in := &lineMachine{s: s}
	dec := provider.NewDecoder(decoderName(format), s.cfg.lane(), func(out *provider.Writer) provider.Machine {
		in.out = out
		switch format {
		case OpenHands:
			in.t = newOpenHands(s, out)
		case GeminiCLI:
			in.t = newGeminiCLI(s, out)
		default:
			in.t = newClaude(s, out)
		}
		return in
	})
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		events, closed := dec.Write(buf[:n])
		if closed != nil {
			return closed
		}
		s.add(events...) // what could not be read behind the last line that could
		if err == nil {
			if !s.flush(yield) {
				return errLeft
			}
			continue
		}
		s.add(dec.Close()...)
		v := in.t.finish()
		s.add(in.out.Drain()...)
		if err != io.EOF {
			v = verdict{state: schema.StateError, reason: "the transcript could not be read to its end"}
		}
		s.endRun(v)
		if !s.flush(yield) {
			return errLeft
		}
		if err != io.EOF {
			return fmt.Errorf("read the transcript: %w", err)
		}
		return nil
	}
}

// decoderName returns the name of a format's writer in types and messages.
func decoderName(format string) string {
	switch format {
	case GeminiCLI:
		return "gemini"
	case ClaudeCode:
		return "claude_code"
	}
	return string(bytes.ReplaceAll([]byte(format), []byte("-"), []byte("_")))
}

// lineMachine hands lines to a teller, in order with what could not be read.
type lineMachine struct {
	s   *recorder
	out *provider.Writer
	t   teller
}

func (m *lineMachine) Frame(_ string, all provider.Fields) {
	m.s.add(m.out.Drain()...)
	m.s.clock(all)
	m.t.line(all)
	m.s.add(m.out.Drain()...)
}

func (m *lineMachine) Close() {}
