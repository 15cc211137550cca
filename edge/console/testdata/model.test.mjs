// The run page's model over a server that is made up: what is shown, where it stands, and what is said of it.
import assert from "node:assert/strict";
import test from "node:test";
import { Fold, parseEvent } from "../static/lib/index.js";
import { Entries } from "../static/run/entries.js";
import { RunModel } from "../static/run/model.js";
import { attemptText, outcomeOf } from "../static/run/notes.js";
import { Spans } from "../static/run/spans.js";

globalThis.document = { visibilityState: "hidden" };

const event = (seq, type, payload, child_id) => parseEvent(JSON.stringify({ run_id: "r", ...(child_id && { child_id }), seq, id: `i${seq}`, ts: new Date(1e12 + seq * 1000).toISOString(), type, payload }));

/** Returns the event at a place of a long run that has ended. */
function at(seq, last) {
  if (seq === 1) return event(1, "run.lifecycle", { state: "running" });
  if (seq === last) return event(last, "run.lifecycle", { state: "done" });
  return event(seq, "text.delta", { text: `${seq} ` });
}

function server(last) {
  function* range(from, to) {
    for (let seq = from; seq <= to; seq++) yield at(seq, last);
  }
  return {
    run: async () => ({ run_id: "r", state: "done", last_seq: last }),
    async *watch(_, { after = 0, onState }) {
      onState({ state: "open" });
      for (const e of range(after + 1, last)) yield { event: e };
      onState({ state: "over" });
    },
    async *events(_, { after = 0 }) {
      yield* range(after + 1, last);
    },
    page: async (_, { after = 0, limit }) => [...range(after + 1, Math.min(last, after + limit))],
  };
}

const textOf = (model) => model.fold.text();

test("of a run over 50,000 events, newest is the newest, wherever one was before", async () => {
  const last = 98_002;
  let places = 0;
  const model = new RunModel(server(last), "r", new AbortController().signal, (what) => what === "place" && places++, false);
  await model.follow();
  assert.match(textOf(model), /98001 $/);
  assert.deepEqual([model.connection.text, model.over, model.mode], ["ended · complete", true, "live"]);
  await model.jump(60_000);
  assert.match(textOf(model), /60000 $/);
  assert.deepEqual([model.position, model.newest, model.connection.text], [60_000, last, "past · the run has ended"]);
  assert.deepEqual([model.fold.snapshot.state, model.now], [null, "done"], "then and now are told apart");
  const before = places;
  await model.follow();
  assert.match(textOf(model), /98001 $/);
  assert.ok(places > before, "what was shown of the past is replaced");
  assert.deepEqual([model.position, model.connection.text, model.mode], [last, "ended · complete", "live"]);
});

test("a deep link of a finished run never says live, and knows how long the run is", async () => {
  for (const last of [60_000, 98_002]) {
    const model = new RunModel(server(last), "r", new AbortController().signal, () => assert.doesNotMatch(model?.connection.text ?? "", /live/), false);
    await model.jump(55_001);
    assert.deepEqual([model.position, model.newest, model.mode, model.connection.state], [55_001, last, "past", "past"]);
    await model.step(1);
    assert.equal(model.position, 55_002);
    assert.match(model.connection.text, /has ended/);
  }
});

test("blocks and calls keep their order, whatever comes between and however much is known", () => {
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 300; round++) {
    const events = [["message.start", { message_id: "m", role: "assistant" }]], want = [], waiting = [];
    for (let i = 0; i < 3 + random(6); i++) {
      const kind = ["text", "reasoning", "tool_use"][random(3)];
      events.push(["block.start", { index: i, kind, ...(kind === "tool_use" && { call_id: `c${i}`, tool: "t" }) }]);
      want.push(kind === "tool_use" ? `c${i}` : `${kind}${i}`);
      if (kind !== "tool_use") events.push([`${kind}.delta`, { index: i, text: `${kind}${i}` }]);
      events.push(["block.end", { index: i, ...(kind === "tool_use" && { input: {} }) }]);
      if (kind !== "tool_use") continue;
      const call = [["tool.start", { call_id: `c${i}`, tool: "t", input: {} }], ["tool.end", { call_id: `c${i}`, ok: true, output: "o" }]];
      const when = random(3); // at its block, after the message, or begun at its block and ended after the message
      if (when === 0) events.push(...call);
      else if (when === 1) waiting.push(...call);
      else events.push(call[0]), waiting.push(call[1]);
    }
    const all = [...events, ["message.end", { message_id: "m" }], ...waiting, ["message.start", { message_id: "n", role: "assistant" }], ["text.delta", { text: "then" }]];
    const fold = new Fold(), entries = new Entries();
    for (const [i, [type, payload]] of all.entries()) {
      fold.add(event(i + 1, type, payload));
      if (random(4) === 0) entries.read(fold.snapshot, null);
    }
    const shown = entries.read(fold.snapshot, null).flatMap(({ kind, it, blocks }) => (kind === "tool" ? [it.call_id] : blocks.map((b) => b.text))).filter((t) => t !== "");
    assert.deepEqual(shown, [...want, "then"], JSON.stringify(all));
    const again = entries.read(fold.snapshot, null);
    assert.ok(again.every((e, i) => e === entries.read(fold.snapshot, null)[i]), "what is shown keeps its entry");
  }
});

