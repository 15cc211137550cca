// Package worker lets an agent answer sessions: runs that people open and in which they send messages.
//
// # What it is
//
// A [Worker] receives messages ([Worker.Receive]) from a follower of the log, such as natsjs.RefillLog.Follow. It opens
// the session that they are in, begins a turn for each message and calls an [Answer] to write it. It skips what was
// taken before, ends what a former life left open, obeys cancellations, and closes the session's resources again when
// no message comes for a while.
//
//	message in the log ─▶ Receive ─▶ waits for a slot ─▶ lease: commands, Run, presence
//	                                                         │ for each message: turn ─▶ Answer ─▶ turn.end,
//	                                                         ▼                                     commands.taken
//	                                                       silence ─▶ the place is free
//
// # Contract
//
// Every message is answered, and every redirect that was sent as an outcome to reach, in the order of the log, and
// once: the end of its turn and commands.taken are one pack. A worker that is killed in the middle ends that turn
// as failed when it comes back, and answers the message again from the beginning. A cancellation ends the turn
// under way, and a message before it that still waits is not answered; one after it is. A session whose owner is
// another process that answers is left to it, so several workers may receive the same messages. A message is done
// ([Worker.Receive]) when it is settled in the log, and not before: the follower keeps it until then.
//
// # Concurrency
//
// All is safe for concurrent use. Run starts one goroutine for each session with something to do, at most
// Config.Most, each with a second one that reads its commands and a third while a turn is under way; it returns
// when all have ended. Receive never waits for anything.
//
// # What it does not do
//
// It does not know what is answered, nor how messages arrive: it imports no NATS. It takes no part in
// runs that are no sessions. It does not stream: an answer goes into the log through the session's Run.
//
// # Where to look next
//
// docs/producers.md has the guide, "Answering sessions"; adapters/demo an answer that is scripted.
package worker
