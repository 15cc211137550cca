// The SDK's older API, its default: runs of a thread, streamed, resumed, waited for.
import assert from "node:assert/strict";
import { AIMessageChunk } from "@langchain/core/messages";
import { BASE, Client, OTHER, TOKEN, collect, cutting, end, input, patient, said, speech } from "./threads-lib.mjs";

const open = (apiUrl) => new Client({ apiUrl, apiKey: TOKEN });
const modes = { streamMode: ["values", "messages-tuple", "updates", "custom", "tasks", "checkpoints"], streamSubgraphs: true, streamResumable: true };
const client = open(BASE);
const { thread_id: id } = await client.threads.create();

/** Puts pieces of messages together, as clients do. */
function assembled(parts, event = "messages") {
  const byID = new Map();
  for (const { data } of parts.filter((p) => p.event === event)) {
    const [m] = data;
    if (m.type !== "AIMessageChunk") byID.set(m.id, m);
    else byID.set(m.id, byID.has(m.id) ? byID.get(m.id).concat(new AIMessageChunk(m)) : new AIMessageChunk(m));
  }
  return [...byID.values()];
}
const shown = (parts) => parts.map(({ id, event, data }) => JSON.stringify([id, event, data]));

// 1. A run with all there is, cut three times; the SDK comes back by the Location that it was told.
const cut = await cutting(BASE, 2_003, 1_501, 1_009);
let created;
const parts = await patient(collect(open(cut.base).runs.stream(id, "agent_e2e", { input: input("all", "human-1"), ...modes, onRunCreated: (r) => (created = r) })), () => "a run", 60_000);
assert.equal(created.thread_id, id);
const run = created.run_id;
assert.equal(cut.left(), 0, `${cut.made()} connections, ${parts.length} parts, the last ${JSON.stringify(parts.at(-1))}`);
for (const event of ["metadata", "values", "messages", "updates", "custom", "tasks", "checkpoints", "end"]) assert.ok(parts.some((p) => p.event === event), event);
const messages = assembled(parts);
assert.deepEqual(messages.map((m) => [m._getType?.() ?? m.type, m._getType ? m.text ?? m.content : m.content]).filter(([, t]) => t !== ""),
  [["human", "all"], ["tool", "told"], ["ai", said("all")]], JSON.stringify(messages));
assert.deepEqual(messages.find((m) => m.tool_calls?.length)?.tool_calls.map((c) => [c.name, c.args]), [["task", { city: "Grüße 🌍" }]]);
const usage = messages.at(-1).usage_metadata;
assert.deepEqual([usage.input_tokens, usage.output_tokens, usage.total_tokens], [12, 7, 19]);
assert.ok(parts.some((p) => p.event.startsWith("messages|tools:")), "the helper's");
assert.deepEqual(parts.filter((p) => p.event === "values").map((p) => p.data.step), [0, 1]);
assert.deepEqual(parts.at(-1).data, { run_id: run, status: "success" });

// 2. Joined behind its end, on the other node: the same, from the start and from every event of it.
const other = open(OTHER);
const again = async (lastEventId) => shown(await collect(other.runs.joinStream(id, run, { lastEventId, streamMode: modes.streamMode })));
const flat = shown(parts.filter((p) => !p.event.includes("|")));
const same = (got, want, what) => {
  const i = want.findIndex((line, i) => line !== got[i]);
  assert.ok(i < 0 && got.length === want.length, `${what}: ${got.length} of ${want.length}; at ${i} ${got[i]}, want ${want[i]}`);
};
same(await again("-1"), flat, "from the start");
const at = parts.filter((p) => !p.event.includes("|"));
for (let i = 0; i < at.length; i += 7) same(await again(at[i].id), flat.slice(i + 1), `behind ${at[i].id}`);
assert.deepEqual(await again(at.at(-1).id), []);
assert.deepEqual((await other.runs.join(id, run)).messages.map((m) => m.content), ["all", "", "told", said("all")]);

