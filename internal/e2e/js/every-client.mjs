// Clients of other people at one run that goes on, all at once, each unmodified. Each prints what it has in the end: the text of the
// agent, the calls of its tools, and how it ended. WATCHING is printed when all have heard the agent's first words.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { HttpAgent } from "@ag-ui/client";
import { Client as LangGraph } from "@langchain/langgraph-sdk";
import { fetchServerSentEvents } from "@tanstack/ai-client";
import { EventSource } from "eventsource";

const { BASE, TOKEN, RUN } = process.env;
const headers = { Authorization: `Bearer ${TOKEN}` };
const withToken = (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...headers } });
const parsed = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};
process.on("unhandledRejection", (e) => {
  console.error(e);
  process.exit(1);
});

/** What a client hears, put together: texts in order, calls by their ids. */
function hearing(heard) {
  const calls = new Map();
  const call = (id) => calls.get(id) ?? calls.set(id, {}).get(id);
  return {
    text: "",
    say(piece) {
      this.text += piece;
      if (this.text) heard();
    },
    call: (id, more) => Object.assign(call(id), more),
    calls: () => [...calls.values()],
  };
}

const clients = {
  // The browser's, as npm has it, in the native protocol.
  EventSource: (heard) => new Promise((resolve, reject) => {
    const h = hearing(heard);
    const source = new EventSource(`${BASE}/v1/agent/runs/${RUN}/stream?detail=full`, { fetch: withToken });
    source.onerror = (e) => reject(new Error(e.message));
    source.onmessage = ({ data }) => {
      const { type, payload } = JSON.parse(data);
      if (type === "text.delta") h.say(payload.text);
      if (type === "tool.start") h.call(payload.call_id, { name: payload.tool, input: payload.input });
      if (type === "tool.end") h.call(payload.call_id, { output: payload.output });
      if (type !== "run.lifecycle" || payload.state === "running") return;
      source.close();
      resolve({ text: h.text, calls: h.calls(), end: payload.state });
    };
  }),

  async "AI SDK"(heard) {
    const { DefaultChatTransport } = await import("ai-7");
    const { Chat } = await import("ai-sdk-react-4");
    let end;
    const chat = new Chat({ id: RUN, transport: new DefaultChatTransport({ api: BASE + "/v1/ai-sdk/chat", headers }), onFinish: (e) => { end = e; } });
    const texts = () => (chat.lastMessage?.parts ?? []).filter((p) => p.type === "text").map((p) => p.text).join("");
    const stop = chat["~registerMessagesCallback"](() => texts() && heard());
    await chat.resumeStream();
    stop();
    const calls = chat.lastMessage.parts.filter((p) => p.type === "dynamic-tool").map((p) => ({ name: p.toolName, input: p.input, output: p.output }));
    return { text: texts(), calls, end: end.finishReason === "stop" && !end.isAbort && !end.isError ? "done" : JSON.stringify(end) };
  },

  async "AG-UI"(heard) {
    const agent = new HttpAgent({ url: `${BASE}/v1/ag-ui/${RUN}`, threadId: RUN, headers });
    let end;
    await agent.runAgent({}, { onTextMessageContentEvent: () => heard(), onRunFinishedEvent: ({ event }) => { end = event.outcome?.type; } });
    const texts = agent.messages.filter((m) => m.role === "assistant").map((m) => m.content ?? "");
    const calls = agent.messages.flatMap((m) => m.toolCalls ?? []).map((c) => ({ name: c.function.name, input: JSON.parse(c.function.arguments),
      output: parsed(agent.messages.find((m) => m.toolCallId === c.id).content) }));
    return { text: texts.join(""), calls, end: end === "success" ? "done" : end };
  },

  async TanStack(heard) {
    const h = hearing(heard);
    let end;
    const connection = fetchServerSentEvents(`${BASE}/v1/ag-ui/${RUN}`, { headers });
    for await (const c of connection.joinRun("unknown")) {
      if (c.type === "TEXT_MESSAGE_CONTENT") h.say(c.delta);
      if (c.type === "TOOL_CALL_START") h.call(c.toolCallId, { name: c.toolCallName });
      if (c.type === "TOOL_CALL_ARGS") h.call(c.toolCallId, { args: (h.call(c.toolCallId).args ?? "") + c.delta });
      if (c.type === "TOOL_CALL_RESULT") h.call(c.toolCallId, { output: parsed(c.content) });
      if (c.type === "RUN_FINISHED") end = c.outcome.type;
    }
    const calls = h.calls().map(({ args, ...call }) => ({ ...call, input: JSON.parse(args) }));
    return { text: h.text, calls, end: end === "success" ? "done" : end };
  },

  async OpenAI(heard) {
    const { default: OpenAI } = await import("openai-7");
    const client = new OpenAI({ apiKey: TOKEN, baseURL: BASE + "/openai/v1" });
    let last;
    for await (const e of await client.responses.retrieve("resp_" + RUN, { stream: true })) {
      if (e.type === "response.output_text.delta") heard();
      last = e;
    }
    const { output, status } = last.response;
    const text = output.filter((o) => o.type === "message").flatMap((o) => o.content).map((c) => c.text).join("");
    const calls = output.filter((o) => o.type === "mcp_call").map((o) => ({ name: o.name, input: JSON.parse(o.arguments), output: parsed(o.output) }));
    return { text, calls, end: status === "completed" ? "done" : status };
  },

  async Anthropic(heard) {
    const { sessions } = new Anthropic({ authToken: TOKEN, apiKey: null, baseURL: BASE + "/api/v1/cloud", logLevel: "off" }).beta;
    const h = hearing(() => {});
    const stream = await sessions.events.stream(RUN, { replay: "history", event_deltas: ["agent.message"] });
    const texts = (content) => content.filter((b) => b.type === "text").map((b) => b.text).join("");
    for await (const e of stream) {
      if (e.type.includes("delta") || e.type === "span.model_request_start") heard();
      if (e.type === "agent.message") h.say(texts(e.content));
      if (e.type === "agent.tool_use") h.call(e.id, { name: e.name, input: e.input });
      if (e.type === "agent.tool_result") h.call(e.tool_use_id, { output: parsed(texts(e.content)) });
      if (e.type === "session.status_idle") return { text: h.text, calls: h.calls(), end: e.stop_reason.type === "end_turn" ? "done" : e.stop_reason.type };
    }
  },

  async LangGraph(heard) {
    const thread = new LangGraph({ apiUrl: BASE + "/langgraph", apiKey: TOKEN, streamProtocol: "v2" }).threads.stream(RUN, { assistantId: "any" });
    const end = new Promise((resolve) => thread.onEvent((e) => {
      if (e.method === "messages" && e.params.data.event === "content-block-delta") heard();
      if (e.method === "lifecycle" && ["completed", "failed", "interrupted"].includes(e.params.data.event)) resolve(e.params.data.event);
    }));
    const collect = async (list, read) => {
      const all = [];
      for await (const item of list) all.push(read(item));
      return Promise.all(all);
    };
    const h = hearing(() => {});
    const [texts] = await Promise.all([collect(thread.messages, (m) => m.text),
      // The library hands a call over when it begins and once more when it ends.
      collect(thread.toolCalls, async (c) => h.call(c.callId, { name: c.name, input: c.input, output: parsed(await c.output) }))]);
    const how = await end;
    return { text: texts.filter((t) => t !== "tell me").join(""), calls: h.calls(), end: how === "completed" ? "done" : how };
  },
};

const waiting = new Set(Object.keys(clients));
const heard = (name) => () => {
  if (waiting.delete(name) && waiting.size === 0) console.log("WATCHING");
};
const results = await Promise.all(Object.entries(clients).map(async ([name, client]) => ({ name, ...(await client(heard(name))) })));
for (const r of results) console.log(JSON.stringify(r));
assert.equal(waiting.size, 0);
process.exit(0);
