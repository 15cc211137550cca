// The AI SDK, unmodified, in versions 6 and 7: one and the same client object reads a response, is cut after each of its chunks and in
// the middle of each, and resumes. What it has then is what it has of a body that was never cut. RUNS are "run message_id": the last
// message of a person in a run. What is wrong is an assertion.
import assert from "node:assert/strict";
import { cutting, places } from "./cut.mjs";

const { BASE, TOKEN, RUNS, CLIENT, SDK = "6", EVERY = "1" } = process.env;
const headers = { Authorization: `Bearer ${TOKEN}` };
const { DefaultChatTransport } = await import(SDK === "7" ? "ai-7" : "ai");
const react = SDK === "7" ? "ai-sdk-react-4" : "@ai-sdk/react";
const { Chat, useChat } = await import(react);
const every = (_, i) => i % Number(EVERY) === 0;
const api = (base) => base + "/v1/ai-sdk/chat";

// What a cut is for Chromium, and for Node's fetch.
const broken = { browser: () => new TypeError("network error"), node: () => new TypeError("terminated") };

const plain = (messages) => JSON.parse(JSON.stringify(messages.map(({ id, role, metadata, parts }) => ({ id, role, metadata, parts }))));
const whole = async (run) => (await fetch(`${api(BASE)}/${run}/stream`, { headers })).text();
const silent = async (act) => {
  const { error } = console;
  console.error = () => {};
  try {
    return await act();
  } finally {
    console.error = error;
  }
};

/** A client of each kind: read what there is, and come back. */
const clients = {
  // Chat, as pages have it that make their own.
  chat: (run, message, fetch) => {
    const chat = new Chat({ id: run, generateId: () => message, transport: new DefaultChatTransport({ api: api(BASE), fetch, headers: () => headers }) });
    return { resume: () => chat.resumeStream(), send: () => chat.sendMessage({ text: "again" }), state: () => chat };
  },
  // The hook, mounted.
  hook: async (run, message, fetch) => {
    globalThis.IS_REACT_ACT_ENVIRONMENT = true;
    const [{ createElement }, { act, create }] = await Promise.all([import("react"), import("react-test-renderer")]);
    let now;
    const transport = new DefaultChatTransport({ api: api(BASE), fetch, headers });
    const Page = () => {
      now = useChat({ id: run, generateId: () => message, transport });
      return null;
    };
    let page;
    await act(async () => { page = create(createElement(Page)); });
    return { resume: () => act(() => now.resumeStream()), send: () => act(() => now.sendMessage({ text: "again" })), state: () => now, close: () => act(async () => page.unmount()) };
  },
  // The transport that counts chunks, and comes back by itself.
  workflow: async (run, message, fetch) => {
    const { WorkflowChatTransport } = await import("@workflow/ai");
    const transport = new WorkflowChatTransport({ api: api(BASE), fetch, prepareSendMessagesRequest: ({ id, messages }) => ({ headers, body: { id, messages } }),
      prepareReconnectToStreamRequest: ({ api }) => ({ api, headers }) });
    const chat = new Chat({ id: run, generateId: () => message, transport });
    return { resume: () => chat.resumeStream(), send: () => chat.sendMessage({ text: "again" }), state: () => chat };
  },
};

/** The newest chunks of a run: the transport gets a tail of the whole that its client understands, also over a cut, and counts on. */
async function tails(run) {
  const [{ WorkflowChatTransport }, { readUIMessageStream }] = await Promise.all([import("@workflow/ai"), import("ai")]);
  const all = (await whole(run)).split("\n\n").map((f) => f.slice(6)).filter((d) => d.startsWith("{")).map((d) => JSON.parse(d));
  for (let n = 1; n < all.length + 3; n += Number(EVERY)) {
    const { state, request } = cutting();
    let end;
    const transport = new WorkflowChatTransport({ api: api(BASE), fetch: request, initialStartIndex: -n, onChatEnd: (e) => { end = e; },
      prepareReconnectToStreamRequest: ({ api }) => ({ api, headers }) });
    state.left = 30 + 40 * n;
    const chunks = [];
    await silent(async () => { for await (const chunk of await transport.reconnectToStream({ chatId: run })) chunks.push(chunk); });
    assert.deepEqual(chunks, all.slice(all.length - chunks.length), `${run}: the last ${n}`);
    assert.ok(chunks.length >= Math.min(n, all.length), `${run}: ${chunks.length} of the last ${n}`);
    assert.equal(end.chunkIndex, all.length, `${run}: the last ${n}`);
    const stream = new ReadableStream({ start(c) { chunks.forEach((x) => c.enqueue(x)); c.close(); } });
    for await (const _ of readUIMessageStream({ stream, onError: (e) => assert.fail(`${run}: the last ${n}: ${e}`) })); // each is well-formed
  }
}

let right = 0, wrong = 0;
for (const [run, message] of RUNS.split(";").map((r) => r.split(" "))) {
  const text = await whole(run);
  if (CLIENT === "workflow") await tails(run);
  for (const begins of message ? ["resume", "send"] : ["resume"]) {
    const open = async (how) => {
      const { state, request } = cutting({ broken: broken[how] });
      return { cut: state, ...(await clients[CLIENT](run, message ?? "none", request)) };
    };
    const first = await open("browser");
    await silent(() => first[begins]());
    const want = plain(first.state().messages);
    assert.ok(want.length > 0 && want.at(-1).parts.length > 0, `${run}: nothing was read: ${first.state().error}`);
    await first.close?.();
    const failed = first.state().status;
    for (const how of CLIENT === "chat" ? Object.keys(broken) : ["browser"]) {
      for (const left of places(text, every)) {
        const c = await open(how);
        c.cut.left = left;
        await silent(() => c[begins]());
        if (CLIENT !== "workflow") {
          assert.equal(c.state().status, "error", `${run}: cut at ${left}, and ${c.state().status}`);
          await silent(() => c.resume());
        }
        const got = plain(c.state().messages);
        await c.close?.();
        if (JSON.stringify(got) === JSON.stringify(want) && c.state().status === failed) {
          right++;
          continue;
        }
        wrong++;
        if (wrong <= Number(process.env.SHOW ?? 1)) console.log(run, begins, how, left, c.state().status, failed, c.cut.asked, "\n got", JSON.stringify(got), "\nwant", JSON.stringify(want));
      }
    }
  }
}
console.log(`${CLIENT} of ${SDK}: ${right} right, ${wrong} wrong`);
if (process.env.KNOWN) assert.ok(wrong > 0, "it is mended: take it out of the page's departures");
else assert.equal(wrong, 0);
console.log("ok");
