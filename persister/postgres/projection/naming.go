package projection

import (
	"encoding/json"

	"agentstream/persister"
	"agentstream/schema"
)

// SelectNaming selects by what runs are found: their number among the keys, opening, model and session.
const SelectNaming = `
select x.i, coalesce(r.opening, ''), r.opening_seq, coalesce(r.model, ''), r.model_seq, r.session
from unnest($1::text[], $2::text[]) with ordinality as x(t, id, i) join agent_runs r on r.koder_user_id = x.t and r.id = x.id`

// UpdateNaming stores Names.
const UpdateNaming = `
update agent_runs r set opening = nullif(x.opening, ''), opening_seq = x.opening_seq, model = nullif(x.model, ''), model_seq = x.model_seq,
	title = nullif(x.title, ''), tags = nullif(x.tags, ''), words = x.words
from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[])
	as x(t, id, opening, opening_seq, model, model_seq, title, tags, words)
where r.koder_user_id = x.t and r.id = x.id`

// Names are the columns of UpdateNaming.
type Names struct {
	tenant, run, opening, model, title, tags, words []string
	openingSeq, modelSeq                            []int64
}

// Add adds a run.
func (u *Names) Add(key schema.RunKey, n persister.Naming, session json.RawMessage) {
	d := n.Columns(session)
	u.tenant, u.run = append(u.tenant, key.Tenant), append(u.run, key.Run)
	u.opening, u.openingSeq = append(u.opening, n.Opening), append(u.openingSeq, int64(n.OpeningSeq))
	u.model, u.modelSeq = append(u.model, n.Model), append(u.modelSeq, int64(n.ModelSeq))
	u.title, u.tags, u.words = append(u.title, d.Title), append(u.tags, d.Tags), append(u.words, d.Words)
}

// Empty reports whether there is no run.
func (u *Names) Empty() bool { return len(u.run) == 0 }

// Args returns the arguments of UpdateNaming.
func (u *Names) Args() []any {
	return []any{u.tenant, u.run, u.opening, u.openingSeq, u.model, u.modelSeq, u.title, u.tags, u.words}
}
