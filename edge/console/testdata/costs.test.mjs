// What a run has cost, as the console reads it from the server, without a browser.
import assert from "node:assert/strict";
import test from "node:test";

globalThis.document = { visibilityState: "visible", createElement: () => ({ dataset: {}, append() {}, setAttribute() {}, addEventListener() {} }) };
globalThis.sessionStorage = { getItem: () => null };
globalThis.location = { origin: "http://page.example" };
const { Costs, costText } = await import("../static/run/costs.js");

const of = (seq, cost, more = {}) => ({ seq, child_id: null, day: "2026-01-01", model: "m", messages: 1, unpriced_messages: cost === null ? 1 : 0, cost_usd: cost, ...more });

/** Answers questions for the costs of a run with these messages, some at a time, and returns what is asked. */
function serve(messages, size) {
  const asked = [];
  globalThis.fetch = async (url) => {
    const query = new URL(url, location.origin).searchParams;
    asked.push(String(url));
    const after = Number(query.get("cursor") ?? 0);
    const later = messages.filter((c) => c.seq > after);
    const children = [...new Set(messages.map((c) => c.child_id))].map((id) => [id, messages.filter((c) => c.child_id === id)]);
    const body = query.get("by") === "child"
      ? { costs: children.map(([id, all]) => of(undefined, all.reduce((n, c) => n + c.cost_usd, 0), { child_id: id })), next_cursor: null }
      : { costs: later.slice(0, size), next_cursor: later.length > size ? String(later[size - 1].seq) : null };
    return new Response(JSON.stringify(body), { headers: { "Content-Type": "application/json" } });
  };
  return asked;
}

/** Follows a run until it has been asked for once, and returns its costs. */
async function read(model) {
  const stop = new AbortController();
  await new Promise((done) => {
    const costs = new Costs("run", stop.signal, () => done(costs));
    model.costs = costs;
    costs.follow(model);
  });
  stop.abort();
  return model.costs;
}

test("costs of all messages are read page by page, and summed up to a place", async () => {
  const asked = serve([of(3, 0.5), of(5, 0.25, { child_id: "kid", model: "small" }), of(9, null), of(12, 1)], 2);
  const costs = await read({ newest: 12, partial: false, start: 0 });
  assert.deepEqual(asked.map((u) => /cursor=\d+|by=child/.exec(u)[0]), ["cursor=0", "cursor=5", "by=child"]);
  assert.deepEqual(costs.sumUpTo(12), { total: 1.75, by_model: { m: 1.5, small: 0.25 } });
  assert.deepEqual(costs.sumUpTo(4), { total: 0.5, by_model: { m: 0.5 } });
  assert.equal(costs.ofMessage(5).textContent, " $0.2500");
  assert.equal(costs.ofChild("kid").textContent, " $0.2500");
  assert.equal(costs.ofMessage(9).textContent, "");
});

test("a part of a run has no sum that could be taken for all of it", async () => {
  const asked = serve([of(3, 0.5), of(60_000, 0.25)], 2);
  const costs = await read({ newest: 60_000, partial: true, start: 58_000 });
  assert.equal(asked.length, 2);
  assert.equal(costs.sumUpTo(60_000), undefined);
  assert.equal(costs.ofMessage(60_000).textContent, " $0.2500");
});

test("a sum that lacks some messages says so", () => {
  assert.equal(costText({ cost_usd: 2, unpriced_messages: 3 }), "$2.0000 +");
  assert.equal(costText({ cost_usd: null, unpriced_messages: 3 }), "");
});
