// A page with one of the two useStream hooks: of @langchain/react, or the older one of @langchain/langgraph-sdk/react. What a
// person would see stands in window.shown; window.act does what a person would do.
import React from "react";
import { createRoot } from "react-dom/client";
import { useStream } from "@langchain/react";
import { useStream as useOlder } from "@langchain/langgraph-sdk/react";

const q = new URLSearchParams(location.search);
const common = { apiUrl: q.get("base"), assistantId: "agent_e2e", threadId: q.get("thread"), apiKey: q.get("token") || null };
const textOf = (m) => (typeof m.content === "string" ? m.content : m.content.map((b) => b.text ?? "").join(""));
const typeOf = (m) => m.getType?.() ?? m.type;
const show = (s) => {
  window.shown = {
    messages: s.messages.map((m) => [typeOf(m), textOf(m)]),
    calls: (s.toolCalls ?? []).map((c) => [c.name ?? c.call?.name, c.args ?? c.call?.args]),
    interrupts: (s.interrupts ?? []).map((i) => [i.id, i.value]),
    loading: s.isLoading, values: s.values, error: s.error ? String(s.error) : "",
  };
};

function Newer() {
  const s = useStream({ ...common, transport: q.get("transport") ?? "sse" });
  show(s);
  window.act = {
    say: (content) => void s.submit({ messages: [{ type: "human", content }] }),
    answer: (v) => void s.respond(v, { interruptId: s.interrupts[0].id }), stop: () => void s.stop(),
  };
  return null;
}

function Older() {
  const s = useOlder({ ...common, reconnectOnMount: true });
  show(s);
  window.act = {
    say: (content) => void s.submit({ messages: [{ type: "human", content }] }),
    answer: (resume) => void s.submit(null, { command: { resume } }), stop: () => void s.stop(),
  };
  return null;
}

createRoot(document.getElementById("root")).render(q.get("hook") === "older" ? <Older /> : <Newer />);
