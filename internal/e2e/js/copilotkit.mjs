// A chat of CopilotKit's client, without its runtime, with an agent that answers: messages, a reload, a second tab, a stop from it. Two
// nodes of one log.
import assert from "node:assert/strict";
import { CopilotKitCore } from "@copilotkit/core";

const { BASE, OTHER, TOKEN } = process.env;
const headers = { Authorization: `Bearer ${TOKEN}` };
const speech = 'Grüße 🌍 "in" \\ quotes,\n\ttabs\u2028 and <tags> & all.';
globalThis.window ??= { location: new URL(BASE) }; // CopilotKit's client asks for nothing outside of a browser
process.on("unhandledRejection", () => {}); // HttpAgent, below it, leaves that of a broken body

async function until(what, holds) {
  for (let n = 0; !(await holds()); n++) {
    assert.ok(n < 1500, `never: ${what}`);
    await new Promise((go) => setTimeout(go, 10));
  }
}

async function copilotkit() {
  const run = `chat_copilot_${Date.now()}`;
  const open = async (base, id = run) => {
    const core = new CopilotKitCore({ runtimeUrl: base + "/v1/copilotkit", headers });
    const errors = [];
    core.subscribe({ onError: ({ error }) => errors.push(error) });
    await until("it knows its agents", () => core.getAgent("default") || errors.length);
    const agent = core.getAgent("default");
    assert.ok(agent, String(errors));
    agent.threadId = id;
    return { core, agent, errors };
  };
  const shown = ({ agent }) => JSON.parse(JSON.stringify(agent.messages.filter((m) => m.role !== "reasoning").map(({ role, content, toolCalls, toolCallId }) => ({ role, content, toolCalls, toolCallId }))));
  const said = ({ agent }) => agent.messages.filter((m) => m.role === "assistant").map((m) => m.content ?? "").join("");
  const say = (page, content) => {
    page.agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
    return page.core.runAgent({ agent: page.agent });
  };

  const one = await open(BASE);
  await one.core.connectAgent({ agent: one.agent });
  assert.deepEqual([shown(one), one.errors], [[], []]);
  await say(one, "say hello");
  assert.equal(said(one), speech + "You said: hello");
  // A reload: the thread is there, from the other node, once.
  const two = await open(OTHER);
  await two.core.connectAgent({ agent: two.agent });
  assert.deepEqual(shown(two), shown(one));
  await two.core.connectAgent({ agent: two.agent });
  assert.deepEqual(shown(two), shown(one), "connected again");
  // Both watch an answer, and the second one stops it.
  const long = say(one, "long story");
  await until("it speaks", () => said(one).length > speech.length + 30);
  const watching = two.core.connectAgent({ agent: two.agent });
  await until("the other page hears it", () => said(two).length > speech.length + 30);
  two.core.stopAgent({ agent: two.agent });
  await Promise.all([long, watching]);
  const three = await open(BASE);
  await three.core.connectAgent({ agent: three.agent });
  assert.deepEqual(shown(three), shown(one));
  assert.deepEqual(one.errors, []);
}

await copilotkit();
console.log("ok");
process.exit(0);
