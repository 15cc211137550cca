package deadletters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"
	"unicode/utf8"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/persister/deadletter"
	"agentstream/schema"
)

// ListCmd lists dead letters.
type ListCmd struct {
	archive.StoreFlags
	LetterFilter
	Limit int  `help:"Most letters; 0 all." default:"20"`
	JSON  bool `name:"json" help:"Print one JSON object per line, without bodies."`
}

// Run prints the list, and on the standard error how many there are of each reason.
func (c *ListCmd) Run(ctx context.Context, log *slog.Logger) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	if c.Limit < 0 {
		return fmt.Errorf("--limit must be 0 or more, not %d", c.Limit)
	}
	return c.With(ctx, log, func(store *archive.CommandStore) error {
		s := store.Letters
		counts, err := s.CountDeadLetters(ctx, q)
		if err != nil {
			return err
		}
		shown, err := c.list(ctx, s, q)
		switch n, text := total(counts); {
		case errors.Is(err, syscall.EPIPE):
			return nil // the reader of our output has seen enough
		case err != nil:
			return err
		case c.JSON:
		case n > shown:
			c.Notice("%d of %d: %s; --limit 0 lists all", shown, n, text)
		case n > 0:
			c.Notice("%s", text)
		}
		return nil
	})
}

func (c *ListCmd) list(ctx context.Context, s archive.DeadLetters, q deadletter.Query) (shown int, err error) {
	show := c.List(c.JSON, "no dead letters", "ID", "REASON", "SET ASIDE", "RUN", "SEQ", "STREAM", "POSITION", "SIZE",
		"TRIES", "SUBJECT", "ERROR")
	for c.Limit == 0 || shown < c.Limit {
		q.Limit = letterPage
		if c.Limit > 0 {
			q.Limit = min(letterPage, c.Limit-shown)
		}
		page, err := s.FindDeadLetters(ctx, q)
		if err != nil {
			return shown, err
		}
		for i := range page {
			l := &page[i]
			err := show.Add(letterToJSON(l), l.Name[:12], terminal.Sanitize(l.Reason), l.Since.Format("2006-01-02 15:04:05"),
				runOf(l), seqOf(l), terminal.Sanitize(l.Stream), l.Position, terminal.ByteCount(int64(l.Size)), l.Tries,
				terminal.Shorten(terminal.Sanitize(l.Subject)),
				terminal.Shorten(terminal.Sanitize(newestError(l))))
			if err != nil {
				return shown, err
			}
		}
		shown += len(page)
		if len(page) < q.Limit {
			break
		}
		q.After = &page[len(page)-1]
	}
	return shown, show.Close()
}

func newestError(l *deadletter.Stored) string {
	if l.Error != "" {
		return l.Error
	}
	return l.Detail
}

func runOf(l *deadletter.Stored) string {
	if l.Key.Run == "" {
		return "-"
	}
	return terminal.Sanitize(l.Key.Tenant + "/" + l.Key.Run)
}

func seqOf(l *deadletter.Stored) string {
	if l.Seq == 0 {
		return "-"
	}
	return l.Seq.String()
}

// letterJSON is a dead letter as one line of JSON, without its body. Headers that are not UTF-8 are in
// Headers64.
type letterJSON struct {
	ID        string              `json:"id"`
	Reason    string              `json:"reason"`
	Detail    string              `json:"detail"`
	Tenant    string              `json:"tenant,omitempty"`
	Run       string              `json:"run,omitempty"`
	Seq       schema.Seq          `json:"seq,omitempty"`
	Stream    string              `json:"stream"`
	Position  uint64              `json:"position"`
	Subject   string              `json:"subject"`
	Headers   map[string][]string `json:"headers,omitempty"`
	Headers64 []byte              `json:"headers_base64,omitempty"`
	Size      int                 `json:"size"`
	StoredAt  time.Time           `json:"buried_at"`
	Tries     int                 `json:"tries"`
	TriedAt   *time.Time          `json:"tried_at,omitempty"`
	LastError string              `json:"last_error,omitempty"`
}

func letterToJSON(l *deadletter.Stored) letterJSON {
	j := letterJSON{
		ID: l.Name, Reason: l.Reason, Detail: l.Detail, Tenant: l.Key.Tenant, Run: l.Key.Run, Seq: l.Seq, Stream: l.Stream,
		Position: l.Position, Subject: l.Subject, Size: l.Size, StoredAt: l.Since, Tries: l.Tries, LastError: l.Error,
	}
	if !l.Tried.IsZero() {
		j.TriedAt = &l.Tried
	}
	if headers := l.HeaderBytes(); utf8.Valid(headers) {
		j.Headers = l.Header
	} else {
		j.Headers64 = headers
	}
	return j
}
