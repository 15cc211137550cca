package persistertest

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// list updates what a list of runs shows. It is called before the rows are written.
func (m *Memory) list(have *memoryRun, r *persister.Run) {
	if have.first == 0 || r.First < have.first {
		have.first, have.started = r.First, r.FirstTS
	}
	if r.Head.Last > have.head.Last {
		have.end = r.LastTS
	}
	d, kept := r.Digest, &have.digest
	if d.ReasonSeq > kept.ReasonSeq {
		if kept.ReasonSeq == 0 || !d.Same || d.ReasonOf != kept.ReasonOf {
			kept.Since = d.Since
		}
		kept.Reason, kept.ReasonOf, kept.ReasonSeq = d.Reason, d.ReasonOf, d.ReasonSeq
	}
	if d.TurnSeq > kept.TurnSeq {
		kept.Turn, kept.Stop, kept.TurnSeq = d.Turn, d.Stop, d.TurnSeq
	}
	counted := make(map[schema.Seq]bool)
	for seq := range have.rows {
		counted[seq] = true
	}
	for _, u := range r.Digest.Usage {
		if u.Seq <= have.floor {
			counted[u.Seq] = true
		}
	}
	have.usage = have.usage.Plus(r.Digest.Sum(counted))
	have.describe(r.Session)
}

// describe merges events that are not stored yet.
func (r *memoryRun) describe(events []persister.SessionEvent) {
	events = slices.DeleteFunc(slices.Clone(events), func(e persister.SessionEvent) bool {
		_, stored := r.rows[e.Seq]
		return stored || e.Seq <= r.floor
	})
	if len(events) == 0 {
		return
	}
	if r.session.Late(events) {
		first := events[0].Seq
		for seq, row := range r.rows {
			if seq > first && row.child == "" && persister.IsSession(row.typ) {
				if e, ok := persister.SessionEventOf(seq, row.typ, row.line); ok {
					events = append(events, e)
				}
			}
		}
	}
	r.session.Merge(events)
}

// oldestAsk returns the time of the oldest open question of all stored events.
func (r *memoryRun) oldestAsk() time.Time {
	var events []schema.AskEvent
	for seq, row := range r.rows {
		if line, err := schema.ScanLine(row.line); err == nil {
			e, err := line.Event()
			ts, _ := time.Parse(time.RFC3339Nano, e.TS)
			if a, ok := persister.AskEventOf(seq, ts, row.typ, row.child, row.line); ok && err == nil {
				events = append(events, a)
			}
		}
	}
	if open := schema.MergeAsks(nil, events); len(open) > 0 {
		return open[0].TS
	}
	return time.Time{}
}

// modelAndCost returns the model of the newest message that has ended, what messages report to cost, and the models of
// those that do not. It knows no prices.
func (r *memoryRun) modelAndCost() (model string, cost *float64, unpriced []string) {
	started := map[string]string{} // by lane
	for _, seq := range slices.Sorted(maps.Keys(r.rows)) {
		row := r.rows[seq]
		line, err := schema.ScanLine(row.line)
		if err != nil {
			continue
		}
		var p struct {
			Model string                     `json:"model"`
			Usage map[string]json.RawMessage `json:"usage"`
		}
		if json.Unmarshal(line.Payload(), &p) != nil {
			continue
		}
		switch row.typ {
		case schema.TypeMessageStart:
			started[row.child] = p.Model
		case schema.TypeMessageEnd:
			model = cmp.Or(started[row.child], model)
			var n float64
			if json.Unmarshal(p.Usage["cost_usd"], &n) == nil {
				if cost == nil {
					cost = new(float64)
				}
				*cost += n
			} else if p.Usage != nil && !slices.Contains(unpriced, started[row.child]) {
				unpriced = append(unpriced, started[row.child])
			}
		}
	}
	slices.Sort(unpriced)
	return model, cost, unpriced[:min(len(unpriced), schema.MaxUnpriced)]
}

