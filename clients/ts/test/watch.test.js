import test from "node:test";
import assert from "node:assert/strict";
import { Client, ServerError, ProtocolError, formatEvent } from "../dist/index.js";
import { collect, done, edge, frame, named, line, random, scenario, seed, serve } from "./helpers.js";

const fast = { backoff: { first: 1, most: 5 } };
const short = [line(1), line(2, "text.delta", { text: "Grüße 👩‍👧" }), line(3, "tool.end", { call_id: "c", ok: true }), done(4)];

test("T3: a connection cut behind every byte, resumed, gives exactly the rest", async (t) => {
  const lines = short;
  let at;
  const e = edge(lines, { cut: () => { const now = at; at = undefined; return now; } });
  const client = new Client({ url: await serve(t, e.handler) });
  const size = Buffer.byteLength("retry: 1\n\n: hello\n\n" + lines.map(frame).join(""));
  for (let i = 1; i < size; i++) {
    at = i;
    const { events, gaps } = await collect(client.watch("run_1", fast));
    assert.deepEqual(events.map(formatEvent), lines, `cut behind ${i}`);
    assert.deepEqual(gaps, []);
  }
  assert.equal(e.stats.cuts, size - 1);
});

test("T3: from each seq exactly the rest", async (t) => {
  const e = edge(short);
  const client = new Client({ url: await serve(t, e.handler) });
  for (let k = 0; k <= short.length; k++) {
    const { events } = await collect(client.watch("run_1", { ...fast, after: k }));
    assert.deepEqual(events.map(formatEvent), short.slice(k));
  }
});

test("random cuts through every scenario lose and double nothing", async (t) => {
  t.diagnostic(`seed ${seed}`);
  const r = random(seed);
  for (const name of ["children", "parallel-tools", "plain", "native"]) {
    const lines = scenario(`scenarios/${name}.jsonl`);
    const e = edge(lines, { cut: (n) => 1 + Math.floor(r() ** 3 * n) });
    const client = new Client({ url: await serve(t, e.handler) });
    const { events, gaps } = await collect(client.watch("run_01JGX6TESTRUN", fast));
    assert.deepEqual(events.map(formatEvent), lines, name);
    assert.deepEqual(gaps, []);
    assert.ok(e.stats.cuts > 2, `${name}: ${e.stats.cuts} cuts`);
  }
});

test("T2: a gap is seen and said, and is not taken for an event", async (t) => {
  const lines = [line(1), line(4, "text.delta", { text: "x" }, { first_seq: 3 }), done(5)];
  const client = new Client({ url: await serve(t, edge(lines).handler) });
  const told = [];
  const items = [];
  for await (const item of client.watch("run_1", { ...fast, onGap: (g) => told.push(g) })) items.push(item);
  assert.deepEqual(items.map((i) => i.gap ?? i.event.seq), [1, { from: 2, to: 2 }, 4, 5]);
  assert.deepEqual(told, [{ from: 2, to: 2 }]);
});

test("deltas that came together are yielded one by one, and the last has no more", async (t) => {
  const bundle = line(5, "delta.bundle", { deltas: [
    { type: "text.delta", child_id: "run_c", turn_id: "t", payload: { text: "a" } },
    { type: "reasoning.delta", child_id: null, payload: { text: "b", index: 0 } },
  ] }, { first_seq: 2 });
  const e = edge([line(1), bundle, done(6)]);
  const items = [];
  for await (const item of new Client({ url: await serve(t, e.handler) }).watch("r", fast)) items.push(item);
  assert.deepEqual(items.map((i) => [i.event.type, i.event.child_id, i.event.seq, i.more]), [
    ["text.delta", null, 1, undefined], ["text.delta", "run_c", 5, true], ["reasoning.delta", null, 5, undefined], ["run.lifecycle", null, 6, undefined],
  ]);
  assert.equal(e.stats.urls[0], "/v1/agent/runs/r/stream?bundle=true");
});

