// What the scripts of the sessions protocol have in common: the unmodified Anthropic library, which knows nothing
// but another address and a token. What is wrong is an assertion.
//
// What the library needs of a server, from its sources (1.12.0) and from the wire:
//   - Paths are <base>/v1/sessions…, so a base of …/api/v1/cloud gives …/api/v1/cloud/v1/…. Accept is
//     application/json on streams too. Lists are types[]=a&types[]=b, times created_at[gt]=…, all percent-encoded.
//     Bodies of archive and delete are empty, without a content type.
//   - A list ends with a null next_page and with nothing else: has_more is not looked at, an empty page that has a
//     next_page is followed. Every other parameter is sent again with each page.
//   - The request id is the header request-id, the error's type is error.type of the body. 408, 409, 429 and 5xx are
//     tried again twice, unless the header x-should-retry says false.
//   - events.stream() resolves with the headers: they must come before the first event, and what is appended behind
//     them must be shown.
//   - The library reconnects nowhere by itself but in its tool runner, and keeps no ids.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const { BASE, OTHER, TOKEN } = process.env; // two nodes of one log

/** A client whose requests are counted in asked. */
export function open(options) {
  const asked = [];
  const client = new Anthropic({
    authToken: TOKEN, apiKey: null, baseURL: BASE, logLevel: "off",
    fetch: (url, init) => (asked.push(`${init.method} ${url}`), fetch(url, init)),
    ...options,
  });
  return { sessions: client.beta.sessions, asked };
}

/** The same on the other node. */
export const other = (options) => open({ baseURL: OTHER, ...options });

export const unique = (prefix) => prefix + Date.now().toString(36) + Math.random().toString(36).slice(2, 8);

export const create = (sessions, more) =>
  sessions.create({ agent: "agent_e2e", environment_id: "env_e2e", title: "e2e", ...more });

export async function collect(list) {
  const all = [];
  for await (const item of list) all.push(item);
  return all;
}

/** Reads a stream up to and with the event that done says is the last, for a while. */
export async function until(stream, done) {
  const all = [];
  const patience = setTimeout(() => stream.controller.abort(), 15_000);
  for await (const event of stream) {
    all.push(event);
    if (!(await done(event))) continue;
    clearTimeout(patience);
    return all;
  }
  assert.fail(`the stream ended behind ${JSON.stringify(all.at(-1))}`);
}

/** Reads n events of a stream. */
export async function take(stream, n) {
  const all = [];
  if (n > 0) await until(stream, (e) => all.push(e) === n);
  return all;
}

export const idle = (event) => event.type === "session.status_idle";
/** The session waits for a person again, not for a tool. */
export const settled = (event) => idle(event) && event.stop_reason.type !== "requires_action";

export const message = (text) => ({ type: "user.message", content: [{ type: "text", text }] });

/** A turn on a stream of its own: opened first, then the message is sent. */
export async function turn(sessions, id, text, { done = settled, params = {} } = {}) {
  const stream = await sessions.events.stream(id, params);
  const { data } = await sessions.events.send(id, { events: [message(text)] });
  assert.equal(data.length, 1);
  const events = await until(stream, done);
  assert.deepEqual(events.find((e) => e.id === data[0].id), data[0], "what was answered to the sender is what the stream shows");
  return events;
}

export const texts = (event) => event.content.filter((b) => b.type === "text").map((b) => b.text);
export const only = (events, ...types) => events.filter((e) => types.includes(e.type));
export const types = (events) => events.map((e) => e.type);
export const ids = (events) => events.map((e) => e.id);

/** Tries until the assertions hold: lists of sessions are of what was persisted. */
export async function eventually(check) {
  for (let end = Date.now() + 10_000; ; await new Promise((r) => setTimeout(r, 50))) {
    try {
      return await check();
    } catch (e) {
      if (Date.now() > end) throw e;
    }
  }
}

/** The library's own error, with what it read of the answer. */
export async function refused(call, kind, type) {
  const err = await call.then(() => assert.fail(`no ${kind.name}`), (e) => e);
  assert.ok(err instanceof kind, err.stack);
  assert.equal(err.type, type);
  assert.match(err.requestID ?? "", /\S/, "the answer has a request id");
  assert.equal(err.error.request_id, err.requestID);
  assert.equal(err.error.type, "error");
  assert.ok(err.apiMessage, "the answer says what is wrong");
  return err;
}

export const end = () => process.stdout.write("ok\n", () => process.exit(0));