// Runs returns one page of the tenant's runs.
func (m *Memory) Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	runs := []schema.RunInfo{}
	for key, r := range m.runs {
		info := schema.RunInfo{ID: key.Run, State: r.head.State, Last: r.head.Last, Started: r.started, Updated: r.end,
			Usage: r.usage,
			Turn:  r.digest.Turn, Stop: r.digest.Stop, Asked: r.oldestAsk(), Session: r.session.Description}
		if r.digest.ReasonOf == info.State {
			info.Reason, info.Held = r.digest.Reason, r.digest.Since
		}
		if key.Tenant == tenant && isSelected(&info, q) {
			if !q.Sessions && !q.Models {
				info.Session = nil
			}
			n := r.naming()
			info.Model, info.Cost, info.Unpriced = r.modelAndCost()
			if !isFound(&info, &n, r.session.Description, q) {
				continue
			}
			info.Opening = n.Opening
			if !q.Models {
				info.Model, info.Cost, info.Unpriced, info.Opening = "", nil, nil, ""
			}
			runs = append(runs, info)
		}
	}
	slices.SortFunc(runs, func(a, b schema.RunInfo) int { return inOrder(q, a.Cursor(), b.Cursor()) })
	return runs[:min(q.Limit, len(runs))], nil
}

// naming returns by what the run is found.
func (r *memoryRun) naming() (n persister.Naming) {
	for seq, row := range r.rows {
		if line, err := schema.ScanLine(row.line); err == nil {
			n.Add(seq, row.typ, row.child, line.Payload())
		}
	}
	return n
}

// isFound reports whether a search finds a run, and sets where it stands.
func isFound(r *schema.RunInfo, n *persister.Naming, session json.RawMessage, q schema.RunsQuery) bool {
	d := n.Columns(session)
	for _, word := range q.Words {
		if !strings.Contains(d.Words, word) && !strings.Contains(strings.ToLower(r.ID), word) {
			return false
		}
	}
	switch q.Order {
	case schema.OrderUpdated:
		r.Place = r.Updated.UnixMilli()
	case schema.OrderDuration:
		r.Place = r.Updated.UnixMilli() - r.Started.UnixMilli()
	case schema.OrderEvents:
		r.Place = int64(r.Last)
	}
	if q.Order != schema.OrderStarted && !q.After.IsZero() && inOrder(q, q.After, r.Cursor()) >= 0 {
		return false
	}
	return (q.Title == "" || d.Title == q.Title) && (q.Tag == "" || strings.Contains(d.Tags, ","+q.Tag+",")) &&
		(q.Model == "" || n.Model == q.Model) && strings.Contains(strings.ToLower(r.Reason), strings.ToLower(q.Reason))
}

// isSelected reports whether a query selects a run.
func isSelected(r *schema.RunInfo, q schema.RunsQuery) bool {
	facts := schema.FactsOf(r.Session)
	if q.Sessions && (!facts.Deleted.IsZero() || !q.Archived && !facts.Archived.IsZero()) || q.Agent != "" &&
		facts.Agent != q.Agent {
		return false
	}
	return (q.After.IsZero() || q.Order != schema.OrderStarted || inOrder(q, q.After, r.Cursor()) < 0) &&
		(q.Since.IsZero() || !r.Started.Before(q.Since)) && (q.Until.IsZero() || r.Started.Before(q.Until)) &&
		(!q.Waits || r.Waiting() != "") && (len(q.States) == 0 || slices.Contains(q.States, r.State))
}

func inOrder(q schema.RunsQuery, a, b schema.RunCursor) int {
	if q.Oldest {
		a, b = b, a
	}
	if q.Order != schema.OrderStarted {
		return cmp.Or(cmp.Compare(b.Place, a.Place), cmp.Compare(b.ID, a.ID))
	}
	return newestFirst(a, b)
}

func newestFirst(a, b schema.RunCursor) int {
	return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.ID, a.ID))
}

// Parent returns the root run that the child joined last.
func (m *Memory) Parent(ctx context.Context, tenant, child string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	run, newest := "", 0
	for key, r := range m.runs {
		if n := r.joined[child]; key.Tenant == tenant && child != "" && n > newest {
			run, newest = key.Run, n
		}
	}
	return run, nil
}
