// What the console gives people to copy under "Watch with …", copied in Chromium and run.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { transformSync } from "esbuild";
import puppeteer from "puppeteer-core";

const { BASE, AGENTSTREAM_TOKEN: token } = process.env;
const run = "run_recipes";
const texts = ["Pelicans ", "fish together."];

const events = [
  { type: "message.start", payload: { message_id: "m", role: "assistant" } }, ...texts.map((text) => ({ type: "text.delta", payload: { text } })),
  { type: "message.end", payload: { message_id: "m", stop_reason: "end_turn" } }, { type: "run.lifecycle", payload: { state: "done" } },
];
// What is copied, by the name of its client.
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM, headless: true, pipe: true, userDataDir: process.env.PROFILE, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});
await browser.defaultBrowserContext().overridePermissions(BASE, ["clipboard-read", "clipboard-write", "clipboard-sanitized-write"]);
const page = await browser.newPage();
page.on("pageerror", (e) => console.error(e));
await page.evaluateOnNewDocument((t) => t !== "" && sessionStorage.setItem("agentstream-token", t), token);

/** Runs what the page shows at a place, as a person pastes it into a shell. */
async function pasted(at, name) {
  await page.waitForSelector(at, { timeout: 30_000 });
  const command = await page.$eval(at, (e) => e.innerText);
  assert.ok(token === "" || !command.includes(token), `${name} has the token`);
  const { status, stdout, stderr } = spawnSync("bash", ["-c", command], { timeout: 60_000, encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout;
}

await page.goto(`${BASE}/console/#/runs`);
assert.equal(JSON.parse(await pasted(".notice code", "the first run")).last_seq, 1, "the command of the first run begins none");
await page.waitForSelector('tr[data-run="hello"]', { timeout: 30_000 });
console.log("ok the first run");
const stored = await fetch(`${BASE}/v1/agent/runs/${run}/events`, {
  method: "POST", body: events.map((e) => JSON.stringify(e)).join("\n"),
  headers: { "Content-Type": "application/x-ndjson", ...(token === "" ? {} : { Authorization: `Bearer ${token}` }) },
});
assert.equal(stored.status, 200, await stored.text());

await page.goto(`${BASE}/console/#/run/${run}`);
const click = (text, at) => page.waitForFunction((t, s) => [...document.querySelectorAll(`${s} button`)].find((b) => b.innerText.trim() === t)?.click() ?? document.querySelector("dialog select, .toast"), { timeout: 30_000 }, text, at);
await click("Watch with …", "main");
const names = await page.$$eval("dialog option", (all) => all.map((o) => o.value));
assert.deepEqual(names, ["curl", "EventSource", "useChat", "HttpAgent", "openai", "Python"]);
const copied = {};
for (const name of names) {
  await page.select("dialog select", name);
  await page.$eval("dialog figure button", (b) => {
    document.querySelectorAll(".toast").forEach((e) => e.remove()); // those of the names before
    b.click();
  });
  await page.waitForFunction(() => document.querySelector(".toast"), { timeout: 30_000 });
  copied[name] = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(token === "" || !copied[name].includes(token), `${name} has the token`);
}
await page.goto("about:blank");
await page.goto(`${BASE}/console/#/run/${run}?event=2`);
assert.ok((await pasted(".curl code", "the events")).includes(texts[0]), "the command of an event does not fetch it");
console.log("ok the events");
await browser.close();

// They are run where they find the packages of this folder.
const dir = mkdtempSync(new URL("node_modules/.recipes-", import.meta.url).pathname);
const file = (name, text) => (writeFileSync(`${dir}/${name}`, text), `${dir}/${name}`);
const prelude = file("prelude.mjs", `import { EventSource } from "eventsource"; Object.assign(globalThis, { EventSource, token: process.env.AGENTSTREAM_TOKEN });`);
const node = (name) => ["node", "--import", prelude, file(`${name}.mjs`, copied[name])];
const jsx = transformSync(copied.useChat, { loader: "jsx", jsx: "automatic" }).code;
file("Run.mjs", jsx);
const shown = file("shown.mjs", `
  import { createElement } from "react";
  import { act, create } from "react-test-renderer";
  import { Run } from "./Run.mjs";
  globalThis.IS_REACT_ACT_ENVIRONMENT = true;
  let root;
  await act(() => { root = create(createElement(Run)); });
  for (let n = 0; n < 3000 && !JSON.stringify(root.toJSON())?.includes("together"); n++) await act(() => new Promise((r) => setTimeout(r, 10)));
  console.log(JSON.stringify(root.toJSON()));
  process.exit(0);`);
const programs = {
  curl: ["bash", "-c", copied.curl], EventSource: node("EventSource"), useChat: ["node", shown], HttpAgent: node("HttpAgent"), openai: node("openai"),
};
if (spawnSync("python3", ["-c", "import httpx"]).status === 0) programs.Python = ["python3", file("watch.py", copied.Python)];
else console.log("not run: Python, for there is no httpx");
try {
  await Promise.all(Object.entries(programs).map(async ([name, [program, ...args]]) => {
    const { error, out, err } = await new Promise((resolve) => execFile(program, args, { timeout: 60_000 }, (error, out, err) => resolve({ error, out, err })));
    assert.ok(error === null, `${name}: ${error?.message} ${err}`);
    for (const text of texts) assert.ok(out.includes(text), `${name} has printed ${out} ${err}`);
    console.log(`ok ${name}`);
  }));
} finally {
  rmSync(dir, { recursive: true });
}
