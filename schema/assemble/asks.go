package assemble

import (
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// maxQuestions bounds the questions that are known to wait at a time: the oldest.
const maxQuestions = 1 << 12

// Questions returns those of the run that wait for somebody, up to the record at hand. They must not be changed.
func (a *Run) Questions() *schema.Waits {
	if a.questions == nil {
		return new(schema.Waits)
	}
	return a.questions
}

// AsksWithoutAnswer returns the questions that the record at hand has ended without an answer, oldest first.
func (a *Run) AsksWithoutAnswer() []schema.Ask { return a.lapsed }

// question looks what the record means for the questions. Requests for input that it ends without an answer end here.
func (a *Run) question(l *Lane, typ []byte) {
	a.again, a.lapsed = false, nil
	e, ok := schema.ReadAsk(a.seq, string(typ), l.Child, a.read())
	if !ok || schema.MayAsk(string(typ)) && a.Questions().Len() >= maxQuestions {
		return
	}
	if a.questions == nil || a.asker != a.by { // a copy may share them
		a.questions, a.asker = a.Questions().Clone(), a.by
	}
	ended, asked := a.questions.Apply(&e)
	a.again = !asked && string(typ) == schema.TypeInputRequested
	if e.Answer() || asked {
		return
	}
	a.lapsed = ended
	for _, q := range ended {
		if q.Request == "" || a.lanes[q.Child] == nil || string(typ) == schema.TypeRunLifecycle {
			// which ends all that is open
			continue
		}
		of := a.own(a.lanes[q.Child])
		if it := of.find(InputAnswer, keyOf(jsonscan.AppendString(nil, q.Request))); it != nil {
			a.closeItem(of, it, true)
		}
	}
}
