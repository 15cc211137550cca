// The Anthropic library: messages.stream() and its finalMessage().
import Anthropic from "@anthropic-ai/sdk";
import { address, attempt, key, naming, patience, play, runOf } from "./sdk.mjs";

const ask = { model: "claude-test", max_tokens: 1000, messages: [{ role: "user", content: "Grüße 🌍" }] };
const open = (c) => new Anthropic({ apiKey: key, baseURL: address("anthropic", c), defaultHeaders: naming(c), ...patience(c) });
const fault = (e) => ({ status: e.status ?? null, body: e.error?.error ?? null, run: runOf(e.headers) });

const join = (m, type) => m.content.filter((b) => b.type === type).map((b) => b[type]).join("");
const normal = (m) => ({
  id: m.id, model: m.model, content: m.content, text: join(m, "text"), thinking: join(m, "thinking"), stop: m.stop_reason, usage: m.usage,
  tools: m.content.filter((b) => b.type === "tool_use").map(({ id, name, input }) => ({ id, name, input })),
});

const stream = ({ messages }, params, options) => attempt(async () => {
  const s = messages.stream(params, options);
  const { response } = await s.withResponse();
  const message = await s.finalMessage();
  return { run: runOf(response.headers), messages: [normal(message)], message };
}, fault);

await play({
  stream: async (c) => [await stream(open(c), ask)],
  // What the library knows of that the API does not promise yet.
  beta: async (c) => [await stream(open(c).beta, { ...ask, betas: ["mcp-client-2025-04-04"] })],
  // A turn with tools: each is answered in the next request, which repeats the whole conversation.
  tools: async (c) => {
    const client = open(c);
    const first = await stream(client, ask);
    const results = first.message.content.filter((b) => b.type === "tool_use")
      .map((b) => ({ type: "tool_result", tool_use_id: b.id, content: "result of " + b.id }));
    const messages = [...ask.messages, { role: "assistant", content: first.message.content }, { role: "user", content: results }];
    const second = await stream(client, { ...ask, messages }, { headers: { "Agentstream-Run-End": "done" } });
    return [first, second];
  },
  abort: async (c) => {
    let run = null;
    const call = await attempt(async () => {
      const s = open(c).messages.stream(ask);
      s.on("text", () => run && s.abort());
      run = runOf((await s.withResponse()).response.headers);
      return { messages: [normal(await s.finalMessage())] };
    }, fault);
    return [{ ...call, run }];
  },
});
