// Has the assemblers of @langchain/langgraph-sdk put together the events in each file, one to a line, and prints by file what they
// have: {messages: [{id, namespace, text, reasoning, blocks, usage, error}], tools: [{id, name, status}]}.
import { readFileSync } from "node:fs";

const client = new URL("node_modules/@langchain/langgraph-sdk/dist/client/stream/", import.meta.url);
const { StreamingMessageAssembler } = await import(new URL("messages.js", client).href);
const { ToolCallAssembler } = await import(new URL("handles/tools.js", client).href);

const all = {};
/** The events in a file, or with BASE those of a thread of that name as the SDK's stream has them, up to the end of its run. */
async function* eventsOf(name) {
  if (!process.env.BASE) return yield* readFileSync(name, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
  const { open, read, watch } = await import("./threads-lib.mjs");
  yield* await (await read(watch(open(), name), 1)).over;
}

await Promise.all(process.argv.slice(2).map(async (file) => {
  const words = new StreamingMessageAssembler();
  const calls = new ToolCallAssembler();
  const messages = [];
  const tools = new Map();
  for await (const event of eventsOf(file)) {
    if (event.method === "messages") messages.push(...[words.consume(event)].filter(Boolean));
    if (event.method !== "tools") continue;
    const call = calls.consume(event);
    if (call) tools.set(call.callId, call);
  }
  const open = words.abandonActive().length;
  all[file] = {
    open,
    messages: await Promise.all(
      messages.map(async (m) => ({
        id: m.id,
        namespace: m.namespace,
        text: await m.text,
        reasoning: await m.reasoning,
        blocks: m.blocks,
        usage: (await m.output).usage_metadata ?? m.assembled.usage,
        error: m.assembled.error,
      })),
    ),
    tools: [...tools.keys()],
  };
}));
process.stdout.write(JSON.stringify(all) + "\n", () => process.exit(0));
