import { createServer } from "node:http";
import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";

export const testdata = fileURLToPath(new URL("../../../schema/testdata/", import.meta.url));

/** Every event line of the goldens: [file, line]. Long lines stand there as a hash. */
export function goldenLines() {
  const out = [];
  for (const dir of ["scenarios", "types"]) {
    for (const file of readdirSync(join(testdata, dir)).filter((f) => f.endsWith(".jsonl"))) {
      for (const line of scenario(join(dir, file))) out.push([file, line]);
    }
  }
  return out;
}

export function scenario(file) {
  return readFileSync(join(testdata, file), "utf8").split("\n").filter((l) => l.startsWith("{"));
}

/** A seeded generator, so that a failure can be had again. */
export function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));

export const frame = (line) => `data: ${line}\nid: ${JSON.parse(line).seq}\n\n`;

/** A frame as ?event=type asks for it, and as servers gave it unasked once. */
export const named = (line) => `event: ${JSON.parse(line).type}\n${frame(line)}`;

/** Serves with a handler for the life of a test and gives the address. */
export async function serve(t, handler) {
  const server = createServer(handler);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/**
 * Serves lines as a run's stream like an edge: behind the cursor, 204 at the end. `cut` says after how
 * many bytes of body a connection is destroyed (undefined: never).
 */
export function edge(lines, { cut = () => undefined, before = "retry: 1\n\n: hello\n\n" } = {}) {
  const last = JSON.parse(lines.at(-1)).seq;
  const stats = { connections: 0, cuts: 0, urls: [] };
  const handler = (req, res) => {
    const url = new URL(req.url, "http://x");
    const after = Number(url.searchParams.get("after") ?? 0);
    stats.connections++;
    stats.urls.push(req.url);
    if (after >= last) return res.writeHead(204).end();
    const rest = lines.filter((l) => JSON.parse(l).seq > after).map(frame).join("");
    const body = Buffer.from(before + rest);
    const at = cut(body.length, after);
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    if (at === undefined || at >= body.length) return res.end(body);
    stats.cuts++;
    res.write(body.subarray(0, at), () => res.destroy());
  };
  return { handler, stats };
}

export async function collect(items) {
  const events = [], gaps = [];
  for await (const { event, gap } of items) {
    if (gap) gaps.push(gap);
    else events.push(event);
  }
  return { events, gaps };
}

export const line = (seq, type = "text.delta", payload = { text: `t${seq} ` }, more = {}) =>
  JSON.stringify({ id: `evt_${seq}`, ts: "2026-01-02T03:04:05.000Z", type, run_id: "run_1", child_id: null, seq, ...more, payload });

export const done = (seq) => line(seq, "run.lifecycle", { state: "done", reason: null });
