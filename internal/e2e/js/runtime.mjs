// A client of the runtime protocol on the library that most have on Node (@grpc/grpc-js): metadata, errors and streams as an SDK of the
// protocol sends and reads them. It says "ok" at the end.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const { ADDRESS, TOKEN, CONTRACTS } = process.env;
const names = ["scenarios", "realtime", "workflows", "audits", "accounts", "memories", "agents", "messages", "transfers"];
const contract = loader.loadSync(
  names.map((n) => `nimi/runtime/v1/${n}.proto`),
  { includeDirs: [CONTRACTS], longs: String, enums: String, oneofs: true, keepCase: true },
);
const methods = {};
for (const service of Object.values(contract)) {
  if (service.format) continue;
  for (const m of Object.values(service)) methods[m.path.replace("/nimi.runtime.v1.", "")] = m;
}
const client = new grpc.Client(ADDRESS, grpc.credentials.createInsecure(), {});

/** The metadata of a call. */
function metadata(more = {}) {
  const all = {
    "x-nimi-protocol-version": "1.0.0", "x-nimi-participant-protocol-version": "1.0.0", "x-nimi-participant-id": "app", "x-nimi-domain": "runtime.rpc",
    "x-nimi-app-id": "app", "x-nimi-caller-kind": "third-party-app", "x-nimi-caller-id": "app", authorization: `Bearer ${TOKEN}`, ...more,
  };
  const m = new grpc.Metadata();
  for (const [name, value] of Object.entries(all)) if (value) m.set(name, value);
  return m;
}

const keyed = (key = randomUUID()) => ({ "x-nimi-idempotency-key": key });
/** What is sent where no bearer token is. */
const secret = { authorization: "", "x-nimi-access-token-id": "id", "x-nimi-access-token-secret": TOKEN };

/** The reason of an error, read from its text as SDKs do. */
function reasonOf(e) {
  const text = String(e.details || "").trim();
  const [from, to] = [text.indexOf("{"), text.lastIndexOf("}")];
  if (from >= 0 && to > from) {
    const o = JSON.parse(text.slice(from, to + 1));
    if (o.reasonCode) return `${o.reasonCode} ${o.retryable}`;
  }
  const code = text.match(/^([A-Z0-9_]+):/)?.[1] ?? (/^[A-Z0-9_]+$/.test(text) ? text : "");
  return code || `RUNTIME_GRPC_${grpc.status[e.code]}`;
}

function call(name, request, more) {
  const m = methods[name] ?? { path: `/nimi.runtime.v1.${name}`, requestSerialize: () => Buffer.alloc(0), responseDeserialize: (b) => b };
  return new Promise((resolve) => {
    let version;
    const c = client.makeUnaryRequest(m.path, m.requestSerialize, m.responseDeserialize, request, metadata(more), {}, (e, answer) =>
      resolve(e ? { error: reasonOf(e), version } : { ...answer, version }));
    c.on("metadata", (h) => (version = h.get("x-nimi-runtime-version")[0]));
  });
}

/** Reads a stream to its end; stop cancels it when it returns true. */
function stream(name, request, { more, stop } = {}) {
  const m = methods[name];
  return new Promise((resolve) => {
    const list = [];
    const c = client.makeServerStreamRequest(m.path, m.requestSerialize, m.responseDeserialize, request, metadata(more), {});
    c.on("data", (e) => {
      list.push(e);
      if (stop?.(e)) c.cancel();
    });
    c.on("end", () => setImmediate(() => resolve({ list, end: "OK" })));
    c.on("error", (e) => resolve({ list, end: reasonOf(e) }));
  });
}

/** A request for text. What is not set has the zero value, as encoders of SDKs have it. */
const ask = (model, head = {}) => ({
  head: { app_id: "app", subject_user_id: "", model_id: model, route_policy: "ROUTE_POLICY_LOCAL", fallback: "FALLBACK_POLICY_DENY", timeout_ms: 0, connector_id: "", ...head },
  scenario_type: "SCENARIO_TYPE_TEXT_GENERATE", execution_mode: "EXECUTION_MODE_STREAM", extensions: [],
  spec: { text_generate: { input: [{ role: "user", content: "hello", name: "" }], system_prompt: "", tools: [], temperature: 0, top_p: 0, max_tokens: 0 } },
});
const types = (r) => r.list.map((e) => e.event_type.replace(/^[A-Z_]*EVENT_/, ""));

// Mode A: it ends with OK, and the last event says how.
const key = keyed();
const done = await stream("RuntimeAiService/StreamScenario", ask("demo"), { more: key });
assert.equal(done.end, "OK");
assert.deepEqual([types(done)[0], types(done).at(-1)], ["STARTED", "COMPLETED"]);
assert.deepEqual(done.list.map((e) => e.sequence), done.list.map((_, i) => String(i + 1)));
const said = done.list.map((e) => e.delta?.text?.text ?? "").join("");
assert.ok(said.length > 0);
const again = await stream("RuntimeAiService/StreamScenario", ask("demo"), { more: key });
assert.equal(again.list.at(-1).trace_id, done.list[0].trace_id);
const failed = await stream("RuntimeAiService/StreamScenario", ask("demo/fail"), { more: { ...secret, ...keyed() } });
assert.deepEqual([failed.end, types(failed).at(-1), failed.list.at(-1).failed.reason_code], ["OK", "FAILED", "AI_PROVIDER_INTERNAL"]);
const late = await stream("RuntimeAiService/StreamScenario", ask("demo/silent", { timeout_ms: 300 }));
assert.deepEqual([late.end, late.list.at(-1).failed.reason_code], ["OK", "AI_PROVIDER_TIMEOUT"]);
const speech = await stream("RuntimeAiService/StreamScenario",
  { ...ask("demo/speech"), scenario_type: "SCENARIO_TYPE_SPEECH_SYNTHESIZE", spec: { speech_synthesize: { text: "hello" } } });
