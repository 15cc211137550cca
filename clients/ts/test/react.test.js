import test from "node:test";
import assert from "node:assert/strict";
import { createElement, StrictMode } from "react";
import { renderToString } from "react-dom/server";
import { act, create } from "react-test-renderer";
import { Client, RawJSON } from "../dist/index.js";
import { useRun } from "../dist/react/index.js";
import { done, edge, frame, line, serve } from "./helpers.js";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;

/** Frames as a browser has them, but drawn when the test says so. */
function frames(t) {
  const asked = new Map();
  let n = 0;
  globalThis.requestAnimationFrame = (f) => (asked.set(++n, f), n);
  globalThis.cancelAnimationFrame = (id) => asked.delete(id);
  t.after(() => ["requestAnimationFrame", "cancelAnimationFrame"].forEach((name) => delete globalThis[name]));
  return {
    get asked() { return asked.size; },
    draw: () => act(async () => {
      const all = [...asked.values()];
      asked.clear();
      for (const f of all) f();
    }),
  };
}

/** Shows a run; `seen` has what each render got. */
async function show(t, server, run, options, strict = false) {
  const seen = [];
  const Page = (props) => {
    seen.push(useRun(props.server, props.run, props.options));
    return null;
  };
  const of = (props) => createElement(strict ? StrictMode : "div", null, createElement(Page, props));
  let root;
  await act(async () => (root = create(of({ server, run, options }))));
  t.after(() => act(async () => root.unmount()));
  return { seen, last: () => seen.at(-1), again: (props) => act(async () => root.update(of({ server, run, options, ...props }))), leave: () => act(async () => root.unmount()) };
}

/** Waits until something holds, drawing frames meanwhile. */
async function until(f, what, holds) {
  for (let n = 0; !holds(); n++) {
    assert.ok(n < 2000, `never: ${what}`);
    await new Promise((r) => setTimeout(r, 5));
    await f.draw();
  }
}

/** A stream that a test writes to; it keeps which connections are open, and what was posted. */
async function live(t) {
  const open = new Set();
  const posted = [];
  let past = "";
  const url = await serve(t, async (q, s) => {
    if (q.method === "POST") {
      let body = "";
      for await (const part of q) body += part;
      posted.push([q.url, body]);
      return s.writeHead(202).end('{"first_seq":9,"last_seq":9}');
    }
    open.add(s);
    s.on("close", () => open.delete(s));
    s.urlOf = q.url;
    s.writeHead(200, { "Content-Type": "text/event-stream" }).write("retry: 1\n\n" + past);
  });
  return { url, open, posted, write(...lines) { for (const l of lines) (past += frame(l)), open.forEach((s) => s.write(frame(l))); } };
}

const text = (run) => run.snapshot.messages.map((m) => m.blocks.map((b) => b.text).join("")).join("|");

test("a run is shown as it grows, and however much comes, it is drawn once a frame", async (t) => {
  const f = frames(t);
  const s = await live(t);
  const page = await show(t, new Client({ url: s.url }), "r");
  await until(f, "the connection", () => page.last().state.state === "open");
  assert.equal(new URL([...s.open][0].urlOf, s.url).searchParams.get("snapshot"), "true");
  const before = page.seen.length;
  let heard = 0;
  await page.again({ options: { onEvent: () => heard++ } });
  s.write(...Array.from({ length: 500 }, (_, i) => line(i + 1)));
  for (let n = 0; heard < 500; n++) assert.ok(n < 2000), await new Promise((r) => setTimeout(r, 5));
  assert.equal(page.seen.length, before + 1, "drawn without a frame");
  assert.equal(f.asked, 1);
  await f.draw();
  assert.equal(page.seen.length, before + 2);
  assert.equal(page.last().snapshot.last_seq, 500);
  assert.equal(s.open.size, 1, "options written in place began anew");
});

test("in Strict Mode one stream is open, and none when the component has gone", async (t) => {
  const f = frames(t);
  const s = await live(t);
  const page = await show(t, { url: s.url }, "r", {}, true);
  s.write(line(1));
  await until(f, "the event", () => text(page.last()) === "t1 ");
  await until(f, "one stream", () => s.open.size === 1);
  await page.again({ server: { url: s.url, token: undefined }, options: { child: undefined } });
  s.write(line(2));
  await until(f, "the next event", () => text(page.last()) === "t1 t2 ");
  assert.equal(s.open.size, 1);
  await page.leave();
  await until(f, "the end of the stream", () => s.open.size === 0);
  assert.equal(f.asked, 0);
});

