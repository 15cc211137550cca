package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"agentstream/persister/deadletter"
)

// DeadLettersListCmd lists dead letters.
type DeadLettersListCmd struct {
	DeadLetterStoreFlags
	DeadLetterFilter
	Limit int  `help:"Most letters; 0 all." default:"20"`
	JSON  bool `name:"json" help:"Print one JSON object per line, without bodies."`
}

// Run prints the list, and on the standard error how many there are of each reason.
func (c *DeadLettersListCmd) Run(ctx context.Context, log *slog.Logger) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	if c.Limit < 0 {
		return fmt.Errorf("--limit %d: want 0 or more", c.Limit)
	}
	s, closeStore, err := c.open(ctx, log)
	if err != nil {
		return err
	}
	defer closeStore()
	counts, err := s.CountDeadLetters(ctx, q)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(c.out())
	shown, err := c.list(ctx, s, q, w)
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	switch n, text := total(counts); {
	case errors.Is(err, syscall.EPIPE):
		return nil // the reader of our output has seen enough
	case err != nil:
		return err
	case c.JSON:
	case n > shown:
		fmt.Fprintf(c.err(), "agentstream: %d of %d: %s; --limit 0 lists all\n", shown, n, text)
	case n > 0:
		fmt.Fprintf(c.err(), "agentstream: %s\n", text)
	}
	return nil
}

func (c *DeadLettersListCmd) list(ctx context.Context, s deadLetterArchive, q deadletter.Query, out io.Writer) (shown int, err error) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if !c.JSON {
		fmt.Fprintln(table, "ID\tREASON\tSET ASIDE\tRUN\tSEQ\tSTREAM\tPOSITION\tSIZE\tTRIES\tERROR")
	}
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
			if c.JSON {
				if err := writeDeadLetter(out, letterToJSON(l)); err != nil {
					return shown, err
				}
				continue
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\n", l.Name[:12], sanitize(l.Reason), l.Since.Format("2006-01-02 15:04:05"),
				runOf(l), seqOf(l), sanitize(l.Stream), l.Position, byteCount(int64(l.Size)), l.Tries, shorten(sanitize(newestError(l))))
		}
		shown += len(page)
		if len(page) < q.Limit {
			break
		}
		q.After = &page[len(page)-1]
	}
	if c.JSON {
		return shown, nil
	}
	return shown, table.Flush()
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
	return sanitize(l.Key.Tenant + "/" + l.Key.Run)
}

func seqOf(l *deadletter.Stored) string {
	if l.Seq == 0 {
		return "-"
	}
	return l.Seq.String()
}

// DeadLettersShowCmd shows one dead letter.
type DeadLettersShowCmd struct {
	DeadLetterStoreFlags
	ID   string `arg:"" name:"id" help:"Letter to show; the first digits of its id will do."`
	JSON bool   `name:"json" help:"Print a JSON object, with the whole body."`
	Full bool   `help:"Print the whole body, however long it is."`
}

// Run prints it.
func (c *DeadLettersShowCmd) Run(ctx context.Context, log *slog.Logger) error {
	s, closeStore, err := c.open(ctx, log)
	if err != nil {
		return err
	}
	defer closeStore()
	names, err := lettersNamed(ctx, s, []string{c.ID})
	if err != nil {
		return err
	}
	letters, err := s.FindDeadLetters(ctx, deadletter.Query{Names: names, Limit: 1, Bodies: true})
	if err != nil {
		return err
	}
	if len(letters) == 0 {
		return fmt.Errorf("dead letter %s: it has just gone", names[0])
	}
	l := &letters[0]
	stored, serr := storedAt(ctx, s, l)
	w := bufio.NewWriter(c.out())
	if c.JSON {
		j := letterToJSON(l)
		if stored != nil {
			text := string(stored)
			j.Stored = &text
		}
		if serr != nil {
			j.StoredNote = serr.Error()
		}
		err = writeDeadLetter(w, j)
	} else {
		c.show(w, l)
		c.showStored(w, l, stored, serr)
	}
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	return err
}

// storedAt returns the line that is stored at a letter's place; nil when there is none.
func storedAt(ctx context.Context, s deadLetterArchive, l *deadletter.Stored) ([]byte, error) {
	if l.Seq == 0 || l.Key.Run == "" {
		return nil, nil
	}
	for p, err := range s.Packs(ctx, l.Key, l.Seq-1, l.Seq) {
		return bytes.TrimSuffix(p.Body, []byte{'\n'}), err
	}
	return nil, nil
}

func (c *DeadLettersShowCmd) show(w io.Writer, l *deadletter.Stored) {
	field := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s%s\n", name, sanitize(fmt.Sprintf(format, args...)))
	}
	field("id", "%s", l.Name)
	field("reason", "%s", l.Reason)
	field("error", "%s", clip(l.Detail, showRunes))
	field("set aside", "%s", l.Since.Format(time.RFC3339Nano))
	field("stream", "%s position %d", l.Stream, l.Position)
	if l.Key.Run != "" {
		field("run", "%s/%s", l.Key.Tenant, l.Key.Run)
	}
	if l.Seq > 0 {
		field("seq", "%d", l.Seq)
	}
	if l.Tries > 0 {
		field("tried", "%d times, last %s: %s", l.Tries, l.Tried.Format(time.RFC3339Nano), clip(l.Error, showRunes))
	}
	field("subject", "%s", clip(l.Subject, showRunes))
	fmt.Fprintln(w, "headers")
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		for _, v := range l.Header[name] {
			fmt.Fprintf(w, "  %s: %s\n", c.bytes([]byte(name)), c.bytes([]byte(v)))
		}
	}
	fmt.Fprintf(w, "body of %s\n  %s\n", byteCount(int64(l.Size)), c.bytes(l.Body))
}

func (c *DeadLettersShowCmd) showStored(w io.Writer, l *deadletter.Stored, stored []byte, err error) {
	switch {
	case err != nil:
		fmt.Fprintf(w, "what is stored at its place cannot be read: %s\n", sanitize(err.Error()))
	case stored != nil && bytes.Equal(stored, l.Body):
		fmt.Fprintln(w, "the same is stored at its place: retry removes the letter")
	case stored != nil:
		fmt.Fprintf(w, "stored at its place, first difference at byte %d\n  %s\n", differAt(stored, l.Body), c.bytes(stored))
	case l.Seq > 0:
		fmt.Fprintln(w, "nothing is stored at its place")
	}
}

func differAt(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// showRunes is how much of a text is shown.
const showRunes = 4000

// bytes makes text for a terminal of what may be anything. What is not UTF-8 is escaped.
func (c *DeadLettersShowCmd) bytes(b []byte) string {
	cut := len(b)
	if !c.Full {
		cut = min(cut, 4*showRunes)
		for cut > 0 && cut < len(b) && !utf8.RuneStart(b[cut]) {
			cut--
		}
	}
	text := string(b[:cut])
	if !utf8.ValidString(text) {
		text = strings.Trim(strconv.QuoteToASCII(text), `"`)
	}
	text = sanitize(text)
	if short := clip(text, showRunes); !c.Full && (cut < len(b) || short != text) {
		short, _, _ = strings.Cut(short, "… (")
		return short + "… (" + byteCount(int64(len(b))) + "; --full shows all)"
	}
	return text
}
