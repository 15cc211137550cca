// The moving picture of the README: a run in the real console of BASE, reloaded in its middle, with nothing lost. Frames go
// to the folder FRAMES, as JPEG files in the order of a list for ffmpeg. It fails when a word is missing or comes twice.
import { writeFileSync } from "node:fs";
import puppeteer from "puppeteer-core";
import { listed } from "./scenes.mjs";

const { BASE, FRAMES, CHROMIUM } = process.env;
const run = "run_checkout_leak";
const post = (id, ...events) => fetch(`${BASE}/v1/agent/runs/${id}/events`, { method: "POST", headers: { "Content-Type": "application/x-ndjson" }, body: events.map((e) => JSON.stringify(e)).join("\n") })
  .then(async (r) => r.ok || Promise.reject(new Error(await r.text())));
const pause = (ms) => new Promise((r) => setTimeout(r, ms));

const text = "I compare heap profiles of 2.13 and 2.14 first.\n\nThe cache of sessions has **no bound** since 2.14: its eviction was lost when the cache moved to `cart/session.go`.\n\n" +
  "```go\nfunc (c *sessionCache) put(id string, s *session) {\n\tc.entries[id] = s // nothing is ever removed\n}\n```\n\n" +
  "| version | retained | after 6 h |\n|---|---|---|\n| 2.13.4 | 11 MB | 11 MB |\n| 2.14.0 | 38 MB/h | 229 MB |\n\nI bound it again at **512 entries**, as it was before, and add a test that fails without the bound. The change is ready to be read.\n";
const words = text.split(/(?<=\s)/);

const browser = await puppeteer.launch({ executablePath: CHROMIUM, headless: true, pipe: true, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
const page = await browser.newPage();
await page.setViewport({ width: 1080, height: 660 });
await listed(post);

// Frames come when the page has changed; each is shown until the next one.
const frames = [];
const client = await page.createCDPSession();
client.on("Page.screencastFrame", ({ data, metadata, sessionId }) => {
  const name = `${String(frames.length).padStart(5, "0")}.jpg`;
  writeFileSync(`${FRAMES}/${name}`, Buffer.from(data, "base64"));
  frames.push({ name, at: metadata.timestamp });
  client.send("Page.screencastFrameAck", { sessionId }).catch(() => {});
});

const caption = (words) => page.evaluate((t) => {
  let e = document.getElementById("caption");
  if (e === null) {
    e = document.createElement("div");
    e.id = "caption";
    Object.assign(e.style, { position: "fixed", bottom: "16px", right: "16px", padding: "8px 14px", background: "#1a1d24", color: "#fff", borderRadius: "8px", font: "600 16px system-ui", zIndex: "99" });
    document.body.append(e);
  }
  e.textContent = t;
}, words);

await page.goto(`${BASE}/console/`);
await page.waitForSelector("tr[data-run]");
await client.send("Page.startScreencast", { format: "jpeg", quality: 85, everyNthFrame: 1 });
await caption("every run, live");
await pause(1800);
await post(run, { type: "session.created", payload: { title: "Find the leak in checkout", agent: "sre" } }, { type: "run.lifecycle", payload: { state: "running" } }, { type: "turn.start", payload: { turn_id: "t" } },
  { type: "model.start", payload: { call_id: "c", model: "claude-sonnet-4-5" } }, { type: "message.start", payload: { message_id: "m", role: "assistant", model: "claude-sonnet-4-5" } });
const link = `tr[data-run="${run}"] a`;
await page.waitForSelector(link);
await pause(1800);
await page.click(link);
await page.waitForSelector(".conversation");
await caption("the agent answers");
await post(run, { type: "tool.start", payload: { call_id: "h", tool: "heap_diff", input: { service: "checkout", from: "2.13.4", to: "2.14.0" } } });
let sent = 0;
const say = async (until) => {
  for (; sent < until; sent++) {
    await post(run, { type: "text.delta", payload: { text: words[sent] } });
    if (sent === 12) await post(run, { type: "tool.end", payload: { call_id: "h", ok: true, output: { grows: "cart.sessionCache" } } });
    await pause(90);
  }
};
await say(34);
const talking = say(words.length);
await caption("reload in mid-run …");
await pause(600);
const address = page.url();
await page.goto("about:blank"); // the page is gone for a while, and the agent goes on
await caption("reload in mid-run …");
await pause(1100);
await page.goto(address);
await page.waitForSelector(".conversation .entry");
await caption("… and nothing is lost");
await talking;
await post(run, { type: "message.end", payload: { message_id: "m", stop_reason: "end_turn", usage: { input_tokens: 8620, output_tokens: 600 } } }, { type: "model.end", payload: { call_id: "c" } }, { type: "run.lifecycle", payload: { state: "done" } });
await page.waitForFunction(() => document.querySelector(".s-done") !== null);
await pause(300);
const shown = await page.$$eval(".entry.message .text", (all) => all.map((e) => e.textContent).join("").replace(/\s+/g, ""));
const plain = text.replace(/\*\*|`+(?:go)?|\|[-|]+\||\||\s+/g, "");
const folded = shown.replace(/^.*?Icompare/, "Icompare").replace("goCopy", "");
if (folded !== plain) throw new Error(`shown: ${folded}\nsent: ${plain}`);
await caption(`${words.length} of ${words.length} words, none lost, none twice`);
await pause(2500);
await client.send("Page.stopScreencast");
await browser.close();
frames.push({ ...frames.at(-1), at: frames.at(-1).at + 2.5 });
writeFileSync(`${FRAMES}/list.txt`, frames.slice(0, -1).map((f, i) => `file ${f.name}\nduration ${Math.max(0.01, frames[i + 1].at - f.at).toFixed(3)}`).join("\n") + `\nfile ${frames.at(-2).name}\n`); // ffmpeg passes over the last duration
console.log(`${frames.length - 1} frames, ${(frames.at(-1).at - frames[0].at).toFixed(1)} s, all ${words.length} words are there once`);
