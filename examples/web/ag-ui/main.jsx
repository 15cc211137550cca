// A chat with AG-UI's own client. It does not connect again by itself, so the page calls runAgent once more: the answer begins with
// the thread's truth, whatever the client holds.
import { HttpAgent } from "@ag-ui/client";
import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { chat, server } from "../shared/address.js";
import { View } from "../shared/view.jsx";

const url = `${server}/v1/ag-ui`;
const agent = new HttpAgent({ url: `${url}?history=true`, threadId: chat });
let following = 0; // of several calls, the newest one goes on

/** Shows the response under way until it has ended, or until it asks; resume has the answers to what it has asked. */
async function follow(show, resume) {
  const own = ++following;
  agent.abortRun(); // closes a connection; it stops nothing
  show({ status: "streaming", error: undefined, asked: [] });
  for (;;) {
    try {
      await agent.runAgent(resume === undefined ? {} : { resume });
      break;
    } catch (error) {
      if (own !== following) return;
      if (error.status === 404) break; // nobody has said anything yet
      if (error.status !== undefined) return show({ status: "error", error });
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
  if (own === following) show({ status: "ready", asked: agent.pendingInterrupts });
}

function Page() {
  const [view, setView] = useState({ status: "streaming", messages: [], asked: [] });
  const show = (more) => setView((before) => ({ ...before, ...more }));
  useEffect(() => {
    const { unsubscribe } = agent.subscribe({ onMessagesChanged: ({ messages }) => show({ messages: [...messages] }) });
    follow(show);
    return unsubscribe;
  }, []);
  const say = (content) => {
    agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
    follow(show);
  };
  const answer = (asked, payload) => follow(show, [{ interruptId: asked.id, status: "resolved", payload }]);
  const stop = () => fetch(`${url}/${chat}/stop`, { method: "POST" });
  const messages = view.messages.filter((m) => m.content).map((m) => ({ id: m.id, role: m.role, text: m.content }));
  return (
    <View status={view.status} messages={messages} error={view.error} say={say} stop={stop}>
      {view.asked.map((asked) => (
        <p key={asked.id}>
          {asked.message} <button onClick={() => answer(asked, true)}>Allow</button> <button onClick={() => answer(asked, false)}>Deny</button>
        </p>
      ))}
    </View>
  );
}

createRoot(document.getElementById("root")).render(<StrictMode><Page /></StrictMode>);
