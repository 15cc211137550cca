// The OpenAI library: chat.completions.stream() with finalChatCompletion(), responses.stream() with
// finalResponse(), and a response of the background that is watched again.
import OpenAI from "openai";
import { ChatCompletionStream } from "openai/lib/ChatCompletionStream";
import { address, attempt, input, key, naming, patience, play, runOf } from "./sdk.mjs";

const model = "gpt-test";
const asked = { role: "user", content: "Grüße 🌍" };
const chat = { model, messages: [asked], stream_options: { include_usage: true } };
const open = (c) => new OpenAI({ apiKey: key, baseURL: address("openai", c) + "/v1", defaultHeaders: naming(c), ...patience(c) });
const fault = (e) => ({ status: e.status ?? null, body: e.error ?? null, run: runOf(e.headers) });
const over = { headers: { "Agentstream-Run-End": "done" } };

const choices = (c) => c.choices.map(({ message: m, finish_reason }) => ({
  model: c.model, text: m.content ?? "", refusal: m.refusal ?? "", stop: finish_reason, usage: c.usage ?? null,
  tools: (m.tool_calls ?? []).map((t) => ({ id: t.id, name: t.function.name, input: input(t.function.arguments) })),
}));
const parts = (r, type, field) => r.output.filter((i) => i.type === "message").flatMap((i) => i.content)
  .filter((p) => p.type === type).map((p) => p[field]).join("");
const response = (r) => [{
  id: r.id, model: r.model, text: parts(r, "output_text", "text"), refusal: parts(r, "refusal", "refusal"), stop: r.status, usage: r.usage,
  thinking: r.output.filter((i) => i.type === "reasoning").flatMap((i) => i.summary).map((s) => s.text).join(""),
  tools: r.output.filter((i) => i.type === "function_call").map((i) => ({ id: i.call_id, name: i.name, input: input(i.arguments) })),
}];

const complete = (client, params, options) => attempt(async () => {
  const done = await client.chat.completions.stream(params, options).finalChatCompletion();
  return { messages: choices(done), done };
}, fault);
const respond = (client, params, options) => attempt(async () => {
  const done = await client.responses.stream({ model, ...params }, options).finalResponse();
  return { messages: response(done), done };
}, fault);

await play({
  chat: async (c) => [await complete(open(c), chat)],
  // The run is read from the answer; the library's own accumulator takes the stream.
  chatAnonymous: async (c) => [await attempt(async () => {
    const { data, response: r } = await open(c).chat.completions.create({ ...chat, stream: true }).withResponse();
    const done = await ChatCompletionStream.fromReadableStream(data.toReadableStream()).finalChatCompletion();
    return { run: runOf(r.headers), messages: choices(done) };
  }, fault)],
  chatTools: async (c) => {
    const client = open(c);
    const first = await complete(client, chat);
    const { message } = first.done.choices[0];
    const results = message.tool_calls.map((t) => ({ role: "tool", tool_call_id: t.id, content: "result of " + t.id }));
    return [first, await complete(client, { ...chat, messages: [asked, message, ...results] }, over)];
  },
  chatAbort: async (c) => {
    let run = null;
    const call = await attempt(async () => {
      const { data, response: r } = await open(c).chat.completions.create({ ...chat, stream: true }).withResponse();
      run = runOf(r.headers);
      for await (const chunk of data) if (chunk.choices[0]?.delta.content) data.controller.abort();
      throw new OpenAI.APIUserAbortError(); // the library ends an aborted stream without an error
    }, fault);
    return [{ ...call, run }];
  },
  responses: async (c) => [await respond(open(c), { input: [asked] })],
  responsesTools: async (c) => {
    const client = open(c);
    const first = await respond(client, { input: [asked] });
    const results = first.done.output.filter((i) => i.type === "function_call")
      .map((i) => ({ type: "function_call_output", call_id: i.call_id, output: "result of " + i.call_id }));
    const more = first.done.output.map(({ parsed_arguments, ...item }) => item);
    return [first, await respond(client, { input: [asked, ...more, ...results] }, over)];
  },
  // Created in the background; then watched again from its first event on.
  background: async (c) => {
    const client = open(c);
    const first = await respond(client, { input: "Grüße 🌍", background: true, store: true });
    const second = await attempt(async () => {
      const again = await client.responses.retrieve(first.done.id, { stream: true, starting_after: 0 }, over);
      let last = null;
      for await (const e of again) if (e.type === "response.completed") last = e.response;
      return { messages: response(last) };
    }, fault);
    return [first, second];
  },
  responsesAbort: async (c) => [await attempt(async () => {
    const s = open(c).responses.stream({ model, input: [asked] });
    s.on("response.output_text.delta", () => s.abort());
    return { messages: response(await s.finalResponse()) };
  }, fault)],
});
