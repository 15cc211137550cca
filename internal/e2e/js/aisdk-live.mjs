// A chat of the AI SDK with an agent that answers: messages, a second tab, a stop from it, approvals, a reload. Two nodes of one log.
import assert from "node:assert/strict";

const { BASE, OTHER, TOKEN, SDK = "6" } = process.env;
const ai = await import(SDK === "7" ? "ai-7" : "ai");
const { Chat } = await import(SDK === "7" ? "ai-sdk-react-4" : "@ai-sdk/react");
const headers = { Authorization: `Bearer ${TOKEN}` };
const api = (base) => base + "/v1/ai-sdk/chat";
const run = `chat_${SDK}_${Date.now()}`;

let called = 0;
const open = (base, messages = []) => new Chat({
  id: run, messages, transport: new ai.DefaultChatTransport({ api: api(base), headers }), onToolCall: () => { called++; },
  sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses,
});
const until = async (what, holds) => {
  for (let n = 0; !(await holds()); n++) {
    assert.ok(n < 1500, `never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};
// Clients keep ids on texts, which are nothing to a page.
const plain = (messages) => JSON.parse(JSON.stringify(messages.map(({ id, role, parts }) => ({ id, role, parts: parts.map((p) => (p.text === undefined ? p : { ...p, id: undefined })) }))));
const texts = (m) => m.parts.filter((p) => p.type === "text").map((p) => p.text).join("");
const stored = async (base) => (await fetch(`${api(base)}/${run}/messages`, { headers })).json();
const call = (chat) => chat.lastMessage?.parts.findLast((p) => p.type === "dynamic-tool");

// A message and its answer; the other node tells the same, to a page that begins with what is stored.
const one = open(BASE);
await one.sendMessage({ text: "say hello" });
assert.equal(one.status, "ready", String(one.error));
assert.equal(one.messages.length, 2);
assert.ok(texts(one.lastMessage).length > 0);
assert.deepEqual(plain(await stored(OTHER)), plain(one.messages));
const two = open(OTHER, await stored(OTHER));
await two.resumeStream();
assert.deepEqual(plain(two.messages), plain(one.messages));

// A response that goes on is watched from a second tab, which stops it.
const long = one.sendMessage({ text: "long story" });
await until("it speaks", () => one.messages.length === 4 && texts(one.lastMessage).length > 0);
const watching = two.resumeStream();
await until("the other tab hears it", () => texts(two.lastMessage ?? { parts: [] }).length > 0 && two.lastMessage.id === one.lastMessage.id);
const begun = Date.now();
const stop = await fetch(`${api(OTHER)}/${run}/stop`, { method: "POST", headers });
assert.equal(stop.status, 202);
await Promise.all([long, watching]);
console.log(`stopped after ${Date.now() - begun} ms`);
assert.equal(one.status, "ready", String(one.error));
assert.deepEqual(plain(two.messages).at(-1), plain(one.messages).at(-1));
assert.equal((await fetch(`${api(BASE)}/${run}/stop`, { method: "POST", headers })).status, 200);

// Approvals: the answer goes on with the same message, in this tab, and is there after a reload.
for (const approved of [true, false]) {
  const before = one.messages.length;
  await one.sendMessage({ text: "confirm it" });
  await until("it asks", () => call(one)?.state === "approval-requested");
  const { id } = one.lastMessage;
  await one.addToolApprovalResponse({ id: call(one).approval.id, approved, reason: "because" });
  await until("it goes on", () => one.status === "ready" && ["output-available", "output-denied", "output-error"].includes(call(one).state));
  assert.equal(call(one).state, approved ? "output-available" : "output-denied");
  assert.equal(one.lastMessage.id, id);
  assert.equal(one.messages.length, before + 2);
  const three = open(OTHER, await stored(OTHER));
  await three.resumeStream();
  const shape = (m) => plain([m])[0].parts.map((p) => ({ ...p, approval: undefined, approvals: undefined }));
  assert.deepEqual(shape(three.messages.at(-1)), shape(one.messages.at(-1)));
  // The other answer comes too late, and is told.
  const late = await fetch(api(OTHER), { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify({ id: run,
    messages: [{ id, role: "assistant", parts: [{ type: "dynamic-tool", state: "approval-responded", approval: { id: call(one).approval.id, approved: !approved } }] }] }) });
  assert.equal(late.status, 409, await late.text());
}
assert.equal(called, 0, "a tool of the page was called");
console.log("ok");
