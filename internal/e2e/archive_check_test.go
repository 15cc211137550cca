package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"agentstream/schema"
)

// place is where an event belongs.
type place struct {
	run schema.RunKey
	seq schema.Seq
}

func (p place) String() string { return fmt.Sprintf("%s/%d", p.run, p.seq) }

// line is one event where it was found.
type line struct {
	at   place
	text string
}

// headRow is what a run's head says: in the log, by its newest pack; in the archive, by its row.
type headRow struct {
	last                    schema.Seq
	lastID, state, day, use string
}

// account is what one side holds, in the order in which it was read.
type account struct {
	lines   []line
	heads   map[schema.RunKey]headRow
	letters int
}

// said is what a producer was told is stored: the parts of an event that are its own.
type said struct{ typ, child, payload string }

// mostComplaints is how many are told; one is enough to fail.
const mostComplaints = 10

// judgeArchive compares what the log holds, what the archive holds, and what producers were told. It
// gives what is wrong.
func judgeArchive(log, rows account, told map[place]said) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	index := func(source string, lines []line) map[place]string {
		m := make(map[place]string, len(lines))
		for _, l := range lines {
			if _, twice := m[l.at]; twice {
				complain("%s: %s stands twice", source, l.at)
			}
			m[l.at] = l.text
		}
		return m
	}
	inLog, inRows := index("log", log.lines), index("archive", rows.lines)
	for at, text := range inLog {
		if row, ok := inRows[at]; !ok {
			complain("%s: is in the log and not in the archive", at)
		} else if row != text {
			complain("%s: the row is %.200q, the event is %.200q", at, row, text)
		}
	}
	for at := range inRows {
		if _, ok := inLog[at]; !ok {
			complain("%s: is in the archive and not in the log", at)
		}
	}
	for at, want := range told {
		got, ok := inRows[at]
		if !ok {
			complain("%s: was acknowledged and is not in the archive", at)
			continue
		}
		e, err := schema.DecodeLine([]byte(got))
		if err != nil || e.Seq != at.seq || e.RunID != at.run.Run || (said{e.Type, e.ChildID, string(e.Payload)}) != want {
			complain("%s: is %.200q, acknowledged was %s %q %.200q (%v)", at, got, want.typ, want.child, want.payload, err)
		}
	}
	wrong = append(wrong, judgeRuns(log, rows, inRows)...)
	if rows.letters != 0 {
		complain("%d dead letters", rows.letters)
	}
	slices.Sort(wrong)
	return wrong[:min(len(wrong), mostComplaints)]
}

// judgeRuns compares the runs' heads, and looks for holes.
func judgeRuns(log, rows account, inRows map[place]string) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for run, want := range log.heads {
		got, ok := rows.heads[run]
		if !ok {
			complain("%s: has no row", run)
		} else if got != want {
			complain("%s: the row says %+v, the log %+v", run, got, want)
		}
		for seq := schema.Seq(1); seq <= want.last; seq++ {
			if _, ok := inRows[place{run, seq}]; !ok {
				complain("%s: a hole", place{run, seq})
				break
			}
		}
	}
	for run := range rows.heads {
		if _, ok := log.heads[run]; !ok {
			complain("%s: has a row and no event", run)
		}
	}
	return wrong
}

// readLog reads everything that the log holds, beside every layer of ours. Usage is summed here once
// more.
func readLog(t testing.TB, url string) account {
	t.Helper()
	a := account{heads: make(map[schema.RunKey]headRow)}
	usage := make(map[schema.RunKey]schema.Usage)
	eachStored(t, url, func(p schema.Pack) {
		seq := p.First
		for text := range schema.Lines(p.Body) {
			a.lines = append(a.lines, line{place{p.Key, seq}, string(text)})
			if strings.Contains(string(text), `"type":"`+schema.TypeMessageEnd+`"`) {
				if e, err := schema.DecodeLine(text); err == nil && e.Type == schema.TypeMessageEnd {
					usage[p.Key] = usage[p.Key].Plus(schema.UsageOf(e.Payload))
				}
			}
			seq++
		}
		a.heads[p.Key] = headRow{p.Head.Last, p.Head.LastID, string(p.Head.State), p.Head.Day, usage[p.Key].String()}
	})
	return a
}

