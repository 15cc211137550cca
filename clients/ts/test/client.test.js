import test from "node:test";
import assert from "node:assert/strict";
import { Client, ServerError, formatEvent, stringify } from "../dist/index.js";
import { collect, done, line, serve } from "./helpers.js";

/** Serves scripted answers and remembers what was asked. */
async function scripted(t, answer) {
  const asked = [];
  const url = await serve(t, async (req, res) => {
    let body = "";
    for await (const piece of req) body += piece;
    asked.push({ method: req.method, url: req.url, key: req.headers["idempotency-key"], type: req.headers["content-type"], auth: req.headers.authorization, headers: req.headers, body });
    answer(res, asked.length, req);
  });
  return { url, asked };
}

const json = (res, status, body, headers = {}) => res.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(body));
const fast = { backoff: { first: 1, most: 5 } };

test("an append is repeated under its key until it is answered", async (t) => {
  const { url, asked } = await scripted(t, (res, n) => {
    if (n === 1) return res.destroy();
    if (n === 2) return json(res, 503, { error: { code: "UNANSWERED", message: "m" } });
    json(res, 200, { first_seq: 1, last_seq: 2 }, { "Idempotency-Replayed": "true" });
  });
  const receipt = await new Client({ url, ...fast }).append("run_1", [
    { type: "text.delta", payload: { text: "a\nb" }, child_id: "run_c" },
    { type: "custom.x", extra: new Map([["x", 1]]) },
  ]);
  assert.deepEqual(receipt, { first_seq: 1, last_seq: 2, replayed: true });
  assert.equal(asked.length, 3);
  assert.equal(new Set(asked.map((a) => a.key)).size, 1);
  assert.match(asked[0].key, /^ts-[0-9a-f]{32}$/);
  assert.equal(asked[2].type, "application/x-ndjson");
  assert.equal(asked[2].body, '{"type":"text.delta","child_id":"run_c","payload":{"text":"a\\nb"}}\n{"type":"custom.x","x":1,"payload":{}}\n');
  assert.equal(asked[2].url, "/v1/agent/runs/run_1/events");
});

test("costs of a run are read page by page, those of days at once", async (t) => {
  const { url, asked } = await scripted(t, (res, n) => json(res, 200, { costs: [{ seq: n, child_id: null, messages: 1, cost_usd: n / 4 }], next_cursor: n < 3 ? String(n) : null }));
  const client = new Client({ url, ...fast });
  const costs = [];
  for await (const c of client.costs("run_1", { by: "message", limit: 1 })) costs.push(c.cost_usd);
  assert.deepEqual(costs, [0.25, 0.5, 0.75]);
  assert.deepEqual((await client.dailyCosts({ since: "2026-11-01T00:00:00Z" })).map((c) => c.cost_usd), [1]);
  const paths = ["", "&cursor=1", "&cursor=2"].map((c) => `/v1/agent/runs/run_1/costs?by=message&limit=1${c}`);
  assert.deepEqual(asked.map((a) => a.url), [...paths, "/v1/agent/costs?since=2026-11-01T00%3A00%3A00Z"]);
});

