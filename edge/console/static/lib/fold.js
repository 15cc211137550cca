// Events → snapshot, by the rules of schema/contracts/snapshot.schema.json.
import { finalStates, firstSeq, unbundle } from "./event.js";
import { Fields, content } from "./fields.js";
import { Commands, commandName } from "./lanes.js";
import { eachField } from "./json.js";
import { mergeSession } from "./session.js";
import { counts, emptySnapshot, newBlock, newChild, newMessage, parseSnapshot } from "./snapshot.js";
import { ask } from "./waits.js";
const states = new Set([...finalStates, "planning", "awaiting_approval", "running", "paused", "redirecting"]);
/** What ends the message of its lane that no event has announced. */
const endsUnannounced = new Set(["step.boundary", "turn.start", "turn.end", "task.start", "task.end", "run.lifecycle", "input.requested"]);
/**
 * Sums a run's events up: messages with their blocks, tool calls, children, state, plan, usage,
 * questions, commands that wait. Feed it every event of one run in order. Merged deltas give the
 * same sum as their members; a run.snapshot replaces what was there.
 */
export class Fold {
    /** The sum so far. It is changed by add, in place; `version` says that it was. */
    snapshot;
    /** Grows with every event. */
    version = 0;
    lanes = new Map();
    commands;
    inputs = new Map();
    /** @param from a snapshot to go on from; it belongs to the fold then. */
    constructor(from) {
        this.snapshot = from ?? emptySnapshot();
        this.commands = new Commands(this.snapshot);
        if (from !== undefined)
            this.restore();
    }
    /** Takes the next event. What does not fit its type is passed over: a log is older than its readers' opinion of it. */
    add(e) {
        this.version++;
        if (e.type === "run.snapshot")
            return this.replace(e.json.text, e.seq);
        const s = this.snapshot;
        s.run_id ??= e.run_id;
        s.last_seq = e.seq;
        s.last_id = e.id ?? null;
        s.last_ts = e.ts ?? null;
        if (e.type !== "delta.bundle")
            return this.take(e);
        let parts;
        try {
            parts = unbundle(e);
        }
        catch {
            return;
        }
        for (const part of parts)
            this.take(part);
    }
    /** All text of one kind of one speaker, over all messages, or those of one role. */
    text(child = null, kind = "text", role) {
        let out = "";
        for (const m of this.snapshot.messages) {
            if (m.child_id === child && (role === undefined || m.role === role))
                for (const b of m.blocks)
                    if (b.kind === kind)
                        out += b.text;
        }
        return out;
    }
    replace(text, seq) {
        let next;
        try {
            next = parseSnapshot(text);
        }
        catch {
            return;
        }
        this.snapshot = next;
        this.snapshot.last_seq = seq;
        this.restore();
    }
    take(e) {
        const t = { lane: this.meet(e.child_id, e.path), seq: e.seq, first: firstSeq(e), p: new Fields(e.payload, e.json) };
        const change = ask(this.snapshot, t, e.type);
        this.settleInputs(t, change);
        if (endsUnannounced.has(e.type) && t.lane.open?.announced === false)
            this.closeMessage(t.lane, t.seq);
        switch (e.type) {
            case "text.delta":
                return append(this.block(t, "text"), t.p);
            case "reasoning.delta":
                return append(this.block(t, "reasoning"), t.p);
            case "tool.input.delta":
                return append(this.inputBlock(t), t.p);
            case "data.delta":
                return this.data(t);
            case "tool.start":
            case "tool.run":
            case "tool.end":
            case "tool.output.delta":
                return this.tool(t, e.type);
            case "message.start":
                return this.startMessage(t);
            case "message.end":
                return this.endMessage(t, e.actor ?? null);
            case "block.start":
                return this.startBlock(t);
            case "block.end":
                return this.endBlock(t);
            case "child.spawn":
                return this.spawn(t);
            case "plan.proposal":
                return this.propose(t);
            case "turn.start":
                (t.lane.child ?? this.snapshot).turn_seq = t.seq;
                return this.forgetStart(t.lane);
            case "run.lifecycle":
                this.lifecycle(t);
                return this.forgetStart(t.lane);
            case "input.requested":
                return change.asked ? this.request(t) : undefined;
            case "input.answered":
                return this.answered(t);
            case "session.created":
            case "session.updated":
            case "session.archived":
            case "session.deleted":
                return t.lane.child === null ? this.describe(t, e.type) : undefined;
            default: {
                const name = commandName(e.type);
                if (name !== undefined)
                    this.command(t, name, e.actor ?? null, change);
            }
        }
    }
    // --- who speaks
    meet(child, path = []) {
        const known = this.lanes.get(child);
        if (known !== undefined)
            return known;
        if (child === null)
            return this.lane(null);
        let parent = null;
        if (path.length > 1 && path.at(-1) === child) {
            for (const id of path.slice(1, -1)) {
                if (!this.lanes.has(id))
                    this.lane(newChild(id, parent));
                parent = id;
            }
        }
        return this.lanes.get(child) ?? this.lane(newChild(child, parent));
    }
    lane(child) {
        const lane = { id: child?.child_id ?? null, child, open: undefined, byIndex: new Map(), byCall: new Map(), calls: new Map(), named: new Map(), asked: new Map(), held: undefined, heard: 0, waiting: new Map() };
        this.lanes.set(lane.id, lane);
        if (child !== null)
            this.snapshot.children.push(child);
        return lane;
    }
    stateOf(l) {
        return l.child === null ? this.snapshot.state : l.child.state;
    }
    spawn(t) {
        const id = t.p.str("child_id");
        if (id === null)
            return;
        const child = (this.lanes.get(id) ?? this.lane(newChild(id, t.lane.id))).child;
        if (child === null || child.spawn_seq !== null)
            return;
        child.spawn_seq = t.seq;
        child.prompt = t.p.str("prompt");
        child.tools_allowed = t.p.array("tools_allowed");
    }
    lifecycle(t) {
        const state = t.p.str("state");
        if (state === null || !states.has(state))
            return;
        const { child } = t.lane;
        const s = this.snapshot;
        const final = finalStates.has(state) ? t.seq : finalOf(child ?? s);
        if (child === null) {
            if (s.state !== state)
                Object.assign(s, { state_seq: t.seq, state_ts: s.last_ts }); // else it has been so for longer
            Object.assign(s, { state, reason: t.p.str("reason") });
            s.planning_gate = gate(t.p) ?? s.planning_gate;
        }
        else {
            if (child.state !== state)
                child.state_seq = t.seq;
            Object.assign(child, { state, reason: t.p.str("reason") });
        }
        noteFinal(child ?? s, final);
        this.commands.obeyed(t.lane, state);
        if (!finalStates.has(state))
            return;
        for (const lane of child === null ? this.lanes.values() : [t.lane])
            if (lane.open)
                this.closeMessage(lane, t.seq);
    }
    describe(t, type) {
        const session = mergeSession(this.snapshot.session, type, this.snapshot.last_ts, t.p.json);
        if (session !== undefined)
            this.snapshot.session = session;
    }
    /** Where ids of a lane may be used again: where a person has said something, a turn has started, or its state has changed. */
    turned(l) {
        const { state, state_seq, turn_seq } = l.child ?? this.snapshot;
        return Math.max(l.heard, turn_seq ?? 0, state === null || finalStates.has(state) ? 0 : (state_seq ?? 0));
    }
    propose(t) {
        const was = this.snapshot.plan;
        if (was !== null && was.child_id === t.lane.id && was.decision !== "rejected" && was.payload.text === t.p.json.text)
            return; // the same again
        let id = null;
        const plan = t.p.object("plan")?.value();
        if (typeof plan?.id === "string")
            id = plan.id || null;
        this.snapshot.plan = {
            plan_id: id, child_id: t.lane.id, seq: t.seq, gate: gate(t.p) ?? this.snapshot.planning_gate, decision: null, decided_seq: null, payload: t.p.json,
        };
    }
    // --- messages and blocks
    openMessage(l, m) {
        if (l.open)
            this.closeMessage(l, m.start_seq);
        l.open = m;
        this.setStart(l);
        l.held = undefined;
        l.byIndex.clear();
        l.byCall.clear();
        this.snapshot.messages.push(m);
        this.spoken(l, m);
        if (m.role === "assistant")
            this.commands.settle(l, "message");
    }
    closeMessage(l, seq) {
        const m = l.open;
        m.end_seq = seq;
        for (const b of m.blocks)
            b.open = false;
        l.open = undefined;
    }
    /** The lane's open message, or one that begins here without having been announced. */
    message(t) {
        const again = this.again(t.lane, null);
        if (again !== undefined)
            this.openMessage(t.lane, again);
        if (!t.lane.open)
            this.openMessage(t.lane, { ...newMessage(t.lane.id, t.first), role: "assistant", announced: false });
        return t.lane.open;
    }
    startMessage(t) {
        const id = t.p.str("message_id"), role = t.p.str("role"), model = t.p.str("model"), usage = t.p.object("usage");
        const was = id === null ? undefined : t.lane.named.get(id);
        if (was === undefined || (was.end_seq !== null && was.end_seq < this.turned(t.lane))) {
            return this.openMessage(t.lane, { ...newMessage(t.lane.id, t.seq), message_id: id, role, model, usage });
        }
        if (was.end_seq !== null) {
            if (!t.lane.open)
                this.setStart(t.lane, { message_id: id, child_id: t.lane.id, role, model, start_seq: t.seq, usage });
        }
        else if (was.model === null && was.usage === null)
            Object.assign(was, { role, model, usage }); // a block has named the message
    }
    /** Sets the message.start of a lane that is a repeat, unless something comes for it. */
    setStart(l, start) {
        const s = this.snapshot;
        if (s.starts === undefined && start === undefined)
            return;
        const starts = (s.starts ?? []).filter((m) => m.child_id !== l.id);
        if (start !== undefined)
            starts.push(start);
        if (starts.length > 0)
            s.starts = starts;
        else
            delete s.starts;
    }
    forgetStart(l) {
        if (this.again(l, null) === undefined)
            this.setStart(l);
    }
    /** The message that something with an id may be for, or without one, where a message.start has said that it begins once more. */
    again(l, id) {
        const m = this.snapshot.starts?.find((m) => m.child_id === l.id);
        if (m === undefined || l.open || m.start_seq < this.turned(l) || (id !== null && m.message_id !== id))
            return undefined;
        return { ...newMessage(l.id, m.start_seq), ...m };
    }
    /** Ends the message that is named, or that nobody has named. One that has not begun begins and ends; one that has ended does not end again. */
    endMessage(t, actor) {
        const l = t.lane, id = t.p.str("message_id");
        const again = this.again(l, id);
        if (again !== undefined && repeats(l.named.get(again.message_id), t.p.array("content")))
            return this.setStart(l);
        if (again !== undefined)
            this.openMessage(l, again);
        const was = id === null ? undefined : l.named.get(id);
        const own = l.open !== undefined && ((!l.open.announced && !this.isOver(l, id)) || id === null || l.open === was);
        if (!own && was !== undefined && was.end_seq !== null)
            return;
        const m = own ? l.open : { ...newMessage(l.id, t.seq), message_id: id, role: actor === "user" ? "user" : "assistant", end_seq: t.seq };
        if (!own)
            this.setStart(l), this.snapshot.messages.push(m);
        this.announce(l, m, id);
        m.stop_reason = t.p.str("stop_reason");
        m.usage = t.p.object("usage") ?? m.usage;
        m.error = t.p.raw("error");
        if (m.blocks.length === 0)
            content(m, t.p.array("content"));
        this.spoken(l, m);
        if (own)
            this.closeMessage(l, t.seq);
        this.use(m);
    }
    use(m) {
        if (m.usage === null)
            return;
        const { total, by_model } = this.snapshot.usage;
        const own = (by_model[m.model ?? ""] ??= counts());
        eachField(m.usage.text, (name, raw) => {
            const n = /^[-0-9]/.test(raw) ? Number(raw) + 0 : NaN;
            if (!Number.isSafeInteger(n) || n < 0)
                return;
            for (const sum of [total, own])
                sum[name] = Math.min((sum[name] ?? 0) + n, Number.MAX_SAFE_INTEGER);
        });
    }
    addBlock(l, b) {
        l.open.blocks.push(b);
        l.byIndex.set(b.index, b);
        l.byCall.set(b.call_id ?? "", b);
        if (b.call_id)
            l.asked.set(b.call_id, { message: l.open, block: b });
        return b;
    }
    /** Whether an event of a block names a message that is not the open one: it is late. */
    elsewhere(t) {
        const id = t.p.str("message_id"), { open, named } = t.lane;
        if (id === null)
            return false;
        if (open === undefined)
            return named.has(id) && this.again(t.lane, id) === undefined;
        return open.announced ? open.message_id !== null && open.message_id !== id : this.isOver(t.lane, id);
    }
    /**
     * Whether the start of a block begins the message that it names, although another one is open that was announced: nothing
     * is known of the named one, or it has ended before a person has said something, or a turn has started, which the open one
     * was open through.
     */
    isNext(l, id) {
        if (id === null || l.open === undefined || !l.open.announced || l.open.message_id === null || l.open.message_id === id)
            return false;
        const was = l.named.get(id), said = Math.max(l.heard, (l.child ?? this.snapshot).turn_seq ?? 0);
        return was === undefined || (l.open.start_seq < said && was.end_seq !== null && was.end_seq < said);
    }
    /** Whether an id is that of a message that has ended, and that nothing begins again. */
    isOver(l, id) {
        const was = id === null ? undefined : l.named.get(id);
        return was !== undefined && was.end_seq !== null && was.end_seq >= this.turned(l) && this.again(l, id) === undefined;
    }
    /** Lets a message that nobody announced be the one that an event of a message or a block names: its start is missing. */
    announce(l, m, id) {
        if (m.announced || id === null)
            return;
        Object.assign(m, { message_id: id, announced: true });
        l.named.set(id, m);
    }
    /** Begins a block. What began already, and is open or says just what it is, does not begin again. */
    startBlock(t) {
        const l = t.lane, id = t.p.str("message_id");
        if (this.isNext(l, id))
            this.closeMessage(l, t.seq);
        else if (this.elsewhere(t))
            return;
        if (l.open === undefined && id !== null && this.again(l, id) === undefined)
            this.openMessage(l, { ...newMessage(l.id, t.first), message_id: id, role: "assistant" }); // its start is missing
        const m = this.message(t);
        this.announce(l, m, id);
        const index = t.p.integer("index");
        const b = newBlock(index ?? m.blocks.length, t.p.str("kind"));
        const call = t.p.str("call_id"), tool = t.p.str("tool"), raw = t.p.raw("block");
        if (call !== null || tool !== null)
            (b.call_id = call), (b.tool = tool);
        if (raw !== null)
            b.block = raw;
        const was = index === undefined ? undefined : l.byIndex.get(index);
        if (was !== undefined && was.kind === b.kind && !was.tool && was.block === undefined && (!was.call_id || was.call_id === call) && (tool !== null || raw !== null || call !== (was.call_id ?? null))) {
            if (call !== null || tool !== null)
                (was.call_id = call), (was.tool = tool); // a delta has begun it: this is late
            if (raw !== null)
                was.block = raw;
            if (call !== null)
                l.byCall.set(call, was), l.asked.set(call, { message: m, block: was });
            return;
        }
        if (was !== undefined && was.kind === b.kind && (was.call_id ?? null) === call && (was.tool ?? null) === tool && was.block?.text === raw?.text) {
            l.held = !was.open && call === null && raw === null ? b : undefined;
            return;
        }
        this.addBlock(l, b);
    }
    /** The block with the delta's index, or else the last one if that is open and of its kind. */
    block(t, kind) {
        const m = this.message(t);
        const index = t.p.integer("index");
        const last = m.blocks.at(-1), { held } = t.lane;
        if (held !== undefined && held.index === index) {
            t.lane.held = undefined;
            return this.addBlock(t.lane, held);
        }
        const found = index !== undefined ? t.lane.byIndex.get(index) : last?.open && last.kind === kind ? last : undefined;
        return found ?? this.addBlock(t.lane, newBlock(index ?? m.blocks.length, kind));
    }
    /** A call says more than its place, which producers of parallel calls may leave out. */
    inputBlock(t) {
        if (t.p.integer("index") !== undefined)
            return this.block(t, "tool_use");
        const m = this.message(t);
        const call = t.p.str("call_id");
        const found = call === null ? undefined : t.lane.byCall.get(call);
        if (found !== undefined)
            return found;
        const b = newBlock(m.blocks.length, "tool_use");
        if (call !== null)
            (b.call_id = call), (b.tool = null);
        return this.addBlock(t.lane, b);
    }
    data(t) {
        const media = t.p.str("media_type"), name = t.p.str("name");
        const last = this.message(t).blocks.at(-1);
        if (t.p.integer("index") === undefined && last?.kind === "data" && ((last.media_type ?? null) !== media || (last.name ?? null) !== name))
            last.open = false;
        const b = this.block(t, "data");
        if (b.data === undefined)
            Object.assign(b, { media_type: media, name, data: [] });
        b.data.push(t.p.str("data") ?? "");
    }
    endBlock(t) {
        const m = t.lane.open;
        if (m === undefined || this.elsewhere(t))
            return;
        this.announce(t.lane, m, t.p.str("message_id"));
        const index = t.p.integer("index");
        const b = index === undefined ? m.blocks.at(-1) : t.lane.byIndex.get(index);
        if (b === undefined || (!b.open && b.complete))
            return;
        b.open = false;
        b.complete = !t.p.has("complete") || t.p.yes("complete");
        if (t.p.has("input"))
            b.input = t.p.raw("input");
    }
    // --- tools, questions, commands
    tool(t, type) {
        const id = t.p.str("call_id");
        let c = t.lane.calls.get(id);
        if (type === "tool.start")
            return this.startCall(t, id, c);
        const asked = id === null ? undefined : t.lane.asked.get(id);
        const again = c !== undefined && this.isCallOver(t.lane, c) && asked !== undefined && asked.message.start_seq > c.start_seq;
        if (type === "tool.run" && (asked === undefined || (c !== undefined && !again)))
            return;
        if (c === undefined || again) { // its start is missing
            c = this.addCall(t, id);
            c.announced = false;
            if (asked !== undefined)
                Object.assign(c, { tool: asked.block.tool ?? null, input: asked.block.input ?? null });
        }
        if (type === "tool.output.delta") {
            c.streamed += t.p.text("text");
        }
        else if (type === "tool.end" && c.state === "running") {
            c.state = t.p.yes("ok") ? "ok" : "failed";
            Object.assign(c, { end_seq: t.seq, output: t.p.raw("output"), error: t.p.raw("error_detail") ?? t.p.raw("error"), duration_ms: t.p.number("duration_ms"), blob_ref: t.p.str("blob_ref") });
        }
    }
    /** The first start of a call counts; the same start again behind its end is no other call, unless it was asked for once more. */
    startCall(t, id, c) {
        if (t.lane.open?.announced === false)
            for (const b of t.lane.open.blocks)
                b.open = false;
        const tool = t.p.str("tool"), input = t.p.raw("input");
        if (c === undefined || (this.isCallOver(t.lane, c) && this.asksAgain(t.lane, c)))
            c = this.addCall(t, id);
        else if (c.announced === false) { // this is late, whatever the call is known by
            if (c.start_seq === c.end_seq)
                c.start_seq = t.seq;
            delete c.announced;
        }
        else {
            if (c.tool === tool && (c.input?.text ?? null) === (input?.text ?? null))
                return;
            c = this.addCall(t, id);
        }
        Object.assign(c, { tool, input });
    }
    /** Whether a call has ended, or its lane or the run has since it began. */
    isCallOver(l, c) {
        return c.state !== "running" || Math.max(finalOf(l.child ?? this.snapshot), finalOf(this.snapshot)) > (c.start_seq ?? 0);
    }
    /** Whether a call that is over may have been asked for once more since it began. */
    asksAgain(l, c) {
        const start = c.start_seq ?? 0, { open } = l;
        if (open?.announced === true && open.blocks.length === 0 && open.start_seq > start)
            return true;
        const asked = l.asked.get(c.call_id ?? "");
        return Math.max(asked?.message.start_seq ?? 0, this.turned(l)) > start;
    }
    addCall(t, id) {
        const c = newCall(id, t);
        t.lane.calls.set(id, c);
        this.snapshot.tool_calls.push(c);
        return c;
    }
    request(t) {
        const q = {
            request_id: t.p.str("request_id"), child_id: t.lane.id, prompt: t.p.str("prompt"), options: t.p.array("options"), schema: t.p.object("schema"),
            state: "open", answer: null, seq: t.seq, answered_seq: null, ended_seq: null,
        };
        this.keep(q);
        this.snapshot.inputs.push(q);
    }
    /** Makes a request the newest of its id: of its lane, and of all. */
    keep(q) {
        this.inputs.set(JSON.stringify([q.child_id, q.request_id]), q);
        this.inputs.set(JSON.stringify([q.request_id]), q);
    }
    input(child, id) {
        return this.inputs.get(JSON.stringify([child, id])) ?? this.inputs.get(JSON.stringify([id]));
    }
    ended(change) {
        const list = change.ended.filter((w) => w.request_id !== null).map((w) => this.inputs.get(JSON.stringify([w.child_id, w.request_id])));
        return list.filter((q) => q !== undefined);
    }
    /** Notes the answer or the end of the requests that an event has ended. */
    settleInputs(t, change) {
        for (const q of this.ended(change)) {
            if (q.state !== "open")
                continue;
            if (change.answered)
                Object.assign(q, { state: "answered", answered_seq: t.seq, answer: t.p.raw("answer") });
            else
                Object.assign(q, { state: "ended", ended_seq: t.seq });
        }
    }
    /** What the agent says of an answer: the command is obeyed. */
    answered(t) {
        const q = this.input(t.lane.id, t.p.str("request_id"));
        if (q !== undefined)
            this.commands.settleAnswer(q);
    }
    command(t, name, actor, change) {
        const state = this.stateOf(t.lane);
        const over = state !== null && finalStates.has(state);
        switch (name) {
            case "message":
                this.said(t);
                this.forgetStart(t.lane);
                if (over && t.lane.child === null && t.p.str("role") !== "system") {
                    const final = finalOf(this.snapshot);
                    Object.assign(this.snapshot, { state: "planning", reason: null, state_seq: t.seq, state_ts: this.snapshot.last_ts });
                    noteFinal(this.snapshot, final);
                }
                break;
            case "resume":
                this.commands.settle(t.lane, "pause");
                break;
            case "approve_plan":
            case "reject_plan":
                if (!this.decide(t, name === "approve_plan" ? "approved" : "rejected") || state !== "awaiting_approval")
                    return;
                break;
            case "answer": {
                const answered = this.ended(change);
                if (answered.length > 0 && !over && !this.over())
                    this.commands.wait(t, name, actor, answered);
                return;
            }
        }
        if (!this.over() && (name === "message" || !over))
            this.commands.wait(t, name, actor);
    }
    /** Whether the run is over: nobody takes what follows. */
    over() {
        return finalStates.has(String(this.snapshot.state));
    }
    said(t) {
        const m = { ...newMessage(t.lane.id, t.seq), message_id: t.p.str("message_id"), role: "user", end_seq: t.seq };
        content(m, t.p.raw("content"));
        this.snapshot.messages.push(m);
        this.spoken(t.lane, m);
    }
    /** Notes that a message has begun, and which calls it asks for. */
    spoken(l, m) {
        if (m.role === "user")
            l.heard = Math.max(l.heard, m.start_seq ?? 0);
        for (const b of m.blocks)
            if (b.call_id)
                l.asked.set(b.call_id, { message: m, block: b });
        if (m.message_id !== null && !(m.role === "user" && m.start_seq === m.end_seq))
            l.named.set(m.message_id, m);
    }
    decide(t, decision) {
        const plan = this.snapshot.plan;
        if (plan === null || plan.decided_seq !== null || plan.child_id !== t.lane.id)
            return false;
        const id = t.p.str("plan_id");
        if (id !== null && id !== plan.plan_id)
            return false;
        plan.decision = decision;
        plan.decided_seq = t.seq;
        return true;
    }
    /** Makes what add needs out of the snapshot at hand. */
    restore() {
        const s = this.snapshot;
        this.lanes = new Map();
        this.inputs = new Map();
        this.lane(null);
        for (const child of s.children.splice(0))
            if (!this.lanes.has(child.child_id))
                this.lane(child);
        for (const m of s.messages) {
            if (m.end_seq !== null)
                continue;
            const l = this.meet(m.child_id);
            l.open = m;
            for (const b of m.blocks)
                l.byIndex.set(b.index, b), l.byCall.set(b.call_id ?? "", b);
        }
        for (const c of s.tool_calls)
            this.meet(c.child_id).calls.set(c.call_id, c);
        for (const m of s.messages)
            this.spoken(this.meet(m.child_id), m);
        for (const q of s.inputs)
            this.keep(q);
        this.commands = new Commands(s);
        this.commands.restore((id) => this.meet(id));
    }
}
/** Whether a content has no other texts and calls than a message has. */
function repeats(m, raw) {
    const said = newMessage(null, 0);
    content(said, raw);
    const words = (m) => m.blocks.filter((b) => (b.kind === "text" ? b.text !== "" : b.kind === "tool_use" || !!b.call_id))
        .map((b) => (b.kind === "text" ? "text " + b.text : "call " + (b.call_id ?? "")));
    const has = words(said);
    return has.length === 0 || JSON.stringify(has) === JSON.stringify(words(m));
}
function append(b, p) {
    b.text += p.text("text");
}
function gate(p) {
    const g = p.str("planning_gate");
    return g === "required" || g === "preview" ? g : null;
}
/** The newest final state of a lane; 0 when there was none. */
function finalOf(of) {
    return of.final_seq ?? (of.state !== null && finalStates.has(of.state) ? (of.state_seq ?? 0) : 0);
}
/** Notes the newest final state of a lane, unless the lane's state says it. */
function noteFinal(of, final) {
    if (final === 0 || (of.state !== null && finalStates.has(of.state) && of.state_seq === final))
        delete of.final_seq;
    else
        of.final_seq = final;
}
function newCall(id, t) {
    return {
        call_id: id, child_id: t.lane.id, tool: null, input: null, state: "running", streamed: "", output: null, error: null,
        duration_ms: null, blob_ref: null, start_seq: t.first, end_seq: null,
    };
}
