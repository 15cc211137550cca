// A page that a browser stops or keeps: our client in Chromium, frozen while its connections are cut, left for another page and come
// back to, and hidden; whatever happens, each event comes once, in order.
import net from "node:net";
import puppeteer from "puppeteer-core";
import { auth, base, done, fail, token } from "./lib.mjs";

const to = new URL(base);
let live = [];
let dumb = false; // connections are held, and nothing passes: neither side is told
const server = net.createServer((near) => {
  const far = net.connect(Number(to.port), to.hostname);
  const pair = { near, far, dead: dumb };
  live.push(pair);
  near.on("data", (d) => pair.dead || far.write(d));
  far.on("data", (d) => pair.dead || near.write(d));
  for (const s of [near, far]) s.on("error", () => {}).on("close", () => pair.dead || (near.destroy(), far.destroy()));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const at = `http://127.0.0.1:${server.address().port}`;

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM, headless: true, pipe: true, protocolTimeout: 60_000, userDataDir: process.env.PROFILE,
  ignoreDefaultArgs: ["--disable-back-forward-cache"], args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});
const page = await browser.newPage();
page.on("pageerror", fail);
page.on("console", (m) => console.error("page:", m.text()));
await page.goto(process.env.PAGE);

/** In the page: watches, and remembers what it got and that it is the same page. */
async function watching(at, run, token, transport) {
  const { Client } = await import("/dist/index.js");
  window.got = [];
  window.persisted = 0;
  addEventListener("pageshow", (e) => e.persisted && window.persisted++);
  const watch = new Client({ url: at, token: () => token }).watch(run, { detail: "full", transport, watchdog: 600_000 });
  (async () => {
    for await (const { event, gap } of watch) window.got.push(gap ? -1 : event.seq);
    window.over = true;
  })();
}
const run = to.pathname.split("/").at(-2);
const post = async (type, payload) => {
  const res = await fetch(base.replace(/stream$/, "events"), {
    method: "POST", headers: { ...auth, "Content-Type": "application/x-ndjson" }, body: JSON.stringify({ type, payload }) + "\n",
  });
  if (res.status >= 300) throw new Error(`${res.status} ${await res.text()}`);
};
await post("text.delta", { text: "first " }); // a run that has no event yet cannot be watched
let writing = true;
const written = (async () => {
  for (let n = 0; writing; n++) {
    await post("text.delta", { text: `${n} ` });
    await new Promise((r) => setTimeout(r, 20));
  }
  await post("run.lifecycle", { state: "done" });
})();
await page.evaluate(watching, at, run, token, process.env.TRANSPORT);
const got = () => page.evaluate(() => window.got.length);
const until = async (what, holds, ms = 20_000) => {
  for (const end = Date.now() + ms; !(await holds()); await new Promise((r) => setTimeout(r, 50))) {
    if (Date.now() > end) throw new Error(`waited in vain: ${what}, ${JSON.stringify(await page.evaluate(() => window.got.slice(-3)))}`);
  }
};
const more = async (what) => {
  const n = await got();
  await until(what, async () => (await got()) > n + 3);
};
/** Kills what is open without a word, as a network does that is gone. */
const hush = () => live.forEach((p) => (p.dead = true));

await until("it begins", async () => (await got()) > 3);
const cdp = await page.createCDPSession();
await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
hush();
await new Promise((r) => setTimeout(r, 500));
await cdp.send("Page.setWebLifecycleState", { state: "active" });
await more("a frozen page goes on");

hush(); // first: Chromium keeps no page that goes on receiving
await page.goto(process.env.PAGE + "?other");
await page.goBack();
const persisted = await page.evaluate(() => window.persisted);
if (persisted !== 1) throw new Error("Chromium has not kept the page: the test shows nothing");
await more("a page that was come back to goes on");

writing = false;
await written;
await until("the end", () => page.evaluate(() => window.over === true));
const all = await page.evaluate(() => window.got);
all.forEach((seq, i) => seq === i + 1 || fail(new Error(`event ${seq} is the ${i + 1}th`)));
await browser.close();
server.close();
live.forEach((p) => (p.near.destroy(), p.far.destroy()));
done({ events: all.length });
