import test from "node:test";
import assert from "node:assert/strict";
import { context, trace } from "@opentelemetry/api";
import { UndiciInstrumentation } from "@opentelemetry/instrumentation-undici";
import { NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { Client, activeTraceparent } from "../dist/index.js";
import { edge, line, serve } from "./helpers.js";

const own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/** Serves runs, and remembers the traceparent of each request by its path. */
async function traced(t) {
  const asked = [];
  const { handler } = edge([line(1, "run.lifecycle", { state: "done" })]);
  const url = await serve(t, async (req, res) => {
    asked.push(req.headers.traceparent);
    if (req.method === "GET") return handler(req, res);
    let body = "";
    for await (const piece of req) body += piece;
    const answers = body.trimEnd().split("\n").map((l, i) => JSON.stringify({ line: i + 1, run_id: JSON.parse(l).run_id, first_seq: 1, last_seq: 1 }));
    res.end(req.url === "/v1/agent/events" ? answers.join("\n") + "\n" : '{"first_seq":1,"last_seq":1}');
  });
  return { url, asked };
}

/** Starts OpenTelemetry for one test. */
function started(t) {
  const provider = new NodeTracerProvider();
  provider.register();
  t.after(() => {
    trace.disable();
    context.disable();
    return provider.shutdown();
  });
  const tracer = provider.getTracer("test");
  return (work) => tracer.startActiveSpan("work", async (span) => {
    await work(span.spanContext());
    span.end();
  });
}

const header = (at) => `00-${at.traceId}-${at.spanId}-01`;
const events = [{ type: "progress", payload: { message: "a" } }];

test("requests have no traceparent without OpenTelemetry, and that of an option", async (t) => {
  const { url, asked } = await traced(t);
  assert.equal(activeTraceparent(), undefined);
  const client = new Client({ url });
  await client.append("run_1", events);
  await client.append("run_1", events, { traceparent: own });
  await client.send("run_1", "hello", { traceparent: own });
  await new Client({ url, traceparent: () => own }).pause("run_1");
  assert.deepEqual(asked, [undefined, own, own, own]);
});

test("requests are sent in the active span, each in its caller's", async (t) => {
  const { url, asked } = await traced(t);
  const within = started(t);
  const client = new Client({ url });
  await within(async (at) => {
    assert.equal(activeTraceparent(), header(at));
    await client.append("run_1", events);
    await client.cancel("run_1");
    for await (const item of client.watch("run_1")) assert.equal(item.event.seq, 1);
    assert.deepEqual(new Set(asked), new Set([header(at)]));
    assert.ok(asked.length >= 3);
    asked.length = 0;
    await client.append("run_1", events, { traceparent: own });
    assert.deepEqual(asked, [own]);
  });
  asked.length = 0;
  const seen = [];
  const spans = ["run_1", "run_2"].map((run) => within(async (at) => {
    seen.push(header(at));
    await Promise.all([client.append(run, events), client.append(run + "_b", events)]);
  }));
  await Promise.all(spans);
  assert.deepEqual(asked.sort(), seen.sort()); // what is sent together is of one span
  assert.equal(new Set(seen).size, 2);
  await client.append("run_1", events);
  assert.equal(asked.at(-1), undefined);
});

test("an instrumentation of fetch adds its own, and nothing beside it", async (t) => {
  const { url, asked } = await traced(t);
  const within = started(t);
  const instrumentation = new UndiciInstrumentation();
  instrumentation.enable();
  t.after(() => instrumentation.disable());
  await within(async (at) => {
    await new Client({ url }).append("run_1", events);
    assert.equal(asked.length, 1);
    assert.match(asked[0], new RegExp(`^00-${at.traceId}-(?!${at.spanId})[0-9a-f]{16}-01$`));
  });
});
