// Turns, streams, history, increments, threads, interruption.
import assert from "node:assert/strict";
import { collect, create, end, ids, message, idle, only, open, other, settled, take, texts, turn, types, until } from "./qoder-lib.mjs";

const { sessions, asked } = open();
const speech = "Grüße 🌍 \"in\" \\ quotes,\n\ttabs\u2028 and <tags> & all.";
const increments = ["agent.message_start", "agent.content_block_start", "agent.content_block_delta", "agent.content_block_stop", "agent.message_delta", "agent.message_stop"];

/** Checks that what came bit by bit is the message that followed. */
function assembled(events) {
  const messages = {};
  for (const e of only(events, ...increments, "agent.message")) {
    assert.ok(e.message_id, e.type);
    const m = (messages[e.message_id] ??= { blocks: [] });
    if (e.type === "agent.message_start") m.start = e.message;
    if (e.type === "agent.content_block_start") m.blocks[e.index] = { ...e.content_block };
    if (e.type === "agent.content_block_delta") {
      const b = m.blocks[e.index];
      if (e.delta.type === "text_delta") b.text += e.delta.text;
      if (e.delta.type === "thinking_delta") b.thinking += e.delta.thinking;
      if (e.delta.type === "input_json_delta") b.json = (b.json ?? "") + e.delta.partial_json;
    }
    if (e.type === "agent.message_delta") m.stop = e.delta.stop_reason;
    if (e.type === "agent.message_stop") m.over = true;
    if (e.type === "agent.message") m.final = e;
  }
  for (const m of Object.values(messages)) {
    assert.deepEqual([m.start.role, m.start.content, m.over], ["assistant", [], true]);
    for (const b of m.blocks) if (b.type === "tool_use") b.input = JSON.parse(b.json);
    if (m.final) m.final.content.forEach((b, i) => assert.deepEqual(Object.fromEntries(Object.keys(b).map((k) => [k, m.blocks[i]?.[k]])), b));
  }
  return messages;
}

for (const incremental of [true, false]) {
  const { id } = await create(sessions, { incremental_streaming_enabled: incremental });
  const first = await turn(sessions, id, "say hello");
  const second = await turn(sessions, id, "say again");
  const seen = [...first, ...second];
  assert.equal(new Set(ids(seen)).size, seen.length, "each event has its own id");
  for (const e of seen) assert.ok(Date.parse(e.processed_at), `${e.type} has a time`);
  for (const [events, said] of [[first, "hello"], [second, "again"]]) {
    assert.deepEqual(texts(only(events, "user.message")[0]), [`say ${said}`]);
    assert.equal(only(events, "user.message").length, 1, "said once");
    assert.deepEqual(only(events, "agent.message").map(texts), [[speech, `You said: ${said}`]]);
    assert.deepEqual(events.at(-1).stop_reason, { type: "end_turn" });
    const order = types(events.filter((e) => !increments.includes(e.type)));
    assert.deepEqual(order, ["user.message", "session.status_running", "span.model_request_start", "agent.thinking", "agent.thinking", "agent.message", "span.model_request_end", "session.status_idle"]);
    const span = only(events, "span.model_request_end")[0];
    assert.equal(span.model_request_start_id, only(events, "span.model_request_start")[0].id);
    assert.deepEqual([span.is_error, span.model_usage.input_tokens, span.model_usage.output_tokens], [false, 12, 7]);
  }
  const parts = only(seen, ...increments);
  if (incremental) {
    const all = Object.values(assembled(seen));
    assert.equal(all.length, 2);
    assert.deepEqual(all.map((m) => [m.blocks.map((b) => b.type).join(), m.stop]), Array(2).fill(["thinking,text,thinking,text", "end_turn"]));
    assert.deepEqual([...new Set(types(parts))].sort(), [...increments].sort());
    assert.ok(only(parts, "agent.content_block_delta").length > 20, "deltas");
  } else {
    assert.deepEqual(parts, []);
    assert.deepEqual(only(seen, "agent.message").map((m) => m.content.map((b) => b.type)), Array(2).fill(["text", "text"]));
  }

  // History: by pages of three, filtered, backwards, since a time; on the other node the same.
  const before = asked.length;
  const listed = await collect(sessions.events.list(id, { limit: 3 }));
  assert.deepEqual(listed, seen, "history holds what the streams have shown");
  assert.equal(asked.length - before, Math.ceil(seen.length / 3), "pages");
  assert.deepEqual(await collect(other().sessions.events.list(id)), seen);
  assert.deepEqual(await collect(sessions.events.list(id, { limit: 7, order: "desc" })), [...seen].reverse());
  const some = ["agent.message", "user.message", "no.such_type"];
  assert.deepEqual(await collect(sessions.events.list(id, { limit: 3, types: some })), only(seen, ...some));
  const at = second[0].processed_at;
  const after = (cmp) => seen.filter((e) => cmp(Date.parse(e.processed_at), Date.parse(at)));
  assert.deepEqual(await collect(sessions.events.list(id, { limit: 9, "created_at[gt]": at })), after((a, b) => a > b));
  assert.deepEqual(await collect(sessions.events.list(id, { "created_at[lte]": at, types: some })), only(after((a, b) => a <= b), ...some));

  // Resume behind any event: exactly the rest, from either node. The library has no word for it but a header.
  const places = seen.map((_, i) => i).filter((i) => i < 12 || i > seen.length - 4 || i % 11 === 0);
  await Promise.all(places.map(async (i) => {
    const { sessions: from } = i % 2 ? open() : other();
    const stream = await from.events.stream(id, {}, { headers: { "Last-Event-ID": seen[i].id } });
    assert.deepEqual(await take(stream, seen.length - i - 1), seen.slice(i + 1), `behind ${i}: ${seen[i].type}`);
    stream.controller.abort();
  }));
  assert.deepEqual(await take(await sessions.events.stream(id, { replay: "history" }), seen.length), seen);
}