test("appends to several runs at a time are one request, and each has its own answer", async (t) => {
  const answers = (body) => {
    const runs = new Map();
    body.trimEnd().split("\n").forEach((l, i) => {
      const { run_id, type } = JSON.parse(l);
      if (type === "nonsense") runs.set(run_id, { line: i + 1, run_id, error: { code: "KAI-STREAM-PROTO-0002", message: "m", status: 400 } });
      else if (!runs.get(run_id)?.error) runs.set(run_id, { line: i + 1, run_id, first_seq: 7, last_seq: 7 + (runs.get(run_id)?.n ?? 0), n: (runs.get(run_id)?.n ?? 0) + 1 });
    });
    return [...runs.values()].map((r) => JSON.stringify(r) + "\n").join("");
  };
  let busy = true;
  const { url, asked } = await scripted(t, (res, n) => {
    const { body } = asked[n - 1];
    if (n === 1) return res.destroy();
    const text = answers(body);
    if (busy) {
      busy = false;
      return res.end(text.replace('"first_seq":7,"last_seq":8', '"error":{"code":"UNAVAILABLE","message":"m","status":503,"retry_after":0.001}'));
    }
    res.end(text);
  });
  const client = new Client({ url, ...fast });
  const event = { type: "custom.x" };
  const [a, b, c] = await Promise.allSettled([client.append("a", [event]), client.append("b", [event, event]), client.append("c", [event, { type: "nonsense" }])]);
  assert.deepEqual(a.value, { first_seq: 7, last_seq: 7, replayed: false });
  assert.deepEqual(b.value, { first_seq: 7, last_seq: 8, replayed: false });
  assert.ok(c.reason instanceof ServerError && c.reason.status === 400 && c.reason.problem.line === 2, String(c.reason));
  assert.deepEqual(new Set(asked.map((q) => q.url + q.key)).size, 1);
  assert.equal(asked[0].url, "/v1/agent/events");
  assert.equal(asked[0].body.split("\n")[1], '{"run_id":"b","type":"custom.x","payload":{}}');
});

test("a server that has no request for several runs gets one for each", async (t) => {
  const { url, asked } = await scripted(t, (res, n) => {
    if (asked[n - 1].url === "/v1/agent/events") return json(res, 404, { error: { code: "NOT-FOUND", message: "m" } });
    json(res, 200, { first_seq: 1, last_seq: 1 });
  });
  const client = new Client({ url, ...fast });
  for (let i = 0; i < 2; i++) await Promise.all(["a", "b"].map((run) => client.append(run, [{ type: "custom.x" }])));
  assert.deepEqual(asked.map((q) => q.url).sort(), ["/v1/agent/events", ...["a", "a", "b", "b"].map((r) => `/v1/agent/runs/${r}/events`)]);
});

test("a blob is put and fetched as it is", async (t) => {
  const { url, asked } = await scripted(t, (res, n, req) => {
    if (n === 1) return res.destroy();
    if (req.method === "PUT") return json(res, 201, { blob_ref: "blob_1", bytes: 3, content_type: "image/png" });
    res.writeHead(200, { "Content-Type": "image/png" }).end(Buffer.from([0, 255, 128]));
  });
  const client = new Client({ url, ...fast });
  assert.deepEqual(await client.putBlob("r/1", new Uint8Array([97, 98, 99]), "image/png"), { blob_ref: "blob_1", bytes: 3, content_type: "image/png" });
  assert.deepEqual(asked.map((a) => [a.method, a.url, a.type, a.body]), Array(2).fill(["PUT", "/v1/agent/runs/r%2F1/blobs", "image/png", "abc"]));
  const { content, contentType } = await client.blob("r/1", "blob_1");
  assert.deepEqual([...content, contentType, asked[2].url], [0, 255, 128, "image/png", "/v1/agent/runs/r%2F1/blobs/blob_1"]);
});

test("what asking again cannot change is thrown at once; attempts are bounded", async (t) => {
  const no = await scripted(t, (res) => json(res, 409, { error: { code: "RUN-ENDED", message: "run has ended", line: 1 } }));
  await assert.rejects(new Client({ url: no.url, ...fast }).append("r", [{ type: "custom.x" }], { idempotencyKey: "k" }), (e) => e instanceof ServerError && e.code === "RUN-ENDED" && e.problem.line === 1);
  assert.deepEqual(no.asked.map((a) => a.key), ["k"]);
  const away = await scripted(t, (res) => json(res, 503, {}));
  await assert.rejects(new Client({ url: away.url, ...fast }).run("r"), (e) => e.status === 503);
  assert.equal(away.asked.length, 6);
});

test("a refused token is renewed once", async (t) => {
  const { url, asked } = await scripted(t, (res, n, req) => (req.headers.authorization === "Bearer b" ? json(res, 200, { run_id: "r", state: "running" }) : json(res, 401, {})));
  const tokens = ["a", "b"];
  assert.equal((await new Client({ url, token: () => tokens.shift(), ...fast }).run("r")).state, "running");
  assert.deepEqual(asked.map((a) => a.auth), ["Bearer a", "Bearer b"]);
  await assert.rejects(new Client({ url, token: "a", ...fast }).run("r"), (e) => e.status === 401);
});

