// Package assemble reads the records of a run as one state machine.
//
// # What it is
//
// A [Run] takes the records of a run in the order of the log, and returns [Transition]s: turns, messages with their
// blocks and pieces, calls of tools, requests to models, tasks, requests for input, children, states, usage. Whoever
// shows a run, or ends it in place of its agent, reads transitions instead of records.
//
// # Contract
//
// The same records give the same transitions, in every process. They are well-formed whatever the log says: what opens
// closes once, in its lane and before the run ends, and nothing of a block follows its close. What producers leave out
// is repaired, and marked as such:
//
//   - A delta or a block without a message opens one. It ends with the next record of its lane that is no part of a
//     message, or at 256 KiB or 256 blocks; but the first event of a message or a block that names one says that this
//     is it: its start is missing, and it ends as others do.
//   - A message that the next one or a final state cuts ends with what there is of it. The first block of a message of
//     which nothing is known begins that one. An end of another message than the open one is a message of its own.
//     Blocks that nobody began or ended begin and end.
//   - What a message's content has beyond what was streamed is streamed before the block closes. What comes for a block
//     that has closed is in the content alone.
//   - A piece without an index belongs to the last block of its kind, an input to the block of its call. Two blocks
//     with one index are distinguished by their kinds.
//   - The first beginning and the first end of anything count. What comes once more, or late, is passed over. An id is
//     another thing's after a turn.start, another state of the lane, or something that a person says; a call's also
//     when a later message asks for it, and that of a request to a model or a task after any command or answer. A turn
//     of an ended id is another turn; a message of one is another message when something comes for it that was not
//     said before. So a Run remembers what has ended: 1,024 things of a lane, 16,384 of a run.
//   - An end without a beginning begins first. The call that begins so is the one that was asked for, also when the
//     turn in which it was asked for has ended. What begins with another content ends first. A final state ends what is
//     open in its lane, that of the run in all lanes. A child begins with its first record, and those above it by its
//     path.
//
// A Run holds what is open, and ids of what has ended: at most 256 blocks of a message, 16,384 items of a lane, 16,384
// lanes, and as much content as its [Limits] say. Content without a limit is not kept, and a delta then allocates
// nothing. The texts of open blocks may be kept beside it, for closing frames that carry the whole text: what is too
// long ends in parts.
//
// # Concurrency
//
// A Run belongs to one goroutine at a time. Copies share memory that neither changes.
//
// # What it does not do
//
// It does not know protocols, does not decode text, and does not sum a run up: see schema.Fold, whose rules for
// messages without framing are a published contract of their own.
//
// # Where to look next
//
// transition.go has the transitions, run.go the records, message.go and block.go messages, text.go what is kept of
// their texts, item.go calls and their like, lane.go children, turns and states;
// docs/decisions/0041-one-reading-of-a-run.md has the reasons.
package assemble
