// A real graph of @langchain/langgraph on an offline model: streams reasoning, text and calls, calls a tool, has a subgraph, parallel
// nodes, events of its own and a question. Run as a program it prints the protocol events of two runs, one to a line: of GRAPH=all
// (default), or of GRAPH=fails a run that fails.
import { pathToFileURL } from "node:url";
import { Command, END, MemorySaver, MessagesAnnotation, START, Send, StateGraph, StreamChannel, interrupt } from "@langchain/langgraph";
import { ToolNode } from "@langchain/langgraph/prebuilt";
import { AIMessage } from "@langchain/core/messages";
import { FakeStreamingChatModel } from "@langchain/core/utils/testing";
import { tool } from "@langchain/core/tools";
import { z } from "zod";

export { Command };

/** Says what it is made with: events of a model's stream. */
class Model extends FakeStreamingChatModel {
  constructor(events) {
    super({});
    this.events = events;
  }
  async *_streamChatModelEvents(messages) {
    yield { event: "message-start" };
    for (const e of this.events(messages)) {
      await new Promise((done) => setTimeout(done, 1));
      yield e;
    }
    yield { event: "message-finish", reason: "stop", usage: { input_tokens: 3, output_tokens: 4, total_tokens: 7 } };
  }
}

function* block(index, empty, deltas, whole) {
  yield { event: "content-block-start", index, content: empty };
  for (const delta of deltas) yield { event: "content-block-delta", index, delta };
  yield { event: "content-block-finish", index, content: whole };
}

const text = (index, words) => block(index, { type: "text", text: "" }, words.map((text) => ({ type: "text-delta", text })), { type: "text", text: words.join("") });
const says = (...words) => new Model(() => text(0, words));
const call = { id: "call_1", name: "weather" };
const args = ['{"city":', '{"city":"Bern","days":[1,2', '{"city":"Bern","days":[1,2,3,4]}'];

const asks = new Model(function* () {
  yield* block(0, { type: "reasoning", reasoning: "" }, [{ type: "reasoning-delta", reasoning: "Hm. " }, { type: "reasoning-delta", reasoning: "Weather." }], { type: "reasoning", reasoning: "Hm. Weather." });
  yield* text(1, ["Let me ", "see \u{1f600}."]);
  const deltas = args.map((args) => ({ type: "block-delta", fields: { type: "tool_call_chunk", ...call, args } }));
  yield* block(2, { type: "tool_call_chunk", ...call, args: "" }, deltas, { type: "tool_call", ...call, args: JSON.parse(args.at(-1)) });
  const image = { type: "image", mimeType: "image/png", data: "AAAA" };
  yield* block(3, image, [], image);
});

const weather = tool(
  async ({ city }, config) => {
    config.writer({ name: "radar", payload: { city } });
    config.writer({ name: "note", city });
    config.writer("plain");
    return `Rain in ${city}.`;
  },
  { name: "weather", schema: z.object({ city: z.string(), days: z.array(z.number()) }) },
);

const last = (s) => String(s.messages.at(-1)?.content ?? "");
const graphOf = () => new StateGraph(MessagesAnnotation);

const child = graphOf()
  .addNode("model", async (s, c) => ({ messages: [await says("It ", "rains.").invoke(s.messages, c)] }))
  .addNode("person", () => ({ messages: [new AIMessage(`You say ${JSON.stringify(interrupt({ question: "ok?" }))}.`)] }))
  .addEdge(START, "model").addEdge("model", "person").addEdge("person", END)
  .compile();

export const graph = graphOf()
  .addNode("start", async (s, c) => {
    if (last(s) === "fail") throw new Error("it fails");
    if (last(s) === "all") return { messages: [await asks.invoke(s.messages, c)] };
    if (last(s) === "ask") return {};
    const words = last(s) === "long" ? Array(200).fill("word ") : ["You said: ", last(s)];
    return { messages: [await says(...words).invoke(s.messages, c)] };
  })
  .addNode("tools", new ToolNode([weather]))
  .addNode("fan", async (s, c) => {
    await Promise.all([says("a", "a", "a").invoke("a", c), says("b", "b", "b").invoke("b", c)]);
    return {};
  })
  .addNode("child", child)
  .addEdge(START, "start")
  .addConditionalEdges("start", (s) => (s.messages.at(-1)?.tool_calls?.length ? "tools" : last(s) === "ask" ? "child" : END), ["tools", "child", END])
  .addConditionalEdges("tools", () => [new Send("fan", { messages: [] }), new Send("fan", { messages: [] })], ["fan"])
  .addEdge("fan", "child").addEdge("child", END)
  .compile({ checkpointer: new MemorySaver() });

/** Numbers the states, over a channel of its own. */
const counts = () => {
  const channel = StreamChannel.remote("states");
  let n = 0;
  return { init: () => ({ channel }), process: (e) => (e.method === "values" && channel.push({ n: ++n }), true) };
};

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const word = process.env.GRAPH ?? "all";
  const inputs = word === "fails" ? [{ messages: [{ role: "user", content: "fail" }] }] : [{ messages: [{ role: "user", content: word }] }, new Command({ resume: "yes" })];
  for (const input of inputs) {
    const run = await graph.streamEvents(input, { version: "v3", configurable: { thread_id: "t" }, transformers: [counts] });
    try {
      for await (const e of run) console.log(JSON.stringify(e));
    } catch (err) {
      if (word !== "fails") throw err;
    }
  }
}