test("another run is another stream, and the first one ends", async (t) => {
  const f = frames(t);
  const s = await live(t);
  const page = await show(t, { url: s.url }, "r1");
  s.write(line(1));
  await until(f, "the event", () => text(page.last()) === "t1 ");
  await page.again({ run: null });
  assert.equal(page.last().state.state, "idle");
  assert.equal(text(page.last()), "");
  await until(f, "the end of the stream", () => s.open.size === 0);
  await page.again({ run: "r2" });
  await until(f, "the other run", () => s.open.size === 1 && text(page.last()) === "t1 ");
  assert.match([...s.open][0].urlOf, /\/runs\/r2\/stream/);
});

test("what has not changed is the same object in the next view", async (t) => {
  const f = frames(t);
  const s = await live(t);
  const page = await show(t, { url: s.url }, "r");
  const begin = (seq) => line(seq, "message.start", { message_id: `m${seq}`, role: "assistant" });
  s.write(begin(1), line(2), line(3, "message.end", { message_id: "m1" }), line(4, "tool.start", { call_id: "c", tool: "t", input: {} }), begin(5), line(6));
  await until(f, "six events", () => page.last().snapshot.last_seq === 6);
  const one = page.last().snapshot;
  s.write(line(7));
  await until(f, "the seventh", () => page.last().snapshot.last_seq === 7);
  const two = page.last().snapshot;
  assert.notEqual(two, one);
  assert.notEqual(two.messages, one.messages);
  assert.equal(two.messages[0], one.messages[0]);
  assert.equal(two.tool_calls, one.tool_calls);
  assert.notEqual(two.messages.at(-1), one.messages.at(-1));
  assert.equal(one.messages.at(-1).blocks[0].text, "t6 ", "a view has changed");
  assert.equal(two.messages.at(-1).blocks[0].text, "t6 t7 ");
});

test("a server renders without a stream", async () => {
  const fetch = () => assert.fail("a request");
  const Page = () => {
    const { snapshot, gaps, state } = useRun({ url: "http://x", fetch }, "r");
    return `${state.state} ${snapshot.messages.length} ${gaps.length}`;
  };
  assert.equal(renderToString(createElement(StrictMode, null, createElement(Page))), "idle 0 0");
  await new Promise((r) => setTimeout(r, 50));
});

test("gaps are told, and an error that stays", async (t) => {
  const f = frames(t);
  const e = edge([line(1), line(5), done(6)]);
  const url = await serve(t, (q, s) => (q.url.includes("/none/") ? s.writeHead(404).end('{"error":{"code":"NOT-FOUND"}}') : e.handler(q, s)));
  const page = await show(t, { url }, "r");
  await until(f, "the end", () => page.last().state.state === "over");
  assert.deepEqual(page.last().gaps, [{ from: 2, to: 4 }]);
  assert.equal(page.last().snapshot.state, "done");
  await page.again({ run: "none" });
  await until(f, "the error", () => page.last().state.state === "failed");
  assert.equal(page.last().state.error.status, 404);
});

