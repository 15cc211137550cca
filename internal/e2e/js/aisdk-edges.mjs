// One chat of the AI SDK whose connections a proxy cuts, over two edges of which one is killed: in the end it has what a client has
// that asks once, when all is over.
import assert from "node:assert/strict";

const { BASE, PROXY, OTHER, TOKEN, SDK = "6" } = process.env;
const { DefaultChatTransport } = await import(SDK === "7" ? "ai-7" : "ai");
const { Chat } = await import(SDK === "7" ? "ai-sdk-react-4" : "@ai-sdk/react");
const headers = { Authorization: `Bearer ${TOKEN}` };
const run = `chat_edges_${SDK}`;
const api = (base) => base + "/v1/ai-sdk/chat";
const open = (base, fetch) => new Chat({ id: run, transport: new DefaultChatTransport({ api: api(base), headers, fetch }) });
const last = (chat) => JSON.parse(JSON.stringify({ id: chat.lastMessage.id, parts: chat.lastMessage.parts }));

console.error = () => {};
const chat = open(BASE, (url, init) => fetch(init?.method === "POST" ? url : url.replace(BASE, PROXY), init));
await chat.sendMessage({ text: "long story" });
let cuts = 0;
for (; chat.status === "error"; cuts++) {
  assert.ok(cuts < 2000, String(chat.error));
  await new Promise((resolve) => setTimeout(resolve, 20));
  await chat.resumeStream();
}
assert.equal(chat.status, "ready");
const whole = open(OTHER);
await whole.resumeStream();
assert.deepEqual(last(chat), last(whole));
assert.ok(cuts > 2, `cut ${cuts} times`);
console.log("ok");
