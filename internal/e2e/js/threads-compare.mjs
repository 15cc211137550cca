// What LangGraph's clients can do on a server: one line for each row of the table in docs/dialects/langchain.md, "yes" or what is
// wrong. BASE and OTHER are two nodes, or one twice; the agent repeats what it is told, asks at "ask" and goes on at "long".
import assert from "node:assert/strict";
import { all, BASE, collect, cutting, ids, input, open, OTHER, patient, read, TOKEN, watch } from "./threads-lib.mjs";
import { Client } from "./threads-lib.mjs";

const only = process.argv[2];
const wait = (ms) => new Promise((r) => setTimeout(r, ms));
const soon = (promise, what) => patient(promise, () => what, 12_000);
const kinds = { sse: open(BASE), ws: new Client({ apiUrl: BASE, apiKey: null, streamProtocol: "v2-websocket" }) };
const elsewhere = { sse: open(OTHER), ws: new Client({ apiUrl: OTHER, apiKey: null, streamProtocol: "v2-websocket" }) };
const kind = (k, client = kinds) => (id, more = {}) => watch(client[k], id, { transport: k === "ws" ? "websocket" : "sse", ...more });
const driver = kind("sse");
const assistant = "agent_e2e";

async function thread() {
  const { thread_id } = await kinds.sse.threads.create({ metadata: { graph_id: assistant } });
  return thread_id;
}

/** Runs on a thread and returns how it ends. */
async function run(t, text) {
  const ended = new Promise((resolve) => {
    const off = t.onEvent((e) => {
      if (e.method !== "lifecycle" || e.params.namespace.length > 0 || !["completed", "failed", "interrupted"].includes(e.params.data.event)) return;
      off();
      resolve(e.params.data.event);
    });
  });
  const { run_id } = await t.run.start({ input: input(text) });
  return { run_id, ended: soon(ended, `the end of ${text}`) };
}
const done = async (t, text) => (await run(t, text)).ended;
const spoken = (events) => events.filter((e) => e.method === "messages" && e.params.data.event === "content-block-delta").map((e) => e.params.data.delta.text ?? "").join("");

/** A stream without the SDK, up to a time of silence. */
async function raw(id, headers = {}, more = {}) {
  const stop = new AbortController();
  const answer = await fetch(`${OTHER}/threads/${id}/stream/events`, {
    method: "POST", body: JSON.stringify({ channels: all, ...more }), signal: stop.signal,
    headers: { "content-type": "application/json", ...(TOKEN ? { "x-api-key": TOKEN } : {}), ...headers },
  });
  assert.equal(answer.status, 200);
  setTimeout(() => stop.abort(), 700);
  let text = "";
  try {
    for await (const chunk of answer.body) text += new TextDecoder().decode(chunk, { stream: true });
  } catch {}
  return text.split("\n").filter((l) => l.startsWith("data: ")).map((l) => JSON.parse(l.slice(6)));
}

