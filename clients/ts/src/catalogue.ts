// The payloads of the event types (schema/catalogue_table.go). Unknown fields are always allowed.

/** States of a run; the last three are final. */
export type RunState =
  | "planning" | "awaiting_approval" | "running" | "paused" | "redirecting" | "done" | "aborted" | "error";

/** A piece of text. Pieces of one block join to its whole. */
export interface TextDelta {
  readonly text: string;
  readonly index?: number;
}

/** A piece of a tool's input or output. */
export interface CallDelta extends TextDelta {
  readonly call_id: string;
}

/** A command's content. */
export interface Command {
  readonly reason?: string | null;
  readonly instruction?: string;
  readonly plan_id?: string;
}

export interface PlanStep {
  readonly id: string;
  readonly title: string;
  readonly intent?: "research" | "write" | "edit" | "execute" | "verify" | "report" | "other";
  readonly est_tools?: readonly string[];
  readonly est_cost_usd?: number;
}

export interface Plan {
  readonly id: string;
  readonly run_id?: string;
  readonly steps: readonly PlanStep[];
  readonly est_total_cost_usd?: number;
}

/** One part of a delta.bundle. */
export interface BundledDelta {
  readonly type: string;
  readonly child_id: string | null;
  readonly payload: TextDelta | CallDelta;
}

type Obj = Readonly<Record<string, unknown>>;
interface Turn { readonly turn_id: string; readonly stop_reason?: string | null; readonly reason?: string }
interface Task { readonly task_id: string; readonly name?: string; readonly ok?: boolean }

/** What is said of a run, or of a session, beside its conversation. */
export interface SessionFields {
  readonly agent?: string | Obj | null;
  readonly environment_id?: string | null;
  readonly title?: string | null;
  readonly tags?: readonly string[] | null;
  readonly metadata?: Obj | null;
  readonly resources?: readonly unknown[] | null;
  readonly vault_ids?: readonly unknown[] | null;
  readonly memory_store_ids?: readonly unknown[] | null;
  readonly incremental_streaming_enabled?: boolean;
}

/** Type name → payload. */
export interface Payloads {
  "reasoning.delta": TextDelta;
  "text.delta": TextDelta;
  "tool.start": { readonly call_id: string; readonly tool: string; readonly input?: unknown; readonly skill_id?: string; readonly index?: number };
  "tool.end": { readonly call_id: string; readonly ok: boolean; readonly output?: unknown; readonly error?: unknown; readonly error_detail?: unknown; readonly duration_ms?: number; readonly blob_ref?: string };
  /** The tool of a call begins to work; between tool.start and this the call waits. */
  "tool.run": { readonly call_id: string };
  "step.boundary": { readonly step_index: number; readonly step_kind: "plan" | "tool-roundtrip" | "text-only" | "fan-out" | "fan-in" | "done"; readonly checkpoint_id?: string | null };
  "child.spawn": { readonly child_id: string; readonly prompt?: string; readonly call_id?: string; readonly tools_allowed?: readonly string[] };
  "plan.proposal": { readonly plan: Plan };
  /** dropped_count and dropped_code are added for a connection that was spared events. */
  "run.lifecycle": { readonly state: RunState; readonly reason?: string | null; readonly dropped_count?: number; readonly dropped_code?: string };
  "message.start": { readonly message_id: string; readonly role: "user" | "assistant" | "system" | "tool"; readonly model?: string; readonly provider?: string; readonly usage?: Obj };
  "message.end": { readonly message_id: string; readonly content?: readonly Obj[]; readonly stop_reason?: string | null; readonly stop_sequence?: string | null; readonly usage?: Obj; readonly error?: Obj; readonly incomplete?: boolean };
  "block.start": { readonly index: number; readonly kind: string; readonly message_id?: string; readonly call_id?: string; readonly tool?: string; readonly free_text?: boolean; readonly block?: Obj };
  "block.end": { readonly index: number; readonly message_id?: string; readonly call_id?: string; readonly complete?: boolean; readonly problem?: string; readonly input?: unknown; readonly signature?: string; readonly citations?: readonly unknown[] };
  "tool.input.delta": CallDelta;
  "tool.output.delta": CallDelta;
  "data.delta": { readonly media_type: string; readonly data: string; readonly index?: number; readonly name?: string };
  "model.start": { readonly call_id: string; readonly model?: string; readonly provider?: string };
  "model.end": { readonly call_id: string; readonly ok?: boolean; readonly usage?: Obj; readonly duration_ms?: number; readonly error?: Obj };
  "turn.start": Turn;
  "turn.end": Turn;
  "input.requested": { readonly request_id: string; readonly prompt?: string; readonly schema?: Obj; readonly options?: readonly unknown[] };
  "input.answered": { readonly request_id: string; readonly answer?: unknown };
  "state.values": { readonly values: unknown };
  "state.update": { readonly node?: string; readonly values: unknown };
  "checkpoint.created": { readonly checkpoint_id: string };
  "task.start": Task;
  "task.end": Task;
  progress: { readonly message?: string; readonly done?: number; readonly total?: number };
  "command.message": { readonly content: string | readonly unknown[]; readonly message_id?: string; readonly role?: string };
  "command.cancel": Command;
  "command.pause": Command;
  "command.resume": Command;
  "command.redirect": Command;
  "command.approve_plan": Command;
  "command.reject_plan": Command;
  "command.answer": { readonly request_id: string; readonly answer?: unknown };
  /** The agent's library: commands up to this number have been dealt with. */
  "commands.taken": { readonly through: number };
  /** A producer had to let something go. */
  loss: { readonly reason: string; readonly events?: number; readonly bytes?: number };
  "session.created": SessionFields;
  /** What has changed; null takes a field, or a key of metadata, away. */
  "session.updated": SessionFields;
  /** The session's, or with a child_id that of the child's thread. */
  "session.archived": Obj;
  "session.deleted": Obj;
  /** In views alone: deltas of several speakers within one window. See unbundle. */
  "delta.bundle": { readonly deltas: readonly BundledDelta[] };
  /** In views alone: what this connection was spared. Watching passes over it: the numbers say the same. */
  "stream.gap": { readonly first_seq: number; readonly last_seq: number; readonly dropped_count: number; readonly dropped_code: string };
  /** In views alone: everything up to its seq, summed up. See Snapshot. */
  "run.snapshot": import("./snapshot.js").SnapshotPayload;
}

/** The names of Payloads, for EventSource, which has no listener for every type. */
export const knownTypes = [
  "reasoning.delta", "text.delta", "tool.start", "tool.end", "step.boundary", "child.spawn", "plan.proposal",
  "run.lifecycle", "message.start", "message.end", "block.start", "block.end", "tool.run", "tool.input.delta",
  "tool.output.delta", "data.delta", "model.start", "model.end", "turn.start", "turn.end", "input.requested",
  "input.answered", "state.values", "state.update", "checkpoint.created", "task.start", "task.end", "progress",
  "command.message", "command.cancel", "command.pause", "command.resume", "command.redirect",
  "command.approve_plan", "command.reject_plan", "command.answer", "commands.taken", "loss",
  "session.created", "session.updated", "session.archived", "session.deleted", "delta.bundle", "stream.gap", "run.snapshot",
] as const satisfies readonly (keyof Payloads)[];
