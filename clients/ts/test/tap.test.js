import test from "node:test";
import assert from "node:assert/strict";
import { Client, ProtocolError, ServerError } from "../dist/index.js";
import { serve } from "./helpers.js";

const event = (seq) => ({ id: `evt_${seq}`, ts: "2026-02-28T10:00:00Z", type: "text.delta", run_id: "run_1", child_id: null, seq, payload: { text: `t${seq}` } });
const record = (seq) => JSON.stringify({ cursor: `c${seq}`, event: event(seq) }) + "\n";
const fast = { backoff: { first: 1, most: 5 } };

test("a tap goes on after a cut with its cursor, and acknowledges nothing by itself", async (t) => {
  const asked = [];
  const url = await serve(t, (req, res) => {
    asked.push(req.url);
    res.writeHead(200, { "Content-Type": "application/x-ndjson" });
    if (asked.length === 1) {
      res.write('{"cursor":"c0"}\n\n' + record(1) + record(2) + record(3).slice(0, 30));
      return setTimeout(() => res.destroy(), 20);
    }
    res.write(record(3) + '{"cursor":"c4","gap":{"run_id":"run_2","first_seq":4,"last_seq":9,"reason":"expired"}}\n');
  });
  const got = [];
  for await (const r of new Client({ url, ...fast }).tap({ name: "bill", types: ["text.*"], from: "new" })) {
    got.push(r);
    if (r.gap) break;
  }
  assert.deepEqual(got.map((r) => r.cursor), ["c0", "c1", "c2", "c3", "c4"]);
  assert.deepEqual(got.slice(1, 4).map((r) => r.event.seq), [1, 2, 3]);
  assert.deepEqual(got[4].gap, { run_id: "run_2", first_seq: 4, last_seq: 9, reason: "expired" });
  assert.equal(asked[0], "/v1/agent/events/stream?types=text.*&tap=bill&from=new");
  assert.equal(asked[1], "/v1/agent/events/stream?types=text.*&cursor=c2&from=new");
});

test("a refusal ends a tap, and so does what is no record", async (t) => {
  let status = 403;
  const url = await serve(t, (_, res) => {
    res.writeHead(status, { "Content-Type": "application/json" });
    res.end(status === 403 ? '{"error":{"code":"FORBIDDEN","message":"m"}}' : "hello\n");
  });
  await assert.rejects(new Client({ url, ...fast }).tap().next(), (e) => e instanceof ServerError && e.status === 403);
  status = 200;
  await assert.rejects(new Client({ url, ...fast }).tap().next(), ProtocolError);
});

test("acknowledge sends the cursor to the name", async (t) => {
  const asked = [];
  const url = await serve(t, async (req, res) => {
    let body = "";
    for await (const piece of req) body += piece;
    asked.push(`${req.method} ${req.url} ${body}`);
    res.writeHead(200, { "Content-Type": "application/json" }).end('{"tap":"bill","cursor":"c1"}');
  });
  await new Client({ url, ...fast }).acknowledge("bill", "c1");
  assert.deepEqual(asked, ['POST /v1/agent/taps/bill {"cursor":"c1"}']);
});
