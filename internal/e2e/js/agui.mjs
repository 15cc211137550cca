// AG-UI's HttpAgent and TanStack AI's resuming client, unmodified: one and the same client object reads a response, is cut after each
// of its events and in the middle of each, and asks again. What it has then is what it has of a body that was never cut. RUNS are runs
// that are over, LIVE those whose log is stored anew, half of it before the cut. Every event is one of @ag-ui/core's schemas.
import assert from "node:assert/strict";
import { cutting, places } from "./cut.mjs";
import { HttpAgent } from "@ag-ui/client";
import { EventSchema } from "@ag-ui/core/schemas";
import { fetchServerSentEvents } from "@tanstack/ai-client";

const { BASE, OTHER, TOKEN, CLIENT, RUNS = "", LIVE = "", EVERY = "1", SHOW = "1" } = process.env;
const headers = { Authorization: `Bearer ${TOKEN}` };
const every = (_, i) => i % Number(EVERY) === 0;
const sleep = (ms) => new Promise((go) => setTimeout(go, ms));

// What the library complains about is an error of ours.
const complaints = [];
console.warn = (...words) => complaints.push(words.join(" "));
console.error = () => {};
process.on("unhandledRejection", () => {}); // the client leaves that of a broken body

const eventsOf = (text) => text.split("\n").filter((l) => l.startsWith("data: ")).map((l) => JSON.parse(l.slice(6)));
const whole = async (run) => (await fetch(`${BASE}/v1/ag-ui/${run}`, { headers })).text();
const post = async (run, body, query = "") => (await fetch(`${BASE}/v1/ag-ui/${run}${query}`, { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) })).text();
const sorted = (v) => (Array.isArray(v) ? v.map(sorted) : v && typeof v === "object" ? Object.fromEntries(Object.keys(v).sort().map((k) => [k, sorted(v[k])])) : v);
const same = (a, b) => JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));

function valid(text) {
  for (const e of eventsOf(text)) {
    const r = EventSchema.safeParse(e);
    assert.ok(r.success, `${JSON.stringify(e)}: ${r.error}`);
  }
}

let right = 0, wrong = 0, asking = 0;
function judge(got, want, ...about) {
  if (same(got, want)) return right++;
  wrong++;
  if (wrong <= Number(SHOW)) console.log(...about, "\n got", JSON.stringify(sorted(got)), "\nwant", JSON.stringify(sorted(want)));
}

function agentOf(run, query = "") {
  const { state, request } = cutting();
  const agent = new HttpAgent({ url: `${BASE}/v1/ag-ui/${run}${query}`, threadId: run, headers, fetch: request });
  const read = () => agent.runAgent({}).then(() => "done", (e) => String(e));
  return { agent, state, read };
}

/** HttpAgent at runs that are over. */
async function httpAgent(run) {
  const text = await whole(run);
  valid(text);
  valid(await post(run, { threadId: run, runId: "v", messages: [] }, "?history=true"));
  const uncut = agentOf(run);
  const how = await uncut.read();
  const full = agentOf(run, "?history=true");
  await full.read();
  assert.ok(uncut.agent.messages.length > 0, `${run}: nothing was read: ${how}`);
  assert.ok(same(full.agent.messages.slice(-uncut.agent.messages.length), uncut.agent.messages), `${run}: the thread does not end with its response:\n${JSON.stringify(full.agent.messages)}\n${JSON.stringify(uncut.agent.messages)}`);
  for (const left of places(text, every)) {
    const c = agentOf(run);
    c.state.left = left;
    const first = await c.read();
    assert.notEqual(first, "done", `${run}: cut at ${left}, and it is over`);
    if (c.agent.pendingInterrupts?.length > 0) {
      asking++; // it does not ask before the page answers
      continue;
    }
    const held = c.agent.messages.some((m) => m.role !== "user"); // else it is told the response from its beginning
    c.agent.url = `${OTHER}/v1/ag-ui/${run}`;
    const then = await c.read();
    assert.equal(then, how, `${run}: cut at ${left}`);
    judge(c.agent.messages, (held ? full : uncut).agent.messages, run, left);
    if (!wrong && uncut.agent.state && Object.keys(full.agent.state).length > 0 && held) assert.ok(same(c.agent.state, full.agent.state), `${run}: state at ${left}`);
  }
}

