// Instrumented programs for Node, which samples.py runs: samples.mjs EDGE SAMPLE. It prints the id of its trace. The
// model is at MODEL.
import { createRequire } from "node:module";
import { context, trace } from "@opentelemetry/api";
import { logs } from "@opentelemetry/api-logs";
import { OTLPLogExporter } from "@opentelemetry/exporter-logs-otlp-proto";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { OpenAIInstrumentation } from "@opentelemetry/instrumentation-openai";
import { BatchLogRecordProcessor, LoggerProvider } from "@opentelemetry/sdk-logs";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

const [edge, name] = process.argv.slice(2);
const [question, thanks, result] = ["Weather in Oslo?", "Thanks!", "rain, 4 degrees"];
const baseURL = `${process.env.MODEL}/v1`;

const spans = new NodeTracerProvider({
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter({ url: `${edge}/v1/traces` }))],
});
spans.register();
const records = new LoggerProvider({
  processors: [new BatchLogRecordProcessor({ exporter: new OTLPLogExporter({ url: `${edge}/v1/logs` }) })],
});
logs.setGlobalLoggerProvider(records);
const openai = new OpenAIInstrumentation({ captureMessageContent: true });
openai.setTracerProvider(spans);
openai.setLoggerProvider(records);

// The contents of @opentelemetry's spans are in log records.
async function openaiTalk() {
  const { OpenAI } = createRequire(import.meta.url)("openai");
  const client = new OpenAI({ baseURL, apiKey: "none" });
  const parameters = { type: "object", properties: { city: { type: "string" } } };
  const tools = [{ type: "function", function: { name: "weather", parameters } }];
  const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: question }];
  const ask = async () => {
    const answer = await client.chat.completions.create({ model: "gpt-4o-mini", messages, tools });
    messages.push(answer.choices[0].message);
    return answer.choices[0].message;
  };
  for (const call of (await ask()).tool_calls) {
    messages.push({ role: "tool", tool_call_id: call.id, content: result });
  }
  await ask();
  messages.push({ role: "user", content: thanks });
  await ask();
}

async function aiTalk() {
  const { createOpenAI } = await import("@ai-sdk/openai");
  const { generateText, stepCountIs, tool } = await import("ai");
  const { z } = await import("zod");
  const common = {
    model: createOpenAI({ baseURL, apiKey: "none" }).chat("gpt-4o-mini"),
    system: "Be brief.",
    tools: { weather: tool({ inputSchema: z.object({ city: z.string() }), execute: () => result }) },
    stopWhen: stepCountIs(5),
    experimental_telemetry: { isEnabled: true },
  };
  const messages = [{ role: "user", content: question }];
  const first = await generateText({ ...common, messages });
  messages.push(...first.response.messages, { role: "user", content: thanks });
  await generateText({ ...common, messages });
}

const talks = { "otel-js-openai": openaiTalk, "ai-sdk": aiTalk };
const span = trace.getTracer("samples").startSpan("sample");
await context.with(trace.setSpan(context.active(), span), talks[name]);
span.end();
await records.shutdown();
await spans.shutdown();
console.log(span.spanContext().traceId);
