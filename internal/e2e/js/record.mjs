// An agent with a tool, on an official library, as somebody writes it who knows no agentstream: the base URL and the key come
// from the environment. Arguments: library (anthropic, openai) and what to do (loop, child, crash, wait), then the question.
import { spawnSync } from "node:child_process";

const [library, what, question] = process.argv.slice(2);

/** Asks until no tool is wanted. between is called after the first answer. */
const loops = {
  anthropic: async (between) => {
    const { default: Anthropic } = await import("@anthropic-ai/sdk");
    const client = new Anthropic();
    const messages = [{ role: "user", content: question }];
    const tools = [{ name: "weather", input_schema: { type: "object" } }];
    for (;;) {
      const message = await client.messages.stream({ model: "m", max_tokens: 100, messages, tools }).finalMessage();
      if (message.stop_reason !== "tool_use") return message.content.map((b) => b.text ?? "").join("");
      await between();
      messages.push({ role: "assistant", content: message.content });
      messages.push({ role: "user", content: message.content.filter((b) => b.type === "tool_use").map((b) => ({ type: "tool_result", tool_use_id: b.id, content: "rain" })) });
    }
  },
  openai: async (between) => {
    const { default: OpenAI } = await import("openai");
    const client = new OpenAI();
    const messages = [{ role: "user", content: question }];
    const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object" } } }];
    for (;;) {
      const { message, finish_reason } = (await client.chat.completions.stream({ model: "m", messages, tools }).finalChatCompletion()).choices[0];
      if (finish_reason !== "tool_calls") return message.content;
      await between();
      messages.push(message, ...message.tool_calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: "rain" })));
    }
  },
};

if (what === "child") {
  process.exit(spawnSync(process.execPath, [process.argv[1], library, "loop", question], { stdio: "inherit" }).status);
}
console.log(await loops[library](async () => {
  if (what === "crash") throw new Error("the tool is broken");
  if (what === "wait") {
    console.error("waits");
    await new Promise((r) => setTimeout(r, 60_000));
  }
}));
