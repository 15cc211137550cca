// What the page says of an error, without a browser: one sentence for a person, whatever has failed.
import assert from "node:assert/strict";
import test from "node:test";

globalThis.sessionStorage = { getItem: () => null };
globalThis.location = { origin: "http://page.example" };
const { explain, sentence, why } = await import("../static/server.js");
const { ProtocolError, ServerError } = await import("../static/lib/index.js");

const codes = { 400: "BAD-REQUEST", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT-FOUND", 409: "STATE-FORBIDS", 410: "KAI-STREAM-CONN-0002", 413: "KAI-STREAM-PROTO-0001", 422: "KEY-REUSED",
  429: "RATE-LIMITED", 500: "INTERNAL", 501: "NO-CATALOG", 503: "UNAVAILABLE", 504: "" };
const inner = /HTTP \d|\b\d{3}\b|[A-Z]+-[A-Z]+|KAI-|undefined|null|\[object|Failed to fetch|JSON at|Error/;

test("what a server refuses is its own sentence, without codes", () => {
  for (const [status, code] of Object.entries(codes)) {
    for (const message of ["over the tenant's limit", undefined, ""]) {
      const e = new ServerError(Number(status), { code, message });
      for (const text of [sentence(e), `Not read: ${why(e)}.`, explain(e).title]) {
        assert.doesNotMatch(text, inner, `${status} ${message}`);
        assert.doesNotMatch(text, /\.\.|: .*: /, `${status} ${message}`);
      }
      if (message) assert.equal(sentence(e), "Over the tenant's limit.");
      assert.doesNotMatch(explain(e).text, /undefined|HTTP|[A-Z]+-[A-Z]+/, `${status} ${message}`);
    }
  }
});

test("what fails on the way is a sentence, too", () => {
  for (const e of [new TypeError("Failed to fetch"), new SyntaxError("Unexpected token < in JSON at position 0"), new ProtocolError("seq 4 after 2"), new DOMException("aborted", "AbortError")]) {
    assert.doesNotMatch(sentence(e), inner);
    assert.match(sentence(e), /^(The answer cannot be read|The server cannot be reached)\.$/);
  }
  assert.equal(why(new Error("this tab has not asked for it; begin again")), "this tab has not asked for it; begin again");
});

test("only a bad id is said to be one", () => {
  assert.equal(explain(new ServerError(400, { code: "BAD-ID", message: "x" })).title, "That is no run id");
  const e = explain(new ServerError(400, { code: "BAD-REQUEST", message: "types must be names, not \"*x\"" }));
  assert.deepEqual([e.title, e.text], ["Refused", "Types must be names, not \"*x\"."]);
});
