package projection

import (
	"context"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Rewrite replaces what the rows of the views say of events that were stored with another content.
type Rewrite struct {
	tx    Tx
	key   schema.RunKey
	words bool
	begun map[begun]bool // messages whose words are made again
}

// begun is the row with which a message begins.
type begun struct {
	lane string
	seq  schema.Seq
}

// NewRewrite returns a Rewrite of one run.
func NewRewrite(ctx context.Context, tx Tx, key schema.RunKey) (*Rewrite, error) {
	r := &Rewrite{tx: tx, key: key, begun: make(map[begun]bool)}
	err := tx.Each(ctx, func(scan func(...any) error) error { return scan(&r.words) },
		`select to_regclass('agent_run_words') is not null`)
	return r, err
}

const rewriteMessage = `update agent_run_messages set message_id = $5, role = $6, model = $7, stop_reason = $8
where koder_user_id = $1 and run_id = $2 and lane = $3 and seq = $4`

const rewriteUsage = `update agent_run_usage set model = $4 where koder_user_id = $1 and run_id = $2 and start_seq = $3`

const rewriteCallStart = `update agent_run_tool_calls set call_id = $5, tool = $6
where koder_user_id = $1 and run_id = $2 and lane = $3 and seq = $4 and kind = 'start'`

const rewriteCallEnd = `update agent_run_tool_calls set tool = $4 where koder_user_id = $1 and run_id = $2 and start_seq = $3 and kind = 'end'`

const renameCallEnd = `update agent_run_tool_calls set call_id = $5
where koder_user_id = $1 and run_id = $2 and lane = $3 and seq = $4 and kind = 'end'`

// Event replaces what is said of an event.
func (r *Rewrite) Event(ctx context.Context, e *persister.Rewritten) (err error) {
	p, seq := peek(e.Payload), int64(e.Seq)
	run := func(text string, args ...any) {
		if err == nil {
			err = r.tx.Exec(ctx, text, append([]any{r.key.Tenant, r.key.Run}, args...)...)
		}
	}
	switch e.Type {
	case schema.TypeCommandMessage:
		run(rewriteMessage, e.Child, seq, p.name("message_id"), "user", "", "")
	case schema.TypeMessageStart:
		run(rewriteMessage, e.Child, seq, p.name("message_id"), p.name("role"), p.name("model"), "")
		run(rewriteUsage, seq, p.name("model"))
	case schema.TypeMessageEnd:
		run(rewriteMessage, e.Child, seq, p.name("message_id"), "", "", p.name("stop_reason"))
	case schema.TypeToolStart:
		run(rewriteCallStart, e.Child, seq, p.id("call_id"), p.name("tool"))
		run(rewriteCallEnd, seq, p.name("tool"))
	case schema.TypeToolEnd:
		run(renameCallEnd, e.Child, seq, p.id("call_id"))
	}
	if err == nil && r.words {
		err = r.noteMessage(ctx, e)
	}
	return err
}

const findBegun = `select seq from agent_run_messages where koder_user_id = $1 and run_id = $2 and lane = $3 and kind = 'start' and seq <= $4
order by seq desc limit 1`

// noteMessage notes the message that an event belongs to.
func (r *Rewrite) noteMessage(ctx context.Context, e *persister.Rewritten) error {
	switch e.Type {
	case schema.TypeTextDelta, schema.TypeMessageStart, schema.TypeMessageEnd:
	case schema.TypeCommandMessage:
		r.begun[begun{e.Child, e.Seq}] = true
		return nil
	default:
		return nil
	}
	return r.tx.Each(ctx, func(scan func(...any) error) error {
		m := begun{lane: e.Child}
		err := scan(&m.seq)
		r.begun[m] = true
		return err
	}, findBegun, r.key.Tenant, r.key.Run, e.Child, int64(e.Seq))
}

const selectBegun = `select run_day, ts, kind, message_id, role, model, stop_reason from agent_run_messages
where koder_user_id = $1 and run_id = $2 and lane = $3 and seq = $4`

const dropBegun = `delete from agent_run_messages where koder_user_id = $1 and run_id = $2 and lane = $3 and seq = $4`

const putBegun = `insert into agent_run_messages (koder_user_id, run_id, lane, seq, run_day, ts, kind, message_id, role, model, stop_reason)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

// Finish makes the words of messages again, which are made when the row with which a message begins is stored.
// Models of usage stay when their events expire: text is what they become.
func (r *Rewrite) Finish(ctx context.Context, text func(string) string) error {
	if err := r.renameModels(ctx, text); err != nil {
		return err
	}
	for m := range r.begun {
		var day, ts time.Time
		var kind, id, role, model, stop string
		key := []any{r.key.Tenant, r.key.Run, m.lane, int64(m.seq)}
		found := false
		err := r.tx.Each(ctx, func(scan func(...any) error) error {
			found = true
			return scan(&day, &ts, &kind, &id, &role, &model, &stop)
		}, selectBegun, key...)
		if err == nil && !found { // it repeats another one, or has left the tables
			continue
		}
		if err == nil {
			err = r.tx.Exec(ctx, dropBegun, key...)
		}
		if err == nil {
			err = r.tx.Exec(ctx, putBegun, append(key, day, ts, kind, id, role, model, stop)...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// renameModels replaces the models of usage.
func (r *Rewrite) renameModels(ctx context.Context, text func(string) string) error {
	var models []string
	err := r.tx.Each(ctx, func(scan func(...any) error) error {
		var model string
		err := scan(&model)
		models = append(models, model)
		return err
	}, `select distinct model from agent_run_usage where koder_user_id = $1 and run_id = $2`, r.key.Tenant, r.key.Run)
	for _, model := range models {
		if now := text(model); err == nil && now != model {
			err = r.tx.Exec(ctx, `update agent_run_usage set model = $4 where koder_user_id = $1 and run_id = $2 and model = $3`,
				r.key.Tenant, r.key.Run, model, now)
		}
	}
	return err
}
