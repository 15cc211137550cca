// Chromium, headless: its own EventSource bare, or our client on top of it with one-use tickets.
import puppeteer from "puppeteer-core";
import { base, detail, done, fail, token, url, write } from "./lib.mjs";

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM, headless: true,
  protocolTimeout: 0, // one call of the page lasts as long as the run
  pipe: true, // when the pipe is gone, so is Chromium, however this process ended
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"], userDataDir: process.env.PROFILE,
});
const page = await browser.newPage();
page.on("pageerror", fail);
page.on("console", (m) => console.error("page:", m.text()));
await page.goto(process.env.PAGE);
await page.evaluate(() => (window.out = []));

/** In the page: EventSource comes back by itself; where it gives up, the page makes a new one. */
function bare(url) {
  let last = 0, ended = false, made = 0, reconnected = 0;
  const open = () => {
    made++;
    const source = new EventSource(url.replace(/after=\d+/, `after=${last}`));
    const take = (e) => {
      const event = JSON.parse(e.data);
      last = event.seq;
      ended = event.type === "run.lifecycle" && event.child_id === null && ["done", "aborted", "error"].includes(event.payload.state);
      window.out.push({ id: e.lastEventId, data: e.data });
    };
    source.onmessage = take;
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return reconnected++;
      // A page does not see the status: closed behind the end is 204.
      if (ended) window.out.push({ over: true, made, reconnected });
      else setTimeout(open, 50);
    };
  };
  open();
}

/** In the page: our client, with the native EventSource or WebSocket below. */
async function ours(base, token, detail, transport) {
  const { Client, formatEvent } = await import("/dist/index.js");
  const at = new URL(base);
  const states = {};
  const watch = new Client({ url: at.origin, token: () => token }).watch(at.pathname.split("/").at(-2), {
    detail, transport, gaps: "refetch", backoff: { first: 20, most: 200 },
    onState: (s) => (states[s.state] = (states[s.state] ?? 0) + 1),
  });
  for await (const { event, gap } of watch) window.out.push(gap ? { gap } : { data: formatEvent(event) });
  window.out.push({ ...states, over: true });
}

const run = process.env.TRANSPORT === "bare"
  ? page.evaluate(bare, url(0))
  : page.evaluate(ours, base, token, detail, process.env.TRANSPORT);
run.catch(fail);
for (;;) {
  const lines = await page.evaluate(() => window.out.splice(0));
  const end = lines.find((l) => l.over);
  for (const line of lines) if (!line.over) write(line);
  if (end) {
    await browser.close();
    done(end);
    break;
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
}
