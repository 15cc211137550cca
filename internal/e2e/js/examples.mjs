// The example pages in Chromium, each in a browser of its own: an answer that is under way is reloaded, watched in a second tab and
// stopped there; a script with npm openai is killed and goes on.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import puppeteer from "puppeteer-core";

const { PAGES, BASE, OTHER, KILL = "", TOKEN, SCRIPT, SHOTS = "", ONLY = "" } = process.env;
const headers = { Authorization: `Bearer ${TOKEN}` };
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM, headless: true, pipe: true, userDataDir: process.env.PROFILE,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});

/** Waits until f returns something. */
async function until(what, f) {
  for (const end = Date.now() + 60_000; ; await new Promise((r) => setTimeout(r, 50))) {
    const got = await f().catch(() => undefined); // a page that is being reloaded
    if (got) return got;
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
  }
}

/** What the log has: the text of all answers, and how many events there are of a type. */
async function stored(run) {
  const get = async (path) => (await fetch(`${OTHER}/v1/agent/runs/${run}/${path}`, { headers })).json();
  const { messages } = await get("snapshot");
  const events = [];
  for (let after = 0, more = true; more; ) { // a page may be empty where the types hide much
    const page = await get(`events?limit=1000&types=turn.end,command.*&after=${after}`);
    events.push(...page.events);
    ({ next_after: after, has_more: more } = page);
  }
  const text = (m) => m.blocks.filter((b) => b.kind === "text").map((b) => b.text).join("");
  return { answers: messages.filter((m) => m.role === "assistant").map(text).join(""), count: (type) => events.filter((e) => e.type === type).length };
}

// The agent of the long form repeats in a message of its own what it was told.
const shown = (tab) => tab.evaluate((once) => ({
  status: document.querySelector("#status, #state").innerText, error: document.querySelector("#error")?.innerText,
  users: [...document.querySelectorAll("[data-role=user]")].map((p) => p.innerText).filter((text, n, all) => !once || all.indexOf(text) === n),
  answers: [...document.querySelectorAll("[data-role=assistant]")].map((p) => p.textContent),
}), KILL !== "");

async function say(tab, text) {
  await tab.waitForSelector("input[name=text]");
  await tab.type("input[name=text]", text);
  await tab.keyboard.press("Enter");
}

async function page(name) {
  const own = await browser.createBrowserContext();
  const run = `chat_${name.replaceAll("-", "_")}_${Date.now()}`;
  // The page without a library shows a run that is there.
  if (name === "page") await fetch(`${OTHER}/v1/agent/runs/${run}/events`, { method: "POST", headers: { ...headers, "Content-Type": "application/x-ndjson" }, body: '{"type":"session.created","payload":{}}' });
  const open = async () => {
    const tab = await own.newPage();
    tab.on("pageerror", (e) => console.error(`${name}: ${e.stack ?? e}`));
    await tab.goto(`${PAGES}/${name}/?${new URLSearchParams({ [name === "page" ? "run" : "chat"]: run, server: BASE })}`);
    return tab;
  };
  const one = await open();
  let two;
  try {
    await until("the page", async () => (await shown(one)).status);
    await say(one, "long");
    await until("an answer", async () => (await shown(one)).answers.join("") !== "");
    await one.reload();
    await until("the answer after a reload", async () => (await shown(one)).answers.join("") !== "");
    if (SHOTS !== "") await one.screenshot({ path: `${SHOTS}/example-${name}.png` });
    two = await open();
    await until("the answer in the second tab", async () => (await shown(two)).answers.join("") !== "");
    await killed(name, [one, two]);
    await two.$eval("#stop, #cancel", (b) => b.click()); // it moves as the answer grows
    await until("the end of the turn", async () => (await stored(run)).count("turn.end") === 1);
    const log = await stored(run);
    assert.equal(log.count("command.message"), 1);
    assert.equal(log.count("command.cancel"), 1);
    for (const tab of [one, two]) {
      await tab.bringToFront();
      await until("what is stored", async () => (await shown(tab)).answers.join("") === log.answers);
      const { users, status, error } = await shown(tab);
      assert.deepEqual(users, ["long"]);
      assert.notEqual(status, "error", error);
    }
    const words = name === "page" ? "say hello" : "confirm";
    await say(two, words);
    if (words === "confirm") {
      const allow = await until("a question", () => two.evaluateHandle(() => [...document.querySelectorAll("button")].find((b) => /^allow$/i.test(b.innerText))).then((b) => b.asElement()));
      await allow.evaluate((b) => b.click());
    }
    await until("a second answer", async () => (await stored(run)).count("turn.end") === 2);
    const all = (await stored(run)).answers;
    await until("the second answer", async () => (await shown(two)).answers.join("") === all);
    await one.reload();
    await one.bringToFront();
    await until("both answers after a reload", async () => (await shown(one)).answers.join("") === all);
    assert.deepEqual((await shown(one)).users, ["long", words]);
    if (name === "use-run") await keep(run, one, two);
    console.log(`ok ${name} (${Math.round(performance.now())} ms)`);
  } catch (e) {
    for (const tab of [one, two]) if (tab !== undefined) console.error(name, JSON.stringify(await shown(tab).catch(String)).slice(0, 2000));
    throw new Error(`${name}: ${e.message}`, { cause: e });
  } finally {
    await own.close();
  }
}

