// The shape of a run's sum (schema/contracts/snapshot.schema.json), and how it is read without loss.

import type { RunState } from "./catalogue.js";
import { RawJSON, eachField, elements } from "./json.js";

/** Sums of whole numbers by their names. */
export type Counts = Record<string, number>;

/** The last plan.proposal. */
export interface PlanState {
  plan_id: string | null;
  child_id: string | null;
  seq: number;
  gate: "required" | "preview" | null;
  decision: "approved" | "rejected" | null;
  /** The command that decided it; null: the plan is open. */
  decided_seq: number | null;
  payload: RawJSON;
}

/** A content block. Values of the producer's own are RawJSON: call value() for what JSON.parse makes of them. */
export interface Block {
  index: number;
  kind: string | null;
  /** Joined text of the deltas; of a tool its raw input. */
  text: string;
  open: boolean;
  complete: boolean;
  call_id?: string | null;
  tool?: string | null;
  input?: RawJSON | null;
  block?: RawJSON;
  media_type?: string | null;
  name?: string | null;
  data?: string[];
}

/** A message. Without end_seq it is still open, and the one open message of its child. */
export interface Message {
  message_id: string | null;
  child_id: string | null;
  role: string | null;
  model: string | null;
  /** False: nobody announced it, it began with its first delta. */
  announced: boolean;
  blocks: Block[];
  start_seq: number | null;
  end_seq: number | null;
  stop_reason: string | null;
  usage: RawJSON | null;
  error: RawJSON | null;
}

/** A tool call. An id that comes again behind its end is another call, unless it is the same start once more. */
export interface ToolCall {
  call_id: string | null;
  child_id: string | null;
  tool: string | null;
  input: RawJSON | null;
  state: "running" | "ok" | "failed";
  /** Joined text of tool.output.delta. */
  streamed: string;
  output: RawJSON | null;
  error: RawJSON | null;
  duration_ms: RawJSON | null;
  blob_ref: string | null;
  start_seq: number | null;
  end_seq: number | null;
  /** false: no tool.start of it has come. Absent otherwise. */
  announced?: false;
}

/** A child of the run, or of another child. */
export interface Child {
  child_id: string;
  parent_id: string | null;
  prompt: string | null;
  tools_allowed: RawJSON | null;
  /** null: it was never announced. */
  spawn_seq: number | null;
  state: RunState | null;
  reason: string | null;
  state_seq: number | null;
  /** Newest turn.start; absent when there was none. */
  turn_seq?: number;
  /** Newest final run.lifecycle; absent when there was none, and when state is final and state_seq is that event. */
  final_seq?: number;
}

/** A request for input of a person. */
export interface InputRequest {
  request_id: string | null;
  child_id: string | null;
  prompt: string | null;
  options: RawJSON | null;
  schema: RawJSON | null;
  state: "open" | "answered" | "ended";
  answer: RawJSON | null;
  seq: number | null;
  answered_seq: number | null;
  /** The event with which it ended without an answer. */
  ended_seq: number | null;
}

/** A question that waits for somebody: a request for input, or (without a request_id) a call. */
export interface Wait {
  request_id: string | null;
  call_id: string | null;
  child_id: string | null;
  seq: number;
  /** Its lane was told to cancel, and its turn goes on. */
  cancelling: boolean;
  /** A turn of its lane has ended since. */
  turn_ended: boolean;
}

/** A message.start with the id of a message that has ended: a repeat, unless something comes for it. */
export type MessageStart = Pick<Message, "message_id" | "child_id" | "role" | "model" | "start_seq" | "usage">;

/** A request, or a call, that has ended and is not asked again. */
export interface Settled {
  request_id: string | null;
  call_id: string | null;
  child_id: string | null;
}

/** A command that the agent has not obeyed yet. */
export interface PendingCommand {
  command: string;
  child_id: string | null;
  seq: number | null;
  actor: string | null;
  payload: RawJSON;
}