async function live(k) {
  const id = await thread(), t = kind(k)(id);
  const texts = collect(t.messages), values = collect(t.values);
  await done(t, "hello");
  const said = await Promise.all((await soon(texts, "messages")).map((m) => m.text));
  assert.ok(said.some((s) => s.includes("You say: hello")), JSON.stringify(said));
  assert.ok((await soon(values, "values")).length > 0);
}
async function late(k) {
  const id = await thread(), t = driver(id);
  await done(t, "hello");
  await done(t, "again");
  const first = await read(kind(k)(id), 2), second = await read(kind(k, elsewhere)(id), 2);
  const [a, b] = await soon(Promise.all([first.over, second.over]), "two who come late");
  assert.deepEqual(ids(a), ids(b));
  assert.match(spoken(a), /hello[^]*again/);
}
async function observers(...ks) {
  const id = await thread();
  const seen = await Promise.all(ks.map((k, i) => read(kind(k, i % 2 ? elsewhere : kinds)(id), 1)));
  await done(driver(id), "hello");
  const all = (await soon(Promise.all(seen.map((s) => s.over)), "all observers")).map(ids);
  for (const one of all) assert.deepEqual(one, all[0]);
  assert.ok(all[0].length > 5);
}
async function cut(k) {
  const id = await thread(), proxy = await cutting(BASE, 2_003, 4_001);
  const torn = watch(new Client({ apiUrl: proxy.base, apiKey: k === "ws" ? null : TOKEN || null }), id, { transport: k === "ws" ? "websocket" : "sse", reconnectDelayMs: () => 50 });
  const through = await read(torn, 1), whole = await read(kind("sse", elsewhere)(id), 1);
  await done(driver(id), "slow hello");
  const [a, b] = await soon(Promise.all([through.over, whole.over]), "who was cut");
  assert.deepEqual(ids(a), ids(b));
  assert.ok(proxy.made() > 1);
}
async function cursor(how) {
  const id = await thread();
  await done(driver(id), "hello");
  const whole = await raw(id), at = whole[Math.floor(whole.length / 2)];
  const rest = how === "since" ? await raw(id, {}, { since: at.seq }) : await raw(id, { "Last-Event-ID": at.event_id });
  assert.deepEqual(ids(rest), ids(whole.slice(whole.indexOf(at) + 1)));
}
async function socketSince() {
  const id = await thread();
  await done(driver(id), "hello");
  const whole = await raw(id), at = whole[Math.floor(whole.length / 2)], got = [];
  const ws = new WebSocket(`${BASE.replace("http", "ws")}/threads/${id}/stream/events`);
  ws.onmessage = (m) => got.push(JSON.parse(m.data));
  await new Promise((r, j) => ((ws.onopen = r), (ws.onerror = j)));
  ws.send(JSON.stringify({ id: 1, method: "subscription.subscribe", params: { channels: all, since: at.seq } }));
  await wait(700);
  ws.close();
  assert.deepEqual(ids(got.filter((e) => e.type === "event")), ids(whole.slice(whole.indexOf(at) + 1)));
}
async function question(k) {
  const id = await thread(), t = kind(k)(id);
  assert.equal(await done(t, "ask"), "interrupted");
  const { interruptId, namespace } = t.interrupts.at(-1);
  const over = new Promise((resolve) => t.onEvent((e) => e.method === "lifecycle" && e.params.data.event === "completed" && e.params.namespace.length === 0 && resolve()));
  await t.input.respond({ namespace, interrupt_id: interruptId, response: "red" });
  await soon(over, "the answer");
}
async function command(method, params) {
  const id = await thread(), t = driver(id);
  await done(t, "hello");
  await method(t, params ?? {});
}
async function checkpoint() {
  const id = await thread(), t = driver(id);
  await done(t, "hello");
  const { checkpoints } = await t.state.listCheckpoints({});
  assert.ok(checkpoints.length > 0);
  await t.state.fork({ checkpoint_id: checkpoints.at(-1).id });
}
async function inject() {
  const id = await thread(), t = driver(id);
  const { ended, run_id } = await run(t, "slow hello");
  await wait(300);
  await t.input.inject({ namespace: [], message: { role: "user", content: "besides" } });
  await ended;
  const all = await raw(id);
  assert.match(spoken(all), /besides/);
  void run_id;
}
async function stop() {
  const id = await thread(), t = driver(id);
  const { run_id, ended } = await run(t, "long");
  await wait(500);
  await kinds.sse.runs.cancel(id, run_id, false, "interrupt");
  assert.notEqual(await ended, "completed");
}
async function legacy(torn) {
  const id = await thread(), proxy = torn ? await cutting(BASE, 2_003, 1_009) : { base: BASE, made: () => 2 };
  const parts = await soon(collect(open(proxy.base, { streamProtocol: "legacy" }).runs.stream(id, assistant, {
    input: input("slow hello"), streamMode: ["values", "messages-tuple"], streamResumable: true, onDisconnect: "continue" })), "the run");
  const said = parts.filter((p) => p.event === "messages" && p.data[0].type !== "human").map((p) => p.data[0].content).join("");
  assert.equal(said.match(/You say: slow hello/g)?.length, 1, said);
  assert.ok(proxy.made() > 1);
}
async function joined() {
  const id = await thread(), older = open(BASE, { streamProtocol: "legacy" });
  const parts = await soon(collect(older.runs.stream(id, assistant, { input: input("hello"), streamMode: ["values", "messages-tuple"], streamResumable: true })), "the run");
  const { run_id } = (await older.runs.list(id))[0];
  const again = await soon(collect(open(OTHER).runs.joinStream(id, run_id, { lastEventId: "-1", streamMode: ["values", "messages-tuple"] })), "joined");
  assert.equal(again.filter((p) => p.event === "messages").length, parts.filter((p) => p.event === "messages").length);
}

const rows = {
  "a live run, SSE": () => live("sse"),
  "a live run, WebSocket": () => live("ws"),
  "late join after two runs, SSE": () => late("sse"),
  "late join after two runs, WebSocket": () => late("ws"),
  "three observers, SSE": () => observers("sse", "sse", "sse"),
  "two observers, WebSocket": () => observers("ws", "ws"),
  "observers over SSE and WebSocket": () => observers("sse", "ws", "sse", "ws"),
  "cut twice in mid-frame, SSE": () => cut("sse"),
  "cut twice in mid-frame, WebSocket": () => cut("ws"),
  "`since` over SSE gives the rest": () => cursor("since"),
  "`Last-Event-ID` gives the rest": () => cursor("id"),
  "`since` in `subscription.subscribe` gives the rest": socketSince,
  "a question and its answer, SSE": () => question("sse"),
  "a question and its answer, WebSocket": () => question("ws"),
  "stop": stop,
  "`input.inject` into a run": inject,
  "`state.get`": () => command((t) => t.state.get({ namespace: [] })),
  "`agent.getTree`": () => command((t) => t.agent.getTree()),
  "`state.listCheckpoints`, `state.fork`": checkpoint,
  "`runs.stream` of the older API": () => legacy(false),
  "the same, cut twice": () => legacy(true),
  "the same, joined behind its end": joined,
};
let wrong = 0;
for (const [name, row] of Object.entries(rows)) {
  if (only && name !== only) continue;
  const why = await patient(row(), () => "silence", 25_000).then(() => "", (e) => String(e?.message ?? e).split("\n")[0].slice(0, 110));
  if (why) wrong++;
  console.log(`${name}: ${why ? `no (${why})` : "yes"}`);
}
process.stdout.write(wrong ? `${wrong} are not\n` : "ok\n", () => process.exit(0));