test("a refused token is renewed once for all who use it", async (t) => {
  const { url } = await scripted(t, (res, n, req) => (req.headers.authorization === "Bearer t1" ? json(res, 200, {}) : json(res, 401, {})));
  let n = 0;
  const client = new Client({ url, token: async () => `t${n++}`, ...fast });
  await Promise.all(Array.from({ length: 8 }, () => client.run("r")));
  assert.equal(n, 2);
});

test("pages are read to the end, without loss", async (t) => {
  const all = [line(1), line(2).replace('"t2 "', '"t2 ","n":9007199254740993'), done(3)];
  const { url, asked } = await scripted(t, (res, n, req) => {
    const q = new URL(req.url, "http://x").searchParams;
    const after = Number(q.get("after"));
    const rest = all.filter((l) => JSON.parse(l).seq > after).slice(0, after === 2 ? 0 : 2);
    // The second page is empty, and not the last one: the server has looked at enough.
    res.end(`{ "events" : [ ${rest.join(" , ")} ], "next_after":${{ 0: 2, 2: 2.5 }[after] ?? 3}, "has_more" : ${n < 3} }`);
  });
  const got = [];
  for await (const e of new Client({ url }).events("r", { types: ["text.delta", "run.*"], child: ["-"] })) got.push(formatEvent(e));
  assert.deepEqual(got, all);
  assert.deepEqual(asked.map((a) => a.url.replace(/^.*\?/, "")), [0, 2, 2.5].map((n) => `types=text.delta%2Crun.*&child=-&after=${n}`));
});

test("commands go to their paths, ids cannot leave theirs", async (t) => {
  const { url, asked } = await scripted(t, (res) => json(res, 202, { first_seq: 7, last_seq: 7, command: "cancel" }));
  const c = new Client({ url: url + "/base/" });
  assert.deepEqual(await c.cancel("r", "enough"), { first_seq: 7, last_seq: 7, replayed: false });
  await c.approvePlan("r", "p1");
  await c.rejectPlan("r");
  await c.pause("r");
  await c.resume("r");
  await c.redirect("r", "shorter");
  await c.answer("r", "q1", { a: 1 });
  await c.send("r", "hello");
  await c.createRun({ run_id: "r", planning_gate: "required" });
  await c.update("r", { title: "Путь", tags: null, metadata: { a: "1", b: null } });
  await c.append("r", [{ type: "custom.x" }], { about: { title: "Путь", tags: ["a b", "c"], metadata: { "k=": "v,w" } } });
  await c.createTicket("../x?y");
  assert.deepEqual(asked.map((a) => [a.method, a.url.replace("/base/v1/agent/runs", ""), a.body]), [
    ["POST", "/r/cancel", '{"reason":"enough"}'], ["POST", "/r/approve_plan", '{"plan_id":"p1"}'], ["POST", "/r/reject_plan", "{}"],
    ["POST", "/r/pause", "{}"], ["POST", "/r/resume", "{}"], ["POST", "/r/redirect", '{"instruction":"shorter"}'],
    ["POST", "/r/answer", '{"request_id":"q1","answer":{"a":1}}'], ["POST", "/r/messages", '{"content":"hello"}'],
    ["POST", "", '{"run_id":"r","planning_gate":"required"}'], ["POST", "/r/update", '{"title":"Путь","tags":null,"metadata":{"a":"1","b":null}}'],
    ["POST", "/r/events", '{"type":"custom.x","payload":{}}\n'], ["POST", "/..%2Fx%3Fy/tickets", ""],
  ]);
  assert.ok(asked.slice(0, 11).every((a) => a.key), "each is repeatable");
  assert.deepEqual(["title", "tags", "metadata"].map((name) => asked[10].headers[`agentstream-run-${name}`]), ["%D0%9F%D1%83%D1%82%D1%8C", "a%20b,c", "k%3D=v%2Cw"]);
});

