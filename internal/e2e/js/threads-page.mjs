// Chromium, headless: a page with a useStream hook, reloaded in the middle of a run, shows what it would have shown otherwise.
import assert from "node:assert/strict";
import puppeteer from "puppeteer-core";
import { BASE, Client, OTHER, TOKEN, end, said } from "./threads-lib.mjs";

const { HOOK, PAGE, CHROMIUM, PROFILE, TRANSPORT = "sse" } = process.env;
const browser = await puppeteer.launch({
  executablePath: CHROMIUM, headless: true, pipe: true,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"], userDataDir: PROFILE,
});
const client = new Client({ apiUrl: BASE, apiKey: TOKEN || null });
const { thread_id: id } = await client.threads.create();

async function open(base) {
  const page = await browser.newPage();
  page.on("pageerror", (e) => console.error("page:", e));
  page.on("console", (m) => m.type() === "error" && console.error("page:", m.text()));
  await page.goto(`${PAGE}?${new URLSearchParams({ hook: HOOK, base, thread: id, transport: TRANSPORT, token: TOKEN })}`);
  return page;
}
const shown = (page) => page.evaluate(() => window.shown);
const act = (page, what, ...args) => page.evaluate((what, args) => window.act[what](...args), what, args);

/** Waits until a page shows what is wanted. */
async function until(page, what, wanted) {
  for (let last, over = Date.now() + 30_000; ; await new Promise((r) => setTimeout(r, 50))) {
    last = await shown(page).catch(() => undefined);
    if (last && wanted(last)) return last;
    assert.ok(Date.now() < over, `waited in vain for ${what}: ${JSON.stringify(last)}`);
  }
}
const spoken = (s) => s.messages.filter(([, text]) => text !== "");
const quiet = (s) => !s.loading;

// A reload takes a browser on a busy machine a while, in which the answer must not end.
const slowly = "slow slow slow slow slow all";
const page = await open(BASE);
await until(page, "the page", quiet);
await act(page, "say", slowly);
await until(page, "a part of the answer", (s) => s.loading && s.messages.some(([type, text]) => type === "ai" && text.startsWith("You say")));
await page.reload();
const during = await until(page, "the run after the reload", (s) => s.loading && s.messages.some(([type, text]) => type === "ai" && text.startsWith("You say")));
assert.ok(!during.messages.some(([, text]) => text === said(slowly)), "it was reloaded in the middle of the run");
const after = await until(page, "the end", (s) => quiet(s) && spoken(s).length >= 3);
const want = [["human", slowly], ["tool", "told"], ["ai", said(slowly)]];
assert.deepEqual(spoken(after), want);
assert.equal(after.error, "");
assert.deepEqual(after.calls.map(([name]) => name), ["task"]);

// A page that comes late, on the other node.
const late = await open(OTHER);
assert.deepEqual(spoken(await until(late, "the same", (s) => quiet(s) && spoken(s).length >= 3)), want);

// A question and its answer.
await act(page, "say", "ask");
const asked = await until(page, "the question", (s) => quiet(s) && s.interrupts.length === 1);
assert.deepEqual(asked.interrupts, [["q1", { question: "Which?" }]]);
await page.reload();
await until(page, "the question after a reload", (s) => quiet(s) && s.interrupts.length === 1);
await act(page, "answer", "red");
await until(page, "the answer", (s) => quiet(s) && s.interrupts.length === 0 && spoken(s).length === 6 && spoken(s).at(-1)[1].includes("Answers:"));

// Stop.
await act(page, "say", "long");
await until(page, "the run", (s) => s.loading && s.messages.some(([type, text]) => type === "ai" && text.startsWith("and on ")));
await act(page, "stop");
for (let over = Date.now() + 15_000; ; await new Promise((r) => setTimeout(r, 50))) {
  const [last] = await client.runs.list(id);
  if (last.status === "interrupted") break;
  assert.ok(Date.now() < over, `not stopped: ${JSON.stringify(last)}`);
}
await until(page, "silence", quiet);
await browser.close();
end();
