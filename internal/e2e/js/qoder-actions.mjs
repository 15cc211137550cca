// What a session waits for: confirmations, results of tools that the client has, answers; and the library's own
// tool runner.
//
// The runner does not wait until the session says that it waits: it sends the result of a call as soon as it sees
// the call. So a server has to take results of calls that nothing is known to wait for. 400 and 404 are final for
// it; it reads the history with limit=1000.
import assert from "node:assert/strict";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { BadRequestError } from "@anthropic-ai/sdk";
import { collect, create, end, idle, ids, message, only, open, other, refused, settled, texts, turn, types, until } from "./qoder-lib.mjs";

const { sessions } = open();
const { id } = await create(sessions);
const input = { city: "Grüße 🌍" };
const send = (...events) => other().sessions.events.send(id, { events });
/** A turn in which act is called with each idle event that wants something. */
const acting = (text, act) => turn(sessions, id, text, {
  done: async (e) => {
    if (idle(e) && e.stop_reason.type === "requires_action") await act(e.stop_reason.event_ids);
    return settled(e);
  },
});
const told = (events) => only(events, "agent.message").map(texts).flat().join();
const running = (events) => types(events).filter((t) => t.startsWith("session.status_"));

for (const [answer, says, ok] of [[{ result: "allow" }, "It is sunny.", true], [{ result: "deny", deny_message: "not today" }, "It is denied: not today", false]]) {
  let asked;
  const events = await acting("confirm weather", async (wanted) => {
    assert.equal(asked, undefined, "asked once");
    asked = wanted;
    assert.equal((await sessions.retrieve(id)).status, "idle");
    await refused(send({ type: "user.tool_confirmation", tool_use_id: "evt_00000000000000000000000000000000", ...answer }), BadRequestError, "invalid_request_error");
    const { data } = await send({ type: "user.tool_confirmation", tool_use_id: wanted[0], ...answer });
    assert.deepEqual([data[0].type, data[0].tool_use_id, data[0].result], ["user.tool_confirmation", wanted[0], answer.result]);
  });
  const [use] = only(events, "agent.tool_use");
  assert.deepEqual(asked, [use.id]);
  assert.deepEqual([use.name, use.input, use.evaluated_permission], ["weather", input, "ask"]);
  const [said] = only(events, "user.tool_confirmation");
  assert.deepEqual([said.tool_use_id, said.result, said.deny_message], [use.id, answer.result, answer.deny_message]);
  const [result] = only(events, "agent.tool_result");
  assert.deepEqual([result.tool_use_id, result.is_error, texts(result)], [use.id, !ok, [ok ? "sunny" : "denied"]]);
  assert.equal(told(events), says);
  assert.deepEqual(running(events), ["session.status_running", "session.status_idle", "session.status_running", "session.status_idle"]);
}

// A tool of the client's: the result goes back by the id of the event.
const custom = await acting("custom tool", async ([use]) => {
  await send({ type: "user.custom_tool_result", custom_tool_use_id: use, content: [{ type: "text", text: "42 🌍" }] });
});
const [use] = only(custom, "agent.custom_tool_use");
assert.deepEqual([use.name, use.input], ["lookup", input]);
const [result] = only(custom, "user.custom_tool_result");
assert.deepEqual([result.custom_tool_use_id, texts(result)], [use.id, ["42 🌍"]]);
assert.deepEqual(only(custom, "agent.tool_result"), [], "the client knows what it has sent");
assert.equal(told(custom), "Found: 42 🌍");

// Two at once: behind the first answer the session still waits for the other.
const waits = [];
const two = await acting("two tools", async (wanted) => {
  waits.push(wanted);
  if (wanted.length === 2 || waits.length > 1) {
    const at = wanted.at(-1);
    await send({ type: "user.custom_tool_result", custom_tool_use_id: at, content: [{ type: "text", text: at }] });
  }
});
const uses = ids(only(two, "agent.custom_tool_use"));
assert.deepEqual(waits.at(-1), [uses[0]], `waits ${JSON.stringify(waits)}`);
assert.ok(waits.some((w) => w.length === 2 && w[0] === uses[0] && w[1] === uses[1]));
assert.equal(told(two), `Found: ${uses.join(", ")}`);

// A question that belongs to no tool.
const asked = await acting("question", async ([use]) => {
  await send({ type: "user.custom_tool_result", custom_tool_use_id: use, content: [{ type: "text", text: "blue" }] });
});
const [question] = only(asked, "agent.custom_tool_use");
assert.deepEqual([question.name, question.input.prompt, question.input.options], ["request_input", "Which one?", ["red", "blue"]]);
assert.equal(told(asked), "It is blue");

// The runner: a tool of the agent's that the client runs, and one of the client's own. Its first stream breaks,
// and it begins again with the history.
const cut = open({
  fetch: async (url, init) => {
    const response = await fetch(url, init);
    if (!String(url).includes("/stream") || cut.broken) return response;
    cut.broken = true;
    let open = true;
    return new Response(response.body.pipeThrough(new TransformStream({
      transform: (chunk, to) => open && (to.enqueue(chunk), (open = !new TextDecoder().decode(chunk).includes("agent.tool_use")) || to.terminate()),
    })), response);
  },
});
const calls = [];
const tool = (name) => betaTool({
  name, description: name, inputSchema: { type: "object", properties: { city: { type: "string" } } },
  run: (args) => (calls.push([name, args]), `${name} of ${args.city}`),
});
const fresh = await create(sessions);
await sessions.events.send(fresh.id, { events: [message("run tools")] });
const handled = [];
for await (const call of cut.sessions.events.toolRunner(fresh.id, { tools: [tool("weather"), tool("lookup")], maxIdleMs: 300 })) handled.push(call);
assert.ok(cut.broken);
assert.deepEqual(calls, [["weather", input], ["lookup", input]], "each runs once");
assert.deepEqual(handled.map((c) => [c.name, c.posted, c.isError, c.result.type]), [["weather", true, false, "user.tool_result"], ["lookup", true, false, "user.custom_tool_result"]]);
const history = await collect(sessions.events.list(fresh.id));
assert.deepEqual(only(history, "agent.message").map(texts).flat(), [`Found: weather of ${input.city}`, `Found: lookup of ${input.city}`]);
assert.deepEqual(history.at(-1).stop_reason, { type: "end_turn" });

// A call that must be confirmed is held by the runner until a person says yes.
const held = await create(sessions);
await sessions.events.send(held.id, { events: [message("confirm weather")] });
const watch = await sessions.events.stream(held.id, { replay: "history" });
const confirmed = until(watch, async (e) => {
  if (idle(e) && e.stop_reason.type === "requires_action") {
    await sessions.events.send(held.id, { events: [{ type: "user.tool_confirmation", result: "allow", tool_use_id: e.stop_reason.event_ids[0] }] });
  }
  return settled(e);
});
for await (const call of open().sessions.events.toolRunner(held.id, { tools: [] })) {
  assert.deepEqual([call.name, call.posted, call.confirmation], ["weather", false, "allow"]); // it has no such tool
  break;
}
assert.equal(told(await confirmed), "It is sunny.");
end();
