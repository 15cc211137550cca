import test from "node:test";
import assert from "node:assert/strict";
import { SSEParser } from "../dist/index.js";
import { random, seed } from "./helpers.js";

function parse(pieces) {
  const frames = [], hints = [];
  const p = new SSEParser({ frame: (f) => frames.push(f), retry: (ms) => hints.push(ms) });
  for (const piece of pieces) p.push(piece);
  return { frames, hints };
}

const bytes = (s) => Buffer.from(s, "utf8");
const one = (s) => parse([bytes(s)]);

test("frames as the standard has them", () => {
  assert.deepEqual(one("data: a\ndata:b\ndata:  c\nid: 1\nevent: x\n\n").frames, [{ event: "x", data: "a\nb\n c", id: "1" }]);
  assert.deepEqual(one("data\n\ndata\ndata\n\ndata:").frames, [{ event: "message", data: "", id: "" }, { event: "message", data: "\n", id: "" }]);
  assert.deepEqual(one(": only a comment\n\nunknown: 1\n\nevent: x\n\n").frames, []);
  assert.deepEqual(one("id: 7\n\ndata: a\n\n").frames, [{ event: "message", data: "a", id: "7" }], "an id without data moves the cursor");
  assert.deepEqual(one("id: a\0b\ndata: x\n\n").frames[0].id, "", "an id with a NUL is none");
  assert.deepEqual(one("id: 1\ndata: x\n\nid\ndata: y\n\n").frames.map((f) => f.id), ["1", ""]);
  assert.deepEqual(one("\ufeffdata: bom\n\n").frames[0].data, "bom");
  assert.deepEqual(one("\ufeff\ufeffdata: bom\n\n").frames, [], "only one mark is skipped");
  assert.deepEqual(one("retry: 1500\n\nretry: 1.5\nretry: -1\nretry: x\nretry:\n\n").hints, [1500]);
  assert.deepEqual(one("data: a\u2028b\u0085c\n\n").frames[0].data, "a\u2028b\u0085c", "no other separators");
});

test("half a frame moves nothing", () => {
  for (const rest of ["data: b", "data: b\n", "data: b\nid: 2", "data: b\nid: 2\n", "id: 2\r"]) {
    const { frames } = one("data: a\nid: 1\n\n" + rest);
    assert.deepEqual(frames, [{ event: "message", data: "a", id: "1" }], JSON.stringify(rest));
  }
});

const stream = [
  "\ufeffretry: 1200\n\n", ": keepalive\n\n", 'event: text.delta\ndata: {"text":"Grüße 👩‍👩‍👧‍👦 你好 \u2028"}\nid: 1\n\n',
  "data: second\r\ndata: line\r\nid: 2\r\n\r\n", "event: x\rdata: third\rid: 3\r\r", "data:\n\n", "data: mixed\r\nid: 4\n\r\n",
].join("");

test("a cut at every byte changes nothing", () => {
  const whole = bytes(stream);
  const want = parse([whole]);
  assert.equal(want.frames.length, 5);
  for (let i = 0; i <= whole.length; i++) {
    assert.deepEqual(parse([whole.subarray(0, i), whole.subarray(i)]), want, `cut at ${i}`);
  }
  assert.deepEqual(parse(Array.from(whole, (b) => Uint8Array.of(b))), want, "byte by byte");
});

test("random cuts change nothing", (t) => {
  t.diagnostic(`seed ${seed}`);
  const r = random(seed);
  const whole = bytes(stream.slice(1).repeat(20));
  const want = parse([whole]);
  for (let i = 0; i < 500; i++) {
    const pieces = [];
    for (let at = 0; at < whole.length; ) {
      const n = 1 + Math.floor(r() * (r() < 0.5 ? 4 : 400));
      pieces.push(whole.subarray(at, at + n));
      at += n;
    }
    assert.deepEqual(parse(pieces), want);
  }
});
