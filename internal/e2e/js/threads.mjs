// The streaming protocol through the SDK: one thread with many runs, watched by several clients on two nodes.
import assert from "node:assert/strict";
import { BASE, OTHER, SDK, all, collect, cutting, end, has, ids, input, old, open, patient, plain, read, said, speech, watch } from "./threads-lib.mjs";

const client = open();
const who = `${SDK} ${Math.random()}`;
const { thread_id: id } = await client.threads.create({ metadata: { graph_id: "agent_e2e", who } });
const thread = watch(client, id);
const others = [watch(open(OTHER), id), watch(open(BASE), id), watch(open(OTHER), id)];
const watched = await Promise.all(others.map((o) => read(o, 6)));
const cut = await cutting(OTHER, 3_001, 9_973, 20_011);
const torn = watch(open(cut.base), id, { reconnectDelayMs: () => 20 });
const through = await read(torn, 6);

// 1. All there is, by the SDK's own projections.
const messages = collect(thread.messages), calls = collect(thread.toolCalls), values = collect(thread.values);
const helpers = collect(thread.subagents), progress = collect(thread.extensions.progress);
const { run_id: first } = await thread.run.start({ input: input("all", "human-1") });
assert.match(first, /^[0-9a-f-]{36}$/);
const texts = await Promise.all((await patient(messages, () => "messages")).map(async (m) => [m.id, m.namespace.length, await m.text]));
assert.deepEqual(texts.filter(([, depth]) => depth === 0).map(([, , t]) => t).filter(Boolean), ["all", said("all")], JSON.stringify(texts));
assert.ok(texts.some(([, depth, t]) => depth > 0 && t.startsWith(speech)), "the helper speaks in a namespace of its own");
const [call] = await calls;
assert.deepEqual([call.name, call.input], ["task", { city: "Grüße 🌍" }]);
assert.equal(await call.output, "told");
const states = await values;
assert.deepEqual(states.map((s) => s.step), [0, 1]);
assert.deepEqual(states.at(-1).messages.map((m) => m.content ?? m.text), ["all", "", "told", said("all")]);
assert.equal(states.at(-1).messages[0].id, "human-1");
const [helper] = await helpers;
assert.equal(helper.callId, call.callId);
assert.deepEqual(await progress, [{ done: 1 }]);

// 2. A question and its answer, then two at once.
const asked = async (text, n) => {
  const over = new Promise((resolve) => thread.onEvent((e) => e.method === "lifecycle" && e.params.namespace.length === 0 && e.params.data.event === "interrupted" && resolve()));
  await thread.run.start({ input: input(text) });
  await patient(over, () => `interrupted by ${text}`);
  assert.equal(thread.interrupted, true);
  assert.deepEqual(thread.interrupts.map((i) => [i.interruptId, i.payload]), ["q1", "q2"].slice(0, n).map((i) => [i, { question: "Which?" }]));
};
const settles = (what) =>
  patient(new Promise((resolve) => thread.onEvent((e) => e.method === "lifecycle" && e.params.namespace.length === 0 && e.params.data.event === what && resolve(e))), () => what);
await asked("ask", 1);
let over = settles("completed");
await thread.input.respond({ namespace: [], interrupt_id: "q1", response: "red" });
await over;
await assert.rejects(thread.input.respond({ namespace: [], interrupt_id: "q1", response: "blue" }), /no_such_interrupt|answer|interrupt/i);
await asked("two", 2);
over = settles("completed");
await thread.respondInput({ responses: ["q1", "q2"].map((q) => ({ namespace: [], interrupt_id: q, response: q })) });
await over;

// 3. Stop.
over = settles("interrupted");
const begun = patient(new Promise((resolve) => thread.onEvent((e) => e.method === "lifecycle" && e.params.data.event === "running" && resolve())), () => "running");
const { run_id: last } = await thread.run.start({ input: input("long") });
await begun;
await client.runs.cancel(id, last, false, "interrupt");
await over;
assert.equal((await client.runs.get(id, last)).status, "interrupted");
assert.deepEqual((await client.runs.list(id)).map((r) => r.status), ["interrupted", "success", "interrupted", "success", "interrupted", "success"]);

// 4. Everybody has the same, whoever came when and was cut how often.
const whole = await plain(OTHER, id);
const want = ids(whole.filter((e) => !old || e.method !== "input.answered"));
assert.equal(new Set(want).size, want.length);
assert.deepEqual([...new Set(whole.map((e) => e.method))].filter((m) => !m.startsWith("input.")).sort(), all.filter((c) => c !== "input").sort());
for (const [i, { over }] of watched.entries()) has(await over, want, `watcher ${i}`);
const late = await read(watch(open(OTHER), id), 6);
has(await late.over, want, "who comes late");
has(await through.over, want, "who was cut");
assert.equal(cut.left(), 0, "the proxy has cut");
assert.ok(cut.made() > 3);
const state = await client.threads.getState(id);
assert.deepEqual(state.next, []);

// 5. Threads are found, changed and deleted; an assistant is a name.
const found = async (query) => (await client.threads.search(query)).map((t) => t.thread_id);
const until = async (want, query) => {
  for (const over = Date.now() + 15_000; JSON.stringify(await found(query)) !== JSON.stringify(want); await new Promise((r) => setTimeout(r, 50))) assert.ok(Date.now() < over, JSON.stringify(query));
};
await until([id], { metadata: { who }, limit: 5 });
assert.deepEqual(await found({ metadata: { who }, offset: 1 }), []);
assert.deepEqual(await found({ ids: [id], metadata: { who: "nobody" } }), []);
assert.equal(await client.threads.count({ metadata: { who } }), 1);
assert.equal((await client.threads.update(id, { metadata: { more: 1 } })).metadata.more, 1);
assert.equal((await client.threads.get(id)).metadata.who, who);
assert.equal((await client.assistants.get("agent_e2e")).graph_id, "agent_e2e");
assert.deepEqual((await client.assistants.search({ graphId: "agent_e2e" })).map((a) => a.assistant_id), ["agent_e2e"]);
await client.threads.delete(id);
await assert.rejects(client.threads.get(id));
await until([], { metadata: { who } });
end();