/** HttpAgent at a run that goes on: cut, asked again, and only then is the rest stored. */
async function httpAgentLive(run) {
  const log = (await (await fetch(`${BASE}/v1/agent/runs/${run}/events?limit=1000`, { headers })).json()).events;
  const lines = log.map((e) => JSON.stringify({ type: e.type, child_id: e.child_id ?? undefined, turn_id: e.turn_id ?? undefined, payload: e.payload }));
  const publish = async (to, part) => {
    const r = await fetch(`${BASE}/v1/agent/runs/${to}/events`, { method: "POST", headers: { ...headers, "Content-Type": "application/x-ndjson" }, body: part.join("\n") });
    assert.ok(r.ok, await r.text());
  };
  for (let k = 1; k < lines.length; k += Number(EVERY)) {
    const live = `${run}_l${k}`;
    await publish(live, lines.slice(0, k));
    const probe = await fetch(`${BASE}/v1/ag-ui/${live}`, { headers });
    await probe.body?.cancel();
    if (probe.status === 204) continue;
    const c = agentOf(live);
    c.state.left = 1 << 30;
    const first = c.read();
    for (let got = -1; got !== c.state.got || got === 0; await sleep(15)) got = c.state.got; // it has what there is
    c.state.cut();
    const how = await first;
    if (how === "done") continue; // it was over
    const second = c.read();
    for (let n = 0; c.state.asked.length < 2 && n < 100; n++) await sleep(5);
    await sleep(10);
    await publish(live, lines.slice(k));
    await second;
    const full = agentOf(live, "?history=true");
    await full.read();
    const held = full.agent.messages.length >= c.agent.messages.length;
    assert.ok(held, `${live}: ${c.agent.messages.length} messages of ${full.agent.messages.length}`);
    // It has the response that it watched, from the thread's beginning if it held something: a later one is another call's.
    const n = c.agent.messages.length;
    const [early, late] = [full.agent.messages.slice(0, n), full.agent.messages.slice(-n)];
    judge(c.agent.messages, same(c.agent.messages, early) ? early : late, live, k);
  }
}

/** TanStack's client: every chunk once, in order, whatever is cut. */
async function tanstack(run) {
  const text = await whole(run);
  const read = async (left) => {
    const { state, request } = cutting();
    state.left = left;
    const connection = fetchServerSentEvents(`${BASE}/v1/ag-ui/${run}`, { headers, fetchClient: request, reconnect: { delayMs: 1, maxAttempts: 5 } });
    const chunks = [];
    for await (const chunk of connection.joinRun("unknown")) chunks.push(chunk);
    return { chunks, state };
  };
  const uncut = (await read(Infinity)).chunks;
  assert.equal(uncut.length, eventsOf(text).length, `${run}: ${uncut.length} chunks`);
  const first = Buffer.byteLength(text.split("\n\n")[0]) + 2; // the client asks again only if it has an id
  for (const left of places(text, every).filter((n) => n >= first)) {
    const { chunks, state } = await read(left);
    judge(chunks, uncut, run, left, state.asked);
    assert.ok(state.asked.length > 1, `${run}: cut at ${left}, and it was not asked again`);
  }
}

const act = { agent: httpAgent, live: httpAgentLive, tanstack }[CLIENT];
for (const run of (CLIENT === "live" ? LIVE : RUNS).split(";")) await act(run);
const known = /Unknown|stripp|unknown/i;
assert.deepEqual(complaints.filter((c) => !known.test(c)).slice(0, 3), []);
console.log(`${CLIENT}: ${right} right, ${wrong} wrong, ${asking} wait for an answer`);
assert.equal(wrong, 0);
console.log("ok");
process.exit(0);