/**
 * The page with the hook is left and gone back to, and then frozen, as browsers do with tabs in the background. Each time the other tab
 * says something meanwhile: the page that was kept, with all that it remembers, catches up by itself, once.
 */
async function keep(run, page, other) {
  const debug = await page.createCDPSession();
  const ways = {
    "left and gone back to": [() => page.goto(`${PAGES}/`), () => page.goBack({ waitUntil: [] })],
    frozen: [() => debug.send("Page.setWebLifecycleState", { state: "frozen" }), () => debug.send("Page.setWebLifecycleState", { state: "active" })],
  };
  let turns = (await stored(run)).count("turn.end");
  for (const [how, [leave, back]] of Object.entries(ways)) {
    await page.bringToFront();
    await page.evaluate(() => { window.kept = true; });
    await leave();
    await other.bringToFront();
    await say(other, `say it was ${how}`);
    turns++;
    await until(`the answer while the page was ${how}`, async () => (await stored(run)).count("turn.end") === turns);
    await page.bringToFront();
    await back();
    const { answers } = await stored(run);
    await until(`what came while the page was ${how}`, async () => (await shown(page)).answers.join("") === answers);
    assert.ok(await page.evaluate(() => window.kept), `the page that was ${how} was loaded again`);
    assert.equal((await shown(page)).users.at(-1), `say it was ${how}`);
  }
}

const waiting = new Set();
let kill; // once all pages have an answer under way

/** In the long form: waits for the other pages, kills the edge under all of them, and waits until both tabs hear more. */
async function killed(name, tabs) {
  if (KILL === "") return;
  waiting.add(name);
  await until("the other pages", async () => waiting.size === chats.length);
  const length = async (tab) => (await shown(tab)).answers.join("").length;
  await (kill ??= fetch(KILL, { method: "POST" }));
  const before = await Promise.all(tabs.map(length));
  for (const [n, tab] of tabs.entries()) {
    await tab.bringToFront();
    await until("more after the edge was killed", async () => (await length(tab)) > before[n] + 50);
  }
}

/** Runs the script with npm openai; kill it when `enough` says so of what it has printed. */
function script(args, enough = () => false) {
  const child = spawn(process.execPath, [SCRIPT, ...args], { env: { ...process.env, AGENTSTREAM: BASE } });
  let out = "", err = "";
  child.stdout.on("data", (d) => {
    out += d;
    if (enough(out)) child.kill("SIGKILL");
  });
  child.stderr.on("data", (d) => (err += d));
  return new Promise((resolve) => child.on("close", (code) => resolve({ out, err, code })));
}

async function openai() {
  const first = await script(["say a few words that follow each other"], (out) => out.length > 5);
  const id = /^response (resp_\S+)/.exec(first.err)?.[1];
  assert.ok(id !== undefined, first.err);
  const whole = await script([id]);
  assert.equal(whole.code, 0, whole.err);
  assert.ok(whole.out.startsWith(first.out) && whole.out.length > 5, `${first.out} / ${whole.out}`);
  const last = Number(/ended with event (\d+)/.exec(whole.err)[1]);
  const rest = await script([id, String(Math.floor(last / 2))]);
  assert.equal(rest.code, 0, rest.err);
  assert.ok(rest.out !== "" && rest.out.length < whole.out.length && whole.out.endsWith(rest.out), rest.out);
  console.log(`ok openai (${Math.round(performance.now())} ms)`);
}

const chats = ["ai-sdk", "ai-sdk-6", "ag-ui", "tanstack", "use-run", "page"].filter((name) => name.includes(ONLY));
const all = { openai, ...Object.fromEntries(chats.map((name) => [name, () => page(name)])) };
const done = await Promise.allSettled(Object.entries(all).filter(([name]) => name.includes(ONLY)).map(([, f]) => f()));
await browser.close();
for (const d of done) if (d.status === "rejected") console.error(d.reason);
process.exit(done.some((d) => d.status === "rejected") ? 1 : 0);
