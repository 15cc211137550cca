// A chat of TanStack AI. Its client takes a response up again after the newest event that it has.
import { fetchServerSentEvents, useChat } from "@tanstack/ai-react";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { chat, server } from "../shared/address.js";
import { View } from "../shared/view.jsx";

const url = `${server}/v1/ag-ui/${chat}`;
const connection = fetchServerSentEvents(url);

function Page() {
  // With persistence, the messages and the response under way come from the server.
  const { messages, status, error, sendMessage, interrupts, resumeInterruptsUnsafe } = useChat({ threadId: chat, connection, persistence: true });
  // Questions of the agent are no calls of the page's tools, so the library leaves their answers to the page.
  const answer = (asked, payload) => resumeInterruptsUnsafe([{ interruptId: asked.id, status: "resolved", payload }]);
  const stop = () => fetch(`${url}/stop`, { method: "POST" });
  return (
    <View status={status} messages={messages.flatMap(shown)} error={error} say={sendMessage} stop={stop}>
      {interrupts.map((asked) => (
        <p key={asked.id}>
          {asked.message} <button onClick={() => answer(asked, true)}>Allow</button> <button onClick={() => answer(asked, false)}>Deny</button>
        </p>
      ))}
    </View>
  );
}

/** A message's texts and calls, in their order. */
function shown(message) {
  return message.parts.flatMap((part, n) => {
    const id = `${message.id}-${n}`;
    if (part.type === "text") return [{ id, role: message.role, text: part.content }];
    return part.type === "tool-call" ? [{ id, role: "tool", text: `${part.name}: ${part.state}` }] : [];
  });
}

createRoot(document.getElementById("root")).render(<StrictMode><Page /></StrictMode>);
