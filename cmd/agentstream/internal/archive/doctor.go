package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/natskit"
	perjs "agentstream/persister/natsjs"
	pubjs "agentstream/producers/natsjs"
)

// DoctorCmd compares the log with the archive, partition by partition and run by run.
type DoctorCmd struct {
	cli.NATSFlags
	StoreFlags
	BlobFlags
	Since time.Duration `help:"Look at runs that were stored in this time." default:"72h"`
	JSON  bool          `name:"json" help:"Print one JSON object."`

	Outside func(context.Context, *nats.Conn) []string `kong:"-"` // more findings; nil: there are none
}

// examined is what was found.
type examined struct {
	Streams []perjs.StreamReport `json:"streams"`
	Gaps    []perjs.Gap          `json:"gaps"`
	Wrong   []string             `json:"wrong"` // streams that are missing or not as they are to be, and replicas
	Lost    []string             `json:"lost"`  // what the tables record for ever
	Noted   []string             `json:"noted"` // what they record, and objects have made good
}

// ErrFindings reports that something was found.
var ErrFindings = errors.New("something is wrong, or the log and the archive do not fit together")

// Run prints what was found. It changes nothing. The error reports that something was.
func (c *DoctorCmd) Run(ctx context.Context, log *slog.Logger) error {
	s, done, err := c.Open(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	nc, err := c.Dial("doctor", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	found := examined{Streams: []perjs.StreamReport{}, Gaps: []perjs.Gap{}, Wrong: []string{}, Lost: []string{},
		Noted: []string{}}
	if err := found.addLosses(ctx, s.losses); err != nil {
		return err
	}
	found.servers(ctx, nc)
	if c.Outside != nil {
		found.Wrong = append(found.Wrong, c.Outside(ctx, nc)...)
	}
	missing, err := found.inspect(ctx, js, s.offsets)
	if err != nil {
		return err
	}
	if missing {
		return c.report(&found)
	}
	if found.Streams, err = perjs.ExamineStreams(ctx, js, s.offsets); err != nil {
		return err
	}
	plain, err := pubjs.Open(ctx, nc)
	if err != nil {
		return err
	}
	b, err := c.Beside(c.Data).OpenBlobs()
	if err != nil {
		return err
	}
	all, err := Join(s.Rows, b)
	if err != nil {
		return err
	}
	for gap, err := range perjs.ExamineRuns(ctx, js, plain, StoredRuns{all, s.changes}, time.Now().Add(-c.Since)) {
		if err != nil {
			return err
		}
		found.Gaps = append(found.Gaps, gap)
	}
	return c.report(&found)
}

// most is how many lost ranges of runs are listed.
const most = 1000

// addLosses adds what the tables record.
func (e *examined) addLosses(ctx context.Context, s Losses) error {
	losses, err := s.Losses(ctx)
	if err != nil {
		return err
	}
	for i := range losses {
		if losses[i].Open() {
			e.Lost = append(e.Lost, losses[i].String())
		} else {
			e.Noted = append(e.Noted, losses[i].String())
		}
	}
	runs, all, err := s.RunLosses(ctx, EveryTenant, most)
	for i := range runs {
		e.Lost = append(e.Lost, runs[i].String())
	}
	if all > len(runs) {
		e.Lost = append(e.Lost, fmt.Sprintf("and %d more ranges of events of runs", all-len(runs)))
	}
	return err
}

// inspect adds what is wrong with the streams, and reports whether some of the log's are missing: then it cannot be
// compared. The layout is that of the log, or what the tables know of it.
func (e *examined) inspect(ctx context.Context, js jetstream.JetStream, stored perjs.Offsets) (missing bool,
	err error) {
	l, err := natskit.ReadLayout(ctx, js)
	if errors.Is(err, natskit.ErrNotDeclared) {
		offsets, err := stored.Offsets(ctx)
		if err != nil {
			return false, err
		}
		l.Partitions = len(offsets)
	} else if err != nil {
		return false, err
	}
	texts, missing := StreamFindings(ctx, js, l)
	e.Wrong = append(e.Wrong, texts...)
	return missing, nil
}

// StreamFindings returns what is wrong with the streams of a layout and with their replicas, each with what mends it,
// and reports whether some of the log's are missing.
func StreamFindings(ctx context.Context, js jetstream.JetStream, l natskit.Layout) (texts []string, missing bool) {
	streams := natskit.Inspect(ctx, js, l)
	for i := range streams {
		h := &streams[i]
		missing = missing || h.Missing && h.Log
		if h.Missing {
			texts = append(texts, h.Name+": it is missing; run: "+l.Command())
		}
		if h.Silent != nil {
			texts = append(texts, h.Silent.Error()+"; mend: start the NATS servers, more than half of them")
		}
		for _, text := range append(h.Wrong, h.Odd...) {
			texts = append(texts, h.Name+": "+text+"; mend: "+l.Command())
		}
		for _, text := range h.Lagging() {
			texts = append(texts, text+"; mend: start that NATS server, or look at its disk and its network")
		}
	}
	return texts, missing
}

// servers adds what is wrong with the servers that are known, and who listens where only they may. What they do not
// tell, as to a user without the right to ask, is not added.
func (e *examined) servers(ctx context.Context, nc *nats.Conn) {
	for _, url := range nc.Servers() {
		if most, err := natskit.Payload(nc, url); err == nil && most < natskit.NeedPayload {
			e.Wrong = append(e.Wrong, natskit.TooSmall(url, most).Error())
		}
	}
	listeners, _ := natskit.Listeners(ctx, nc)
	for _, text := range listeners {
		e.Wrong = append(e.Wrong, text+": nobody may beside the servers, which cannot say then that a stream is missing")
	}
}

func (c *DoctorCmd) report(found *examined) error {
	bad := len(found.Gaps)+len(found.Wrong)+len(found.Lost) > 0
	for _, s := range found.Streams {
		bad = bad || s.Behind != "" || s.Dropped > 0
	}
	if err := c.print(found); err != nil {
		return err
	}
	if bad {
		return ErrFindings
	}
	return nil
}

func (c *DoctorCmd) print(found *examined) error {
	if c.JSON {
		return c.Print(true, found, "")
	}
	list := c.List(false, "the log has no streams", "STREAM", "FIRST", "LAST", "STORED", "WAITING", "DROPPED",
		"REFILLS", "STATE")
	for _, s := range found.Streams {
		state := "whole"
		switch {
		case s.Behind != "":
			state = "BEHIND: " + s.Behind
		case s.Dropped > 0:
			state = "DROPPED: messages have left the log that are not stored"
		}
		if err := list.Add(nil, s.Name, s.First, s.Last, s.Stored, s.Unstored, s.Dropped, s.Refills, state); err != nil {
			return err
		}
	}
	if err := list.Close(); err != nil {
		return err
	}
	for _, part := range []struct {
		prefix string
		texts  []string
	}{{"WRONG: ", found.Wrong}, {"LOST: ", found.Lost}, {"noted: ", found.Noted}} {
		for _, text := range part.texts {
			fmt.Fprintln(c.Stdout(), part.prefix+text)
		}
	}
	for _, g := range found.Gaps {
		what := "the archive has them, the log lacks them"
		if g.Lost {
			what = "LOST: neither the log nor the archive has them"
		}
		fmt.Fprintf(c.Stdout(), "%s/%s: events %d to %d: %s\n", g.Tenant, g.Run, g.From, g.Through, what)
	}
	return nil
}
