// A chat of TanStack's ChatClient with an agent that answers: messages, cuts, a reload while it speaks, a
// second tab, a stop from it, a question and its answer; and HttpAgent, which is asked and answers. Two nodes
// of one log.
import assert from "node:assert/strict";
import { HttpAgent } from "@ag-ui/client";
import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";
import { cutting } from "./cut.mjs";

const { BASE, OTHER, TOKEN } = process.env;
const headers = { Authorization: `Bearer ${TOKEN}` };
const speech = 'Grüße 🌍 "in" \\ quotes,\n\ttabs\u2028 and <tags> & all.';

process.on("unhandledRejection", () => {}); // HttpAgent leaves that of a broken body
console.error = () => {}; // and says what was refused

async function until(what, holds) {
  for (let n = 0; !(await holds()); n++) {
    assert.ok(n < 1500, `never: ${what}`);
    await new Promise((go) => setTimeout(go, 10));
  }
}

async function tanstack() {
  const run = `chat_tanstack_${Date.now()}`;
  const open = (base, fetchClient = fetch) => {
    const chat = new ChatClient({ threadId: run, persistence: true,
      connection: fetchServerSentEvents(`${base}/v1/ag-ui/${run}`, { headers, fetchClient, reconnect: { delayMs: 5 } }) });
    chat.attach(); // as the hooks of pages do
    return chat;
  };
  // What a page draws, but for thoughts.
  const shown = (chat) => chat.getMessages().flatMap((m) => m.parts.filter((p) => p.type !== "thinking")
    .map(({ type, content, name, arguments: args }) => ({ role: m.role, type, content, name, args })));
  // What the agent has said to the last message.
  const answer = (chat) => {
    const all = chat.getMessages();
    const own = all.slice(all.findLastIndex((m) => m.role === "user") + 1);
    return own.flatMap((m) => m.parts).filter((p) => p.type === "text").map((p) => p.content).join("");
  };
  const asked = (chat) => chat.getMessages().filter((m) => m.role === "user").length;

  // Each answer is cut after some of its events, and goes on by itself.
  const { state, request } = cutting();
  const one = open(BASE, (url, init) => (init?.method === "POST" ? request : fetch)(url, init));
  for (const [i, left] of [1500, 3500, 4500].entries()) {
    state.left = left;
    const before = state.asked.length;
    await one.sendMessage(`say ${left}`);
    assert.equal(one.getError(), undefined);
    assert.equal(answer(one), speech + `You said: ${left}`);
    assert.equal(asked(one), i + 1);
    assert.ok(state.asked.length > before + 1, `cut at ${left}, and not asked again`);
  }
  // A page that begins has the same, from the other node.
  const two = open(OTHER);
  await until("it is there after a reload", () => asked(two) === 3);
  assert.deepEqual(shown(two), shown(one));
  // While the agent speaks, a third page is opened; the agent is stopped from there.
  const long = one.sendMessage("long story");
  await until("it speaks", () => asked(one) === 4 && answer(one).length > 10);
  const three = open(OTHER);
  await until("the other page hears it", () => asked(three) === 4 && answer(three).length > 10);
  assert.equal((await fetch(`${OTHER}/v1/ag-ui/${run}/stop`, { method: "POST", headers })).status, 202);
  await long;
  await until("the other page has it all", () => JSON.stringify(shown(three)) === JSON.stringify(shown(one)));
  // A question of the agent, answered by the page, or by one that was opened after it was asked.
  for (const approved of [true, false]) {
    await one.sendMessage("confirm it");
    await until("it asks", () => one.getPendingInterrupts().length === 1);
    const page = approved ? one : open(OTHER);
    await until("the page knows the question", () => page.getPendingInterrupts().length === 1);
    const { id } = page.getPendingInterrupts()[0];
    await page.resumeInterruptsUnsafe([{ interruptId: id, status: "resolved", payload: { approved } }]);
    await until("it goes on", () => page.getPendingInterrupts().length === 0 && !page.getIsLoading());
    assert.match(JSON.stringify(shown(page).at(-1)), approved ? /sunny/ : /./);
    const late = await fetch(`${BASE}/v1/ag-ui/${run}`, { method: "POST", headers: { ...headers, "Content-Type": "application/json" },
      body: JSON.stringify({ threadId: run, runId: "late", messages: [], resume: [{ interruptId: id, status: "resolved", payload: { approved: !approved } }] }) });
    assert.equal(late.status, 409, await late.text());
  }
}

/** HttpAgent answers questions: the page that was asked, another one, and one that is cut while it answers. */
async function httpAgent() {
  const threadId = `chat_agui_${Date.now()}`;
  const { state, request } = cutting();
  const open = (base, how = fetch) => new HttpAgent({ url: `${base}/v1/ag-ui/${threadId}`, threadId, headers, fetch: how });
  const shown = (agent) => agent.messages.filter((m) => m.role !== "reasoning").map(({ id, role, content, toolCalls, toolCallId }) => ({ id, role, content, toolCalls, toolCallId }));
  const one = open(BASE, request);
  for (const [approved, how] of [[true, "here"], [false, "here"], [true, "elsewhere"], [true, "cut"]]) {
    one.addMessage({ id: crypto.randomUUID(), role: "user", content: "confirm it" });
    await one.runAgent({});
    assert.equal(one.pendingInterrupts.length, 1, `${how}: ${JSON.stringify(shown(one))}`);
    const [{ id, toolCallId }] = one.pendingInterrupts;
    assert.ok(one.messages.some((m) => m.toolCalls?.some((c) => c.id === toolCallId)), `${how}: the call is not there`);
    const resume = [{ interruptId: id, status: "resolved", payload: { approved } }];
    const page = how === "elsewhere" ? open(OTHER) : one;
    if (page !== one) {
      await page.runAgent({});
      assert.deepEqual(page.pendingInterrupts.map((i) => i.id), [id], how);
    }
    if (how === "cut") {
      state.left = 900;
      await assert.rejects(page.runAgent({ resume }));
      await page.runAgent({ resume }).catch((e) => assert.fail(`the answer again: ${e}`));
    } else await page.runAgent({ resume });
    assert.deepEqual(page.pendingInterrupts, [], how);
    const result = page.messages.findLast((m) => m.role === "tool" && m.toolCallId === toolCallId);
    assert.match(result.content, approved ? /sunny/ : /denied/, how);
    // The opposite answer comes too late, and says so.
    const late = open(BASE);
    late.messages = page.messages;
    await assert.rejects(late.runAgent({ resume: [{ ...resume[0], payload: { approved: !approved } }] }), /409/);
    const fresh = open(OTHER);
    await fresh.runAgent({});
    assert.deepEqual(shown(fresh), shown(page).slice(-shown(fresh).length), how);
    assert.ok(shown(fresh).length > 1, how);
    one.messages = page.messages;
    one.pendingInterrupts = [];
  }
}

await tanstack();
await httpAgent();
console.log("ok");
process.exit(0);