test("stream.gap is no event; the numbers say the gap, and it is asked for where that is wanted", async (t) => {
  const gap = `{"id":"gap_2_3","ts":"2026-01-01T00:00:00.000Z","type":"stream.gap","run_id":"r","child_id":null,"seq":1,"payload":{"first_seq":2,"last_seq":3,"dropped_count":2,"dropped_code":"KAI-STREAM-BUF-0001"}}`;
  const all = [line(1), line(2), line(3), line(4), done(5)];
  for (const gaps of ["report", "refetch"]) {
    const whole = edge(all);
    let first = true;
    const url = await serve(t, (q, s) => {
      if (!first) return whole.handler(q, s);
      first = false;
      s.writeHead(200, { "Content-Type": "text/event-stream" });
      s.end("retry: 1\n\n" + frame(all[0]) + `event: stream.gap\ndata: ${gap}\n\n` + [all[3], all[4]].map((l) => `data: ${l}\n\n`).join(""));
    });
    const got = await collect(new Client({ url }).watch("r", { ...fast, gaps }));
    const want = gaps === "report" ? [[1, 4, 5], [{ from: 2, to: 3 }]] : [[1, 2, 3, 4, 5], []];
    assert.deepEqual([got.events.map((e) => e.seq), got.gaps], want);
  }
});

test("T2: a gap in full detail is asked for again, and reported only when it stays", async (t) => {
  const all = [line(1), line(2), line(3), done(4)];
  let first = true;
  const whole = edge(all), holey = edge([all[0], all[2], all[3]]);
  const url = await serve(t, (q, s) => {
    const h = first ? holey.handler : whole.handler;
    first = false;
    h(q, s);
  });
  assert.deepEqual((await collect(new Client({ url }).watch("r", { ...fast, detail: "full" }))).events.map((e) => e.seq), [1, 2, 3, 4]);
  assert.equal(whole.stats.urls[0], "/v1/agent/runs/r/stream?after=1&detail=full");
  const forever = new Client({ url: await serve(t, holey.handler) });
  const { events, gaps } = await collect(forever.watch("r", { ...fast, detail: "full" }));
  assert.deepEqual([events.map((e) => e.seq), gaps], [[1, 3, 4], [{ from: 2, to: 2 }]]);
});

test("what is merged explains itself; what was had is dropped", async (t) => {
  const lines = [line(3, "text.delta", { text: "abc" }, { first_seq: 1 }), line(3), line(2), line(9, "text.delta", { text: "d" }, { first_seq: 4 }), done(10)];
  const body = lines.map((l, i) => (i % 2 ? named(l) : frame(l))).join("");
  const url = await serve(t, (q, s) => (q.url.includes("after=10") ? s.writeHead(204).end() : s.writeHead(200, { "Content-Type": "text/event-stream" }).end(body)));
  const { events, gaps } = await collect(new Client({ url }).watch("r", fast));
  assert.deepEqual([events.map((e) => e.seq), gaps], [[3, 9, 10], []]);
});

test("a merge that repeats what is known is asked for again, then refused", async (t) => {
  const body = [line(2, "text.delta", { text: "ab" }, { first_seq: 1 }), line(4, "text.delta", { text: "bcd" }, { first_seq: 2 })].map(frame).join("");
  let n = 0;
  const url = await serve(t, (_, s) => (n++, s.writeHead(200, { "Content-Type": "text/event-stream" }).end(body)));
  await assert.rejects(collect(new Client({ url }).watch("r", fast)), ProtocolError);
  assert.equal(n, 2);
});

test("an end is confirmed, and a follow-up behind it is read", async (t) => {
  const first = [line(1), done(2)], more = [line(3), done(4)];
  let asked = 0;
  const url = await serve(t, (q, s) => {
    asked++;
    const after = Number(new URL(q.url, "http://x").searchParams.get("after") ?? 0);
    if (after >= 4) return s.writeHead(204).end();
    s.writeHead(200, { "Content-Type": "text/event-stream" }).end((after < 2 ? first : more).map(frame).join(""));
  });
  const { events } = await collect(new Client({ url }).watch("r", fast));
  assert.deepEqual(events.map((e) => e.seq), [1, 2, 3, 4]);
  assert.equal(asked, 3);
});