/** A run up to last_seq, summed up. */
export interface Snapshot {
  run_id: string | null;
  last_seq: number | null;
  last_id: string | null;
  last_ts: string | null;
  state: RunState | null;
  reason: string | null;
  state_seq: number | null;
  state_ts: string | null;
  turn_seq?: number;
  final_seq?: number;
  /** What is said of the run (SessionFields): title, tags, metadata and more. Absent when nothing is. */
  session?: RawJSON;
  planning_gate: "required" | "preview" | null;
  plan: PlanState | null;
  messages: Message[];
  /** Absent when there is none. */
  starts?: MessageStart[];
  tool_calls: ToolCall[];
  children: Child[];
  usage: { total: Counts; by_model: Record<string, Counts> };
  inputs: InputRequest[];
  waits: Wait[];
  /** Absent when there is nothing. */
  settled?: Settled[];
  commands: PendingCommand[];
}

/** The payload of run.snapshot as JSON.parse gives it; parseSnapshot(event.json.text) loses nothing. */
export type SnapshotPayload = Readonly<Record<keyof Snapshot, unknown>>;

/** The snapshot of a run that has said nothing. */
export function emptySnapshot(): Snapshot {
  return {
    run_id: null, last_seq: null, last_id: null, last_ts: null, state: null, reason: null, state_seq: null, state_ts: null,
    planning_gate: null, plan: null, messages: [], tool_calls: [], children: [],
    usage: { total: counts(), by_model: Object.create(null) as Record<string, Counts> }, inputs: [], waits: [], commands: [],
  };
}

export function newChild(id: string, parent: string | null): Child {
  return { child_id: id, parent_id: parent, prompt: null, tools_allowed: null, spawn_seq: null, state: null, reason: null, state_seq: null };
}

export function newMessage(child: string | null, seq: number): Message {
  return {
    message_id: null, child_id: child, role: null, model: null, announced: true, blocks: [],
    start_seq: seq, end_seq: null, stop_reason: null, usage: null, error: null,
  };
}

export function newBlock(index: number, kind: string | null): Block {
  return { index, kind, text: "", open: true, complete: false };
}

/** A record whose names may be anything, __proto__ too. */
export function counts(): Counts {
  return Object.create(null) as Counts;
}

/** Which fields are kept as text, and what is nested: a list of one shape is a list of such. */
interface Shape {
  readonly [field: string]: "raw" | Shape | readonly [Shape];
}

const shape: Shape = {
  session: "raw",
  plan: { payload: "raw" },
  messages: [{ usage: "raw", error: "raw", blocks: [{ input: "raw", block: "raw" }] }],
  starts: [{ usage: "raw" }],
  tool_calls: [{ input: "raw", output: "raw", error: "raw", duration_ms: "raw" }],
  children: [{ tools_allowed: "raw" }],
  inputs: [{ options: "raw", schema: "raw", answer: "raw" }],
  commands: [{ payload: "raw" }],
  usage: { total: {}, by_model: {} },
};

/**
 * Reads a snapshot, as GET …/snapshot and run.snapshot give it.
 * @throws SyntaxError when it is none.
 */
export function parseSnapshot(text: string): Snapshot {
  const s = Object.assign(emptySnapshot(), readShape(text, shape)) as Snapshot;
  if (!Array.isArray(s.messages) || !Array.isArray(s.tool_calls) || !Array.isArray(s.children)) throw new SyntaxError("not a snapshot");
  return s;
}

function readShape(text: string, shape: Shape): unknown {
  if (text[0] !== "{") return JSON.parse(text);
  const out = Object.create(null) as Record<string, unknown>;
  eachField(text, (name, raw) => {
    const kind = shape[name];
    if (raw === "null") out[name] = null;
    else if (kind === undefined) out[name] = JSON.parse(raw);
    else if (kind === "raw") out[name] = new RawJSON(raw);
    else if (Array.isArray(kind)) out[name] = elements(raw).map((e) => readShape(e, kind[0] as Shape));
    else out[name] = readShape(raw, kind as Shape);
  });
  return out;
}
