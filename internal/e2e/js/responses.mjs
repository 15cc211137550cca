// The openai library, unmodified, in versions 6 and 7: one client creates a response, takes one up again after each of its events and
// in the middle of each, and has in the end what one has that was never cut. RUNS are runs. What is wrong is an assertion.
import assert from "node:assert/strict";

const { BASE, OTHER, TOKEN, RUNS, SDK = "6" } = process.env;
const { default: OpenAI } = await import(SDK === "7" ? "openai-7" : "openai");

const state = { left: Infinity, asked: [], base: BASE };

/** A fetch whose next body breaks off after so many bytes. What it asks goes to the node of the moment. */
async function cutting(url, init) {
  const to = String(url).replace(BASE, state.base);
  state.asked.push(to);
  const resp = await fetch(to, init);
  if (state.left === Infinity || !resp.body) return resp;
  let left = state.left;
  state.left = Infinity;
  const reader = resp.body.getReader();
  const body = new ReadableStream({
    async pull(out) {
      const { done, value } = await reader.read();
      if (!done && value.length < left) {
        left -= value.length;
        return out.enqueue(value);
      }
      if (!done && left > 0) out.enqueue(value.subarray(0, left));
      left = 0;
      await reader.cancel();
      setTimeout(() => out.error(new TypeError("terminated")), 2); // what is queued is read first, as from a socket
    },
  }, { highWaterMark: 0 });
  return new Response(body, { status: resp.status, headers: resp.headers });
}

const client = new OpenAI({ apiKey: TOKEN, baseURL: BASE + "/openai/v1", fetch: cutting });
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
      state.base = ++cuts % 2 ? OTHER : BASE;
    }
  }
}

/** The places at which a body is cut: after each event and in the middle of it. */
function places(text) {
  const list = [];
  let at = 0;
  for (const frame of text.split("\n\n").slice(0, -1)) {
    const size = Buffer.byteLength(frame) + 2;
    list.push(at + Math.floor(size / 2), at + size);
    at += size;
  }
  return list.slice(0, -1);
}

let tried = 0;
for (const run of RUNS.split(" ")) {
  const id = "resp_" + run;
  state.base = BASE;
  const whole = (await follow(id)).events;
  assert.deepEqual(whole.map((e) => e.sequence_number), whole.map((_, i) => i), run);
  assert.match(whole.at(-1).type, /^response\.(completed|failed|incomplete)$/, run);
  const text = await (await fetch(`${BASE}/openai/v1/responses/${id}?stream=true`, { headers })).text();
  for (const at of places(text)) {
    state.left = at;
    state.base = BASE;
    const got = await follow(id);
    assert.equal(got.cuts, 1, `${run} was not cut at ${at}`);
    assert.deepEqual(got.events, whole, `${run} cut at ${at}`);
    tried++;
  }
  state.base = OTHER;
  const object = await client.responses.retrieve(id);
  assert.deepEqual({ ...object, output_text: undefined, _request_id: undefined }, { ...whole.at(-1).response, output_text: undefined, _request_id: undefined }, run);
  const helped = await client.responses.stream({ response_id: id, starting_after: 2 }).finalResponse();
  assert.equal(helped.output_text, object.output_text, run);
}
assert.ok(tried > 500, `${tried} cuts`);

// A response is begun in each of the three ways, and cancelled.
state.base = BASE;
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
