// A chat with agentstream's own hook: everything that the run holds, and all that can be done to it.
import { Client } from "agentstream";
import { useRun } from "agentstream/react";
import { StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { chat, server } from "../shared/address.js";
import { View } from "../shared/view.jsx";

const client = new Client({ url: server });

function Page() {
  const { snapshot, gaps, state, commands } = useRun(client, chat);
  const [refused, setRefused] = useState();
  const fresh = state.error?.status === 404;

  async function say(text) {
    // A chat begins as a session, which a worker answers. The key makes two tabs begin it once.
    if (fresh) await client.append(chat, [{ type: "session.created", actor: "user", payload: {} }], { idempotencyKey: chat });
    await commands.message(text);
  }

  const attempt = (done) => done.then(() => setRefused(undefined), setRefused);
  const lines = [
    ...snapshot.messages.map((m) => ({ seq: m.start_seq, role: m.role, text: m.blocks.filter((b) => b.kind === "text").map((b) => b.text).join("") })),
    ...snapshot.tool_calls.map((c) => ({ seq: c.start_seq, role: "tool", text: `${c.tool}: ${c.state}` })),
  ];
  const messages = lines.filter((l) => l.text !== "").sort((a, b) => a.seq - b.seq).map((l) => ({ ...l, id: `${l.role}-${l.seq}` }));
  const working = snapshot.state === "running" || snapshot.messages.some((m) => m.end_seq === null);
  return (
    <View status={fresh ? "ready" : working ? "streaming" : state.state} messages={messages} error={refused ?? (fresh ? undefined : state.error)}
      say={(text) => attempt(say(text))} stop={() => attempt(commands.cancel())}>
      {gaps.length > 0 && <p>{gaps.length} gaps</p>}
      {snapshot.inputs.filter((q) => q.state === "open").map((q) => (
        <p key={q.seq}>
          {q.prompt} {q.options?.exact().map((o) => <button key={o} onClick={() => attempt(commands.answer(q, o))}>{String(o)}</button>)}
        </p>
      ))}
      {snapshot.waits.filter((w) => w.request_id === null).map((w) => (
        <p key={w.seq}>
          {snapshot.tool_calls.find((c) => c.call_id === w.call_id)?.tool}? {["allow", "deny"].map((o) => <button key={o} onClick={() => attempt(commands.answer(w, o))}>{o}</button>)}
        </p>
      ))}
    </View>
  );
}

createRoot(document.getElementById("root")).render(<StrictMode><Page /></StrictMode>);