// readArchive reads everything that PostgreSQL holds, row by row.
func readArchive(t testing.TB, dsn string) account {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	a := account{heads: make(map[schema.RunKey]headRow)}
	if err := conn.QueryRow(t.Context(), "select count(*) from agent_dead_letters").Scan(&a.letters); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), "select koder_user_id, run_id, seq, line from agent_run_events")
	if err != nil {
		t.Fatal(err)
	}
	var l line
	if _, err := pgx.ForEachRow(rows, []any{&l.at.run.Tenant, &l.at.run.Run, &l.at.seq, &l.text}, func() error {
		a.lines = append(a.lines, l)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rows, err = conn.Query(t.Context(), `select koder_user_id, id, last_seq, last_id, state, to_char(run_day, 'YYYYMMDD'), usage::text
		from agent_runs`)
	if err != nil {
		t.Fatal(err)
	}
	var key schema.RunKey
	var h headRow
	if _, err := pgx.ForEachRow(rows, []any{&key.Tenant, &key.Run, &h.last, &h.lastID, &h.state, &h.day, &h.use},
		func() error {
			h.use = schema.ParseUsage(h.use).String()
			a.heads[key] = h
			return nil
		}); err != nil {
		t.Fatal(err)
	}
	return a
}

// A proof that cannot fail proves nothing: each kind of damage is found.
func TestTheArchivesCheckerFindsDamage(t *testing.T) {
	run := schema.RunKey{Tenant: "acme", Run: "run_1"}
	at := func(seq schema.Seq) place { return place{run, seq} }
	text := func(seq schema.Seq) string {
		return fmt.Sprintf(`{"id":"evt_01J%023d","ts":"2026-02-28T10:00:00.000Z","type":"text.delta","run_id":"run_1","child_id":null,"seq":%d,"payload":{"text":"%d\u0000"}}`, seq, seq, seq)
	}
	side := func() account {
		return account{
			lines: []line{{at(1), text(1)}, {at(2), text(2)}, {at(3), text(3)}},
			heads: map[schema.RunKey]headRow{run: {last: 3, lastID: "evt_3", state: "running", day: "20260228", use: "{}"}},
		}
	}
	told := map[place]said{at(2): {"text.delta", "", `{"text":"2\u0000"}`}}
	if wrong := judgeArchive(side(), side(), told); wrong != nil {
		t.Fatalf("what is whole is called damaged: %q", wrong)
	}
	other := schema.RunKey{Tenant: "umbrella", Run: "run_1"}
	for name, damage := range map[string]func(log, rows *account){
		"a row is changed":             func(_, r *account) { r.lines[1].text = strings.Replace(r.lines[1].text, `\u0000`, " ", 1) },
		"a row is missing":             func(_, r *account) { r.lines = r.lines[:2] },
		"a row in the middle is gone":  func(_, r *account) { r.lines = slices.Delete(r.lines, 1, 2) },
		"a row stands twice":           func(_, r *account) { r.lines = append(r.lines, r.lines[0]) },
		"a row too many":               func(_, r *account) { r.lines = append(r.lines, line{at(4), text(4)}) },
		"a row of another tenant":      func(_, r *account) { r.lines[0].at.run = other },
		"two rows are exchanged":       func(_, r *account) { r.lines[0].text, r.lines[1].text = r.lines[1].text, r.lines[0].text },
		"an event stands twice":        func(l, _ *account) { l.lines = append(l.lines, l.lines[0]) },
		"both have lost what was said": func(l, r *account) { l.lines, r.lines = slices.Delete(l.lines, 1, 2), slices.Delete(r.lines, 1, 2) },
		"both have another content": func(l, r *account) {
			l.lines[1].text = strings.Replace(l.lines[1].text, `"2\u0000"`, `"9\u0000"`, 1)
			r.lines[1].text = l.lines[1].text
		},
		"both have a hole":           func(l, r *account) { l.lines, r.lines = l.lines[1:], r.lines[1:] },
		"a head is behind":           func(_, r *account) { h := r.heads[run]; h.last = 2; r.heads[run] = h },
		"a head names another event": func(_, r *account) { h := r.heads[run]; h.lastID = "evt_2"; r.heads[run] = h },
		"usage is counted twice":     func(_, r *account) { h := r.heads[run]; h.use = `{"output_tokens":2}`; r.heads[run] = h },
		"a run without a row":        func(_, r *account) { delete(r.heads, run) },
		"a run without an event":     func(_, r *account) { r.heads[other] = headRow{last: 1} },
		"a dead letter":              func(_, r *account) { r.letters = 1 },
	} {
		log, rows := side(), side()
		damage(&log, &rows)
		if wrong := judgeArchive(log, rows, told); len(wrong) == 0 {
			t.Errorf("%s: it is not found", name)
		}
	}
}
