// The openai library, unmodified, in versions 6 and 7: one client creates a response, takes one up again after each of its events and
// in the middle of each, and has in the end what one has that was never cut. RUNS are runs. What is wrong is an assertion.
import assert from "node:assert/strict";
import { cutting, places } from "./cut.mjs";

const { BASE, OTHER, TOKEN, RUNS, SDK = "6" } = process.env;
const { default: OpenAI } = await import(SDK === "7" ? "openai-7" : "openai");

// What is asked goes to the node of the moment.
let base = BASE;
const { state, request } = cutting({ broken: () => new TypeError("terminated"), redirect: (url) => String(url).replace(BASE, base) });

const client = new OpenAI({ apiKey: TOKEN, baseURL: BASE + "/openai/v1", fetch: request });
const headers = { Authorization: `Bearer ${TOKEN}` };

/** Reads a response to its end, however often its body breaks off. */
async function follow(id) {
  const events = [];
  let cuts = 0;
  for (;;) {
    const last = events.at(-1)?.sequence_number;
    try {
      const stream = await client.responses.retrieve(id, { stream: true, ...(last === undefined ? {} : { starting_after: last }) });
      for await (const event of stream) events.push(event);
      return { events, cuts };
    } catch (e) {
      if (e.status || !/terminated/.test(String(e.message) + String(e.cause?.message))) throw e;
      base = ++cuts % 2 ? OTHER : BASE;
    }
  }
}

let tried = 0;
for (const run of RUNS.split(" ")) {
  const id = "resp_" + run;
  base = BASE;
  const whole = (await follow(id)).events;
  assert.deepEqual(whole.map((e) => e.sequence_number), whole.map((_, i) => i), run);
  assert.match(whole.at(-1).type, /^response\.(completed|failed|incomplete)$/, run);
  const text = await (await fetch(`${BASE}/openai/v1/responses/${id}?stream=true`, { headers })).text();
  for (const at of places(text)) {
    state.left = at;
    base = BASE;
    const got = await follow(id);
    assert.equal(got.cuts, 1, `${run} was not cut at ${at}`);
    assert.deepEqual(got.events, whole, `${run} cut at ${at}`);
    tried++;
  }
  base = OTHER;
  const object = await client.responses.retrieve(id);
  assert.deepEqual({ ...object, output_text: undefined, _request_id: undefined }, { ...whole.at(-1).response, output_text: undefined, _request_id: undefined }, run);
  const helped = await client.responses.stream({ response_id: id, starting_after: 2 }).finalResponse();
  assert.equal(helped.output_text, object.output_text, run);
}
assert.ok(tried > 500, `${tried} cuts`);

// A response is begun in each of the three ways, and cancelled.
base = BASE;
const begun = await client.responses.create({ model: "gpt-test", input: "hello", background: true, metadata: { a: "b" } },
  { headers: { "Idempotency-Key": `one ${SDK}` } });
assert.equal(begun.status, "queued");
assert.equal((await client.responses.create({ model: "gpt-test", input: "hello", background: true, metadata: { a: "b" } },
  { headers: { "Idempotency-Key": `one ${SDK}` } })).id, begun.id);
assert.equal((await client.responses.cancel(begun.id)).id, begun.id);
const items = [];
for await (const item of client.responses.inputItems.list(begun.id)) items.push(item);
assert.equal(items[0].content[0].text, "hello");

// What cannot succeed is asked once.
for (const [what, status] of [[() => client.responses.delete(begun.id), 501], [() => client.responses.retrieve("resp_nothing"), 404],
  [() => client.responses.retrieve(begun.id, { stream: true, starting_after: 99 }), 400]]) {
  state.asked = [];
  await assert.rejects(what, (e) => e.status === status && e.error?.message.length > 0, `${status}`);
  assert.equal(state.asked.length, 1);
}
console.log(`${tried} cuts, ok`);
