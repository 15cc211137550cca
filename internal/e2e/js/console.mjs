// The console in headless Chromium: what is on the screen, for each thing that it promises. Each check prints a line; a
// console error, an error of the page, or anything loaded from elsewhere fails the run.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import puppeteer from "puppeteer-core";
import { listed, whole } from "./scenes.mjs";
import { patient } from "./wait.mjs";

const { EDGES = "", TOKEN = "", AGENT = "", SHOTS = "", ONLY = "" } = process.env;
// What screens are looked at in: three sizes, two themes.
const sizes = { desktop: [1360, 860], tablet: [820, 1180], phone: [390, 844] };
const themes = ["light", "dark"];
const wire = EDGES === "" ? undefined : await proxy(EDGES.split(","));
const BASE = wire?.url ?? process.env.BASE;
const require = createRequire(import.meta.url);
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** Returns a TCP proxy in front of several servers, one connection after the other, that can be cut and mended. */
async function proxy(to) {
  const open = new Set();
  let next = 0, down = false;
  const server = net.createServer((client) => {
    if (down) return client.resetAndDestroy();
    const [host, port] = to[next++ % to.length].split(":");
    const up = net.connect(Number(port), host);
    for (const [a, b] of [[client, up], [up, client]]) {
      open.add(a);
      a.pipe(b);
      a.on("error", () => b.destroy()).on("close", () => (open.delete(a), b.destroy()));
    }
  });
  await new Promise((r) => server.listen(0, "127.0.0.1", r));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cut() {
      down = true;
      for (const c of open) c.destroy();
    },
    mend: () => (down = false),
    close: () => server.close(),
  };
}

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM, headless: true, pipe: true, userDataDir: process.env.PROFILE,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});
let trouble = []; // of the check that runs
const expected = []; // statuses that a check provokes
const page = await browser.newPage();
await page.setViewport({ width: 1360, height: 860 });
page.on("pageerror", (e) => trouble.push(`error of the page: ${e.message}`));
page.on("console", (m) => {
  if (m.type() === "error" && !expected.some((x) => m.text().includes(x))) trouble.push(`console: ${m.text()}`);
});
page.on("response", async (r) => {
  if (r.status() < 400 || expected.includes(String(r.status()))) return;
  const own = trouble; // the text may come when another check runs
  const at = own.push(`${r.status()} ${r.request().method()} ${r.url()}`) - 1;
  own[at] += `: ${(await r.text().catch(() => "")).slice(0, 300)}`;
});
page.on("request", (r) => {
  const url = new URL(r.url());
  if (!["data:", "blob:"].includes(url.protocol) && url.origin !== new URL(BASE).origin) trouble.push(`loaded from elsewhere: ${url.origin}`);
});

/** Sends a request of the test's own. One with a key is repeated while the log does not answer, as a producer does. */
export async function api(method, path, body, type = "application/json", key = "", times = 5) {
  const headers = { "Content-Type": type };
  if (key !== "") headers["Idempotency-Key"] = key;
  if (TOKEN !== "") headers.Authorization = `Bearer ${TOKEN}`;
  const res = await fetch(BASE + path, { method, headers, body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body) });
  const text = await res.text();
  if (res.status === 503 && key !== "" && times > 1) return api(method, path, body, type, key, times - 1);
  if (!res.ok) throw new Error(`${method} ${path}: ${res.status} ${text}`);
  return text === "" ? {} : JSON.parse(text);
}

const post = (run, ...events) => api("POST", `/v1/agent/runs/${run}/events`, events.map((e) => JSON.stringify(e).replace('"BIG"', "12345678901234567890")).join("\n"), "application/x-ndjson", crypto.randomUUID());

/** Waits until something is so on the page. */
async function until(what, f, ...args) {
  try {
    return await page.waitForFunction(patient(f), { timeout: 20_000, polling: 50 }, ...args);
  } catch (e) {
    const text = await page.evaluate(() => document.body.innerText.slice(0, 1500));
    throw new Error(`${what}: not within 20 s (${e.message}). The page: ${text}`);
  }
}

const shows = (text, at = "body") => until(`"${text}" in ${at}`, (t, s) => document.querySelector(s)?.innerText.includes(t), text, at);

async function open(hash) {
  await page.goto("about:blank");
  await page.goto(`${BASE}/console/${hash}`);
}

async function press(text, at = "main") {
  await until(`button ${text}`, (t, s) => [...document.querySelectorAll(`${s} button`)].some((b) => b.innerText.trim() === t && !b.hidden), text, at);
  await page.evaluate((t, s) => [...document.querySelectorAll(`${s} button`)].find((b) => b.innerText.trim() === t).click(), text, at);
}

/** Holds what is on the screen of a phone to them, too. */
async function accessibleOnPhone(what) {
  await page.setViewport({ width: 390, height: 844 });
  await accessible(`${what} on a phone`);
  await page.setViewport({ width: 1360, height: 860 });
}

/**
 * Holds what is on the screen to axe-core's rules, in both themes; where pictures are made, in three sizes. Nothing may be
 * wider than the screen. The script is given to the page by the debugger, not by the page.
 */
async function accessible(what) {
  await until("a heading", () => document.querySelector("h1"));
  if (EDGES !== "" && SHOTS === "") return; // the page is that of dev, which is held to them
  await page.evaluate(axe);
  const own = page.viewport();
  for (const [width, height] of SHOTS === "" ? [[own.width, own.height]] : Object.values(sizes)) {
    await page.setViewport({ width, height });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) throw new Error(`${what}: ${wide} pixels wider than a screen of ${width}`);
    await rules(what, `${width} pixels wide`);
  }
  await page.setViewport(own);
}

async function rules(what, size) {
  for (const scheme of ["dark", "light"]) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    if (violations.length > 0) throw new Error(`${what}, ${size}, ${scheme}: ${JSON.stringify(violations.map((v) => ({ id: v.id, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200)) })))}`);
  }
}

async function picture(name) {
  if (SHOTS === "") return;
  for (const [size, [width, height]] of Object.entries(sizes)) {
    await page.setViewport({ width, height });
    for (const scheme of themes) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      await new Promise((r) => setTimeout(r, 300));
      const kind = size === "desktop" ? scheme : scheme === "light" ? size : `${size}dark`;
      await page.screenshot({ path: `${SHOTS}/console-${name}-${kind}.png` });
    }
  }
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  await page.setViewport({ width: 1360, height: 860 });
}