test("503 is waited out for as long as it says, other refusals are thrown", async (t) => {
  const e = edge(short);
  let refuse = 2;
  const url = await serve(t, (q, s) => (refuse-- > 0 ? s.writeHead(503, { "Retry-After": "1" }).end('{"error":{"code":"BUSY","message":"m"}}') : e.handler(q, s)));
  const waits = [];
  const began = Date.now();
  const { events } = await collect(new Client({ url }).watch("r", { ...fast, onState: (s) => s.state === "waiting" && waits.push(s) }));
  assert.equal(events.length, 4);
  assert.ok(waits.length === 2 && waits.every((w) => w.ms >= 1000 && w.error.code === "BUSY") && Date.now() - began >= 2000);

  const refusals = { 400: "BAD-CURSOR", 403: "FORBIDDEN", 404: "NOT-FOUND", 409: "CURSOR-AHEAD", 410: "KAI-STREAM-CONN-0002", 500: "INTERNAL" };
  for (const [status, code] of Object.entries(refusals)) {
    let asked = 0;
    const url = await serve(t, (_, s) => (asked++, s.writeHead(Number(status)).end(JSON.stringify({ error: { code, message: "m", first_seq: 7 } }))));
    await assert.rejects(collect(new Client({ url }).watch("r", fast)), (err) => err instanceof ServerError && err.code === code && err.status === Number(status) && err.problem.first_seq === 7);
    assert.equal(asked, 1, "asked once");
  }
});

test("a credential that ends is renewed, before and within a stream", async (t) => {
  const given = [];
  let current = 0;
  const url = await serve(t, (q, s) => {
    const after = Number(new URL(q.url, "http://x").searchParams.get("after") ?? 0);
    given.push([q.headers.authorization, after]);
    if (q.headers.authorization !== `Bearer t${current}`) return s.writeHead(401).end('{"error":{"code":"UNAUTHORIZED","message":"m"}}');
    if (after >= 4) return s.writeHead(204).end();
    s.writeHead(200, { "Content-Type": "text/event-stream" });
    if (after >= 2) return s.end(short.slice(after).map(frame).join(""));
    s.write(short.slice(after, 2).map(frame).join(""));
    current = 2;
    s.write('event: stream.error\ndata: {"error":{"code":"CREDENTIAL-EXPIRED","message":"m"}}\n\n', () => s.destroy());
  });
  current = 1;
  let tokens = 0;
  const client = new Client({ url, token: () => `t${tokens++}` });
  const { events, gaps } = await collect(client.watch("r", fast));
  assert.deepEqual([events.map((e) => e.seq), gaps], [[1, 2, 3, 4], []]);
  assert.deepEqual(given, [["Bearer t0", 0], ["Bearer t1", 0], ["Bearer t2", 2], ["Bearer t2", 4]]);
  await assert.rejects(collect(new Client({ url, token: "wrong" }).watch("r", fast)), (e) => e instanceof ServerError && e.status === 401);
  let calls = 0;
  await assert.rejects(collect(new Client({ url, token: () => `bad${calls++}` }).watch("r", fast)), (e) => e.status === 401);
  assert.equal(calls, 3, "a source that gives nothing better is not asked for ever");
});

test("a silent connection is left and resumed", async (t) => {
  const e = edge(short);
  let silent = true;
  const url = await serve(t, (q, s) => {
    if (!silent) return e.handler(q, s);
    silent = false;
    s.writeHead(200, { "Content-Type": "text/event-stream" }).write(frame(short[0]));
  });
  const errors = [];
  const { events } = await collect(new Client({ url }).watch("r", { ...fast, watchdog: 100, onState: (s) => s.error && errors.push(s.error.message) }));
  assert.deepEqual(events.map((e) => e.seq), [1, 2, 3, 4]);
  assert.match(errors[0], /no sign of life/);
});

