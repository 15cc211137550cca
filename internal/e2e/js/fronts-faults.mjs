// The clients of frontends at one run that goes on, each through a proxy of its own that cuts its connections, over edges that are killed, drained,
// and for some time without NATS. Each is one client object that comes back until the response is over. In the end it has what one has
// that asks an edge once.
import assert from "node:assert/strict";
import { HttpAgent } from "@ag-ui/client";
import { fetchServerSentEvents } from "@tanstack/ai-client";

const { PROXIES, OTHER, TOKEN, RUN } = process.env;
const headers = { Authorization: `Bearer ${TOKEN}` };
const sleep = (ms) => new Promise((go) => setTimeout(go, ms));
const plain = (v) => JSON.parse(JSON.stringify(v));
console.error = () => {};
console.warn = () => {};
process.on("unhandledRejection", () => {}); // HttpAgent leaves that of a broken body

/** Asks until it is over, and returns how often it had to. */
async function comeBack(ask) {
  for (let n = 0; ; n++) {
    assert.ok(n < 3000, "it never ends");
    if (await ask(n)) return n;
    await sleep(20);
  }
}

const chat = (ai, react) => async (base) => {
  const [{ DefaultChatTransport }, { Chat }] = await Promise.all([import(ai), import(react)]);
  const one = new Chat({ id: RUN, generateId: () => "m1", transport: new DefaultChatTransport({ api: base + "/v1/ai-sdk/chat", headers }) });
  const back = await comeBack(async (n) => {
    await (n ? one.resumeStream() : one.sendMessage({ text: "tell me" }));
    return one.status !== "error";
  });
  assert.equal(one.status, "ready");
  return { back, has: plain(one.messages.map(({ id, parts }) => ({ id, parts }))) };
};

const openai = (name) => async (base) => {
  const { default: OpenAI } = await import(name);
  const client = new OpenAI({ apiKey: TOKEN, baseURL: base + "/openai/v1", maxRetries: 0 }); // each cut is seen here
  const has = [];
  const back = await comeBack(async () => {
    const last = has.at(-1)?.sequence_number;
    try {
      const stream = await client.responses.retrieve("resp_" + RUN, { stream: true, ...(last === undefined ? {} : { starting_after: last }) });
      for await (const event of stream) has.push(event);
    } catch (e) {
      assert.ok(!e.status || e.status >= 500, String(e));
      return false;
    }
    return true;
  });
  return { back, has };
};

async function agent(base) {
  const one = new HttpAgent({ url: `${base}/v1/ag-ui/${RUN}?history=true`, threadId: RUN, headers });
  const back = await comeBack(() => one.runAgent({}).then(() => true, () => false));
  return { back, has: plain(one.messages) };
}

async function tanstack(base) {
  let asked = 0, has;
  const fetchClient = (url, init) => {
    asked++;
    return fetch(url, init);
  };
  const connection = fetchServerSentEvents(`${base}/v1/ag-ui/${RUN}`, { headers, fetchClient, reconnect: { delayMs: 20, maxAttempts: 500 } });
  // It asks again by itself after a broken body, not after a refusal: then the page begins anew.
  const anew = await comeBack(async () => {
    has = [];
    try {
      for await (const chunk of connection.joinRun("unknown")) has.push(chunk);
    } catch (e) {
      assert.match(String(e), /status: 5/);
      return false;
    }
    return true;
  });
  return { back: asked - 1, anew, has };
}

const clients = { "ai 6": chat("ai", "@ai-sdk/react"), "ai 7": chat("ai-7", "ai-sdk-react-4"), "openai 6": openai("openai"), "openai 7": openai("openai-7"), agent, tanstack };
const proxies = PROXIES.split(" ");
assert.equal(proxies.length, Object.keys(clients).length);
const all = await Promise.all(Object.entries(clients).map(async ([name, client], i) => [name, client, await client(proxies[i])]));
for (const [name, client, cut] of all) {
  const whole = await client(OTHER);
  console.log(`${name} came back ${cut.back} times${cut.anew ? `, and began anew ${cut.anew} times` : ""}`);
  assert.equal(whole.back, 0, name);
  assert.deepEqual(cut.has, whole.has, name);
  assert.ok(cut.back > 2, `${name} came back ${cut.back} times`);
  assert.ok(JSON.stringify(cut.has).includes("the last words"), name);
}
console.log("ok");
process.exit(0);
