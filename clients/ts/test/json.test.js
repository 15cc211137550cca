import test from "node:test";
import assert from "node:assert/strict";
import { parseEvent, formatEvent, RawJSON, stringify, unbundle, firstSeq, isFinal } from "../dist/index.js";
import { eachField, elements } from "../dist/json.js";
import { goldenLines, line, random, seed } from "./helpers.js";

test("T1: marshal, unmarshal, equal, on every golden event", () => {
  let n = 0;
  for (const [file, text] of goldenLines()) {
    const event = parseEvent(text);
    assert.equal(formatEvent(event), text, `${file}: written as it was read`);
    assert.deepEqual(parseEvent(formatEvent(event)), event, file);
    const plain = JSON.parse(text);
    assert.deepEqual(event.payload, plain.payload, file);
    for (const name of ["id", "ts", "type", "run_id", "child_id", "seq", "path", "turn_id", "cause", "actor"]) {
      assert.deepEqual(event[name], plain[name] ?? event[name], `${file}: ${name}`);
    }
    n++;
  }
  assert.ok(n > 400, `only ${n} golden events`);
});

test("T1: numbers keep their text, in payload and in unknown fields", () => {
  const text =
    '{"id":"evt_1","ts":"2026-01-02T03:04:05Z","type":"custom.n","run_id":"r","child_id":null,"seq":3,"7":1.10,"__proto__":[-0.0],"a":{"b":1,"b":2},' +
    '"payload":{"big":9007199254740993,"e":1e400,"z":-0.0,"t":1.10,"k":{"a":1,"a":2},"s":"\\ud800\\u0000\\/"}}';
  const event = parseEvent(text);
  assert.equal(formatEvent(event), text);
  assert.equal(event.extra.get("7").text, "1.10");
  assert.equal(event.extra.get("__proto__").text, "[-0.0]");
  assert.match(event.json.text, /9007199254740993/);
  const { json, ...changed } = event;
  assert.match(formatEvent({ ...changed, payload: { big: new RawJSON("9007199254740993") } }), /"payload":\{"big":9007199254740993\}\}$/);
});

test("what is not an event is refused", () => {
  for (const bad of [
    "", "[]", "{", '{"type":"x"}', line(1) + "{}", '{"type":"a","run_id":"r","seq":1.5}', '{"type":"a","run_id":"r","seq":9007199254740993}',
    '{"type":"a","run_id":"r","seq":2,"first_seq":3}', '{"type":"a","run_id":"r","seq":1,"payload":[]}', '{"type":"a","run_id":"r","seq":1,"path":"r"}',
    '{"type":1,"run_id":"r","seq":1}', '{"type":"a","run_id":"r","seq":1,"child_id":5}', '{"type":"a","run_id":"r","seq":1,"payload":{"a":}}',
    '{"type":"a" "run_id":"r","seq":1}',
  ]) {
    assert.throws(() => parseEvent(bad), (e) => e instanceof SyntaxError || e instanceof TypeError, bad);
  }
});

test("the scanner finds what JSON.parse finds, in random values", (t) => {
  const r = random(seed);
  t.diagnostic(`seed ${seed}`);
  const pick = (list) => list[Math.floor(r() * list.length)];
  const value = (depth) => {
    const kind = depth > 4 ? r() * 3 : r() * 5;
    if (kind < 1) return pick([0, -1.5, 1e21, 12345, null, true, false]);
    if (kind < 3) return Array.from({ length: r() * 6 }, () => pick(['"', "\\", "{", "}", "[", "]", ",", ":", "ö", "\u0000", "\n", "😀", "a"])).join("");
    if (kind < 4) return Array.from({ length: r() * 4 }, () => value(depth + 1));
    return Object.fromEntries(Array.from({ length: r() * 4 }, (_, i) => ["k" + i + pick(['"', "\\", "}"]), value(depth + 1)]));
  };
  for (let i = 0; i < 3000; i++) {
    const v = { a: value(0), "b\"": value(0), c: [value(0), value(0)] };
    const text = pick([JSON.stringify(v), JSON.stringify(v, null, 2), stringify(v)]);
    const seen = {};
    eachField(text, (name, raw) => (seen[name] = JSON.parse(raw)));
    assert.deepEqual(seen, v);
    eachField(text, (name, raw) => name === "c" && assert.deepEqual(elements(raw).map((e) => JSON.parse(e)), v.c));
  }
});

test("a bundle comes apart into its deltas", () => {
  const bundle = parseEvent(line(9, "delta.bundle", {
    deltas: [
      { type: "text.delta", child_id: null, turn_id: "t", payload: { text: "a" } },
      { type: "reasoning.delta", child_id: "run_c", path: ["run_1", "run_c"], payload: { text: "b", index: 1 } },
    ],
  }, { first_seq: 4 }));
  const parts = unbundle(bundle);
  assert.deepEqual(parts.map((p) => [p.type, p.child_id, p.payload.text, p.seq, firstSeq(p), p.turn_id]), [
    ["text.delta", null, "a", 9, 4, "t"],
    ["reasoning.delta", "run_c", "b", 9, 4, undefined],
  ]);
  assert.deepEqual(unbundle(parts[0]), [parts[0]]);
});

test("the end of the run is its own final lifecycle", () => {
  const is = (payload, more) => isFinal(parseEvent(line(1, "run.lifecycle", payload, more)));
  assert.ok(is({ state: "done" }) && is({ state: "aborted" }) && is({ state: "error" }));
  assert.ok(!is({ state: "running" }) && !is({ state: "done" }, { child_id: "run_c" }));
  assert.ok(!isFinal(parseEvent(line(1, "custom.x", { state: "done" }))));
});
