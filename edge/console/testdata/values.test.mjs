// What a person reads of values, without a browser: the colours and differences of texts, errors as sentences, forms of schemas.
import assert from "node:assert/strict";
import test from "node:test";
import { Ansi, diff } from "../static/run/ansi.js";
import { plan, choicesOf } from "../static/run/form.js";
import { contentOf, sentence } from "../static/run/values.js";

const joined = (spans) => spans.map((s) => s.text).join("");

test("colours are classes, and end where a terminal ends them", () => {
  for (const [text, want] of [
    ["plain", [["plain", ""]]],
    ["\x1b[32mok\x1b[0m then", [["ok", "a-f2"], [" then", ""]]],
    ["\x1b[1;31mbad\x1b[22m still\x1b[39m", [["bad", "a-bold a-f1"], [" still", "a-f1"]]],
    ["\x1b[91mb\x1b[mr", [["b", "a-f1"], ["r", ""]]],
    ["\x1b[38;5;196mr\x1b[38;5;46mg\x1b[38;2;10;20;250mb\x1b[38;5;240mgrey", [["r", "a-f1"], ["g", "a-f2"], ["b", "a-f4"], ["grey", "a-f0"]]],
    ["\x1b[38:2:250:10:10mr", [["r", "a-f1"]]],
    ["\x1b[44;97mx\x1b[49my", [["x", "a-f7 a-g4"], ["y", "a-f7"]]],
    ["\x1b[2Kgone \x1b]8;;http://a\x07l", [["\x1b[2Kgone \x1b]8;;http://a\x07l", ""]]],
  ]) assert.deepEqual(new Ansi().spans(text).map((s) => [s.text, s.style]), want, JSON.stringify(text));
});

test("however a text is parted between colours, it looks the same", () => {
  const text = "a\x1b[31mb\x1b[1mc\nd\x1b[0me";
  const flat = (spans) => spans.flatMap((s) => [...s.text].map((c) => c + s.style));
  const whole = flat(new Ansi().spans(text));
  for (const at of [1, 6, 7, 11, 12, 13, 14, 18]) {
    const ansi = new Ansi();
    assert.deepEqual([...flat(ansi.spans(text.slice(0, at))), ...flat(ansi.spans(text.slice(at)))], whole, String(at));
  }
});

test("a unified diff has its lines told apart, and nothing else is one", () => {
  const text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@ f\n keep\n-old -- x\n+new ++ x\n keep\n\\ No newline at end of file\nafter: - no\n- item\n";
  assert.equal(joined(diff(text)), text);
  assert.deepEqual(diff(text).map((l) => l.style), ["d-head", "d-head", "d-head", "d-hunk", "", "d-del", "d-add", "", "", "", "", ""]);
  assert.deepEqual(diff("@@ -0,0 +1 @@\n+one").map((l) => l.style), ["d-hunk", "d-add"]);
  for (const other of ["- a\n+ b\n", "--- \ntitle: x\n---\n", "@@ nothing @@", ""]) assert.equal(diff(other), undefined, other);
});

test("an error is a sentence, and nothing of it is lost", () => {
  for (const [v, text, rest] of [
    ["no such file", "no such file"],
    ["KAI-TOOL-FAIL-0001", "It failed: KAI-TOOL-FAIL-0001"],
    [{ message: "no such file" }, "no such file"],
    [{ type: "overloaded_error", message: "Overloaded", code: 529 }, "Overloaded (529, overloaded_error)"],
    [{ type: "error", error: { type: "api_error", message: "broken" } }, "broken (api_error)"],
    [{ error: "timeout", stderr: "x" }, "timeout", { stderr: "x" }],
    [{ code: "E1" }, "It failed: E1"],
    [{ exit: 3 }, "It failed, and nothing says why.", { exit: 3 }],
    [[1], "It failed, and nothing says why.", [1]],
    [null, "It failed, and nothing says why."],
  ]) {
    const said = sentence(v);
    assert.deepEqual([said.text, said.rest], [text, rest], JSON.stringify(v));
  }
});

test("content of tools is shown as its parts", () => {
  assert.equal(contentOf([{ type: "text", text: "a" }, { type: "image", data: "x", mimeType: "image/png" }]).length, 2);
  assert.equal(contentOf({ content: [{ type: "text", text: "a" }], isError: false }).length, 1);
  for (const v of [[], [{ type: "text" }], [{ type: "row" }], { content: [], x: 1 }, "text", null, 7]) assert.equal(contentOf(v), undefined, JSON.stringify(v));
});

test("a schema is a form, field by field", () => {
  const kinds = (s) => {
    const p = plan(s);
    return p.kind === "object" ? Object.fromEntries(p.fields.map((f) => [f.name, f.kind + (f.required ? "!" : "")])) : p.kind;
  };
  assert.deepEqual(kinds({ type: "object", required: ["name"], properties: {
    name: { type: "string" }, age: { type: "integer" }, ratio: { type: ["number", "null"] }, ok: { type: "boolean" }, size: { enum: ["s", "m"] },
    tags: { type: "array", items: { enum: ["a", "b"] } }, text: { type: "string", maxLength: 2000 }, more: { type: "array" }, any: {}, no: true,
    maybe: { anyOf: [{ type: "string" }, { type: "null" }] }, way: { oneOf: [{ const: 1, title: "One" }, { const: 2 }] }, at: { type: "object", properties: { x: { type: "number" } } },
  } }), { name: "text!", age: "integer", ratio: "number", ok: "boolean", size: "choice", tags: "choices", text: "long", more: "json", any: "json", no: "json", maybe: "text", way: "choice", at: "object" });
  for (const [s, want] of [[{ type: "string" }, "text"], [{ enum: [1, 2] }, "choice"], [{ type: "boolean" }, "boolean"], [{}, "json"], [null, "json"], [{ type: "object" }, "json"], [{ $ref: "#/x" }, "json"]]) assert.equal(kinds(s), want, JSON.stringify(s));
  assert.deepEqual(choicesOf({ oneOf: [{ const: 1, title: "One" }, { const: 2 }] }), [["One", 1], ["2", 2]]);
  let deep = { type: "string" };
  for (let i = 0; i < 1000; i++) deep = { type: "object", properties: { in: deep } };
  assert.equal(plan(deep).fields[0].fields[0].fields[0].kind, "json");
});
