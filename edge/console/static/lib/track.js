// Where a watcher stands in a run, and whether the next event follows.
import { firstSeq } from "./event.js";
/** Keeps the cursor. In every view the next first_seq is the last seq + 1; anything else was lost. */
export class Track {
    /** The cursor to resume with: a seq, or the event id that watching began behind. "" is the start. */
    cursor;
    last;
    /** @param after seq or event id of the last event that the caller has. */
    constructor(after) {
        this.cursor = after === undefined || after === 0 || after === "0" ? "" : String(after);
        if (/^[0-9]*$/.test(this.cursor))
            this.last = Number(this.cursor);
    }
    /** The seq of the last event, if it is known. */
    get seq() {
        return this.last;
    }
    /** Says what the event is. It moves nothing. */
    place(e) {
        if (this.last === undefined)
            return { kind: "next" };
        const first = firstSeq(e);
        if (e.seq <= this.last)
            return e.type === "run.snapshot" && this.cursor === "" ? { kind: "next" } : { kind: "old" };
        if (first <= this.last)
            return { kind: "overlap" };
        if (first > this.last + 1)
            return { kind: "gap", gap: { from: this.last + 1, to: first - 1 } };
        return { kind: "next" };
    }
    /** Moves the cursor behind the event. */
    advance(e) {
        this.last = e.seq;
        this.cursor = String(e.seq);
    }
}
