package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/cli"
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
}

// examined is what was found.
type examined struct {
	Streams []perjs.Stream `json:"streams"`
	Gaps    []perjs.Gap    `json:"gaps"`
}

var errFindings = errors.New("the log and the archive do not fit together")

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
	found := examined{Gaps: []perjs.Gap{}}
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

func (c *DoctorCmd) report(found *examined) error {
	bad := len(found.Gaps) > 0
	for _, s := range found.Streams {
		bad = bad || s.Behind != "" || s.Dropped > 0
	}
	if err := c.print(found); err != nil {
		return err
	}
	if bad {
		return errFindings
	}
	return nil
}

func (c *DoctorCmd) print(found *examined) error {
	if c.JSON {
		return c.Print(true, found, "")
	}
	list := c.List(false, "the log has no streams", "STREAM", "FIRST", "LAST", "STORED", "WAITING", "DROPPED", "REFILLS", "STATE")
	for _, s := range found.Streams {
		state := "whole"
		if s.Behind != "" {
			state = "BEHIND: " + s.Behind
		}
		if err := list.Add(nil, s.Name, s.First, s.Last, s.Stored, s.Unstored, s.Dropped, s.Refills, state); err != nil {
			return err
		}
	}
	if err := list.Close(); err != nil {
		return err
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