// Events that come with the session.
const begun = await create(sessions, { initial_events: [message("say at once")] });
const answered = await until(await sessions.events.stream(begun.id, { replay: "history" }), settled);
assert.deepEqual(only(answered, "user.message", "agent.message").map(texts), [["say at once"], [speech, "You said: at once"]]);

// Threads.
const { id } = await create(sessions, { incremental_streaming_enabled: true });
const [main] = await collect(sessions.threads.list(id));
assert.deepEqual([main.type, main.session_id, main.parent_thread_id, main.status, main.archived_at], ["session_thread", id, null, "idle", null]);
const own = await sessions.threads.events.stream(main.id, { session_id: id });
const told = await turn(sessions, id, "child of hope");
const threads = await collect(sessions.threads.list(id, { limit: 1 }));
assert.equal(threads.length, 2);
const [parent, child] = threads;
assert.deepEqual([parent.id, child.parent_thread_id, child.session_id], [main.id, main.id, id]);
assert.deepEqual(await sessions.threads.retrieve(child.id, { session_id: id }), child);
const created = only(told, "session.thread_created")[0];
assert.equal(created.session_thread_id, child.id);
for (const type of ["session.thread_status_running", "session.thread_status_idle", "session.thread_status_terminated"]) {
  assert.ok(only(told, type).some((e) => e.session_thread_id === child.id), type);
}
const [sent] = only(told, "agent.thread_message_sent");
assert.deepEqual([sent.to_session_thread_id, texts(sent)], [child.id, ["of hope"]]);
assert.deepEqual(only(told, "agent.message").map(texts).filter((t) => t.length), [["The child has said it."]], "what a child says is in its thread");

const coordinators = await collect(sessions.threads.events.list(main.id, { session_id: id, limit: 3 }));
assert.deepEqual(await take(own, coordinators.length), coordinators);
own.controller.abort();
const spoken = await collect(sessions.threads.events.list(child.id, { session_id: id, limit: 5 }));
assert.ok(spoken.every((e) => e.session_thread_id === child.id));
assert.deepEqual(only(spoken, "agent.message").map(texts), [[speech, "You said: of hope"]]);
assert.ok(only(spoken, "agent.content_block_delta").length > 10);
assembled(spoken);
const [received] = only(spoken, "agent.thread_message_received");
assert.deepEqual([received.from_session_thread_id, texts(received)], [main.id, ["of hope"]]);
for (const i of [0, 3, spoken.length - 2]) {
  const stream = await other().sessions.threads.events.stream(child.id, { session_id: id }, { headers: { "Last-Event-ID": spoken[i].id } });
  assert.deepEqual(await take(stream, spoken.length - i - 1), spoken.slice(i + 1));
  stream.controller.abort();
}
assert.deepEqual(await take(await sessions.threads.events.stream(child.id, { session_id: id, replay: "history" }), spoken.length), spoken);
const shut = await sessions.threads.archive(child.id, { session_id: id });
assert.ok(shut.id === child.id && Date.parse(shut.archived_at));
assert.equal((await other().sessions.threads.retrieve(child.id, { session_id: id })).archived_at, shut.archived_at);
assert.equal((await sessions.retrieve(id)).archived_at, null, "the session goes on");
assert.deepEqual(only(await turn(sessions, id, "say on"), "agent.message").map(texts), [[speech, "You said: on"]]);

// Interrupted: the turn ends, the session goes on.
const stream = await sessions.events.stream(id);
await sessions.events.send(id, { events: [message("long story")] });
let asks = 0;
const cut = await until(stream, async (e) => {
  if (e.type === "agent.content_block_delta" && asks++ === 3) await sessions.events.send(id, { events: [{ type: "user.interrupt" }] });
  return idle(e);
});
assert.equal(only(cut, "user.interrupt").length, 1);
assert.deepEqual(cut.at(-1).stop_reason, { type: "cancelled" });
assembled(cut);

// A turn that fails; and a run that ends and is taken up again.
const broken = await turn(sessions, id, "fail because it is late");
assert.match(only(broken, "session.error")[0].error.message, /because it is late/);
assert.equal(broken.at(-1).stop_reason.type, "retries_exhausted");
for (const word of ["one", "two"]) {
  const over = await turn(sessions, id, `finish ${word}`, { done: settled });
  assert.deepEqual(only(over, "agent.message").map(texts), [[speech, `You said: ${word}`]]);
  assert.equal((await sessions.retrieve(id)).status, "idle");
}
const all = await collect(sessions.events.list(id));
assert.equal(only(all, "session.status_running").length, only(all, "session.status_idle").length, "one end for each beginning");

// What ends a session's stream for good.
const last = await sessions.events.stream(id);
await other().sessions.archive(id);
assert.deepEqual(types(await collect(last)), ["session.status_terminated"]);
end();