test("runs are listed to the end", async (t) => {
  const { url, asked } = await scripted(t, (res, n) => json(res, 200, { runs: [{ run_id: `r${n}`, state: "done" }], next_cursor: n < 3 ? `c${n}` : null }));
  const ids = [];
  for await (const run of new Client({ url }).runs({ state: ["done", "error"], limit: 1 })) ids.push(run.run_id);
  assert.deepEqual(ids, ["r1", "r2", "r3"]);
  assert.deepEqual(asked.map((a) => a.url), ["", "&cursor=c1", "&cursor=c2"].map((c) => "/v1/agent/runs?state=done%2Cerror&limit=1" + c));
});

test("a snapshot keeps number text", async (t) => {
  const text = '{"run_id":"r","last_seq":3,"messages":[],"tool_calls":[{"call_id":"c","duration_ms":1.50}],"children":[],"inputs":[],"commands":[]}';
  const { url } = await scripted(t, (res) => res.end(text));
  const s = await new Client({ url }).snapshot("r");
  assert.equal(stringify(s.tool_calls), '[{"call_id":"c","duration_ms":1.50}]');
});

/** A connection that a test drives: it stands for WebSocket and EventSource. */
function driven(script) {
  const made = [];
  return Object.assign(class {
    constructor(url, protocol) {
      this.url = url;
      this.protocol = protocol;
      this.listeners = {};
      made.push(this);
      setTimeout(() => script(this, made.length), 0);
    }
    addEventListener(type, fn) { (this.listeners[type] ??= []).push(fn); }
    emit(type, event = {}) { if (!this.closed) for (const fn of this.listeners[type] ?? []) fn(event); }
    close() { this.closed = true; }
  }, { made });
}

const tickets = (t, head = () => 200) => scripted(t, (res, n, req) => (req.method === "HEAD" ? res.writeHead(head(req)).end() : json(res, 201, { ticket: `tkt_${n}` })));

test("WebSocket: one ticket for each connection, resumed by query, ended by close codes", async (t) => {
  const { url } = await tickets(t);
  const lines = [line(1), line(2), done(3)];
  const WebSocket = driven((ws, n) => {
    ws.emit("open");
    if (n === 1) ws.emit("message", { data: lines[0] }), ws.emit("close", { code: 1006, reason: "" });
    else if (n === 2) ws.emit("close", { code: 1008, reason: "CREDENTIAL-EXPIRED" });
    else if (n === 3) for (const data of lines.slice(1)) ws.emit("message", { data });
    if (n >= 3) ws.emit("close", { code: 1000, reason: "" });
  });
  let tokens = 0;
  const client = new Client({ url, token: () => `t${tokens++}`, WebSocket });
  const { events, gaps } = await collect(client.watch("r", { ...fast, transport: "websocket", detail: "full" }));
  assert.deepEqual([events.map(formatEvent), gaps], [lines, []]);
  assert.ok(WebSocket.made.every((ws) => ws.closed && ws.protocol === "koder-agent-stream-v1" && ws.url.startsWith("ws://")));
  const queries = WebSocket.made.map((ws) => ws.url.replace(/^.*\?/, ""));
  assert.deepEqual(queries.map((q) => q.replace(/&ticket=.*/, "")), ["detail=full", "after=1&detail=full", "after=1&detail=full", "after=3&detail=full"]);
  assert.equal(new Set(queries.map((q) => q.match(/ticket=(.*)/)[1])).size, 4);
  assert.equal(tokens, 2, "the token was renewed when it had expired");
});

test("WebSocket: refusals that a browser hides are asked for by HTTP", async (t) => {
  for (const status of [404, 410, 400]) {
    const { url } = await tickets(t, () => status);
    const WebSocket = driven((ws) => (ws.emit("error"), ws.emit("close", { code: 1006, reason: "" })));
    await assert.rejects(collect(new Client({ url, WebSocket }).watch("r", { ...fast, transport: "websocket" })), (e) => e instanceof ServerError && e.status === status);
  }
  for (const [reason, status] of [["KAI-STREAM-CONN-0002", 410], ["CURSOR-AHEAD: beyond", 409], ["NOT-FOUND", 404]]) {
    const { url } = await tickets(t);
    const WebSocket = driven((ws) => (ws.emit("open"), ws.emit("close", { code: 1008, reason })));
    await assert.rejects(collect(new Client({ url, WebSocket }).watch("r", { ...fast, transport: "websocket" })), (e) => e.status === status && reason.startsWith(e.code));
  }
});

