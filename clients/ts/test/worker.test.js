import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../dist/index.js";
import { serve } from "./helpers.js";

/** A server that hands out tasks, and keeps what is appended for each lease. */
async function office(t, tasks) {
  const stored = [];
  let connections = 0;
  const streams = new Set();
  const url = await serve(t, (req, res) => {
    if (req.method === "GET") {
      assert.equal(req.url, "/v1/agent/work?places=8");
      res.writeHead(200, { "Content-Type": "text/event-stream" });
      res.write(": hello\n\n");
      streams.add(res);
      for (const frame of tasks[connections++] ?? []) res.write(frame);
      return;
    }
    let body = "";
    req.on("data", (b) => (body += b));
    req.on("end", () => {
      for (const line of body.trim().split("\n")) {
        const { type, turn_id: turn, payload } = JSON.parse(line);
        stored.push([req.headers["agentstream-lease"], type, turn, payload]);
      }
      res.end(JSON.stringify({ first_seq: 1, last_seq: 1 }));
    });
  });
  const until = async (type, n = 1) => {
    while (stored.filter((s) => s[1] === type).length < n) await new Promise((r) => setTimeout(r, 5));
  };
  return { url, stored, streams, until };
}

const message = (seq, content) => `{"id":"e${seq}","ts":"2026-01-01T00:00:00Z","type":"command.message","run_id":"r","seq":${seq},"payload":{"content":${JSON.stringify(content)}}}`;
const task = (lease, event, more = "") => `event: task\ndata: {"lease":"${lease}","run_id":"r","turn_id":"t_${lease}"${more},"events":[${event}]}\n\n`;
const command = (lease, event) => `event: command\ndata: {"lease":"${lease}","turn_id":"t_${lease}","event":${event}}\n\n`;

test("tasks are answered under their lease, and settled with the turn's end", async (t) => {
  const o = await office(t, [[task("a", message(2, "one")), task("b", message(3, [{ type: "text", text: "wait" }])), task("c", message(4, "fail"), ',"once":true')]]);
  const stop = new AbortController();
  const failed = [];
  const done = new Client({ url: o.url }).work(
    async (k) => {
      if (k.text === "wait") {
        await k.append({ type: "text.delta", payload: { text: (await k.told()).payload.content } });
        await new Promise((_, reject) => k.signal.addEventListener("abort", () => reject(k.signal.reason)));
      }
      if (k.text === "fail") throw new Error("broken");
      await k.append({ type: "text.delta", payload: { text: "re: " + k.text } });
    },
    { signal: stop.signal, failed: (k, e) => failed.push(e.message) },
  );
  await o.until("turn.end", 2);
  const [stream] = o.streams;
  stream.write(command("b", message(5, "more")));
  await o.until("text.delta", 2);
  stream.write(command("b", message(6, "x").replace("command.message", "command.cancel")));
  await o.until("turn.end", 3);
  stop.abort(new Error("enough"));
  await assert.rejects(done, /enough/);
  const of = (lease) => o.stored.filter((s) => s[0] === lease).map(([, type, turn, p]) => [type, turn, p.through ?? p.stop_reason ?? p.text ?? p.state]);
  assert.deepEqual(of("a"), [["text.delta", "t_a", "re: one"], ["commands.taken", "t_a", 2], ["turn.end", "t_a", "end_turn"]]);
  assert.deepEqual(of("b"), [["text.delta", "t_b", "more"], ["commands.taken", "t_b", 6], ["turn.end", "t_b", "cancelled"]]);
  assert.deepEqual(of("c"), [["commands.taken", "t_c", 4], ["turn.end", "t_c", "error"], ["run.lifecycle", "t_c", "error"]]);
  assert.deepEqual(failed, ["broken"]);
});

test("tasks end with their connection, and the worker comes back", async (t) => {
  const o = await office(t, [[task("a", message(2, "one"))], [task("b", message(2, "one"))]]);
  const stop = new AbortController();
  const gone = [];
  const done = new Client({ url: o.url }).work(
    async (k) => {
      if (k.turn === "t_b") return;
      o.streams.forEach((s) => s.destroy());
      await new Promise((resolve) => k.signal.addEventListener("abort", resolve));
      gone.push(k.turn);
      await assert.rejects(k.append({ type: "progress", payload: {} }));
    },
    { signal: stop.signal },
  );
  await o.until("turn.end");
  stop.abort(new Error("enough"));
  await assert.rejects(done, /enough/);
  assert.deepEqual(gone, ["t_a"]);
  assert.deepEqual(o.stored.map((s) => s[0]), ["b", "b"]);
});
