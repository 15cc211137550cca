package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes one line to the standard output: v as JSON, or a text for people.
func (s *Streams) Print(asJSON bool, v any, format string, args ...any) error {
	if asJSON {
		return encoder(s.Stdout()).Encode(v)
	}
	_, err := fmt.Fprintf(s.Stdout(), format+"\n", args...)
	return err
}

// encoder leaves < and > readable: the output is for people and programs, not for pages.
func encoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// List prints what a command has found, in columns or as one JSON object per line. The widths of the columns are known
// when all rows are, so nothing may show before Close.
type List struct {
	out   *bufio.Writer
	err   io.Writer
	lines *json.Encoder // nil: columns
	table *tabwriter.Writer
	none  string
	head  []any
	rows  int
}

// List begins a list. none is told on the standard error when no row was added; there is no header then.
func (s *Streams) List(asJSON bool, none string, head ...any) *List {
	l := &List{out: bufio.NewWriter(s.Stdout()), err: s.Stderr(), none: none, head: head}
	if asJSON {
		l.lines = encoder(l.out)
	} else {
		l.table = tabwriter.NewWriter(l.out, 0, 0, 2, ' ', 0)
	}
	return l
}

// Add adds v, which is shown as cells.
func (l *List) Add(v any, cells ...any) error {
	l.rows++
	if l.lines != nil {
		return l.lines.Encode(v)
	}
	if l.rows == 1 {
		l.row(l.head)
	}
	return l.row(cells)
}

func (l *List) row(cells []any) error {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(l.table, "\t") // errors show at the flush
		}
		fmt.Fprint(l.table, c)
	}
	_, err := fmt.Fprintln(l.table)
	return err
}

// Close prints what is held back.
func (l *List) Close() error {
	if l.rows == 0 && l.lines == nil {
		fmt.Fprintln(l.err, "agentstream: "+l.none)
	}
	if l.table != nil {
		if err := l.table.Flush(); err != nil {
			return err
		}
	}
	return l.out.Flush()
}
