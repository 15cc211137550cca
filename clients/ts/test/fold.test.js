import test from "node:test";
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Fold, RawJSON, parseEvent, parseSnapshot, stringify } from "../dist/index.js";
import { line, random, seed, testdata } from "./helpers.js";

/** The text of a value with its fields in one order; the texts that a snapshot keeps stay as they are. */
function text(v) {
  if (Array.isArray(v)) return "[" + v.map(text) + "]";
  if (v === null || typeof v !== "object" || v instanceof RawJSON) return stringify(v);
  return "{" + Object.keys(v).sort().map((k) => stringify(k) + ":" + text(v[k])) + "}";
}

const dir = join(testdata, "snapshots");
const goldens = readdirSync(dir).filter((f) => f.endsWith(".json")).map((f) => {
  const events = readFileSync(join(dir, f + "l"), "utf8").split("\n").filter((l) => l.startsWith("{"));
  return { name: f, text: readFileSync(join(dir, f), "utf8").trim(), events };
});

test("a snapshot is read without loss", () => {
  for (const g of goldens) assert.deepEqual(JSON.parse(stringify(parseSnapshot(g.text))), JSON.parse(g.text), g.name);
  const exact = parseSnapshot(goldens.find((g) => g.name === "framing.json").text);
  assert.equal(exact.tool_calls[0].duration_ms.text, "1.50");
  assert.match(exact.messages.map((m) => m.usage?.text).join(), /"input_tokens":7\.0,"output_tokens":1e1,.*9007199254740992/);
});

for (const g of goldens) {
  test(`the fold of ${g.name} is the server's`, () => {
    const want = text(parseSnapshot(g.text));
    const whole = new Fold();
    for (const e of g.events) whole.add(parseEvent(e));
    assert.equal(text(whole.snapshot), want);
  });
}

test("a fold that goes on from a snapshot at any event is the same", (t) => {
  t.diagnostic(`seed ${seed}`);
  const r = random(seed);
  for (const g of goldens) {
    const events = g.events.map(parseEvent);
    const want = text(parseSnapshot(g.text));
    const cuts = events.length < 60 ? events.map((_, i) => i + 1) : Array.from({ length: 12 }, () => 1 + Math.floor(r() * events.length));
    for (const k of cuts) {
      const first = new Fold();
      for (const e of events.slice(0, k)) first.add(e);
      const sum = stringify(first.snapshot);
      const restored = new Fold(parseSnapshot(sum));
      assert.equal(stringify(restored.snapshot), sum, `${g.name} at ${k}`);
      const viewed = new Fold();
      viewed.add(parseEvent(line(0, "x", {}).replace(/"type".*/, `"type":"run.snapshot","run_id":"r","child_id":null,"seq":${events[k - 1].seq},"payload":${sum}}`)));
      for (const e of events.slice(k)) restored.add(e), viewed.add(e);
      assert.equal(text(restored.snapshot), want, `${g.name} from ${k}`);
      assert.equal(text(viewed.snapshot), want, `${g.name} from run.snapshot at ${k}`);
    }
  }
});

test("what follows the end of a run waits for nobody", () => {
  const f = new Fold();
  const add = (seq, type, payload, more) => f.add(parseEvent(line(seq, type, payload, more)));
  const child = { child_id: "run_c" };
  add(1, "child.spawn", { child_id: "run_c" });
  add(2, "input.requested", { request_id: "r", prompt: "?" }, child);
  add(3, "run.lifecycle", { state: "done", reason: "all is said" });
  add(4, "command.cancel", {});
  add(5, "command.cancel", {}, child);
  add(6, "command.answer", { request_id: "r", answer: 1 }, child);
  add(7, "command.message", { content: "on" }, child);
  add(8, "command.message", { content: "be brief", role: "system" });
  assert.deepEqual([f.snapshot.state, f.snapshot.state_seq, f.snapshot.commands.length, f.snapshot.messages.length], ["done", 3, 0, 2]);
  add(9, "command.message", { content: "on" });
  assert.deepEqual([f.snapshot.state, f.snapshot.commands.length], ["planning", 1]);
});

test("merged deltas and bundles sum up to what their members do", () => {
  const of = (...lines) => {
    const f = new Fold();
    for (const l of lines) f.add(parseEvent(l));
    f.snapshot.last_id = null;
    return f;
  };
  const end = line(4, "run.lifecycle", { state: "done" });
  const single = of(line(1, "text.delta", { text: "a\ud83d" }), line(2, "text.delta", { text: "\ude00b" }), line(3, "text.delta", { text: "c" }, { child_id: "run_c" }), end);
  const merged = of(line(2, "text.delta", { text: "a😀b" }, { first_seq: 1 }), line(3, "text.delta", { text: "c" }, { child_id: "run_c" }), end);
  assert.equal(stringify(merged.snapshot), stringify(single.snapshot));
  assert.equal(single.text(), "a😀b");
  const bundled = of(line(3, "delta.bundle", { deltas: [{ type: "text.delta", child_id: null, payload: { text: "a😀b" } }, { type: "text.delta", child_id: "run_c", payload: { text: "c" } }] }, { first_seq: 1 }), end);
  assert.equal(bundled.text(), "a😀b");
  assert.equal(bundled.text("run_c"), "c");
  of(line(1, "delta.bundle", { deltas: [7, {}] }), line(2, "run.snapshot", {}), line(3, "tool.end", { call_id: 5, ok: "yes", output: null }));
});
