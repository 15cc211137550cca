// The envelope and the catalogue of the native protocol, and its form as one line of JSON.

import { RawJSON, eachField, elements, quote, stringify } from "./json.js";
import type { Payloads } from "./catalogue.js";

/** Names of the catalogue's types. */
export type KnownType = keyof Payloads;

/** What every event has. `seq` and `first_seq` are safe integers. */
export interface Envelope {
  /** `evt_` and a ULID, growing along the run, unless its producer brought its own. */
  readonly id: string;
  /** RFC 3339. For people: order comes from seq alone. */
  readonly ts: string;
  /** The root run, or in a child's own stream the child. */
  readonly run_id: string;
  /** Who spoke: a child's run id, or null for the run itself. */
  readonly child_id: string | null;
  /** Position in the run, from 1. */
  readonly seq: number;
  /** First of the events that this one stands for, hidden ones included. Absent: seq. */
  readonly first_seq?: number;
  readonly turn_id?: string;
  /** Run ids from the root to a nested child, both included. */
  readonly path?: readonly string[];
  /** Id of the event that led to this one. */
  readonly cause?: string;
  readonly actor?: string;
  /** Fields of the envelope that this version does not know, with their untouched text. */
  readonly extra?: ReadonlyMap<string, RawJSON>;
}

/** One event of a type. `json` is the payload's text as it came: in `payload`, numbers beyond 2^53 are rounded. */
export interface EventOf<T extends string, P> extends Envelope {
  readonly type: T;
  readonly payload: P;
  readonly json: RawJSON;
}

/** An event of the catalogue; switch on `type` to get at its payload. */
export type KnownEvent = { [T in KnownType]: EventOf<T, Payloads[T]> }[KnownType];

/** An event of a type that is not in the catalogue: `custom.*`, or of a newer server. */
export type CustomEvent = EventOf<`custom.${string}`, Readonly<Record<string, unknown>>>;

/** An event. Types that neither the catalogue nor `custom.*` holds come as CustomEvent too. */
export type AgentEvent = KnownEvent | CustomEvent;

/** What a producer sends: the server fills in what is absent. */
export interface NewEvent {
  type: string;
  payload?: object | RawJSON;
  child_id?: string | null;
  id?: string;
  ts?: string;
  turn_id?: string;
  path?: readonly string[];
  cause?: string;
  actor?: string;
  extra?: ReadonlyMap<string, unknown>;
}

const envelopeFields = new Set([
  "id", "ts", "type", "run_id", "child_id", "seq", "first_seq", "turn_id", "path", "cause", "actor", "payload",
]);

/**
 * Reads one line. Unknown types and fields pass: a log may be newer than its reader.
 * @throws SyntaxError when it is not JSON; TypeError when it is not an event.
 */
export function parseEvent(line: string): AgentEvent {
  const fields: Record<string, unknown> = {};
  let extra: Map<string, RawJSON> | undefined;
  eachField(line, (name, raw) => {
    if (!envelopeFields.has(name)) {
      extra ??= new Map<string, RawJSON>();
      extra.set(name, new RawJSON(raw));
    } else if (name === "payload") {
      fields.payload = JSON.parse(raw);
      fields.json = new RawJSON(raw);
    } else {
      const value: unknown = JSON.parse(raw);
      if (value !== null) fields[name] = value;
    }
  });
  check(fields);
  fields.child_id ??= null;
  fields.payload ??= {};
  fields.json ??= new RawJSON("{}");
  if (extra !== undefined) fields.extra = extra;
  return fields as unknown as AgentEvent;
}

function check(f: Record<string, unknown>): void {
  for (const name of ["type", "run_id"]) {
    if (typeof f[name] !== "string" || f[name] === "") throw new TypeError(`event has no ${name}`);
  }
  for (const name of ["id", "ts", "child_id", "turn_id", "cause", "actor"]) {
    if (f[name] !== undefined && typeof f[name] !== "string") throw new TypeError(`event's ${name} is not a text`);
  }
  if (!position(f.seq)) throw new TypeError("event has no seq");
  if (f.first_seq !== undefined && !(position(f.first_seq) && f.first_seq <= f.seq)) {
    throw new TypeError("event's first_seq is not a position up to its seq");
  }
  if (f.path !== undefined && !(Array.isArray(f.path) && f.path.every((p) => typeof p === "string"))) {
    throw new TypeError("event's path is not a list of run ids");
  }
  if (f.payload !== undefined && (typeof f.payload !== "object" || f.payload === null || Array.isArray(f.payload))) {
    throw new TypeError("event's payload is not an object");
  }
}

function position(v: unknown): v is number {
  return Number.isSafeInteger(v) && (v as number) >= 0;
}

/**
 * Writes an event as one line, without the line feed, in the server's field order. Of an event that
 * was parsed, `json` and `extra` are written as they came, so that the line is the same, byte for
 * byte. To change a payload, change `json` too, or leave it out.
 */
export function formatEvent(e: NewEvent | AgentEvent): string {
  const f = e as Partial<AgentEvent> & NewEvent;
  const out: string[] = [];
  const put = (name: string, value: string | undefined) => {
    if (value !== undefined) out.push(quote(name) + ":" + value);
  };
  const text = (s: string | undefined) => (s === undefined || s === "" ? undefined : quote(s));
  put("id", text(f.id));
  put("ts", text(f.ts));
  put("type", quote(f.type as string));
  put("run_id", text(f.run_id));
  put("child_id", f.child_id === undefined ? undefined : f.child_id === null ? "null" : quote(f.child_id));
  put("seq", f.seq === undefined ? undefined : String(f.seq));
  if (f.first_seq !== undefined && f.first_seq !== f.seq) put("first_seq", String(f.first_seq));
  put("turn_id", text(f.turn_id));
  if (f.path !== undefined && f.path.length > 0) put("path", stringify(f.path));
  put("cause", text(f.cause));
  put("actor", text(f.actor));
  for (const [name, value] of f.extra ?? []) put(name, stringify(value));
  put("payload", f.json !== undefined ? f.json.text : stringify(f.payload ?? {}));
  return "{" + out.join(",") + "}";
}

/** The first event that this one stands for. */
export function firstSeq(e: AgentEvent): number {
  return e.first_seq ?? e.seq;
}

/** Whether the event ends its run: the lifecycle of the run itself, in a final state. */
export function isFinal(e: AgentEvent): boolean {
  return e.type === "run.lifecycle" && e.child_id === null && finalStates.has(e.payload.state);
}

/** The states that end a run. */
export const finalStates: ReadonlySet<string> = new Set(["done", "aborted", "error"]);

/**
 * Takes a delta.bundle, which exists in views alone, apart into the deltas that it holds; any other
 * event comes back as it is. The parts share the bundle's id, ts, seq and first_seq.
 */
export function unbundle(e: AgentEvent): AgentEvent[] {
  if (e.type !== "delta.bundle") return [e];
  const parts: AgentEvent[] = [];
  let list: string[] = [];
  eachField(e.json.text, (name, raw) => {
    if (name === "deltas") list = elements(raw);
  });
  const own = new Set(["id", "ts", "run_id", "seq", "first_seq"]);
  for (const raw of list) {
    let line = `{"id":${quote(e.id)},"ts":${quote(e.ts)},"run_id":${quote(e.run_id)},"seq":${e.seq},"first_seq":${firstSeq(e)}`;
    eachField(raw, (name, value) => {
      if (!own.has(name)) line += `,${quote(name)}:${value}`;
    });
    parts.push(parseEvent(line + "}"));
  }
  return parts;
}
