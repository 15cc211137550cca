// What the scripts of threads have in common: the unmodified SDK of LangGraph, in the version and over the transport that the
// environment names, against two nodes of one log. The agent is threadAgent of the Go test. What is wrong is an assertion.
import assert from "node:assert/strict";
import net from "node:net";
import WS from "ws";

export const { BASE, OTHER, TOKEN, TRANSPORT = "sse", SDK = "@langchain/langgraph-sdk" } = process.env;
export const { Client } = await import(SDK);

globalThis.WebSocket ??= WS; // Node has none of its own before 22

/** What the agent says of itself, behind what it was told. */
export const speech = 'Grüße 🌍 "in" \\ quotes,\n\ttabs\u2028 and <tags> & all.';
export const said = (text) => `You say: ${text}. ${speech}`;
export const all = ["lifecycle", "messages", "tools", "input", "values", "updates", "checkpoints", "tasks", "custom"];

export const open = (apiUrl = BASE, more = {}) => new Client({ apiUrl, apiKey: TOKEN || null, streamProtocol: TRANSPORT === "websocket" ? "v2-websocket" : "v2", ...more });
export const watch = (client, id, options = {}) => client.threads.stream(id, { assistantId: "agent_e2e", ...options });
export const input = (content, id) => ({ messages: [{ role: "user", content, ...(id ? { id } : {}) }] });

const terminal = (e) => e.method === "lifecycle" && e.params.namespace.length === 0 && ["completed", "failed", "interrupted"].includes(e.params.data.event);

/** SDK 1.11 does not know `input.answered`, and leaves a watcher paused at a terminal: threads-pause.mjs shows how. */
export const old = SDK.includes("1.11");

/** Reads all events of a thread through a stream of the SDK, up to its nth terminal. */
export async function read(thread, runs) {
  const events = [];
  let done;
  const over = new Promise((resolve) => (done = resolve));
  const sub = await thread.subscribe({ channels: all });
  if (old) thread.onEvent((e) => terminal(e) && sub.resume());
  (async () => {
    for (let left = runs; left > 0; await sub.waitForResume()) {
      for await (const e of sub) {
        events.push(e);
        if (terminal(e) && --left === 0) return done(events);
      }
      if (!sub.isPaused) return done(events);
    }
  })();
  return { events, over: patient(over, () => `${events.length} events, the last ${JSON.stringify(events.at(-1))}`) };
}

/** Bounds a wait: what never comes is told, and no test hangs. */
export function patient(promise, what, ms = 30_000) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new assert.AssertionError({ message: `waited in vain: ${what()}` })), ms)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** All events of a thread up to now, read without the SDK. */
export async function plain(base, id) {
  const stop = new AbortController();
  const answer = await fetch(`${base}/threads/${id}/stream/events`, {
    method: "POST", headers: { "content-type": "application/json", ...(TOKEN ? { "x-api-key": TOKEN } : {}) }, body: JSON.stringify({ channels: all }), signal: stop.signal,
  });
  assert.equal(answer.status, 200);
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of answer.body) {
    text += decoder.decode(chunk, { stream: true });
    if (/^: replayed \d+$/m.test(text)) break;
  }
  stop.abort();
  return text.split("\n").filter((l) => l.startsWith("data: ")).map((l) => JSON.parse(l.slice(6)));
}

/** Holds that somebody has exactly the events that there are, in their order. */
export function has(events, want, who) {
  const got = ids(events);
  const i = want.findIndex((id, i) => id !== got[i]);
  assert.ok(i < 0 && got.length === want.length,
    `${who}: ${got.length} of ${want.length}; at ${i} ${JSON.stringify(events[i])}, want ${want[i]}; missing ${want.filter((id) => !got.includes(id)).length}, twice ${got.length - new Set(got).size}`);
}

export const ids = (events) => events.map((e) => e.event_id);

export async function collect(list) {
  const got = [];
  for await (const item of list) got.push(item);
  return got;
}

/** A proxy that cuts its first connections behind so many bytes to the client, whatever is under way, and no later ones. */
export async function cutting(base, ...after) {
  const to = new URL(base);
  const cuts = [...after];
  let made = 0;
  const server = net.createServer((near) => {
    made++;
    let left = cuts.length ? cuts.shift() : Infinity;
    const far = net.connect(Number(to.port), to.hostname);
    near.pipe(far);
    far.on("data", (d) => {
      near.write(d.subarray(0, Math.min(left, d.length)));
      if ((left -= d.length) <= 0) near.destroy(), far.destroy();
    });
    for (const s of [near, far]) s.on("error", () => {}).on("close", () => (near.destroy(), far.destroy()));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { base: `http://127.0.0.1:${server.address().port}${to.pathname.replace(/\/$/, "")}`, left: () => cuts.length, made: () => made, close: () => server.close() };
}

export const end = () => process.stdout.write("ok\n", () => process.exit(0));
process.on("unhandledRejection", (e) => {
  if (process.env.LENIENT) return;
  console.error(e);
  process.exit(1);
});
