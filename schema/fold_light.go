package schema

// Lighten drops messages, tool calls and usage, now and for all events to come. What is left is what
// decides on commands: states, the plan, requests for input, the commands that wait (but messages),
// children. The fold of a very long run stays small then; it has no snapshot any more.
func (f *Fold) Lighten() {
	f.light = true
	f.Messages, f.Calls, f.Usage, f.talking = nil, nil, FoldUsage{}, make(map[*foldLane]struct{})
	for _, l := range f.lanes {
		l.open, l.calls = nil, nil
		f.settle(l, commandMessage)
	}
	f.size = 0
	for _, c := range f.Children {
		f.size += otherCost + len(c.ID) + len(c.Parent) + len(c.Prompt) + len(c.Tools) + len(c.Reason)
	}
	for _, in := range f.Inputs {
		f.size += otherCost + len(in.ID) + len(in.Child) + len(in.Prompt) + len(in.Options) + len(in.Schema) + len(in.Answer)
	}
	for _, c := range f.Commands() {
		f.size += otherCost + len(c.Payload)
	}
	if f.Plan != nil {
		f.size += len(f.Plan.Payload)
	}
}

// Light reports whether Lighten was called.
func (f *Fold) Light() bool { return f.light }

// heavy reports whether a type changes nothing in a light fold.
func heavy(typ string) bool {
	switch typ {
	case TypeChildSpawn, TypePlanProposal, TypeRunLifecycle, TypeInputRequested, TypeInputAnswered:
		return false
	}
	_, command := commandKindOf(typ)
	return !command
}