test("a call is at its block, and the same id asked for once more is another call", () => {
  const fold = new Fold();
  const all = [["message.start", { message_id: "a", role: "assistant" }], ["block.start", { index: 0, kind: "tool_use", call_id: "c", tool: "t" }], ["message.end", { message_id: "a" }],
    ["tool.start", { call_id: "c", tool: "t" }], ["tool.end", { call_id: "c", ok: false }],
    ["message.start", { message_id: "b", role: "assistant" }], ["text.delta", { index: 0, text: "again" }], ["block.start", { index: 1, kind: "tool_use", call_id: "c", tool: "t" }], ["message.end", { message_id: "b" }],
    ["tool.start", { call_id: "c", tool: "t" }], ["tool.end", { call_id: "c", ok: true }], ["tool.start", { call_id: "other", tool: "u" }]];
  all.forEach(([type, payload], i) => fold.add(event(i + 1, type, payload)));
  assert.deepEqual(new Entries().read(fold.snapshot, null).map((e) => (e.kind === "tool" ? `${e.it.call_id} ${e.it.state}` : e.blocks.map((b) => b.text).join())), ["", "c failed", "again", "c ok", "other running"]);
});

test("a message is a bar where no call of a model covers it, with or without its start", () => {
  const bars = (...all) => {
    const spans = new Spans();
    all.forEach(([type, payload], i) => spans.add(event(i + 1, type, payload)));
    return spans.lanes.get(null).bars.map((b) => `${b.kind} ${b.seq}-${b.last}`);
  };
  const said = [["message.start", { message_id: "m", role: "assistant" }], ["text.delta", { text: "x" }], ["message.end", { message_id: "m" }]];
  const life = (state) => ["run.lifecycle", { state }];
  assert.deepEqual(bars(life("running"), ...said, life("done")), ["message 2-4"]);
  assert.deepEqual(bars(life("running"), ["text.delta", { text: "a" }], ["text.delta", { text: "b" }], life("done")), ["message 2-4"]);
  assert.deepEqual(bars(["model.start", { call_id: "c" }], ...said, ["model.end", { call_id: "c" }], ...said), ["model 1-5", "message 6-8"]);
  assert.deepEqual(bars(["model.start", { call_id: "c" }], ["text.delta", { text: "a" }], ["model.end", { call_id: "c" }]), ["model 1-3"]);
  assert.deepEqual(bars(["text.delta", { text: "a" }], ["step.boundary", {}], ["text.delta", { text: "a" }], life("done")), ["message 1-2", "message 3-4"]);
  assert.deepEqual(bars(["message.start", { message_id: "u", role: "user" }], ["message.end", { message_id: "u" }]), []);
});

test("progress and custom events are notes, neighbours of one kind in one", () => {
  const spans = new Spans();
  const all = [["progress", { message: "a", done: 1, total: 2 }], ["progress", { message: "b", done: 2, total: 2 }], ["custom.openai.x", {}], ["custom.openai.y", {}], ["custom.mine", {}], ["tool.start", { call_id: "c" }], ["custom.mine", {}], ["loss", { events: 3 }]];
  all.forEach(([type, payload], i) => spans.add(event(i + 1, type, payload)));
  assert.deepEqual(spans.notes(null, Infinity).map((n) => [n.kind, n.seq, n.count]), [["progress", 1, 2], ["custom.openai", 3, 2], ["custom.mine", 5, 1], ["custom.mine", 7, 1], ["loss", 8, 1]]);
  assert.equal(spans.notes(null, 4).length, 2);
  for (let i = 0; i < 10_000; i++) spans.add(event(100 + i, i % 2 ? "custom.a" : "custom.b", {}));
  assert.ok(spans.notes(null, Infinity).length <= 2000, "what is kept of notes is bounded");
});

test("a question is answered when somebody has answered it", () => {
  const outcome = (...all) => {
    const fold = new Fold();
    [["input.requested", { request_id: "q", prompt: "?" }], ...all].forEach(([type, payload], i) => fold.add(event(i + 1, type, payload)));
    return outcomeOf(fold.snapshot.inputs[0]);
  };
  assert.equal(outcome(), "waits for an answer");
  assert.equal(outcome(["command.answer", { request_id: "q", answer: "yes" }]), "answered");
  assert.equal(outcome(["command.answer", { request_id: "q", answer: false }]), "answered");
  assert.equal(outcome(["input.answered", { request_id: "q" }]), "ended without an answer");
  assert.equal(outcome(["run.lifecycle", { state: "error" }]), "not waited for any more");
});

test("attempts at a call of a model are one call", () => {
  const spans = new Spans();
  const failed = (n) => ["custom.proxy.attempt", { call_id: "c", attempt: n, status: 529, error: { type: "overloaded_error", message: "Overloaded" }, wait_ms: 1500 }];
  const all = [["model.start", { call_id: "c", model: "m-1" }], failed(1), failed(2), ["model.end", { call_id: "c", ok: true, attempts: 3 }]];
  all.forEach(([type, payload], i) => spans.add(event(i + 1, type, payload)));
  assert.deepEqual(spans.lanes.get(null).bars.map((b) => [b.label, b.ok, b.seq, b.last]), [["m-1 · attempt 3", true, 1, 4]]);
  assert.deepEqual(spans.notes(null, Infinity).map((n) => n.count), [2]);
  assert.equal(attemptText(failed(1)[1]), "Attempt 1 at the call failed with 529: Overloaded (overloaded_error); another one is waited for, 1.5 s at most");
  assert.equal(attemptText({ attempt: 2, error: "cut" }), "Attempt 2 at the call failed: cut");
  assert.equal(attemptText({}), "Attempt at the call failed");
});
