import test from "node:test";
import assert from "node:assert/strict";
import { Client } from "../dist/index.js";
import { done, edge, frame, line, serve } from "./helpers.js";

const lines = [line(1), line(2), done(3)];

/** Makes this process look like a page, for a test. */
function asPage(t) {
  const window = new EventTarget();
  globalThis.document = new EventTarget();
  globalThis.addEventListener = window.addEventListener.bind(window);
  globalThis.removeEventListener = window.removeEventListener.bind(window);
  t.after(() => ["document", "addEventListener", "removeEventListener"].forEach((n) => delete globalThis[n]));
  return window;
}

const shown = (persisted) => Object.assign(new Event("pageshow"), { persisted });

for (const [what, wake] of [
  ["pageshow", (window) => window.dispatchEvent(shown(true))],
  ["resume", () => document.dispatchEvent(new Event("resume"))],
]) {
  test(`a dead connection is left at once at ${what}, and exactly the rest follows`, async (t) => {
    const window = asPage(t);
    const e = edge(lines);
    let first = true;
    const url = await serve(t, (q, s) => {
      if (!first) return e.handler(q, s);
      first = false;
      s.writeHead(200, { "Content-Type": "text/event-stream" }).write(frame(lines[0]));
    });
    const seqs = [];
    for await (const { event } of new Client({ url }).watch("r", { watchdog: 3_600_000, backoff: { first: 3_600_000 } })) {
      seqs.push(event.seq);
      if (seqs.length === 1) setImmediate(wake, window);
    }
    assert.deepEqual(seqs, [1, 2, 3]);
    assert.deepEqual(e.stats.urls.map((u) => new URL(u, url).searchParams.get("after")), ["1", "3"]);
  });
}

test("a pause ends when there is a network again, and a page that is merely shown disturbs nothing", async (t) => {
  const window = asPage(t);
  document.visibilityState = "visible";
  const e = edge(lines);
  let refused = 0;
  const url = await serve(t, (q, s) => (refused++ === 0 ? s.writeHead(503).end() : e.handler(q, s)));
  const seqs = [];
  const states = [];
  const onState = (s) => {
    states.push(s.state);
    if (s.state === "waiting") setImmediate(() => window.dispatchEvent(new Event("online")));
  };
  for await (const { event } of new Client({ url }).watch("r", { onState, backoff: { first: 3_600_000 } })) {
    seqs.push(event.seq);
    document.dispatchEvent(new Event("visibilitychange"));
    window.dispatchEvent(shown(false));
  }
  assert.deepEqual(seqs, [1, 2, 3]);
  assert.deepEqual(states, ["connecting", "waiting", "connecting", "open", "connecting", "over"]);
});

test("a hidden page gives its stream back, and goes on behind the last event when it is shown", async (t) => {
  asPage(t);
  const look = (state) => {
    document.visibilityState = state;
    document.dispatchEvent(new Event("visibilitychange"));
  };
  const e = edge(lines);
  let first = true;
  let close;
  const closed = new Promise((resolve) => (close = resolve));
  const url = await serve(t, (q, s) => {
    if (!first) return e.handler(q, s);
    first = false;
    s.on("close", close);
    s.writeHead(200, { "Content-Type": "text/event-stream" }).write(frame(lines[0]));
  });
  const seqs = [], states = [];
  const onState = async (s) => {
    states.push(s.state);
    if (s.state !== "hidden") return;
    await closed; // the server has its connection back while nobody looks
    look("visible");
  };
  for await (const { event } of new Client({ url }).watch("r", { onState, hidden: 1, watchdog: 3_600_000, backoff: { first: 3_600_000 } })) {
    seqs.push(event.seq);
    if (seqs.length === 1) look("hidden");
  }
  assert.deepEqual(seqs, [1, 2, 3]);
  assert.deepEqual(states, ["connecting", "open", "hidden", "connecting", "open", "connecting", "over"]);
});

test("a page that was opened out of sight waits with its stream, and one that is left stops waiting", async (t) => {
  asPage(t);
  document.visibilityState = "hidden";
  const stop = new AbortController();
  const url = await serve(t, (q, s) => {
    s.writeHead(200, { "Content-Type": "text/event-stream" }).write(frame(lines[0]));
  });
  const seen = (async () => {
    for await (const _ of new Client({ url }).watch("r", { hidden: 1, signal: stop.signal, onState: (s) => s.state === "hidden" && stop.abort(new Error("left")) }));
  })();
  await assert.rejects(seen, /left/);
});

test("a page keeps its stream where that is asked for", async (t) => {
  asPage(t);
  document.visibilityState = "hidden";
  const states = [];
  const url = await serve(t, edge(lines).handler);
  for await (const _ of new Client({ url }).watch("r", { hidden: Infinity, onState: (s) => states.push(s.state) }));
  assert.equal(states.includes("hidden"), false);
});
