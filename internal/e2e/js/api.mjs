// Our client's whole surface against a real server. What is wrong is an assertion.
import assert from "node:assert/strict";
import WebSocket from "ws";
import { Client, Fold, ServerError, formatEvent, isFinal, parseEvent, stringify } from "../../../clients/ts/dist/index.js";

const token = process.env.TOKEN;
const client = new Client({ url: process.env.SERVER, WebSocket, ...(token ? { token: () => token } : {}) });
const run = "run_api_" + Date.now();
const refused = (code) => (e) => e instanceof ServerError && e.code === code;

await assert.rejects(client.run(run), refused("NOT-FOUND"));
await assert.rejects(async () => { for await (const _ of client.watch(run)); }, refused("NOT-FOUND"));
const begun = await client.createRun({ run_id: run, planning_gate: "required" }, { idempotencyKey: "begin-" + run });
assert.deepEqual([begun.run_id, begun.state], [run, "planning"]);
await assert.rejects(client.createRun({ run_id: run }), refused("RUN-EXISTS"));

const text = (s, more) => ({ type: "text.delta", payload: { text: s }, ...more });
const sent = await client.append(run, [
  { type: "plan.proposal", payload: { plan: { id: "p1", steps: [] } } },
  { type: "run.lifecycle", payload: { state: "awaiting_approval" } },
], { idempotencyKey: "k1" });
assert.deepEqual(sent, { first_seq: 2, last_seq: 3, replayed: false });
const again = await client.append(run, [
  { type: "plan.proposal", payload: { plan: { id: "p1", steps: [] } } },
  { type: "run.lifecycle", payload: { state: "awaiting_approval" } },
], { idempotencyKey: "k1" });
assert.deepEqual(again, { first_seq: 2, last_seq: 3, replayed: true });
assert.deepEqual(await client.approvePlan(run, "p1"), { first_seq: 4, last_seq: 4, replayed: false });
await assert.rejects(client.resume(run), (e) => e instanceof ServerError && e.status === 409);
await client.append(run, [
  { type: "run.lifecycle", payload: { state: "running" } },
  text("Grüße, "), text("Welt 🌍"),
  { type: "child.spawn", payload: { child_id: "run_c1" } },
  text("from the child", { child_id: "run_c1" }),
  { type: "input.requested", payload: { request_id: "q1", prompt: "Which?" } },
  { type: "custom.mine", payload: { n: 1.5 } },
]);
const whole = client.watch(run, { detail: "full" });
const full = [];
let answered = false;
for await (const { event, gap } of whole) {
  assert.equal(gap, undefined);
  full.push(event);
  if (event.type === "input.requested" && !answered) {
    answered = true;
    await client.answer(run, event.payload.request_id, "this");
    await client.send(run, "and more");
    await client.append(run, [{ type: "input.answered", payload: { request_id: "q1", answer: "this" } }, { type: "run.lifecycle", payload: { state: "done", reason: null } }]);
  }
}
assert.ok(answered && isFinal(full.at(-1)));
assert.deepEqual(full.map((e) => e.seq), full.map((_, i) => i + 1));

const pages = [];
for await (const e of client.events(run, { limit: 3 })) pages.push(formatEvent(e));
assert.deepEqual(pages, full.map(formatEvent), "pages and stream hold the same bytes");
assert.deepEqual((await client.page(run, { types: ["text.delta"], child: ["run_c1"] })).map((e) => e.payload.text ?? e.type), ["from the child", "run.lifecycle"], "the end passes every filter");
assert.equal((await client.page(run, { order: "desc", limit: 1 }))[0].seq, full.length);

const fold = new Fold();
for (const e of full) fold.add(parseEvent(formatEvent(e)));
const snapshot = await client.snapshot(run);
assert.deepEqual(JSON.parse(stringify(fold.snapshot)), JSON.parse(stringify(snapshot)), "our fold is the server's");
assert.equal(fold.text(null, "text", "assistant"), "Grüße, Welt 🌍");
assert.equal(fold.text(), "Grüße, Welt 🌍and more");

for (const transport of ["fetch", "websocket"]) {
  for (const o of [{}, { snapshot: true }, { types: ["tool.*", "custom.*"] }, { child: ["run_c1"] }, { bundle: false }, { after: 5 }, { speed: 1000 }]) {
    const view = new Fold();
    let last = o.after ?? 0;
    for await (const { event, gap, more } of client.watch(run, { ...o, transport })) {
      assert.equal(gap, undefined, `${transport} ${JSON.stringify(o)}`);
      assert.equal(event.first_seq ?? event.seq, last + 1);
      if (!more) last = event.seq;
      view.add(event);
    }
    assert.equal(last, full.length, `${transport} ${JSON.stringify(o)}`);
    if (o.types || o.child || o.after) continue;
    assert.deepEqual(JSON.parse(stringify(view.snapshot)), JSON.parse(stringify(snapshot)), `${transport} ${JSON.stringify(o)}`);
  }
}
await assert.rejects(async () => { for await (const _ of client.watch(run, { after: 9999 })); }, refused("CURSOR-AHEAD"));
await assert.rejects(async () => { for await (const _ of client.watch("run_missing", { transport: "websocket" })); }, (e) => e instanceof ServerError && e.status === 404);
if (token) {
  assert.match((await client.createTicket(run)).ticket, /^tkt_/);
  await assert.rejects(new Client({ url: process.env.SERVER, token: "wrong" }).run(run), refused("UNAUTHORIZED"));
}
const listed = async () => { for await (const r of client.runs()) if (r.run_id === run) return r; };
for (let i = 0; i < 200 && (await listed())?.state !== "done"; i++) await new Promise((r) => setTimeout(r, 50));
assert.equal((await listed()).last_seq, full.length);
console.log("ok");
