// Previews: the library's own accumulator puts together what the message that follows says.
//
// The accumulator throws when a delta comes without its event_start before it on the same connection, and when an
// index leaves one out.
import assert from "node:assert/strict";
import { accumulateManagedAgentsEvent } from "@anthropic-ai/sdk/lib/sessions/accumulate";
import { collect, create, end, message, only, open, other, settled, texts, turn, types, until } from "./qoder-lib.mjs";

const { sessions } = open();
const event_deltas = ["agent.message", "agent.thinking"];

/** Accumulates; gives each message as it stood before it came whole, and as it stood then. */
function accumulated(events) {
  const open = {}, whole = [];
  for (const e of events) {
    const id = e.event_id ?? e.event?.id ?? (e.type === "agent.message" ? e.id : null);
    if (id === null) continue;
    if (e.type === "agent.message") whole.push({ preview: open[id], final: accumulateManagedAgentsEvent(open[id], e), event: e });
    else open[id] = accumulateManagedAgentsEvent(open[id], e);
  }
  return whole;
}

for (const incremental_streaming_enabled of [true, false]) {
  const { id } = await create(sessions, { incremental_streaming_enabled });
  const events = await turn(sessions, id, "say hello", { params: { event_deltas } });
  const [message, ...more] = accumulated(events);
  assert.deepEqual(more, []);
  assert.deepEqual(texts(message.preview), texts(message.event), "previewed is what came");
  assert.deepEqual(message.final, { ...message.event });
  assert.equal(message.preview.id, message.event.id);
  assert.ok(only(events, "event_delta").length > 10);
  const thoughts = only(events, "event_start").filter((e) => e.event.type === "agent.thinking");
  assert.deepEqual(thoughts.map((e) => e.event.id), only(events, "agent.thinking").map((e) => e.id));

  // They are of the connection alone: neither in history nor for others, and only of what was asked for.
  const stored = events.filter((e) => !e.type.startsWith("event_"));
  assert.deepEqual(await collect(sessions.events.list(id)), stored);
  const thinking = await turn(sessions, id, "say more", { params: { event_deltas: ["agent.thinking"] } });
  assert.deepEqual([...new Set(only(thinking, "event_start", "event_delta").map((e) => e.event?.type))], ["agent.thinking"]);
  assert.deepEqual(types(await turn(sessions, id, "say no more")).filter((t) => t.startsWith("event_")), []);

  // On a thread's stream too.
  const [main] = await collect(sessions.threads.list(id));
  const stream = await other().sessions.threads.events.stream(main.id, { session_id: id, event_deltas });
  await sessions.events.send(id, { events: [{ type: "user.message", content: [{ type: "text", text: "say it there" }] }] });
  const [there] = accumulated(await until(stream, settled));
  assert.deepEqual(texts(there.preview), texts(there.event));
}

// A stream that begins within a message has the whole preview, also one that is resumed there behind an event that is
// no preview. The rest of what is resumed is what comes behind that event.
const { id } = await create(sessions, { incremental_streaming_enabled: true });
const first = await sessions.events.stream(id);
await sessions.events.send(id, { events: [message("long story")] });
let deltas = 0;
const began = await until(first, (e) => e.type === "agent.content_block_delta" && ++deltas === 4);
const late = await other().sessions.events.stream(id, { event_deltas });
const resumed = await sessions.events.stream(id, { event_deltas }, { headers: { "Last-Event-ID": began.at(-1).id } });
await sessions.events.send(id, { events: [{ type: "user.interrupt" }] });
const [whole] = accumulated(await until(late, settled));
assert.deepEqual(texts(whole.preview), texts(whole.event));
const rest = await until(resumed, settled);
const stored = await collect(sessions.events.list(id));
assert.deepEqual(rest.filter((e) => !e.type.startsWith("event_")), stored.slice(stored.findIndex((e) => e.id === began.at(-1).id) + 1));
end();
