// The fields of a payload, as a fold reads them.

import { RawJSON, eachField, elements } from "./json.js";
import type { Lane } from "./lanes.js";
import { type Block, type Message, newBlock } from "./snapshot.js";

/** An event as a fold reads it. */
export interface Taken {
  readonly lane: Lane;
  readonly seq: number;
  readonly first: number;
  readonly p: Fields;
}

/**
 * A payload. A field of an unexpected kind counts as absent: unknown fields are always allowed, so a
 * name may mean something else in another type. Of two fields with one name the last counts.
 */
export class Fields {
  private texts: Map<string, string> | undefined;

  constructor(
    private readonly values: object,
    readonly json: RawJSON,
  ) {}

  static of(text: string): Fields {
    const json = new RawJSON(text);
    return new Fields(json.value<object>(), json);
  }

  private get(name: string): unknown {
    return Object.hasOwn(this.values, name) ? (this.values as Record<string, unknown>)[name] : undefined;
  }

  has(name: string): boolean {
    return Object.hasOwn(this.values, name);
  }

  /** A string; an empty one counts as none. */
  str(name: string): string | null {
    return this.text(name) || null;
  }

  text(name: string): string {
    const v = this.get(name);
    return typeof v === "string" ? v : "";
  }

  yes(name: string): boolean {
    return this.get(name) === true;
  }

  /** A whole number from 0 to 2^53-1, however it is written. */
  integer(name: string): number | undefined {
    const v = this.get(name);
    return Number.isSafeInteger(v) && (v as number) >= 0 ? (v as number) + 0 : undefined;
  }

  /** The value's text, whatever it is; null when there is none and when it is null. */
  raw(name: string): RawJSON | null {
    if (!this.has(name)) return null;
    if (this.texts === undefined) {
      const texts = new Map<string, string>();
      eachField(this.json.text, (n, raw) => texts.set(n, raw));
      this.texts = texts;
    }
    const text = this.texts.get(name);
    return text === undefined || text === "null" ? null : new RawJSON(text);
  }

  object(name: string): RawJSON | null {
    return this.begins(name, "{");
  }

  array(name: string): RawJSON | null {
    return this.begins(name, "[");
  }

  number(name: string): RawJSON | null {
    return typeof this.get(name) === "number" ? this.raw(name) : null;
  }

  private begins(name: string, c: string): RawJSON | null {
    const v = this.get(name);
    if (typeof v !== "object" || v === null) return null;
    const raw = this.raw(name);
    return raw !== null && raw.text[0] === c ? raw : null;
  }
}

/** Fills a message from what it says as a whole: a string or a list of blocks. */
export function content(m: Message, raw: RawJSON | null): void {
  const whole = { open: false, complete: true };
  if (raw === null) return;
  if (raw.text[0] === '"') return void m.blocks.push({ ...newBlock(0, "text"), ...whole, text: raw.value<string>() });
  if (raw.text[0] !== "[") return;
  for (const part of elements(raw.text)) {
    if (part[0] !== "{") continue;
    const p = Fields.of(part);
    const b: Block = { ...newBlock(m.blocks.length, p.str("type")), ...whole, text: p.text("text") };
    if (b.kind === "tool_use") {
      const call = p.str("id"), tool = p.str("name");
      if (call !== null || tool !== null) Object.assign(b, { call_id: call, tool });
      if (p.has("input")) b.input = p.raw("input");
    } else if (b.kind !== "text") {
      b.block = new RawJSON(part);
    }
    m.blocks.push(b);
  }
}
