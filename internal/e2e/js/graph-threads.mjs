// Threads that clients/ts/examples/langgraph-worker.mjs answers with the graph of graph.mjs, through the SDK of LangGraph: run, inject,
// interrupt and answer, stop, fork.
import assert from "node:assert/strict";
import { BASE, input, open, patient, plain, watch } from "./threads-lib.mjs";

const client = open();
const { thread_id: id } = await client.threads.create({ metadata: { graph_id: "graph" } });
const thread = watch(client, id);
await thread.subscribe({ channels: ["lifecycle"] });
const settles = (want, of = thread) => {
  const seen = [];
  const over = new Promise((done) => of.onEvent((e) => e.method === "lifecycle" && e.params.namespace.length === 0 && seen.push(e.params.data.event) && e.params.data.event === want && done(e)));
  return patient(over, () => `${want}, there was ${seen}`);
};
const command = async (id, method, params) => {
  const answer = await fetch(`${BASE}/threads/${id}/commands`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ id: 1, method, params }) });
  const { result, ...rest } = await answer.json();
  assert.ok(result, JSON.stringify(rest));
  return result;
};
const said = async (id) => (await client.threads.getState(id)).values.messages.map((m) => (Array.isArray(m.content) ? m.content.map((b) => b.text ?? "").join("") : m.content));

// A run, with a call, parallel nodes and a subgraph that asks.
let over = settles("interrupted");
await thread.run.start({ input: input("all", "h1") });
await over;
assert.equal((await client.threads.getState(id)).tasks[0].interrupts.length, 1);
const [{ interruptId, payload, namespace }] = thread.interrupts;
assert.deepEqual(payload, { question: "ok?" });
assert.equal(namespace.length, 1);
over = settles("completed");
await thread.input.respond({ namespace, interrupt_id: interruptId, response: "yes" });
await over;
assert.deepEqual(await said(id), ["all", "Let me see \u{1f600}.", "Rain in Bern.", "It rains.", 'You say "yes".']);

// A message into a run under way is answered in it, and its terminal is behind that.
over = settles("completed");
const { run_id: long } = await thread.run.start({ input: input("long", "h2") });
await command(id, "input.inject", { namespace: [], message: { role: "user", content: "injected" } });
await over;
assert.equal((await said(id)).at(-1), "You said: injected");
const events = await plain(BASE, id);
const of = events.filter((e) => e.method === "lifecycle" && e.params.namespace.length === 0 && e.run_id === long).map((e) => e.params.data.event);
assert.deepEqual(of, ["running", "completed"]);
assert.ok(events.some((e) => e.method === "checkpoints") && events.some((e) => e.method === "tools") && events.some((e) => e.method === "tasks"));

// A fork within the thread, and one that is a thread of its own.
const point = events.filter((e) => e.method === "checkpoints" && e.params.namespace.length === 0).at(1).params.data.id;
over = settles("completed");
await thread.run.start({ input: input("again", "h3"), config: { configurable: { checkpoint_id: point } } });
await over;
const forked = await said(id);
assert.equal(forked.at(-1), "You said: again", forked);
assert.ok(forked.length < 6, forked);
const { thread_id: other } = await command(id, "state.fork", { checkpoint_id: point, input: input("fork", "h4") });
const fork = watch(client, other);
await patient((async () => { while (!(await said(other)).includes("You said: fork")) await new Promise((r) => setTimeout(r, 100)); })(), () => "the fork's answer");
assert.equal((await said(other))[0], "all");

// What fails, fails the run; what is stopped is interrupted.
over = settles("failed");
await thread.run.start({ input: input("fail") });
assert.equal((await over).params.data.error, "it fails");
over = settles("interrupted");
const { run_id: last } = await thread.run.start({ input: input("long") });
await client.runs.cancel(id, last, false, "interrupt");
await over;
await Promise.all([thread.close(), fork.close()]);
console.log("ok");
process.exit(0);