test("WebSocket: a reader that is too slow is cut, and goes on where it was", async (t) => {
  const { url } = await tickets(t);
  const big = (seq) => line(seq, "text.delta", { text: "x".repeat(3 << 20) });
  const WebSocket = driven((ws) => {
    ws.emit("open");
    const after = Number(new URL(ws.url).searchParams.get("after") ?? 0);
    for (let seq = after + 1; seq <= 12; seq++) ws.emit("message", { data: seq < 12 ? big(seq) : done(seq) });
    ws.emit("close", { code: 1000, reason: "" });
  });
  const { events, gaps } = await collect(new Client({ url, WebSocket }).watch("r", { ...fast, transport: "websocket" }));
  assert.deepEqual([events.map((e) => e.seq), gaps], [Array.from({ length: 12 }, (_, i) => i + 1), []]);
  assert.ok(WebSocket.made.length > 3);
});

test("EventSource: events without names are all heard, of whatever type", async (t) => {
  const lines = [line(1), line(2, "custom.mine"), line(3, "custom.other"), done(4)];
  const { url } = await tickets(t, () => 204);
  const EventSource = driven((es, n) => {
    if (n === 2) return es.emit("error");
    es.emit("open");
    for (const l of lines) es.emit("message", { data: l });
    es.emit("error");
  });
  const { events, gaps } = await collect(new Client({ url, EventSource }).watch("r", { ...fast, transport: "eventsource" }));
  assert.deepEqual([events.map(formatEvent), gaps], [lines, []]);
});

test("EventSource: a new one with ticket and cursor at each error; the end is 204", async (t) => {
  const lines = [line(1), line(2, "custom.mine"), line(3, "custom.other"), done(4)];
  const { url, asked } = await tickets(t, () => 204);
  const EventSource = driven((es, n) => {
    if (n === 3) return es.emit("error");
    es.emit("open");
    for (const l of n === 1 ? lines.slice(0, 2) : lines.slice(2)) es.emit(JSON.parse(l).type, { data: l });
    es.emit("error");
  });
  const client = new Client({ url, token: "t", EventSource });
  const { events, gaps } = await collect(client.watch("r", { ...fast, transport: "eventsource", customTypes: ["custom.mine"] }));
  assert.deepEqual([events.map((e) => e.seq), gaps], [[1, 2, 4], [{ from: 3, to: 3 }]], "of named events, a type that nobody listens for shows up as a gap");
  assert.deepEqual(EventSource.made.map((es) => es.url.replace(/^.*stream\?/, "").replace(/ticket=.*/, "")), ["bundle=true&", "after=2&bundle=true&", "after=4&bundle=true&"]);
  assert.equal(asked.at(-1).method, "HEAD");
  const expired = driven((es) => (es.emit("open"), es.emit("stream.error", { data: '{"error":{"code":"CREDENTIAL-EXPIRED","message":"m"}}' })));
  await assert.rejects(collect(new Client({ url, token: "t", EventSource: expired }).watch("r", { ...fast, transport: "eventsource" })), (e) => e.status === 401);
});

test("a silent push connection is left", async (t) => {
  const { url } = await tickets(t);
  const WebSocket = driven((ws, n) => {
    ws.emit("open");
    if (n === 1) return;
    if (n === 2) ws.emit("message", { data: done(1) });
    ws.emit("close", { code: 1000, reason: "" });
  });
  const { events } = await collect(new Client({ url, WebSocket }).watch("r", { ...fast, transport: "websocket", watchdog: 30 }));
  assert.deepEqual([events.length, WebSocket.made.length], [1, 3]);
});
