// The payloads of the event types (schema/catalogue_table.go). Unknown fields are always allowed.
/** The names of Payloads, for EventSource, which has no listener for every type. */
export const knownTypes = [
    "reasoning.delta", "text.delta", "tool.start", "tool.end", "step.boundary", "child.spawn", "plan.proposal",
    "run.lifecycle", "message.start", "message.end", "block.start", "block.end", "tool.run", "tool.input.delta",
    "tool.output.delta", "data.delta", "model.start", "model.end", "turn.start", "turn.end", "input.requested",
    "input.answered", "state.values", "state.update", "checkpoint.created", "task.start", "task.end", "progress",
    "command.message", "command.cancel", "command.pause", "command.resume", "command.redirect",
    "command.approve_plan", "command.reject_plan", "command.answer", "commands.taken", "loss",
    "session.created", "session.updated", "session.archived", "session.deleted", "delta.bundle", "stream.gap", "run.snapshot",
];