// 3. A question, its answer, and a wait.
const asked = await other.runs.wait(id, "agent_e2e", { input: input("ask") });
assert.deepEqual(asked.__interrupt__.map((i) => [i.id, i.value]), [["q1", { question: "Which?" }]]);
assert.equal((await client.threads.get(id)).status, "interrupted");
const answer = await collect(client.runs.stream(id, "agent_e2e", { command: { resume: "red" }, streamMode: ["values", "messages-tuple"] }));
assert.match(JSON.stringify(assembled(answer).at(-1).content), /Answers: /);
assert.deepEqual(answer.at(-1).data.status, "success");
assert.equal((await client.threads.get(id)).status, "idle");

// 4. Two runs, one behind the other; a watcher of the thread; a cancel.
const watcher = collect(other.threads.joinStream(id, { lastEventId: "-1" })).catch(() => []);
const long = await client.runs.create(id, "agent_e2e", { input: input("long") });
await assert.rejects(client.runs.create(id, "agent_e2e", { input: input("no"), multitaskStrategy: "reject" }), (e) => e.status === 422 || /422/.test(e.message));
const ended = collect(client.runs.joinStream(id, long.run_id, { lastEventId: "-1" }));
while ((await client.runs.get(id, long.run_id)).status !== "running") await new Promise((r) => setTimeout(r, 20));
await client.runs.cancel(id, long.run_id, true);
assert.equal((await patient(ended, () => "the end")).at(-1).data.status, "interrupted");
assert.match(speech, /all/);
void watcher;
assert.deepEqual((await client.runs.list(id)).map((r) => r.status), ["interrupted", "success", "interrupted", "success"]);

// 5. A client that leaves: the one that asked for it has its run cancelled, once; others, and those who ask for nothing, end nothing.
const status = async (run, want) => {
  for (let n = 0; n < 500; n++) {
    const is = (await other.runs.get(id, run)).status;
    if (is === want) return;
    await new Promise((r) => setTimeout(r, 20));
  }
  assert.fail(`${run} is not ${want}`);
};
// What the server would do because of a client that left, it has done after so long. The SDK's own promise is not waited for: 1.11
// repeats a request that was aborted before its answer began, in vain, for half a minute.
const noticed = () => new Promise((r) => setTimeout(r, 300));
async function leaving(way, onDisconnect) {
  const tab = new AbortController(), watching = new AbortController();
  let run;
  const asker = client.runs[way](id, "agent_e2e", { input: input("long"), onDisconnect, signal: tab.signal, onRunCreated: (r) => (run = r.run_id) });
  void (way === "wait" ? asker : collect(asker)).catch(() => {});
  for (let n = 0; !run && n < 500; n++) {
    await new Promise((r) => setTimeout(r, 20));
    if (way === "wait") run = (await other.runs.list(id)).find((r) => ["pending", "running"].includes(r.status))?.run_id;
  }
  await status(run, "running");
  void collect(other.runs.joinStream(id, run, { lastEventId: "-1", signal: watching.signal })).catch(() => {});
  watching.abort();
  await noticed();
  await status(run, "running");
  tab.abort();
  return run;
}
for (const way of ["stream", "wait"]) await status(await leaving(way, "cancel"), "interrupted");
const kept = await leaving("stream", undefined);
await noticed();
await status(kept, "running");
const tabs = [client, other].map((c) => {
  const leave = new AbortController();
  const stream = c.runs.joinStream(id, kept, { lastEventId: "-1", cancelOnDisconnect: true, signal: leave.signal });
  const there = new Promise((resolve, reject) => {
    (async () => {
      for await (const part of stream) resolve(part);
    })().catch(reject);
  });
  return { leave, there };
});
await Promise.all(tabs.map((t) => t.there));
for (const t of tabs) t.leave.abort();
await status(kept, "interrupted");
end();
