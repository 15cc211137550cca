package persister

import (
	"encoding/json"
	"strings"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Naming is by what a list finds a run, beside what is said of it. The zero Naming names nothing.
type Naming struct {
	Opening    string     // first words of the first message of the root that has text (schema.Opening)
	OpeningSeq schema.Seq // of that message; 0: there is none
	Model      string     // of the newest message that names one
	ModelSeq   schema.Seq // of that message, or stored of an older one that names the same; 0: there is none
}

// maxModel bounds the name of a model by which runs are found, in bytes.
const maxModel = 256

// IsNaming reports whether an event may name its run.
func IsNaming(typ string) bool {
	return typ == schema.TypeCommandMessage || typ == schema.TypeMessageEnd || typ == schema.TypeMessageStart
}

// Add adds an event. Events may come in any order.
func (n *Naming) Add(seq schema.Seq, typ, child string, payload []byte) {
	var of Naming
	switch {
	case typ == schema.TypeMessageStart:
		of.Model, of.ModelSeq = storable(jsonscan.Fields(nil).Read(payload).Str("model")), seq
		if of.Model == "" || len(of.Model) > maxModel {
			return
		}
	case child == "" && (n.OpeningSeq == 0 || seq < n.OpeningSeq):
		of.Opening, of.OpeningSeq = schema.Opening(typ, payload), seq
		if of.Opening == "" {
			return
		}
	}
	n.Merge(of)
}

// AddLine adds the event of a line of the log. What is no event names nothing.
func (n *Naming) AddLine(seq schema.Seq, typ, child string, line []byte) {
	if e, err := schema.ScanLine(line); err == nil && IsNaming(typ) {
		n.Add(seq, typ, child, e.Payload())
	}
}

// IsChangedBy reports whether Merge would change anything.
func (n Naming) IsChangedBy(of Naming) bool { return n.Merge(of) }

// Merge merges what other events of the run name, and reports whether that changes by what the run is found. Nothing
// needs to be stored otherwise: a message with the model of the one before it is no news.
func (n *Naming) Merge(of Naming) (changed bool) {
	if of.OpeningSeq > 0 && (n.OpeningSeq == 0 || of.OpeningSeq < n.OpeningSeq) {
		n.Opening, n.OpeningSeq, changed = of.Opening, of.OpeningSeq, true
	}
	if of.ModelSeq > n.ModelSeq {
		changed = changed || n.Model != of.Model
		n.Model, n.ModelSeq = of.Model, of.ModelSeq
	}
	return changed
}

// maxWords bounds the words of a run, in bytes: an index holds them.
const maxWords = 1000

// Named is a run's Naming with what is said of it, as columns have it.
type Named struct {
	Title string // "" for none
	Tags  string // with a comma before and after each; "" for none
	Words string // title, agent, model, tags and first words in lower case, up to 1,000 bytes
}

// Columns returns the columns. session is of schema.MergeSession.
func (n *Naming) Columns(session json.RawMessage) (d Named) {
	facts := schema.FactsOf(session)
	d.Title = storable(facts.Title)
	if len(facts.Tags) > 0 {
		d.Tags = "," + strings.Join(facts.Tags, ",") + ","
	}
	parts := make([]string, 0, 5)
	for _, part := range []string{d.Title, facts.Agent, n.Model, strings.Join(facts.Tags, " "), n.Opening} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	d.Words = schema.CutText(strings.ToLower(strings.Join(parts, "\n")), maxWords)
	return d
}
