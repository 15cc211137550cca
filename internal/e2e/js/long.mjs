// A long run in the console: EVENTS events are there before it is opened, then RATE events a second come for SECONDS. It
// prints how long the first screen took, frames, memory and elements; it fails when something is not shown, when the usage of
// the whole run is not, or when the page's elements grow with the run.
import puppeteer from "puppeteer-core";
import { patient } from "./wait.mjs";

const { BASE, CHROMIUM, PROFILE } = process.env;
const [EVENTS, SECONDS, RATE] = ["EVENTS", "SECONDS", "RATE"].map((n) => Number(process.env[n]));
const run = "long";
const post = async (lines) => {
  const r = await fetch(`${BASE}/v1/agent/runs/${run}/events`, { method: "POST", headers: { "Content-Type": "application/x-ndjson" }, body: lines.map((e) => JSON.stringify(e)).join("\n") });
  if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
  return (await r.json()).last_seq;
};
let used = 0; // output tokens so far
const say = (n) => ({ type: "text.delta", payload: { text: `word${n} and some more ` } });

/** Yields events as agents write them: turns with a message of 180 pieces and a call of a tool. */
function* events() {
  yield { type: "run.lifecycle", payload: { state: "running" } };
  for (let n = 0; ; n++) {
    yield { type: "turn.start", payload: { turn_id: `t${n}` } };
    yield { type: "message.start", payload: { message_id: `m${n}`, role: "assistant", model: "m-1" } };
    for (let i = 0; i < 180; i++) yield say(n * 180 + i);
    used += 180;
    yield { type: "message.end", payload: { message_id: `m${n}`, stop_reason: "end_turn", usage: { input_tokens: 10, output_tokens: 180 } } };
    yield { type: "tool.start", payload: { call_id: `c${n}`, tool: "read_file", input: { n } } };
    yield { type: "tool.end", payload: { call_id: `c${n}`, ok: true, output: { n } } };
    yield { type: "turn.end", payload: { turn_id: `t${n}`, stop_reason: "end_turn" } };
  }
}

const source = events();
const lastWords = [""]; // by the seq of an event: the last words up to it
const take = (n) => Array.from({ length: n }, () => {
  const { value } = source.next();
  lastWords.push(value.type === "text.delta" ? value.payload.text.trim() : lastWords.at(-1));
  return value;
});
let begun = performance.now();
let last = 0;
for (let left = EVENTS; left > 0; left -= 1000) last = await post(take(Math.min(1000, left)));
console.log(`${last} events stored in ${((performance.now() - begun) / 1000).toFixed(1)} s`);
if (last !== lastWords.length - 1) throw new Error(`${lastWords.length - 1} events end at ${last}`);

