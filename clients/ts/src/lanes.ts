// The speakers of a run, and the commands that wait for them.

import type { RunState } from "./catalogue.js";
import type { Taken } from "./fields.js";
import type { Block, Child, InputRequest, Message, PendingCommand, Snapshot, ToolCall } from "./snapshot.js";

/** What a fold needs to know of the run itself or of one child. */
export interface Lane {
  readonly id: string | null;
  /** null: the run itself. */
  readonly child: Child | null;
  open: Message | undefined;
  /** Newest block of the open message, by index and by call. */
  readonly byIndex: Map<number, Block>;
  readonly byCall: Map<string, Block>;
  /** Newest call of each id. */
  readonly calls: Map<string | null, ToolCall>;
  /** Newest message of each id, but of what people write. */
  readonly named: Map<string, Message>;
  /** Newest block that asks for a call, and its message, by the id of the call. */
  readonly asked: Map<string, { message: Message; block: Block }>;
  /** What begins at the index of a block that has ended: the same again, unless something comes for it. */
  held: Block | undefined;
  /** Where a person has said something, the newest. */
  heard: number;
  readonly waiting: Map<string, PendingCommand[]>;
}

const names: ReadonlySet<string> = new Set(["cancel", "pause", "resume", "redirect", "approve_plan", "reject_plan", "answer", "message"]);

/** The command that a type is. */
export function commandName(type: string): string | undefined {
  const name = type.startsWith("command.") ? type.slice("command.".length) : "";
  return names.has(name) ? name : undefined;
}

/** The commands that the agent has not obeyed yet: they stand in the snapshot. */
export class Commands {
  private answers = new Map<InputRequest, PendingCommand>();
  private lanes = new Set<Lane>();

  constructor(private readonly snapshot: Snapshot) {}

  wait(t: Taken, name: string, actor: string | null, answers: readonly InputRequest[] = []): void {
    const c: PendingCommand = { command: name, child_id: t.lane.id, seq: t.seq, actor: actor || null, payload: t.p.json };
    this.snapshot.commands.push(c);
    this.file(t.lane, c);
    for (const q of answers) this.answers.set(q, c);
  }

  private file(l: Lane, c: PendingCommand): void {
    const list = l.waiting.get(c.command);
    if (list === undefined) l.waiting.set(c.command, [c]);
    else list.push(c);
    this.lanes.add(l);
  }

  /** Settles a lane's commands of one name. */
  settle(l: Lane, name: string): void {
    const list = l.waiting.get(name);
    if (list === undefined) return;
    l.waiting.delete(name);
    this.drop(new Set(list));
  }

  /** Settles the answer to a request. */
  settleAnswer(q: InputRequest): void {
    const c = this.answers.get(q);
    if (c === undefined) return;
    this.answers.delete(q);
    this.drop(new Set([c]));
  }

  private drop(gone: ReadonlySet<PendingCommand>): void {
    this.snapshot.commands = this.snapshot.commands.filter((c) => !gone.has(c));
  }

  /** Settles what a lane's new state answers. */
  obeyed(l: Lane, state: RunState): void {
    switch (state) {
      case "done":
      case "aborted":
      case "error":
        if (l.child !== null) {
          for (const name of names) this.settle(l, name);
          return;
        }
        this.snapshot.commands = [];
        for (const lane of this.lanes) lane.waiting.clear();
        this.lanes.clear();
        this.answers.clear();
        return;
      case "paused":
        return this.settle(l, "pause");
    }
    this.settle(l, "resume");
    if (state === "redirecting") this.settle(l, "redirect");
    if (state === "awaiting_approval") return;
    this.settle(l, "approve_plan");
    this.settle(l, "reject_plan");
  }

  /** Files the commands of a snapshot. */
  restore(lane: (child: string | null) => Lane): void {
    for (const c of this.snapshot.commands) {
      this.file(lane(c.child_id), c);
      if (c.command !== "answer") continue;
      for (const q of this.snapshot.inputs) if (q.answered_seq !== null && q.answered_seq === c.seq) this.answers.set(q, c);
    }
  }
}
