// A chat of the AI SDK, of either version: nothing here knows agentstream but the address.
import { StrictMode, useEffect } from "react";
import { createRoot } from "react-dom/client";
import { chat as id, server } from "../shared/address.js";
import { View } from "../shared/view.jsx";

const api = `${server}/v1/ai-sdk/chat`;

export async function open({ Chat, useChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses }) {
  const stored = await fetch(`${api}/${id}/messages`);
  const chat = new Chat({
    id, // the run's
    messages: stored.ok ? await stored.json() : [],
    transport: new DefaultChatTransport({ api }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });

  function Page() {
    const { messages, status, error, sendMessage, addToolApprovalResponse, resumeStream } = useChat({ chat, resume: true });
    // After a broken connection the library asks again when the page is shown. This page does not wait for that.
    useEffect(() => {
      if (!(error instanceof TypeError)) return;
      const timer = setTimeout(resumeStream, 1000);
      return () => clearTimeout(timer);
    }, [error, resumeStream]);
    const asked = messages.flatMap((m) => m.parts).filter((part) => part.state === "approval-requested");
    const answer = (part, approved) => addToolApprovalResponse({ id: part.approval.id, approved });
    // A stop is a command to the agent, so it works from every tab. To leave, or to close the page, stops nothing.
    const stop = () => fetch(`${api}/${id}/stop`, { method: "POST" });
    return (
      <View status={status} messages={messages.flatMap(shown)} error={error} say={(text) => sendMessage({ text })} stop={stop}>
        {asked.map((part) => (
          <p key={part.toolCallId}>
            {part.toolName} <button onClick={() => answer(part, true)}>Allow</button> <button onClick={() => answer(part, false)}>Deny</button>
          </p>
        ))}
      </View>
    );
  }

  createRoot(document.getElementById("root")).render(<StrictMode><Page /></StrictMode>);
}

/** A message's texts and calls, in their order. */
function shown(message) {
  return message.parts.flatMap((part, n) => {
    const id = `${message.id}-${n}`;
    if (part.type === "text") return [{ id, role: message.role, text: part.text }];
    return part.type === "dynamic-tool" ? [{ id, role: "tool", text: `${part.toolName}: ${part.state}` }] : [];
  });
}
