// The speakers of a run, and the commands that wait for them.
const names = new Set(["cancel", "pause", "resume", "redirect", "approve_plan", "reject_plan", "answer", "message"]);
/** The command that a type is. */
export function commandName(type) {
    const name = type.startsWith("command.") ? type.slice("command.".length) : "";
    return names.has(name) ? name : undefined;
}
/** The commands that the agent has not obeyed yet: they stand in the snapshot. */
export class Commands {
    snapshot;
    answers = new Map();
    lanes = new Set();
    constructor(snapshot) {
        this.snapshot = snapshot;
    }
    wait(t, name, actor, answers = []) {
        const c = { command: name, child_id: t.lane.id, seq: t.seq, actor: actor || null, payload: t.p.json };
        this.snapshot.commands.push(c);
        this.file(t.lane, c);
        for (const q of answers)
            this.answers.set(q, c);
    }
    file(l, c) {
        const list = l.waiting.get(c.command);
        if (list === undefined)
            l.waiting.set(c.command, [c]);
        else
            list.push(c);
        this.lanes.add(l);
    }
    /** Settles a lane's commands of one name. */
    settle(l, name) {
        const list = l.waiting.get(name);
        if (list === undefined)
            return;
        l.waiting.delete(name);
        this.drop(new Set(list));
    }
    /** Settles the answer to a request. */
    settleAnswer(q) {
        const c = this.answers.get(q);
        if (c === undefined)
            return;
        this.answers.delete(q);
        this.drop(new Set([c]));
    }
    drop(gone) {
        this.snapshot.commands = this.snapshot.commands.filter((c) => !gone.has(c));
    }
    /** Settles what a lane's new state answers. */
    obeyed(l, state) {
        switch (state) {
            case "done":
            case "aborted":
            case "error":
                if (l.child !== null) {
                    for (const name of names)
                        this.settle(l, name);
                    return;
                }
                this.snapshot.commands = [];
                for (const lane of this.lanes)
                    lane.waiting.clear();
                this.lanes.clear();
                this.answers.clear();
                return;
            case "paused":
                return this.settle(l, "pause");
        }
        this.settle(l, "resume");
        if (state === "redirecting")
            this.settle(l, "redirect");
        if (state === "awaiting_approval")
            return;
        this.settle(l, "approve_plan");
        this.settle(l, "reject_plan");
    }
    /** Files the commands of a snapshot. */
    restore(lane) {
        for (const c of this.snapshot.commands) {
            this.file(lane(c.child_id), c);
            if (c.command !== "answer")
                continue;
            for (const q of this.snapshot.inputs)
                if (q.answered_seq !== null && q.answered_seq === c.seq)
                    this.answers.set(q, c);
        }
    }
}
