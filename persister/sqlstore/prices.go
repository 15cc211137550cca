package sqlstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentstream/persister/prices"
	"agentstream/schema"
)

const (
	deletePrices = `delete from agent_model_prices where source is not null`
	insertPrice  = `insert into agent_model_prices (model, valid_from, input, output, cache_read, cache_write, source)
		values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing`
)

// SetPrices replaces the prices of earlier lists by those of one. Prices that somebody has entered stay, and count
// instead of those of the list for the same name and day.
func (s *Store) SetPrices(ctx context.Context, list prices.List) error {
	err := s.db.Within(ctx, EveryTenant, func(tx Tx) error {
		if _, err := tx.Exec(ctx, deletePrices); err != nil {
			return err
		}
		for _, p := range list.Prices {
			from, err := s.d.Date(p.From)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, insertPrice, p.Model, from, p.Input, p.Output, p.CacheRead, p.CacheWrite,
				list.Source); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.wrap(err, "prices of %s", list.Source)
	}
	return nil
}

// fits ends the condition that the name of a price is one for a model, as in agent_v_costs.
const fits = ` like replace(replace(replace(replace(p.model, '\', '\\'), '_', '\_'), '%', '\%'), '*', '%') escape '\'`

// priceTable returns the beginning of a statement, whose table priced has a row for each model and day of messages, and
// for each value of keys, columns that each end with a comma: the cost that is known, the one that is computed for
// others, and of how many it is not known. It reads each message once, and looks for a price once for each row. totals
// are more columns of sums; from names the messages and which of them. MATERIALIZED keeps SQLite from computing the
// columns of its view anew wherever they are named. Costs from 1e15 on are not believed: the sum of some is no number.
func (s *Store) priceTable(keys, totals, from string) string {
	const unknown = `) filter (where reported and (cost is null or cost >= 1e15)) as `
	return `with said as materialized (select u.seq, coalesce(u.child_id, '') as child, coalesce(u.model, '') as model, u.day,
		u.reported, u.cost, cast(u.input_tokens as double precision) as input, cast(u.output_tokens as double precision) as output,
		cast(u.cache_read_tokens as double precision) as cache_read,
		cast(u.cache_write_tokens as double precision) as cache_write
		from ` + s.d.Usage + from + `),
	days as materialized (select ` + keys + `model, day, max(seq) as newest, ` + totals + `sum(cost) filter (where cost < 1e15) as known,
		count(*` + unknown + `unknown, sum(input` + unknown + `input, sum(output` + unknown + `output,
		sum(cache_read` + unknown + `cache_read, sum(cache_write` + unknown + `cache_write
		from said group by ` + keys + `model, day),
	priced as materialized (select d.*, (
		select cast((d.input * p.input + d.output * p.output + d.cache_read * p.cache_read
			+ d.cache_write * p.cache_write) / 1000000 as double precision)
		from agent_model_prices p where d.unknown > 0 and p.valid_from <= d.day and d.model` + fits + `
		order by length(p.model) desc, p.valid_from desc limit 1) as computed from days d) `
}

// costLines is an expression with what a listed run has spent: a line for each model and day with the cost that is
// known, whether that of some messages is not, the newest message, and the model.
func (s *Store) costLines() string {
	return `(` + s.priceTable("", "", ofRun) + `select string_agg(coalesce(cast(coalesce(known + computed, known, computed) as text), '')
		|| ' ' || case when unknown > 0 and computed is null then 1 else 0 end || ' ' || newest || ' '
		|| replace(model, '` + "\n" + `', ' '), '` + "\n" + `') from priced)`
}

// costsOf are the columns by which costs are grouped, and what is listed of them, for each schema.CostsBy.
var costsOf = [...]struct{ keys, columns, group, order string }{
	schema.ByMessage: {"seq, child, ", "seq, child, cast(day as text), model", "seq, child, day, model", "seq"},
	schema.ByChild:   {"child, ", "0, child, '', ''", "child", "child"},
	schema.ByDay:     {"", "0, '', cast(day as text), model", "day, model", "day desc, model"},
}

// Costs returns what models have cost; see schema.CostsQuery for the order.
func (s *Store) Costs(ctx context.Context, tenant string, q schema.CostsQuery) ([]schema.Cost, error) {
	text, args, err := s.CostsQuery(tenant, q)
	if err != nil {
		return nil, s.wrap(err, "costs of %s", tenant)
	}
	costs, err := list(ctx, s, tenant, func(scan Scan) (c schema.Cost, err error) {
		var tokens [4]float64
		err = scan(&c.Seq, &c.Child, &c.Day, &c.Model, &c.Messages, &c.Unpriced, &tokens[0], &tokens[1], &tokens[2],
			&tokens[3], &c.USD)
		for i, to := range []*int64{&c.Input, &c.Output, &c.CacheRead, &c.CacheWrite} {
			*to = int64(min(tokens[i], float64(schema.MaxSeq)))
		}
		return c, err
	}, text, args...)
	if err != nil {
		return nil, s.wrap(err, "costs of %s", tenant)
	}
	return costs, nil
}

// CostsQuery returns the statement of Costs and its arguments.
func (s *Store) CostsQuery(tenant string, q schema.CostsQuery) (string, []any, error) {
	w := where{args: []any{tenant, q.Limit}, conditions: []string{"u.koder_user_id = $1"}}
	if q.Run != "" {
		w.and("u.run_id = ?", q.Run)
	}
	if q.Child != nil {
		w.and("coalesce(u.child_id, '') = ?", *q.Child)
	}
	if q.Beyond != nil {
		w.and("coalesce(u.child_id, '') > ?", *q.Beyond)
	}
	page := ""
	switch q.By {
	case schema.ByMessage:
		w.and("u.seq > ?", int64(q.After))
		page = " order by u.seq limit $2"
	case schema.ByDay:
		for sign, day := range map[string]time.Time{">=": q.Since, "<=": q.Until} {
			arg, err := s.d.Date(day.UTC().Format(time.DateOnly))
			if err != nil {
				return "", nil, err
			}
			w.and("u.day "+sign+" ?", arg)
		}
	}
	const totals = `count(*) as messages, sum(input) as all_input, sum(output) as all_output, sum(cache_read) as all_read,
		sum(cache_write) as all_written, `
	of := costsOf[q.By]
	return s.priceTable(of.keys, totals, " u"+w.text()+page) + `select ` + of.columns + `, cast(sum(messages) as bigint),
		cast(sum(case when computed is null then unknown else 0 end) as bigint), sum(all_input), sum(all_output), sum(all_read),
		sum(all_written), sum(coalesce(known + computed, known, computed))
	from priced group by ` + of.group + ` order by ` + of.order + ` limit $2`, w.args, nil
}

// readCosts reads what the expression costLines returns into a run. Its model is that of the newest message that names
// one.
func readCosts(lines string, r *schema.RunInfo) error {
	var newest int64
	for line := range strings.SplitSeq(lines, "\n") {
		parts := strings.SplitN(line, " ", 4)
		if len(parts) < 4 {
			continue // no message has ended
		}
		model := parts[3]
		seq, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return err
		}
		if model != "" && seq > newest {
			r.Model, newest = model, seq
		}
		if parts[1] == "1" && !slices.Contains(r.Unpriced, model) {
			r.Unpriced = append(r.Unpriced, model)
		}
		if parts[0] == "" {
			continue
		}
		cost, err := strconv.ParseFloat(parts[0], 64)
		if err != nil {
			return err
		}
		if r.Cost == nil {
			r.Cost = new(float64)
		}
		*r.Cost += cost
	}
	slices.Sort(r.Unpriced)
	r.Unpriced = r.Unpriced[:min(len(r.Unpriced), schema.MaxUnpriced)]
	return nil
}
