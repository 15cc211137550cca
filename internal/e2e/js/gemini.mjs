// The Gemini library: a chat's sendMessageStream(), and the history that it keeps.
import { GoogleGenAI } from "@google/genai";
import { address, attempt, input, key, naming, patience, play } from "./sdk.mjs";

const asked = "Grüße 🌍";
const again = { retryOptions: { attempts: 3, initialDelay: 0.02, maxDelay: 0.05 } }; // it does not by itself
const client = (c) => new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: address("gemini", c), headers: naming(c), ...patience(c), ...(c.retry ? again : {}) } });
const fault = (e) => ({ status: e.status ?? null, body: input(e.message)?.error ?? null });

const text = (parts, thought) => parts.filter((p) => p.text !== undefined && !!p.thought === thought).map((p) => p.text).join("");

/** Sends one message; what the chat's history has behind it is the library's sum. */
const send = (chat, message, config) => attempt(async () => {
  let last = {}, run = null;
  const before = chat.getHistory().length;
  const stop = { reason: null, usage: null };
  for await (const chunk of await chat.sendMessageStream({ message, ...(config ? { config } : {}) })) {
    last = chunk;
    run ??= chunk.sdkHttpResponse?.headers?.["agentstream-run"] ?? null;
    stop.reason = chunk.candidates?.[0]?.finishReason ?? stop.reason;
    stop.usage = chunk.usageMetadata ?? stop.usage;
  }
  const parts = chat.getHistory().slice(before + 1).flatMap((c) => c.parts ?? []);
  return { run, parts, messages: [{
    model: last.modelVersion, text: text(parts, false), thinking: text(parts, true), stop: stop.reason, usage: stop.usage,
    tools: parts.filter((p) => p.functionCall).map(({ functionCall: f }) => ({ id: f.id ?? "", name: f.name, input: f.args ?? {} })),
  }] };
}, fault);

const open = (c) => client(c).chats.create({ model: "gemini-test" });

await play({
  stream: async (c) => [await send(open(c), asked)],
  tools: async (c) => {
    const chat = open(c);
    const first = await send(chat, asked);
    const results = first.parts.filter((p) => p.functionCall)
      .map(({ functionCall: f }) => ({ functionResponse: { id: f.id, name: f.name, response: { output: "result of " + f.id } } }));
    return [first, await send(chat, results, { httpOptions: { headers: { "Agentstream-Run-End": "done" } } })];
  },
  abort: async (c) => {
    let run = null;
    const call = await attempt(async () => {
      const stop = new AbortController();
      for await (const chunk of await client(c).models.generateContentStream({ model: "gemini-test", contents: asked, config: { abortSignal: stop.signal } })) {
        run ??= chunk.sdkHttpResponse?.headers?.["agentstream-run"] ?? null;
        stop.abort();
      }
      return { messages: [] };
    }, fault);
    return [{ ...call, run }];
  },
});