assert.ok(speech.list.some((e) => e.delta?.artifact?.chunk.length > 0 && e.delta.artifact.mime_type === "audio/wav"));

// Refusals: no event, and the reason in the text of the status.
for (const [request, more, reason] of [
  [ask(""), {}, "AI_MODEL_ID_REQUIRED"], [ask("gone"), {}, "AI_MODEL_NOT_FOUND"], [ask("demo", { app_id: "" }), {}, "AI_APP_ID_REQUIRED"],
  [ask("demo"), { authorization: "Bearer wrong" }, "AUTH_TOKEN_INVALID"], [ask("demo"), { "x-nimi-provider-api-key": "sk" }, "AI_REQUEST_CREDENTIAL_SCOPE_FORBIDDEN"],
  [{ ...ask("demo"), spec: { text_generate: { input: [], system_prompt: "x".repeat(2 << 20) } } }, {}, "PROTOCOL_ENVELOPE_INVALID false"],
]) {
  const r = await stream("RuntimeAiService/StreamScenario", request, { more });
  assert.deepEqual([r.list.length, r.end], [0, reason]);
}
for (const name of ["RuntimeAiService/ExecuteScenario", "RuntimeAuthService/OpenSession"]) assert.equal((await call(name, {})).error, "RUNTIME_GRPC_UNIMPLEMENTED");

// Mode B: the terminal event, then OK; and what calls answer says the version.
const job = await call("RuntimeAiService/SubmitScenarioJob", { ...ask("demo"), execution_mode: "EXECUTION_MODE_ASYNC_JOB" }, keyed());
assert.match(job.version, /^0\.\d+\.\d+$/);
const job_id = job.job.job_id;
assert.deepEqual(types(await stream("RuntimeAiService/SubscribeScenarioJobEvents", { job_id })).at(-1), "COMPLETED");
const artifacts = await call("RuntimeAiService/GetScenarioArtifacts", { job_id });
assert.equal(artifacts.output.text_generate.text, said);
const nodes = [
  { node_id: "a", node_type: "WORKFLOW_NODE_AI_GENERATE", ai_generate_config: { model_id: "demo", prompt: "hello" } },
  { node_id: "b", node_type: "WORKFLOW_NODE_CONTROL_NOOP", depends_on: ["a"] },
];
const { task_id } = await call("RuntimeWorkflowService/SubmitWorkflow", { app_id: "app", definition: { workflow_type: "t", nodes } }, keyed());
const workflow = await stream("RuntimeWorkflowService/SubscribeWorkflowEvents", { task_id });
assert.deepEqual([workflow.end, types(workflow).at(-1)], ["OK", "COMPLETED"]);

// Mode C: eof once and last, then OK.
const audit = await stream("RuntimeAuditService/ExportAuditEvents", { app_id: "app", format: "ndjson" }, { more: keyed() });
assert.equal(audit.end, "OK");
assert.deepEqual(audit.list.map((c) => c.eof === true), audit.list.map((_, i) => i === audit.list.length - 1));

// Mode D: what is now comes first. A session that is closed ends with an error, behind the last event.
assert.equal((await call("RuntimeAuditService/GetRuntimeHealth", {})).status, "RUNTIME_HEALTH_STATUS_READY");
const first = () => true;
assert.equal((await stream("RuntimeAuditService/SubscribeRuntimeHealthEvents", {}, { stop: first })).list[0].status, "RUNTIME_HEALTH_STATUS_READY");
assert.equal((await stream("RuntimeAuditService/SubscribeAIProviderHealthEvents", {}, { stop: first })).list[0].state, "healthy");
assert.equal((await stream("RuntimeAccountService/SubscribeAccountSessionEvents", {}, { stop: first, more: secret })).list[0].event_type, "ACCOUNT_EVENT_TYPE_ACCOUNT_STATUS");
const { session_id } = await call("RuntimeAiRealtimeService/OpenRealtimeSession", { head: ask("demo").head }, keyed());
let heard;
const spoken = new Promise((resolve) => (heard = resolve));
const reading = stream("RuntimeAiRealtimeService/ReadRealtimeEvents", { session_id }, { stop: (e) => void (e.text_delta && heard()) });
await call("RuntimeAiRealtimeService/AppendRealtimeInput", { session_id, items: [{ message: { role: "user", content: "hello" } }] }, keyed());
await spoken;
await call("RuntimeAiRealtimeService/CloseRealtimeSession", { session_id }, keyed());
const session = await reading;
assert.deepEqual([types(session)[0], types(session).at(-1), session.end], ["OPENED", "COMPLETED", "RUNTIME_GRPC_CANCELLED"]);
await call("RuntimeAppService/SendAppMessage", { from_app_id: "app", to_app_id: "app", message_type: "t", payload: { fields: { a: { numberValue: 1 } } } }, keyed());
const message = await stream("RuntimeAppService/SubscribeAppMessages", { app_id: "app" }, { stop: first });
assert.equal(message.list[0].payload.fields.a.numberValue, 1);

// A client that leaves, where the scenario says that it ends with it.
const extensions = [{ namespace: "agentstream", payload: { fields: { on_disconnect: { stringValue: "cancel" } } } }];
const left = await stream("RuntimeAiService/StreamScenario", { ...ask("demo/slow"), extensions }, { stop: first });
const over = await stream("RuntimeAiService/SubscribeScenarioJobEvents", { job_id: left.list[0].trace_id });
assert.equal(types(over).at(-1), "CANCELED");
client.close();
console.log("ok");