const browser = await puppeteer.launch({ executablePath: CHROMIUM, headless: true, pipe: true, userDataDir: PROFILE, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--enable-precise-memory-info"] });
const page = await browser.newPage();
await page.setViewport({ width: 1360, height: 860 });
const trouble = [];
page.on("pageerror", (e) => trouble.push(e.message));
const opened = async (what) => {
  await page.goto("about:blank");
  begun = performance.now();
  await page.goto(`${BASE}/console/#/run/${run}`);
  await page.waitForFunction((n) => document.querySelector(".conversation .entry") && document.querySelector(".place")?.innerText.includes(`#${n.toLocaleString("en-US")} of`), { polling: "raf", timeout: 120_000 }, last);
  console.log(`${what}: the newest of ${last} events is on the screen after ${Math.round(performance.now() - begun)} ms`);
};
await opened("first time");
await opened("again");
await page.waitForFunction(patient((n) => document.querySelector(".run-screen").innerText.includes(`${n.toLocaleString("en-US")} out`)), { polling: 100, timeout: 120_000 }, used);
console.log(`the usage of all of it is on the screen after ${Math.round(performance.now() - begun)} ms`);

// What is shown is what is said, wherever one is: at a place of the past, at the newest event again, behind a link to an event.
const shown = (what, at, connection) => page.waitForFunction(patient((n, c) => document.querySelector(".place").innerText.includes(`#${n.toLocaleString("en-US")} of`) && document.getElementById("connection").innerText.startsWith(c)), { polling: 50, timeout: 60_000 }, at, connection)
  .catch(async () => trouble.push(`${what}: ${await page.evaluate(() => [".place", "#connection"].map((s) => document.querySelector(s)?.innerText).join(", "))}`));
/** Waits until what is said last is what was said last up to an event. */
const saying = (what, at) => page.waitForFunction(patient((text) => [...document.querySelectorAll(".conversation .entry.message .text")].at(-1).innerText.trim().endsWith(text)), { polling: 50, timeout: 60_000 }, lastWords[at])
  .catch(async () => trouble.push(`${what}: it says ${await page.evaluate(() => [...document.querySelectorAll(".conversation .entry.message .text")].at(-1)?.innerText.slice(-60))}, not ${lastWords[at]}`));
await saying("the newest event", last);
for (const part of [0.1, 0.6, 0.9]) {
  const at = Math.round(last * part);
  await page.evaluate((n) => {
    const slider = document.querySelector("input[type=range]");
    slider.value = n;
    for (const name of ["input", "change"]) slider.dispatchEvent(new Event(name, { bubbles: true }));
  }, at);
  await shown(`event ${at}`, at, "past");
  await saying(`event ${at}`, at);
  await page.evaluate(() => [...document.querySelectorAll("button")].find((b) => ["Live", "Newest"].includes(b.innerText)).click());
  await shown(`newest after event ${at}`, last, "live");
  await saying(`newest after event ${at}`, last);
}
const linked = Math.round(last * 0.5);
await page.goto("about:blank");
await page.goto(`${BASE}/console/#/run/${run}?event=${linked}`);
await shown("a link to an event", linked, "past");
await saying("a link to an event", linked);
await opened("once more");

await page.evaluate(() => {
  globalThis.gaps = [];
  globalThis.slow = 0; // frames of 50 ms and more, by what the browser tells
  new PerformanceObserver((l) => (globalThis.slow += l.getEntries().length)).observe({ type: "long-animation-frame" });
  let before = performance.now();
  requestAnimationFrame(function frame(t) {
    globalThis.gaps.push(t - before);
    before = t;
    requestAnimationFrame(frame);
  });
});
const heap = async () => {
  const c = await page.createCDPSession();
  await c.send("HeapProfiler.collectGarbage");
  const n = (await page.metrics()).JSHeapUsedSize;
  await c.detach();
  return `${(n / (1 << 20)).toFixed(1)} MiB`;
};
console.log(`heap ${await heap()}, ${await page.evaluate(() => document.querySelectorAll("*").length)} elements`);
await page.evaluate(() => ((globalThis.slow = 0), globalThis.gaps.splice(0)));
await page.tracing.start({ categories: ["disabled-by-default-devtools.timeline.frame"] });
const traced = async () => {
  const { traceEvents } = JSON.parse(Buffer.from(await page.tracing.stop()).toString());
  const n = (name) => traceEvents.filter((e) => e.name === name).length;
  return `${n("BeginFrame")} frames begun, ${n("DroppedFrame")} dropped`;
};
let drawn;
const t0 = performance.now();
for (let sent = 0; sent < SECONDS * RATE; ) {
  const due = Math.min(SECONDS * RATE, Math.floor(((performance.now() - t0) / 1000) * RATE)) - sent;
  if (due > 0) {
    last = await post(take(due));
    sent += due;
  }
  if (drawn === undefined && performance.now() - t0 > Math.min(20, SECONDS - 1) * 1000) drawn = await traced();
  await new Promise((r) => setTimeout(r, 20));
}
await page.waitForFunction(patient((n) => document.querySelector(".place").innerText.includes(`#${n.toLocaleString("en-US")} of`)), { timeout: 60_000 }, last);
const { frames, late, worst, slow, elements } = await page.evaluate(() => {
  const g = globalThis.gaps;
  return { frames: g.length, late: g.filter((x) => x > 25).length, worst: Math.round(Math.max(...g)), slow: globalThis.slow, elements: document.querySelectorAll("*").length };
});
console.log(`${RATE} events/s for ${SECONDS} s: ${frames} frames (${(frames / ((performance.now() - t0) / 1000)).toFixed(1)}/s), ${late} over 25 ms, ${slow} with work of over 50 ms, the longest ${worst} ms; traced for ${Math.min(20, SECONDS - 1)} s: ${drawn ?? (await traced())}`);
console.log(`heap ${await heap()}, ${elements} elements`);
await browser.close();
if (elements > 6000) trouble.push(`${elements} elements`);
if (trouble.length > 0) throw new Error(trouble.join("; "));