test("commands are sent to the run as they are, numbers too, and one after the end is followed", async (t) => {
  const f = frames(t);
  const posted = [];
  const lines = [line(1), line(2, "input.requested", { request_id: "q", prompt: "?", options: ["BIG", "no"] }, { child_id: "kid" }).replace('"BIG"', "9007199254740993"), done(3)];
  let e = edge(lines);
  const url = await serve(t, async (q, s) => {
    if (q.method !== "POST") return e.handler(q, s);
    let body = "";
    for await (const part of q) body += part;
    posted.push([q.url.split("/").at(-1), body]);
    s.writeHead(202).end('{"first_seq":4,"last_seq":4}');
    e = edge([...lines, line(4, "command.message", { role: "user", content: "more" }), line(5), done(6)]);
  });
  const page = await show(t, { url }, "r");
  await until(f, "the end", () => page.last().state.state === "over");
  const [question] = page.last().snapshot.inputs;
  const options = question.options.exact();
  assert.equal(String(options[0]), "9007199254740993");
  const { commands } = page.last();
  await commands.answer(question, options[0]);
  await until(f, "what came after the end", () => page.last().snapshot.last_seq === 6);
  assert.ok(text(page.last()).endsWith("more|t5 "), text(page.last()));
  assert.equal(page.last().commands, commands);
  await commands.message("and");
  for (const c of [commands.approve("p"), commands.reject("no"), commands.pause(), commands.resume(), commands.redirect("left"), commands.cancel()]) await c;
  await commands.answer("q", true);
  await commands.answer({ request_id: null, call_id: "c", child_id: null }, "allow");
  assert.deepEqual(posted, [
    ["answer", '{"child_id":"kid","request_id":"q","answer":9007199254740993}'], ["messages", '{"content":"and"}'], ["approve_plan", '{"plan_id":"p"}'],
    ["reject_plan", '{"reason":"no"}'], ["pause", "{}"], ["resume", "{}"], ["redirect", '{"instruction":"left"}'], ["cancel", "{}"], ["answer", '{"request_id":"q","answer":true}'],
    ["answer", '{"request_id":"c","answer":"allow"}'],
  ]);
});

test("a page that is shown again asks a run that was over, and one that had failed", async (t) => {
  const f = frames(t);
  const window = new EventTarget();
  Object.assign(globalThis, { document: new EventTarget(), addEventListener: window.addEventListener.bind(window), removeEventListener: window.removeEventListener.bind(window) });
  document.visibilityState = "visible";
  const first = [line(1), done(2)];
  let serving = (q, s) => s.writeHead(403).end();
  const url = await serve(t, (q, s) => serving(q, s));
  const page = await show(t, { url }, "r");
  t.after(() => ["document", "addEventListener", "removeEventListener"].forEach((n) => delete globalThis[n]));
  await until(f, "the refusal", () => page.last().state.state === "failed");
  let e = edge(first);
  serving = (q, s) => e.handler(q, s);
  document.dispatchEvent(new Event("visibilitychange"));
  await until(f, "the run", () => page.last().state.state === "over" && page.last().snapshot.last_seq === 2);
  e = edge([...first, line(3, "command.message", { role: "user", content: "more" }), line(4), done(5)]);
  window.dispatchEvent(Object.assign(new Event("pageshow"), { persisted: true }));
  await until(f, "the rest", () => page.last().state.state === "over" && page.last().snapshot.last_seq === 5);
  assert.equal(text(page.last()), "t1 |more|t4 ");
  assert.deepEqual(e.stats.urls.map((u) => new URL(u, url).searchParams.get("after")), ["2", "5"]);
});

test("a token's function may be another one at each render, and the newest is asked", async (t) => {
  const f = frames(t);
  const tokens = [];
  const s = await live(t);
  const page = await show(t, { url: s.url, token: () => "one" }, "r");
  await until(f, "the stream", () => s.open.size === 1);
  await page.again({ server: { url: s.url, token: () => (tokens.push("two"), "two") } });
  s.open.forEach((o) => o.end('event: stream.error\ndata: {"type":"stream.error","error":{"code":"CREDENTIAL-EXPIRED"}}\n\n'));
  await until(f, "the new token", () => tokens.length > 0);
});

test("exact reads all as JSON.parse does, but for numbers that it would change", () => {
  const exact = (text) => new RawJSON(text).exact();
  for (const same of ["0", "1.50", "-7.0e3", "1e21", "123456789012345", "0.1", "9007199254740992", '"12345678901234567890"', '{"a":[1,"\\"9007199254740993"],"__proto__":1}', " [ ] ", "null"]) {
    assert.deepEqual(exact(same), JSON.parse(same), same);
  }
  for (const kept of ["9007199254740993", "-12345678901234567890", "1e400", "0.1000000000000000055511151231257827", "-0", "1e-400", "4.9406564584124654e-324"]) {
    const [v] = exact(`[${kept}]`);
    assert.ok(v instanceof RawJSON, kept);
    assert.equal(String(v), kept);
    assert.equal(`${exact(`{"a":{"b":${kept}}}`).a.b}`, kept);
  }
  assert.throws(() => exact("[1,"), SyntaxError);
});