const life = (state) => ({ type: "run.lifecycle", payload: { state } });
const start = (id, role = "assistant") => ({ type: "message.start", payload: { message_id: id, role, model: "m-1" } });
const say = (text) => ({ type: "text.delta", payload: { text } });
const end = (id) => ({ type: "message.end", payload: { message_id: id, stop_reason: "end_turn", usage: { input_tokens: 11, output_tokens: 7 } } });

const checks = {
  async "a browser at / comes to the console, and signs in where that is needed"() {
    if (TOKEN !== "") expected.push("401");
    await page.goto(BASE + "/");
    await until("the console", () => location.pathname === "/console/");
    if (TOKEN === "") return shows("Runs", "h1");
    await shows("Sign in", "h1");
    await accessible("sign in");
    await picture("sign-in");
    await page.type("#token", "wrong");
    await press("Sign in");
    await shows("does not know this token", "[role=alert]");
    await page.$eval("#token", (e) => (e.value = ""));
    await page.type("#token", TOKEN);
    await press("Sign in");
    await shows("Runs", "h1");
    expected.splice(0);
    if (await page.evaluate((t) => location.href.includes(t) || document.cookie.includes(t) || JSON.stringify({ ...localStorage }).includes(t), TOKEN)) throw new Error("the token is in the address, a cookie or the storage of all tabs");
  },

  async "runs: new ones appear, running ones tick, states change, the filter and the keys work"() {
    await open("#/runs");
    await post("list_a", life("running"), start("m"), say("hi"));
    await until("list_a", () => document.querySelector('tr[data-run="list_a"] .badge')?.innerText === "running");
    const took = () => page.$eval('tr[data-run="list_a"]', (r) => r.children[5].innerText);
    const before = await took();
    await until("ticking", (b) => document.querySelector('tr[data-run="list_a"]').children[5].innerText !== b, before);
    await post("list_b", life("running"));
    await until("list_b on top", () => [...document.querySelectorAll("tr[data-run]")].findIndex((r) => r.dataset.run === "list_b") < [...document.querySelectorAll("tr[data-run]")].findIndex((r) => r.dataset.run === "list_a"));
    await post("list_a", end("m"), life("done"));
    await until("done", () => document.querySelector('tr[data-run="list_a"] .badge')?.innerText === "done");
    await until("usage", () => document.querySelector('tr[data-run="list_a"] td:nth-child(8)').innerText === "11" && document.querySelector('tr[data-run="list_a"] td:nth-child(9)').innerText === "7");
    await page.type("#search", "list_b");
    await until("filtered, also by the server, and in the address", () => document.querySelectorAll("tr[data-run]").length === 1 && location.hash.includes("q=list_b"));
    await page.click("tr[data-run=list_b] a.run");
    await until("a run", () => location.hash.startsWith("#/run/"));
    await page.goBack();
    await until("Back keeps the filter", () => document.querySelectorAll("tr[data-run]").length === 1 && document.querySelector("#search").value === "list_b");
    await accessible("runs");
    await page.select("#state", "running");
    await post("list_b", life("aborted"));
    await until("a run that has ended leaves the list of those that run", () => document.querySelectorAll("tr[data-run]").length === 0);
    await page.select("#state", "");
    await page.$eval("#search", (e) => ((e.value = ""), e.dispatchEvent(new Event("input"))));
    await listed(post);
    await whole(post, "run_checkout_leak");
    await shows("Find the leak in checkout", "table");
    await until("agent, model and cost", () => ["billing", "gpt-6-luna", "$0.0041"].every((t) => document.querySelector('tr[data-run="run_invoice_4711"]').innerText.includes(t)));
    await page.type("#search", "renovator");
    await until("found by its agent", () => document.querySelectorAll("tr[data-run]").length === 1);
    await page.$eval("#search", (e) => ((e.value = ""), e.dispatchEvent(new Event("input"))));
    await page.select("#state", "waits");
    await until("those that wait", () => document.querySelector("tr[data-run] .waits") && !document.querySelector('tr[data-run="run_nightly_deps"]'));
    await page.select("#state", "");
    await shows("Nightly dependency update", "table");
    await picture("runs");
    await page.keyboard.press("Tab");
    await page.focus("a.run");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await until("a run", () => location.hash.startsWith("#/run/"));
  },

  async "a run: messages, thoughts, calls with results and errors, children, plan, usage; bars beside them"() {
    await post("read", life("running"), { type: "turn.start", payload: { turn_id: "t" } }, { type: "command.message", payload: { content: "What is **it**?" } },
      { type: "model.start", payload: { call_id: "c", model: "m-1" } }, start("m"), { type: "reasoning.delta", payload: { text: "let me think" } },
      say("# Title\n\nSome `code` and **bold**.\n\n```go\nfunc main() {}\n```\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"), end("m"), { type: "model.end", payload: { call_id: "c" } },
      { type: "tool.start", payload: { call_id: "ok", tool: "read_file", input: { path: "a.txt", big: "BIG" } } }, { type: "tool.output.delta", payload: { call_id: "ok", text: "half of it" } },
      { type: "tool.start", payload: { call_id: "bad", tool: "delete_all", input: {} } }, { type: "tool.end", payload: { call_id: "bad", ok: false, error: "KAI-TOOL-FAIL-0001", error_detail: { type: "x", message: "no such thing" } } },
      { type: "plan.proposal", payload: { plan: { id: "p", steps: [{ id: "1", title: "First step" }] } } },
      { type: "child.spawn", payload: { child_id: "read_kid", prompt: "help" } });
    await post("read", { type: "run.lifecycle", child_id: "read_kid", payload: { state: "running" } }, { ...start("k"), child_id: "read_kid" }, { ...say("from the child"), child_id: "read_kid" });
    await post("read", start("f"), { type: "data.delta", payload: { media_type: "image/svg+xml", name: "a.svg", data: btoa('<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10"><script>parent.hacked=1</script></svg>') } }, { type: "data.delta", payload: { media_type: "text/csv", name: "a.csv", data: btoa("1,2") } }, end("f"));
    await open("#/run/read");
    await shows("Title", ".conversation");
    await shows("a.csv · text/csv · 3 B", ".conversation");
    await until("the image", () => document.querySelector('img.content[alt="a.svg"]')?.naturalWidth === 20 && window.hacked === undefined);
    for (const text of ["What is it?", "read_file", "half of it", "no such thing", "First step", "read_kid"]) await shows(text, ".conversation");
    const has = await page.evaluate(() => ["pre code", "strong", "li li, ul li", "td", ".t-keyword"].map((s) => document.querySelector(`.conversation ${s}`) !== null));
    if (has.includes(false)) throw new Error(`Markdown is not shown as such: ${has}`);
    if (!(await page.evaluate(() => document.querySelector(".conversation").textContent.includes("12345678901234567890")))) throw new Error("a number was rounded");
    if (await page.$eval(".thought", (e) => e.open)) throw new Error("a thought is not folded away");
    await until("bars", () => ["turn", "model", "tool"].every((k) => document.querySelector(`.w-bar.k-${k}`)) && [...document.querySelectorAll(".w-lane")].some((l) => l.innerText === "read_kid"));
    await until("bar of the call", () => [...document.querySelectorAll(".w-bar.k-tool")].some((b) => b.getAttribute("aria-label").includes("delete_all")));
    await page.evaluate(() => [...document.querySelectorAll(".w-bar.k-tool")].find((b) => b.getAttribute("aria-label").includes("delete_all")).click());
    await until("chosen in the conversation", () => document.querySelector(".entry.chosen")?.innerText.includes("delete_all"));
    await shows("tool.start", ".details");
    await shows("curl -s", ".details");
    await page.evaluate(() => [...document.querySelectorAll(".entry")].find((e) => e.innerText.includes("read_file")).querySelector(".seq").click());
    await until("chosen in the timeline", () => document.querySelector('.w-bar[aria-selected="true"]')?.getAttribute("aria-label").includes("read_file"));
    await accessible("a run");
    await whole(post, "run_leak");
    await open("#/run/run_leak");
    await shows("Open it", ".control");
    await until("bars", () => document.querySelectorAll(".w-bar").length > 5);
    await page.evaluate(() => [...document.querySelectorAll(".w-bar.k-tool")].find((b) => b.getAttribute("aria-label").includes("heap_diff")).click());
    await shows("cart.sessionCache", ".conversation");
    await accessible("a whole run");
    await picture("run");
    await open("#/run/read");
    await until("lanes", () => [...document.querySelectorAll(".w-lane")].some((l) => l.innerText === "read_kid"));
    await page.evaluate(() => [...document.querySelectorAll(".w-lane")].find((l) => l.innerText === "read_kid").click());
    await shows("from the child", ".conversation");
    await press("Back to the run");
    await shows("Title", ".conversation");
  },

  async "Markdown that grows is that of the whole"() {
    await open("#/runs");
    const differs = await page.evaluate(async () => {
      const { grow } = await import("/console/markdown.js");
      const text = "# a\n\npara *b*\nline\n\n \n1. x\n2. y\n\n3. z\n   - in\n\n```js\nlet a;\n\nlet b;\n```\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> q\n\n> r\n***\n~~~\nopen\n\nend";
      const grown = document.createElement("div");
      for (let n = 1; n <= text.length; n++) {
        const whole = document.createElement("div");
        grow(grown, text.slice(0, n));
        grow(whole, text.slice(0, n));
        if (!grown.isEqualNode(whole)) return [text.slice(0, n), grown.outerHTML, whole.outerHTML];
      }
      return grown.shown.kept > 5 ? null : `${grown.shown.kept} nodes are kept`;
    });
    if (differs !== null) throw new Error(String(differs));
  },

  async "any Markdown is read in time that grows with its length, within bounds"() {
    await open("#/runs");
    const cdp = await page.createCDPSession();
    await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
    const busy = async () => (await cdp.send("Performance.getMetrics")).metrics.find((m) => m.name === "TaskDuration").value * 1000;
    const names = await page.evaluate(async () => {
      const { grow } = await import("/console/markdown.js");
      const times = (s) => (n) => s.repeat(Math.ceil(n / s.length)).slice(0, n);
      const until = (f) => (n) => {
        let s = "";
        for (let i = 0; s.length < n; i++) s += f(i);
        return s.slice(0, n);
      };
      const hostile = { "nested lists": until((i) => "  ".repeat(i) + "- a\n"), "nested quotes, line by line": until((i) => ">".repeat(i) + " a\n"), "runs of backticks": until((i) => "`".repeat(i) + " "),
        "a wide table": (n) => "|a".repeat(n / 4) + "|\n" + "|-".repeat(n / 4) + "|\n", "a long table": (n) => "|a|b|\n|-|-|\n" + "|a|b|\n".repeat(n / 6), "wide tables": (n) => ("|a".repeat(n / 12) + "|\n" + "|-".repeat(n / 12) + "|\n\n").repeat(3),
        "quotes around lists": until((i) => "> - ".repeat(i) + "a\n"), "blanks before": (n) => " ".repeat(n - 1) + "x", "unclosed fences": until((i) => (i % 2 ? "```\n" : "~~~~ js\n")), "code": (n) => "```\n" + "a1 'b /* ".repeat(n / 9) };
      for (const s of [">", "> ", "- ", "1. ", "- a\n", "*", "**", "**a ", "*a ", "_a ", "*a_ ", "*a **b ", "_a_b", "[", "]", "[a](", "[a](b", "[a](http://b) ", "![[]()", "`", "`a ", "``a", "# ", "###### a\n", "|", "|a", "|-|\n", "|a|\n|-|\n\n", "- - ", "* * *\n", "_ _ _ x\n",
        "http://", "http://a ", "<a ", "<!--", "&amp;", "\\", "a\n", "a\n\n", "\n", "\t", "\u202e", "\ud800", "\u0000", "x", "word ", "~~~\n", "```", "  - > 1. ", "(((", "***a***"]) hostile[JSON.stringify(s)] = times(s);
      globalThis.hostile = hostile;
      globalThis.grown = (name, n) => {
        const text = hostile[name](n), e = document.createElement("div");
        e.className = "text";
        document.getElementById("main").append(e);
        grow(e, text);
        const depth = (x) => 1 + Math.max(0, ...[...x.children].map(depth));
        const out = { height: e.offsetHeight, elements: e.querySelectorAll("*").length, depth: depth(e), cells: Math.max(0, ...[...e.querySelectorAll("tr")].map((r) => r.children.length)), rows: Math.max(0, ...[...e.querySelectorAll("table")].map((r) => r.rows.length)) };
        e.remove();
        return out;
      };
      return Object.keys(hostile);
    });
    for (const name of names) {
      const took = [];
      for (const n of [15_000, 30_000, 60_000]) {
        const before = await busy();
        const { elements, depth, cells, rows } = await page.evaluate((name, n) => globalThis.grown(name, n), name, n);
        took.push((await busy()) - before);
        if (elements > 45_000 || depth > 60 || cells > 50 || rows > 501) throw new Error(`${name}: ${elements} elements, ${depth} deep, ${cells} columns, ${rows} rows`);
      }
      if (took[2] > 8 * took[0] + 60) throw new Error(`${name}: ${took.map(Math.round)} ms of CPU for texts that double`);
    }
    await cdp.detach();
  },

  async "an entry that cannot be shown is plain text, and the others are shown"() {
    const quoted = ">".repeat(2000), wide = "|a".repeat(3000) + "|\n" + "|-".repeat(3000) + "|\n" + "|b".repeat(3000) + "|\n";
    await post("deep", life("running"), start("m1"), say(quoted), end("m1"), start("m2"), say(`${wide}\n${wide}\n${wide}`), end("m2"), start("m3"), say("- ".repeat(3000) + "\n" + Array.from({ length: 300 }, (_, i) => "  ".repeat(i) + "- x").join("\n")), end("m3"), start("m4"), say("and **so** on"), end("m4"));
    await open("#/run/deep");
    await shows("and so on", ".conversation");
    await shows(">>>>>>>>>>", ".conversation");
    await shows("The table is larger: 3000 columns", ".conversation");
    const shown = await page.evaluate(async () => {
      const { conversation } = await import("/console/run/conversation.js");
      const block = (text) => ({ kind: "text", text, open: false });
      const message = (seq, blocks) => ({ start_seq: seq, end_seq: seq, child_id: null, role: "assistant", model: null, error: null, stop_reason: null, blocks });
      const bad = message(2, [block("what it says")]);
      Object.defineProperty(bad, "model", { get: () => { throw new Error("no such thing"); } });
      const snapshot = { messages: [message(1, [block("before")]), bad, message(3, [block("**after**")])], tool_calls: [{ start_seq: 4, child_id: null, get state() { throw new Error("neither"); } }], children: [], inputs: [], plan: null };
      const { Spans } = await import("/console/run/spans.js");
      const c = conversation({ fold: { snapshot }, spans: new Spans(), partial: false }, { choose: () => {}, openLane: () => {}, blob: () => {}, costs: { ofMessage: () => null, ofChild: () => null }, signal: new AbortController().signal });
      document.getElementById("main").append(c.element);
      c.reset(null);
      await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
      return [...c.element.querySelectorAll(".entry")].map((e) => e.innerText.replaceAll("\n", " "));
    });
    if (shown.length !== 4 || !shown[0].includes("before") || !shown[1].includes("plain text: no such thing") || !shown[1].includes("what it says") || !shown[2].includes("after") || shown[2].includes("**") || !shown[3].includes("neither")) throw new Error(JSON.stringify(shown));
  },

  async "finding: in a run, what failed, an event by its address, and by keys"() {
    await open("#/run/run_leak");
    await shows("Find the leak", "h1");
    await shows("8,620 in · 600 out · $0.0348", ".bar");
    const few = (text, n) => until(`${n} entries with ${text}`, (t, n) => document.querySelectorAll(".entry").length === n && document.querySelector(".conversation").innerText.includes(t), text, n);
    await page.keyboard.press("/");
    await page.keyboard.type("CART.sessionCache");
    await few("heap_diff", 1);
    await shows("1 of ", ".find");
    await page.$eval("#find", (e) => ((e.value = ""), e.dispatchEvent(new Event("input")), e.blur()));
    await page.select('[aria-label="What is shown"]', "failed");
    await few("TestSessionCacheIsBounded", 1);
    await accessible("what failed");
    await page.select('[aria-label="What is shown"]', "all");
    await until("all of it", () => document.querySelectorAll(".entry").length > 5);
    await page.keyboard.press("j");
    await until("the last entry, and its address", () => document.querySelector(".entry:last-child.chosen") && location.hash.endsWith(`?event=${document.querySelector(".entry.chosen").dataset.seq}`));
    await page.keyboard.press("k");
    await until("the one before", () => document.querySelector(".entry:nth-last-child(2).chosen"));
    await press("Unfold all");
    await until("thoughts", () => document.querySelectorAll(".conversation details:not([open], .as-sent, .tree details)").length === 0);
    const child = (await api("GET", "/v1/agent/runs/run_leak/events?types=tool.start&limit=10")).events.find((e) => e.child_id === "run_leak_reader");
    await open(`#/run/run_leak?event=${child.seq}`);
    await shows(`#${child.seq} tool.start`, ".details");
    await until("the child's entry", () => document.querySelector(".entry.chosen")?.innerText.includes("git_log"));
    await page.keyboard.press("?");
    await shows("Next and previous entry", "dialog");
    await accessible("keys");
    await page.click("#keys-on");
    await press("Close", "dialog");
    await until("closed", () => document.querySelector("dialog") === null);
    await page.keyboard.press("?");
    if (await page.$("dialog")) throw new Error("keys that are off do something");
    await page.click("#keys");
    await page.click("#keys-on");
    await press("Close", "dialog");
  },

  async "control: questions, plan, pause, message, cancel; what others do appears; nothing in a state that forbids it"() {
    await post("steer", life("running"), { type: "plan.proposal", payload: { plan: { id: "p", steps: [] } } }, { type: "input.requested", payload: { request_id: "q", prompt: "Which one?", options: ["red", "blue"] } });
    await open("#/run/steer");
    await shows("Which one?", ".control");
    await accessible("controls");
    await picture("control");
    await press("blue", ".control");
    await until("answered", () => !document.querySelector(".control .ask"));
    const answer = (await api("GET", "/v1/agent/runs/steer/events?types=command.answer")).events[0];
    if (answer.payload.answer !== "blue") throw new Error(`the answer is ${JSON.stringify(answer.payload)}`);
    await post("steer", { type: "input.requested", payload: { request_id: "n", prompt: "Which number?", options: ["BIG", { label: "Another", value: 1 }] } });
    await press("12345678901234567890", ".control");
    await until("answered", () => !document.querySelector(".control .ask"));
    const exact = await page.evaluate(async (token) => (await fetch("/v1/agent/runs/steer/events?types=command.answer&order=desc&limit=1", { headers: token === "" ? {} : { Authorization: `Bearer ${token}` } })).text(), TOKEN);
    if (!exact.includes('"answer":12345678901234567890')) throw new Error(`the number was changed: ${exact}`);
    await press("Pause", ".control");
    await shows("Pause: stored", "#toasts");
    await shows("pause", ".controls");
    await post("steer", life("paused"));
    await shows("paused", "h1 ~ span:not(.id)");
    await press("Resume", ".control");
    await shows("Resume: stored", "#toasts");
    await post("steer", life("running"));
    await page.type("#say", "hello there");
    await press("Send", ".control");
    await shows("hello there", ".conversation");
    await press("Cancel run", ".control");
    await press("Yes", "dialog");
    await shows("cancel", ".controls");
    await api("POST", "/v1/agent/runs/steer/messages", { content: "said by somebody else" });
    await shows("said by somebody else", ".conversation");
    await post("steer", life("aborted"));
    await until("no controls of a run under way", () => ![...document.querySelectorAll(".controls button")].some((b) => ["Pause", "Cancel run", "Redirect"].includes(b.innerText)));
  },

  async "time: any event, steps, playing, and back to now"() {
    await post("time", life("running"), start("m"), ...Array.from({ length: 30 }, (_, i) => say(`w${i} `)));
    await open("#/run/time");
    await shows("w29", ".conversation");
    await page.$eval('input[type="range"]', (e) => ((e.value = "12"), e.dispatchEvent(new Event("input"))));
    await shows("#12 of 32", ".place");
    await until("the past", () => document.querySelector(".conversation").innerText.includes("w9") && !document.querySelector(".conversation").innerText.includes("w10"));
    if (await page.$eval(".control", (e) => !e.hidden)) throw new Error("the past can be steered");
    await accessible("the past");
    await page.click('[aria-label="One event on"]');
    await until("one on", () => document.querySelector(".conversation").innerText.includes("w10"));
    await page.click('[aria-label="One event back"]');
    await until("one back", () => !document.querySelector(".conversation").innerText.includes("w10"));
    await page.select(".player select", "16");
    await page.click('[aria-label="Play"]');
    await shows("w29", ".conversation");
    await press("Live", ".player");
    await post("time", say("after all of it"));
    await shows("after all of it", ".conversation");
    await post("time", end("m"), life("done"));
    await shows("done", "h1 ~ span:not(.id)");
  },

  async "connection: a cut is shown, and what was missed is counted, none lost"() {
    if (wire === undefined) return;
    await post("cut", life("running"), start("m"), say("before "));
    await open("#/run/cut");
    await shows("live", "#connection");
    await shows("before", ".conversation"); // else all events count as caught up
    expected.push("ERR_CONNECTION", "ERR_EMPTY", "ERR_INCOMPLETE", "ERR_NETWORK");
    wire.cut();
    await shows("offline", "#connection");
    await accessible("offline");
    await picture("offline");
    await fetch(`http://${EDGES.split(",")[0]}/v1/agent/runs/cut/events`, {
      method: "POST", headers: { Authorization: `Bearer ${TOKEN}`, "Content-Type": "application/x-ndjson" },
      body: Array.from({ length: 214 }, (_, i) => JSON.stringify(say(`x${i} `))).join("\n"),
    });
    wire.mend();
    await shows("reconnected, 214 events caught up, none lost", "#connection");
    await shows("x213", ".conversation");
    expected.splice(0);
  },

  async "sessions: begun here, answered by the agent that is there"() {
    await open("#/sessions");
    await accessible("sessions");
    await picture("sessions");
    await page.type("#first", "please use a tool");
    await press("Begin");
    await until("the session", () => location.hash.startsWith("#/run/"));
    await shows("please use a tool", ".conversation");
    if (AGENT === "true") await until("an answer", () => document.querySelectorAll(".entry.message .r-assistant").length > 0);
  },

  async "operations: what is promised, what is checked, and what is not known"() {
    await open("#/operations");
    await shows("Durability");
    await shows("nats", ".facts");
    await shows("An event", ".narrow");
    if (AGENT === "true") await until("every partition", () => document.querySelectorAll(".card table tbody tr").length >= 8);
    else await shows("another process stores");
    if (AGENT !== "true") {
      await shows("bad message", ".letter");
      await page.click(".letter summary");
      await shows("no pack", ".letter pre");
      await accessible("dead letters");
    }
    await accessible("operations");
    await picture("operations");
    if (AGENT === "true") return shows("None: the archive has stored everything");
    await press("Try again", ".letter");
    await shows("It stays", "#toasts");
    await shows("tried 1×", ".letter");
    await page.click(".letter summary");
    await press("Drop", ".letter");
    await press("Yes", "dialog");
    await shows("None: the archive has stored everything");
  },

  async "a share link reads one run, and nothing else"() {
    await post("shared", life("running"), { type: "session.created", payload: { title: "Look at this" } }, start("m"), say("to be seen"));
    await post("secret", life("running"));
    await open("#/run/shared");
    await shows("Look at this", "h1");
    await press("Share");
    await shows("reads this run, and nothing else", "dialog");
    await accessible("share");
    await press("Make the link", "dialog");
    await until("the link", () => document.querySelector("#link")?.value.includes("/console/#/share/"));
    await picture("share");
    const link = await page.$eval("#link", (e) => e.value);
    const token = link.split("/share/")[1];
    const ask = (path, method = "GET") => fetch(BASE + path, { method, headers: { Authorization: `Bearer ${token}` } }).then((r) => r.status);
    const statuses = [await ask("/v1/agent/runs/shared"), await ask("/v1/agent/runs/secret"), await ask("/v1/agent/runs/shared/cancel", "POST"), await ask("/v1/agent/runs/shared/shares", "POST"), await ask("/v1/agent/runs"), await ask("/v1/agent/operations")];
    if (String(statuses) !== "200,404,403,403,404,403") throw new Error(`with the share: ${statuses}`);
    await page.goto("about:blank");
    await page.evaluate(() => 0);
    await page.goto(link);
    await shows("to be seen", ".conversation");
    await until("the token is out of the address", () => location.hash === "#/run/shared");
    if (await page.evaluate(() => !document.querySelector(".control").hidden || [...document.querySelectorAll("button")].some((b) => b.innerText === "Share"))) throw new Error("a reader is offered more than reading");
    expected.push("404", "401");
    await open("#/run/secret");
    await shows("No such run");
    await page.goto("about:blank");
    await page.goto(link.slice(0, -3) + "xyz");
    await shows("This link has ended");
    await accessible("an ended link");
    // A link signs nobody in or out: the tab's own token stays, whatever stands in the link.
    const own = "own-token-of-this-tab", kept = () => page.evaluate(() => sessionStorage.getItem("agentstream-token"));
    await page.evaluate((t) => (sessionStorage.clear(), sessionStorage.setItem("agentstream-token", t)), own);
    for (const bad of ["", "x", TOKEN === "" ? "a-token" : TOKEN, "eyJhbGciOiJub25lIn0.e30.", "SHR_a.b", "shr_", "shr_a.b.c", "%73hr_a.b c", "tkt_0", "shr_a.b/../c", " shr_a.b"]) {
      await page.goto("about:blank");
      await page.goto(`${BASE}/console/#/share/${bad}`);
      await shows("This is no share link");
      if ((await kept()) !== own) throw new Error(`${bad} signed the tab in or out: ${await kept()}`);
    }
    await page.goto("about:blank");
    await page.goto(link.slice(0, -3) + "xyz");
    await shows("This link has ended");
    if ((await kept()) !== own) throw new Error("a link that has ended signed the tab out");
    await page.goto("about:blank");
    await page.goto(link);
    await shows("to be seen", ".conversation");
    await press("Leave the link", "body");
    await until("the tab's own token", (t) => sessionStorage.getItem("agentstream-token") === t && sessionStorage.length === 1, own);
    if (TOKEN !== "") await shows("Sign in", "h1"); // it is no token of this server: what it is refused belongs to this check
    expected.splice(0);
    await page.evaluate((t) => (t === "" ? sessionStorage.clear() : sessionStorage.setItem("agentstream-token", t)), TOKEN);
  },

  async "hostile content stays text, and breaks nothing"() {
    const bad = `<script>window.hacked=1</script><img src=x onerror="window.hacked=1"><style>body{display:none}</style>[x](javascript:window.hacked=1) \u202Egnp.exe \u001b[31mred\u0007 {{7*7}}`;
    await post("bad", { type: "run.lifecycle", payload: { state: "running", reason: bad } }, { type: "turn.start", payload: { turn_id: bad } }, start("m"), say(bad), { type: "message.end", payload: { message_id: "m", error: { message: bad } } },
      { type: "command.message", payload: { content: [{ type: "text", text: bad }, { type: "image", source: { type: "base64", media_type: "image/svg+xml", data: "PHN2Zz4=" } }] } },
      { type: "tool.start", payload: { call_id: bad, tool: bad, input: { [bad]: bad } } }, { type: "tool.end", payload: { call_id: bad, ok: true, output: bad } },
      { type: "input.requested", payload: { request_id: "q", prompt: bad, options: [bad, { label: bad }] } }, { type: "plan.proposal", payload: { plan: { id: "p", steps: [{ id: "1", title: bad }] } } },
      { type: "tool.start", payload: { call_id: "line", tool: "one_line" } }, { type: "tool.end", payload: { call_id: "line", ok: true, output: "y".repeat(2_000_000) } },
      { type: `custom.${"x".repeat(40)}`, payload: { bad } }, start("m2"), say("x".repeat(500_000)), say("x".repeat(500_000)), say("[".repeat(30_000)), say("`*_".repeat(9_000)), end("m2"));
    await open("#/run/bad");
    await shows("gnp.exe", ".conversation");
    await shows("⟨U+202E⟩", ".conversation");
    await press("Unfold all");
    await until("the result that is kept apart", () => document.querySelector(".conversation").textContent.includes("Fetch the whole result"));
    await until("bars", () => document.querySelector(".w-bar") !== null);
    await page.evaluate(() => document.querySelectorAll(".seq").forEach((b) => b.click()));
    await shows("curl -s", ".details");
    const state = await page.evaluate(() => ({ hacked: window.hacked, scripts: document.querySelectorAll("main script, main style, main iframe").length, links: [...document.querySelectorAll("main a")].filter((a) => a.protocol === "javascript:").length, hidden: getComputedStyle(document.body).display === "none" }));
    if (state.hacked !== undefined || state.scripts > 0 || state.links > 0 || state.hidden) throw new Error(JSON.stringify(state));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) throw new Error(`the page is ${wide} pixels wider than the window`);
    await accessible("hostile content");
  },

  async "what tools are given and return: text as text, colours, differences, trees, what is large; notes, children, events"() {
    const call = (id, input, output, more = {}) => [{ type: "tool.start", payload: { call_id: id, tool: id, input } }, { type: "tool.end", payload: { call_id: id, ok: true, output, ...more } }];
    await post("values", life("running"), start("m"), { type: "block.start", payload: { index: 0, kind: "text" } }, { type: "text.delta", payload: { index: 0, text: "before it" } },
      { type: "block.start", payload: { index: 1, kind: "tool_use", call_id: "tests", tool: "tests" } }, ...call("tests", { command: "go vet\ngo test" }, "one\r\n\u001b[32mPASS\u001b[0m two\u0007\r\n"),
      { type: "text.delta", payload: { index: 2, text: "after it" } }, end("m"),
      ...call("patch", {}, "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"), ...call("query", {}, { rows: [{ id: 1, name: "Ada" }], big: "BIG", empty: {} }), ...call("huge", {}, "line of a long text\n".repeat(420_000)),
      { type: "tool.start", payload: { call_id: "fails", tool: "fails" } }, { type: "tool.end", payload: { call_id: "fails", ok: false, error: "E-1", error_detail: { type: "not_found", message: "no such file" } } },
      { type: "progress", payload: { message: "indexing", done: 3, total: 10 } }, { type: "custom.mine", payload: { words: "of my own" } }, { type: "child.spawn", payload: { child_id: "values_kid", prompt: "help" } });
    await post("values", { ...start("k"), child_id: "values_kid" }, { ...say("the child's words"), child_id: "values_kid" });
    await open("#/run/values");
    await shows("after it", ".conversation");
    await press("Unfold all");
    await until("a call at its block", () => ["before it", "PASS", "after it"].map((t) => document.querySelector(".conversation").innerText.indexOf(t)).every((n, i, all) => n >= 0 && (i === 0 || n > all[i - 1])));
    await until("colours, differences and trees", () => [".a-f2", ".d-add", ".d-del", ".tree details"].every((s) => document.querySelector(`.conversation ${s}`)));
    const shown = await page.$eval(".conversation", (e) => e.innerText);
    for (const t of ["go vet\ngo test", "one\n", "␇", "no such file (not_found)", "12345678901234567890", "indexing", "3 of 10", "custom.mine", "1 message"]) if (!shown.includes(t)) throw new Error(`${JSON.stringify(t)} is not shown`);
    if (/\\r\\n|\\u001b|␛/.test(shown)) throw new Error("escapes are shown as such");
    if ((await page.$eval(".conversation", (e) => e.textContent.length)) > 2_000_000) throw new Error("all of a huge text has an element");
    await page.evaluate(() => [...document.querySelectorAll(".conversation .tree details")].find((d) => d.innerText.startsWith("rows")).querySelector("summary").click());
    await shows("list of 1", ".conversation");
    await accessible("values");
    await picture("values");
    await accessibleOnPhone("values");
    await page.evaluate(() => [...document.querySelectorAll(".entry.child button")].find((b) => b.innerText === "values_kid").click());
    await shows("the child's words", ".conversation");
    await until("its address", () => location.hash === "#/run/values?child=values_kid");
    await page.reload();
    await shows("the child's words", ".conversation");
    await page.type("#event-types", "custom.*");
    await press("List events");
    await until("its events", () => document.querySelectorAll(".details details.event").length === 1);
    await accessible("events");
    await picture("events");
  },

  async "a question with a schema is a form; approve, answer and cancel take five keys at most"() {
    const key = async (...keys) => {
      for (const k of keys) await page.keyboard.press(k);
    };
    const answered = (id) => until(`the answer of ${id}`, () => document.querySelector(".control form.ask") === null);
    const schema = { type: "object", required: ["size"], properties: { size: { type: "string", enum: ["small", "large"], title: "Size" }, count: { type: "integer", minimum: 1, default: 2 }, gift: { type: "boolean", title: "A gift?" } } };
    await post("keys", life("running"), { type: "input.requested", payload: { request_id: "form", prompt: "Which one?", schema } });
    await open("#/run/keys");
    await shows("Which one?", ".control");
    await accessible("a form");
    await picture("form");
    await page.focus("body").catch(() => {});
    await key("a", "s", "Enter"); // to the form, "small", and send
    if (!(await page.evaluate(() => document.activeElement?.closest(".control")))) throw new Error("the key a does not lead to the question");
    await page.evaluate(() => { // pressed once more: it is one answer, and no conflict
      document.querySelector(".control form.ask")?.requestSubmit();
      document.querySelector(".control form.ask")?.requestSubmit();
    });
    await answered("form");
    const got = await api("GET", "/v1/agent/runs/keys/events?types=command.answer");
    if (JSON.stringify(got.events[0].payload.answer) !== '{"size":"small","count":2,"gift":false}') throw new Error(JSON.stringify(got.events[0].payload));
    await post("keys", { type: "input.requested", payload: { request_id: "yes", prompt: "Shall it?", options: ["yes", "no"] } });
    await shows("Shall it?", ".control");
    await page.evaluate(() => document.activeElement?.blur());
    await key("a", "Enter");
    await answered("yes");
    await post("keys", life("planning"), { type: "plan.proposal", payload: { planning_gate: "required", plan: { id: "p", steps: [{ id: "1", title: "Go on" }] } } }, life("awaiting_approval"));
    await shows("Approve plan", ".control");
    await page.evaluate(() => document.activeElement?.blur());
    await key("a", "Enter");
    await shows("approved", ".conversation");
    await page.evaluate(() => document.activeElement?.blur());
    await key("x", "Enter");
    await shows("Cancel: stored", "#toasts"); // once the run is over, it would be refused
    await shows("cancel", ".controls");
    const cancels = (await api("GET", "/v1/agent/runs/keys/events?types=command.cancel")).events.length;
    if (cancels !== 1) throw new Error(`one key has cancelled ${cancels} times`);
    await post("keys", life("aborted"));
  },

  async "what cannot be shown is told: no id, no such run, a child, many children"() {
    expected.push("404", "400");
    await open("#/run/read");
    await shows("Title", ".conversation");
    await page.type("#event-types", "*x");
    await press("List events");
    await shows("Refused. Types must be names", ".details");
    await open("#/run/" + encodeURIComponent("no id!"));
    await shows("That is no run id");
    await open("#/run/nobody");
    await shows("No such run");
    await accessible("no such run");
    await picture("missing");
    expected.splice(0);
    await open("#/run/read_kid");
    await shows("from the child", ".conversation");
    const kids = Array.from({ length: 10_000 }, (_, i) => ({ type: "child.spawn", payload: { child_id: `many_${i}`, prompt: `task ${i}` } }));
    await post("many", life("running"));
    for (let i = 0; i < kids.length; i += 500) await post("many", ...kids.slice(i, i + 500));
    await open("#/run/many");
    await shows("many_9999", ".conversation");
    await until("its lanes", () => document.querySelectorAll(".w-lane").length > 3);
    await until("no more than what is seen of ten thousand children", () => document.querySelectorAll("*").length <= 6000);
  },

  async "what the server refuses has a screen: no permission, an expired run, too many requests, a broken answer, a server that is away"() {
    await post("refused", life("running"), start("m"), say("back again"));
    await page.setRequestInterception(true);
    let answer;
    const give = (r) => (answer === undefined || !r.url().includes("/runs/refused") ? r.continue() : answer === "away" ? r.abort("connectionrefused") : r.respond(answer)).catch(() => {});
    page.on("request", give);
    const problem = (status, code, message) => ({ status, contentType: "application/json", body: JSON.stringify({ error: { code, message } }) });
    expected.push("403", "410", "429", "500", "ERR_CONNECTION_REFUSED", "ERR_FAILED");
    for (const [given, title, action] of [
      [problem(403, "FORBIDDEN", "not allowed"), "Not allowed", "Sign in"], [problem(410, "GONE", "the run was deleted"), "No longer kept", "All runs"],
      [problem(500, "INTERNAL", "it broke"), "The server has a problem", "Try again"], [{ status: 200, contentType: "application/json", body: "<html>no JSON" }, "The answer cannot be read", "Try again"],
      ["away", "The server cannot be reached", "Try again"]]) {
      answer = given;
      await open("#/run/refused");
      await shows(title, "main");
      await shows(action, "main .actions");
      await accessible(title);
      if (title === "Not allowed") await picture("refused");
    }
    answer = undefined;
    page.off("request", give);
    await page.setRequestInterception(false);
    // What is refused is told in the server's words, as one sentence without codes: here somebody else was faster.
    expected.push("409");
    await post("faster", life("running"), { type: "input.requested", payload: { request_id: "q", prompt: "Who is it?", options: ["I"] } });
    await open("#/run/faster");
    await shows("Who is it?", ".control");
    await page.setRequestInterception(true);
    const late = async (r) => {
      if (r.method() === "POST") await api("POST", "/v1/agent/runs/faster/answer", { request_id: "q", answer: "me" });
      await r.continue();
    };
    page.on("request", late);
    await press("I", ".control");
    await until("one sentence", () => document.querySelector("#toasts .bad")?.innerText === "Answer is not possible in state running: the question is answered already.");
    page.off("request", late);
    await page.setRequestInterception(false);
    await open("#/run/refused");
    // By the button, or by the page itself, whichever is first.
    await page.evaluate(() => [...document.querySelectorAll("main button")].find((b) => b.innerText === "Try again")?.click());
    await shows("back again", ".conversation");
    expected.splice(0);
  },

  async "nine tabs over HTTP/1.1, of which a browser opens six connections, show a run and what comes"() {
    if (EDGES !== "") return; // nothing of it is the server's
    await post("tabs", life("running"), start("m"), say("first words"));
    const tabs = [];
    const has = (tab, text) => tab.waitForFunction((t) => document.querySelector(".conversation")?.innerText.includes(t), { timeout: 60_000, polling: 100 }, text);
    try {
      for (let i = 0; i < 9; i++) {
        tabs.push(await browser.newPage());
        await tabs[i].bringToFront();
        if (TOKEN !== "") await tabs[i].evaluateOnNewDocument((t) => sessionStorage.setItem("agentstream-token", t), TOKEN);
        await tabs[i].goto(`${BASE}/console/#/run/tabs`);
        await has(tabs[i], "first words");
      }
      await post("tabs", say(" and the last"));
      for (const tab of tabs) {
        await tab.bringToFront();
        await has(tab, "and the last");
      }
    } finally {
      for (const tab of tabs) await tab.close();
      await page.bringToFront();
    }
  },

  async "a slow network: it says that it loads, asks for little, and says nothing that it does not know"() {
    if (EDGES !== "") return;
    await post("slowly", life("running"), ...Array.from({ length: 40 }, (_, i) => [start(`m${i}`), ...Array.from({ length: 8 }, (_, k) => say(`word ${i} ${k} `)), end(`m${i}`)]).flat());
    const tab = await browser.newPage();
    try {
      if (TOKEN !== "") await tab.evaluateOnNewDocument((t) => sessionStorage.setItem("agentstream-token", t), TOKEN);
      const cdp = await tab.createCDPSession();
      await cdp.send("Network.enable");
      await cdp.send("Network.emulateNetworkConditions", { offline: false, latency: 100, downloadThroughput: 50 * 1024, uploadThroughput: 50 * 1024 });
      let asked = 0;
      cdp.on("Network.requestWillBeSent", () => asked++);
      await tab.evaluateOnNewDocument(() => {
        globalThis.told = new Set();
        setInterval(() => document.body && globalThis.told.add(document.body.innerText), 20);
      });
      await tab.goto(`${BASE}/console/#/run/slowly`, { timeout: 60_000 });
      await tab.waitForFunction(() => document.querySelector(".conversation")?.innerText.includes("word 39 7"), { timeout: 60_000, polling: 50 });
      const told = await tab.evaluate(() => [...globalThis.told]);
      if (asked > 15) throw new Error(`${asked} requests before the run is shown`);
      if (!told.some((t) => t.includes("Loading"))) throw new Error("it does not say that it loads");
      for (const t of told) if (/\bunknown\b|\b0 events|#0 of/.test(t)) throw new Error(`it says what it does not know: ${t.slice(0, 200)}`);
    } finally {
      await tab.close();
      await page.bringToFront();
    }
  },

  async "payloads of any form are shown, and break nothing"() {
    const odd = [null, 7, "text", [], [[]], {}, { payload: null }, { message_id: 7, role: [], model: {}, text: { a: 1 }, usage: [], content: 5, plan: 3, options: {}, call_id: [], input: "x", steps: {} }];
    let taken = 0;
    await post("odd", life("running"), start("m"), say("so far so good"));
    for (const type of ["message.start", "text.delta", "message.end", "tool.start", "tool.end", "input.requested", "plan.proposal", "child.spawn", "turn.start", "session.updated", "custom.odd"])
      for (const payload of odd) taken += await post("odd", { type, payload }).then(() => 1, () => 0);
    if (taken === 0) throw new Error(`the server has taken ${taken} odd payloads`);
    await post("odd", start("z"), say("and to the end"));
    await open("#/run/odd");
    await shows("and to the end", ".conversation");
    await page.evaluate(() => document.querySelectorAll(".seq").forEach((b) => b.click()));
    await until("bars", () => document.querySelector(".waterfall") !== null);
    await accessible("odd payloads");
  },
};

let failures = 0;
for (const [name, check] of Object.entries(checks)) {
  if (ONLY !== "" && !name.includes(ONLY)) continue;
  const begun = Date.now();
  trouble = [];
  try {
    await check();
    await page.goto("about:blank"); // what is under way ends in the check that began it
  } catch (e) {
    trouble.unshift(e.message);
    if (SHOTS !== "") await page.screenshot({ path: `${SHOTS}/failed-${failures + 1}.png` });
  }
  if (trouble.length === 0) {
    console.log(`ok ${name} (${Date.now() - begun} ms)`);
    continue;
  }
  failures++;
  console.log(`FAILED ${name}: ${trouble.join("; ")}`);
}
await browser.close();
wire?.close();
process.exit(failures === 0 ? 0 : 1);
