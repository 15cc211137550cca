// Answers threads with a graph of @langchain/langgraph. The commands of clients come over a watch of each thread; the graph's events
// go through `agentstream publish --format langgraph`, which translates them; a turn ends in one append with the commands that it
// has dealt with, so that a worker that crashed answers again what it has not. Run one worker, and the server with --no-demo.
//
//   AGENTSTREAM_SERVER=http://127.0.0.1:8080 AGENTSTREAM_TOKEN=… node langgraph-worker.mjs ./graph.mjs
//
// The module exports the compiled graph, with a checkpointer, as `graph`, and LangGraph's `Command`. AGENTSTREAM names the program.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { Client } from "../dist/index.js";

const { graph, Command } = await import(pathToFileURL(resolve(process.argv[2])).href);
const url = process.env.AGENTSTREAM_SERVER ?? "http://127.0.0.1:8080";
const client = new Client({ url, ...(process.env.AGENTSTREAM_TOKEN && { token: () => process.env.AGENTSTREAM_TOKEN }) });

/** Messages as clients of LangGraph know them: {type, content, id, …}. */
function flat(key, value) {
  const raw = this[key];
  if (typeof raw?.toDict !== "function") return value;
  const { type, data } = raw.toDict();
  return { ...data, type };
}

class Thread {
  queue = []; // commands that wait, in the order of the log
  values; // newest stored state of the root: what a fork begins with
  turn; // id of the one that a former worker has left open
  stop; // of the turn under way
  news = () => {};

  constructor(id) {
    this.id = id;
    this.config = { configurable: { thread_id: id } };
  }

  async serve() {
    const { last_seq: known } = await client.run(this.id);
    let working;
    for await (const { event: e } of client.watch(this.id, { detail: "full", gaps: "refetch" })) {
      if (!e) continue;
      this.take(e);
      if (e.seq >= known) working ??= this.work();
      this.news();
    }
  }

  take(e) {
    const p = e.payload ?? {};
    switch (e.type) {
      case "command.message":
        if (!e.child_id && p.role !== "system") this.queue.push({ seq: e.seq, ...p });
        break;
      case "command.answer":
        this.queue.push({ seq: e.seq, ...p });
        break;
      case "command.cancel": // what came before it is not answered
        this.queue = [{ seq: e.seq, cancel: true }];
        this.stop?.abort();
        break;
      case "commands.taken":
        if (!e.child_id) this.queue = this.queue.filter((c) => c.seq > p.through);
        break;
      case "turn.start":
        this.turn = p.turn_id;
        break;
      case "turn.end":
        this.turn = undefined;
        break;
      case "state.values":
        if (!p.namespace?.length && p.values && !p.values.__interrupt__) this.values = p.values;
    }
  }

  async work() {
    const left = this.turn;
    if (left) await this.append(`left-${left}`, [{ type: "turn.end", payload: { turn_id: left, stop_reason: "error", reason: "the worker began again" } }]);
    for (;;) {
      if (this.queue.length > 0) await this.answer().catch((err) => (console.error(`thread ${this.id}:`, err), pause(1000)));
      else await new Promise((done) => (this.news = done));
    }
  }

  append(key, events) {
    return client.append(this.id, events, { idempotencyKey: `${this.id}-${key}` });
  }

  /** One turn. What is said meanwhile is answered in the same turn, behind what goes on. */
  async answer() {
    const turn_id = `turn-${this.queue[0].seq}-${Date.now().toString(36)}`;
    if (this.queue[0].cancel) return this.append(turn_id, [taken(this.queue.shift().seq)]);
    const stop = (this.stop = new AbortController());
    await this.append(`${turn_id}-start`, [{ type: "turn.start", payload: { turn_id } }]);
    const publish = spawn(process.env.AGENTSTREAM ?? "agentstream", ["publish", "--format", "langgraph", "--no-lifecycle", "--run", this.id, "-"],
      { stdio: ["pipe", "ignore", "inherit"], env: { ...process.env, AGENTSTREAM_SERVER: url } });
    const ended = once(publish, "close");
    publish.stdin.on("error", () => stop.abort());
    const end = { turn_id, stop_reason: "end_turn" };
    let through = 0;
    try {
      for (let first = true; this.queue.length > 0 && !this.queue[0].cancel; first = false) {
        if (!first && ["enqueue", "interrupt", "rollback"].includes(this.queue[0].multitask_strategy)) break; // a turn of its own
        const { input, config, seq } = await this.next();
        through = seq;
        const settings = { ...config, configurable: { ...config?.configurable, thread_id: this.id }, version: "v3", signal: stop.signal };
        for await (const e of await graph.streamEvents(input, settings)) {
          if (!publish.stdin.write(JSON.stringify(e, flat) + "\n")) await once(publish.stdin, "drain", { signal: stop.signal });
        }
      }
    } catch (err) {
      Object.assign(end, { stop_reason: "error", reason: String(err?.message ?? err) });
    }
    publish.stdin.end();
    const [code] = await ended;
    this.stop = undefined;
    if (this.queue[0]?.cancel) {
      Object.assign(end, { stop_reason: "cancelled", reason: undefined });
      through = this.queue.shift().seq;
    } else if (code !== 0) Object.assign(end, { stop_reason: "error", reason: `publish ended with ${code}` });
    await this.append(turn_id, [{ type: "turn.end", payload: end }, taken(through)]);
  }

  /** Takes what the graph is run with next: a message, or the answers that wait together. */
  async next() {
    if (this.values && !(await graph.getState(this.config)).createdAt) await graph.updateState(this.config, this.values); // a fork
    const { request_id, ...said } = this.queue[0];
    if (request_id === undefined) return { input: { messages: [{ role: "user", content: said.content, id: said.message_id }] }, ...said, ...this.queue.shift() };
    const all = [];
    while (this.queue[0]?.request_id !== undefined) all.push(this.queue.shift());
    const { seq } = all.at(-1);
    await this.append(`answered-${seq}`, all.map(({ request_id, answer }) => ({ type: "input.answered", payload: { request_id, answer } })));
    return { input: new Command({ resume: Object.fromEntries(all.map((a) => [a.request_id, a.answer])) }), config: said.config ?? said.run?.config, seq };
  }
}

const taken = (through) => ({ type: "commands.taken", payload: { through } });
const threads = new Map();
for (;; await pause(300)) {
  for await (const run of client.runs()) {
    if (threads.has(run.run_id)) continue;
    threads.set(run.run_id, true);
    new Thread(run.run_id).serve().catch((err) => (console.error(`thread ${run.run_id}:`, err), threads.delete(run.run_id)));
  }
}
