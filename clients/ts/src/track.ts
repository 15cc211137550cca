// Where a watcher stands in a run, and whether the next event follows.

import { type AgentEvent, firstSeq } from "./event.js";

/** Events that did not come: both ends are included. */
export interface Gap {
  readonly from: number;
  readonly to: number;
}

/** What an event is to one who has everything up to `last`. */
export type Place =
  | { readonly kind: "next" }
  | { readonly kind: "old" } // all of it is known
  | { readonly kind: "overlap" } // a part of it is known, and cannot be told from the rest
  | { readonly kind: "gap"; readonly gap: Gap };

/** Keeps the cursor. In every view the next first_seq is the last seq + 1; anything else was lost. */
export class Track {
  /** The cursor to resume with: a seq, or the event id that watching began behind. "" is the start. */
  cursor: string;
  private last: number | undefined;

  /** @param after seq or event id of the last event that the caller has. */
  constructor(after: number | string | undefined) {
    this.cursor = after === undefined || after === 0 || after === "0" ? "" : String(after);
    if (/^[0-9]*$/.test(this.cursor)) this.last = Number(this.cursor);
  }

  /** The seq of the last event, if it is known. */
  get seq(): number | undefined {
    return this.last;
  }

  /** Says what the event is. It moves nothing. */
  place(e: AgentEvent): Place {
    if (this.last === undefined) return { kind: "next" };
    const first = firstSeq(e);
    if (e.seq <= this.last) return e.type === "run.snapshot" && this.cursor === "" ? { kind: "next" } : { kind: "old" };
    if (first <= this.last) return { kind: "overlap" };
    if (first > this.last + 1) return { kind: "gap", gap: { from: this.last + 1, to: first - 1 } };
    return { kind: "next" };
  }

  /** Moves the cursor behind the event. */
  advance(e: AgentEvent): void {
    this.last = e.seq;
    this.cursor = String(e.seq);
  }
}
