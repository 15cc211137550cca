package persister

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"
)

// watchLag reads the lag of the queue every Config.LagEvery, until ctx ends.
func (p *pipeline) watchLag(ctx context.Context) {
	tick := time.NewTicker(p.cfg.LagEvery)
	defer tick.Stop()
	for {
		p.askLag(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *pipeline) askLag(ctx context.Context) {
	once, cancel := context.WithTimeout(ctx, p.cfg.LagEvery)
	defer cancel()
	stored, err := p.currentOffset(once)
	var lag Lag
	if err == nil {
		lag, err = p.queue.Lag(once, stored)
	}
	if err != nil {
		if ctx.Err() == nil {
			p.noLag(err)
		}
		return
	}
	p.unknown = false
	now := p.cfg.Now()
	next := alarmOf(lag, now)
	if p.cfg.Replaces {
		next, lag.Lost = alarm{}, 0
	}
	var before alarm
	var lost uint64
	p.update(func(s *Status) {
		if lag.Lost > s.Lag.Lost {
			lost = lag.Lost - s.Lag.Lost
		}
		s.Lost += lost
		s.Lag, s.LagAt, s.Stream = lag, now, lag.Stream
		if s.Alarm = next.text; s.Lost > 0 {
			s.Alarm = fmt.Sprintf("%d messages were dropped by the log before they were stored", s.Lost)
			if next.text != "" {
				s.Alarm += "; " + next.text
			}
		}
		s.Degraded = next.level == quarter || s.Lost > 0
		before, p.alarm = p.alarm, next
	})
	if h := p.cfg.Hooks.Lag; h != nil {
		h(p.snapshot())
	}
	p.warn(lag, lost, before, next, now)
}

// currentOffset returns the offset, from the store when another process may be moving it.
func (p *pipeline) currentOffset(ctx context.Context) (Offset, error) {
	p.mu.Lock()
	at := p.offset
	p.mu.Unlock()
	if at.Stream != "" && p.isOurs() {
		return at, nil
	}
	stored, err := p.share.readOffset(ctx, p.queue.Stream())
	return stored.Offset, err
}

// noLag notes that the lag is not known. It is logged as a warning once until it is known again.
func (p *pipeline) noLag(err error) {
	p.update(func(s *Status) {
		s.Lag, s.LagAt = Lag{Stream: s.Stream, Lost: s.Lag.Lost}, time.Time{} // an alarm stays: nothing shows that it is over
	})
	if h := p.cfg.Hooks.Lag; h != nil {
		h(p.snapshot())
	}
	level := slog.LevelWarn
	if p.unknown {
		level = slog.LevelDebug
	}
	p.unknown = true
	p.mu.Lock()
	stream := p.status.Stream
	p.mu.Unlock()
	p.cfg.Logger.Log(context.Background(), level, p.cfg.Role+": the lag is not known, so nothing would warn of a loss",
		"stream", stream, "error", err)
}

// warn logs losses, and the alarm: once when it gets worse, and every minute while it lasts.
func (p *pipeline) warn(lag Lag, lost uint64, before, next alarm, now time.Time) {
	if lost > 0 {
		p.cfg.Logger.Error(p.cfg.Role+": the log has dropped messages that were not stored: they are lost",
			"stream", lag.Stream, "messages", lost)
		if h := p.cfg.Hooks.Lost; h != nil {
			h(lag.Stream, lost)
		}
	}
	logged := before.logged
	if next.level > before.level || next.level > fine && now.Sub(logged) >= time.Minute {
		logged = now
		if p.isOurs() { // one process logs it
			p.cfg.Logger.Log(context.Background(), next.level.log(),
				p.cfg.Role+": the log may drop messages before they are stored: "+next.text,
				"stream", lag.Stream, "lag", lag.Messages, "oldest", lag.Oldest, "window", lag.Window)
		}
	}
	p.mu.Lock()
	p.alarm.logged = logged
	p.mu.Unlock()
}

// level is how close the log is to dropping messages that are not stored.
type level int

const (
	fine    level = iota
	half          // half of the window, or of the size, is used up
	quarter       // a quarter is left
)

func (l level) log() slog.Level {
	if l == quarter {
		return slog.LevelError
	}
	return slog.LevelWarn
}

type alarm struct {
	level  level
	text   string
	logged time.Time
}

// WindowLeft returns the time until the log drops the oldest message that is not stored. It is negative when the log is
// late with that, the whole window when all messages are stored, and 0 when there is no window.
func (l Lag) WindowLeft(now time.Time) time.Duration {
	if l.Oldest.IsZero() {
		return l.Window
	}
	return l.Window - now.Sub(l.Oldest)
}

// alarmOf returns the alarm for a lag. The log drops messages that are too old, or do not fit any more, also when they
// are not stored: then they are lost.
func alarmOf(l Lag, now time.Time) alarm {
	var a alarm
	if l.Messages == 0 {
		return a
	}
	say := func(left float64, text string) {
		at := fine
		switch {
		case left <= 0.25:
			at = quarter
		case left <= 0.5:
			at = half
		}
		if at > a.level {
			a.level, a.text = at, text
		}
	}
	if l.Window > 0 {
		left := l.WindowLeft(now)
		say(float64(left)/float64(l.Window), fmt.Sprintf("what is not stored is dropped in %v, the window is %v",
			left.Round(time.Second), l.Window))
	}
	if l.Bounded {
		say(l.Room, fmt.Sprintf("what is not stored is dropped when %.0f %% of the stream's size more is written",
			max(0, l.Room*100)))
	}
	return a
}

// events estimates the number of events in a lag from the messages seen of late. The caller holds mu.
func (p *pipeline) events(l Lag) uint64 {
	return uint64(math.Round(float64(l.Messages) * max(1, p.perPack)))
}