test("the signal ends a watch, wherever it is", async (t) => {
  const url = await serve(t, (_, s) => s.writeHead(200, { "Content-Type": "text/event-stream" }).write(frame(short[0])));
  const reason = new Error("enough");
  for (const when of ["before", "while reading", "while waiting"]) {
    const ac = new AbortController();
    if (when === "before") ac.abort(reason);
    const at = when === "while waiting" ? "http://127.0.0.1:9" : url;
    const o = { signal: ac.signal, backoff: { first: 60_000, most: 60_000 }, onState: (s) => s.state === "waiting" && ac.abort(reason) };
    await assert.rejects(async () => {
      for await (const _ of new Client({ url: at }).watch("r", o)) setTimeout(() => ac.abort(reason), 10);
    }, (e) => e === reason, when);
  }
});

test("leaving the loop closes the connection", async (t) => {
  let closed;
  const gone = new Promise((resolve) => (closed = resolve));
  const url = await serve(t, (q, s) => {
    q.on("close", closed);
    s.writeHead(200, { "Content-Type": "text/event-stream" }).write(short.slice(0, 2).map(frame).join(""));
  });
  for await (const { event } of new Client({ url }).watch("r", fast)) if (event.seq === 1) break;
  await gone;
});

test("attempts without progress are bounded when asked", async () => {
  const states = [];
  const watch = new Client({ url: "http://127.0.0.1:9" }).watch("r", { backoff: { first: 1, attempts: 3 }, onState: (s) => states.push(s.state) });
  await assert.rejects(collect(watch));
  assert.equal(states.filter((s) => s === "connecting").length, 4);
});

test("the view is asked for on every connection, the snapshot on the first alone", async (t) => {
  const e = edge(short, { cut: (n, after) => (after === 0 ? Buffer.byteLength("retry: 1\n\n: hello\n\n" + frame(short[0])) : undefined) });
  const client = new Client({ url: await serve(t, e.handler) + "/" });
  await collect(client.watch("a/b?c", { ...fast, snapshot: true, child: ["-", "run_c"], nested: true, types: ["tool.*"], speed: 2 }));
  assert.equal(e.stats.urls[0], "/v1/agent/runs/a%2Fb%3Fc/stream?snapshot=true&child=-%2Crun_c&bundle=true&nested=true&types=tool.*&speed=2");
  assert.match(e.stats.urls[1], /stream\?after=1&child=-%2Crun_c&bundle=true&nested=true&types=tool\.\*&speed=2$/);
});

test("a body that is no event stream and a line that is no event are refused", async (t) => {
  const html = await serve(t, (_, s) => s.writeHead(200, { "Content-Type": "text/html" }).end("<html>"));
  await assert.rejects(collect(new Client({ url: html }).watch("r", fast)), ProtocolError);
  const junk = await serve(t, (_, s) => s.writeHead(200, { "Content-Type": "text/event-stream" }).end("data: {}\n\n"));
  await assert.rejects(collect(new Client({ url: junk }).watch("r", fast)), ProtocolError);
});

test("a snapshot of a run that is over ends the watch without waiting", async (t) => {
  const snapshot = line(9, "run.snapshot", { run_id: "r", state: "done", messages: [], tool_calls: [], children: [] }, { first_seq: 1 });
  const url = await serve(t, (q, s) => (q.url.includes("after=9") ? s.writeHead(204).end() : s.writeHead(200, { "Content-Type": "text/event-stream" }).end(frame(snapshot))));
  const { events, gaps } = await collect(new Client({ url }).watch("r", { snapshot: true, backoff: { first: 1e7, most: 1e7 } }));
  assert.deepEqual([events.map((e) => e.type), gaps], [["run.snapshot"], []]);
});
