// Programs that watch a run, as a person copies them: each goes on by itself, or says how it goes on. Nothing here needs a page.

const exported = "export"; // at the beginning of a line the word would be one of this module's own

/** Returns curl's arguments that sign a request; the credential itself is never part of a text. */
const sign = (signed) => (signed ? ` -H "Authorization: Bearer $AGENTSTREAM_TOKEN"` : "");

/** Returns the command that begins a run. */
export const firstEvent = (base, signed) =>
  `curl${sign(signed)} -H 'Content-Type: application/json' -d '{"type":"run.lifecycle","payload":{"state":"running"}}' '${base}/v1/agent/runs/hello/events'`;

/** Returns the command that fetches events of a run, from one seq to another. */
export function eventsOf(base, run, first, last, signed) {
  const url = new URL(`/v1/agent/runs/${encodeURIComponent(run)}/events`, base);
  url.searchParams.set("after", first - 1);
  url.searchParams.set("limit", Math.min(1000, last - first + 1));
  return `curl -s${sign(signed)} '${url.href}'`;
}

/** Returns the recipes for a run: { name: [language, text] }. signed: requests need a credential, which is never part of a text. */
export function recipes(base, run, signed) {
  const stream = `${base}/v1/agent/runs/${run}/stream`;
  const token = "process.env.AGENTSTREAM_TOKEN";
  const headers = signed ? ", headers: { Authorization: `Bearer ${" + token + "}` }" : "";
  return {
    curl: ["sh", `curl -N${sign(signed)} '${stream}'
# After a broken connection: -H 'Last-Event-ID: N', with the newest id that has come.
`],
    EventSource: ["js", signed ? ticketed(stream) : `// The browser goes on by itself after a broken connection.
const events = new EventSource("${stream}");
events.onmessage = ({ data }) => {
  const { seq, type, payload } = JSON.parse(data);
  console.log(seq, type, payload);
};
`],
    useChat: ["jsx", `// npm install ai @ai-sdk/react react
import { Chat, useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";

const transport = new DefaultChatTransport({ api: "${base}/v1/ai-sdk/chat"${headers} });
const chat = new Chat({ id: "${run}", transport });

${exported} function Run() {
  const { messages } = useChat({ chat, resume: true });
  return messages.map((m) => <p key={m.id}>{m.parts.map((part) => part.text ?? "").join("")}</p>);
}
`],
    HttpAgent: ["js", `// npm install @ag-ui/client
import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({ url: "${base}/v1/ag-ui?history=true", threadId: "${run}"${headers} });
// After a broken connection: the same call again.
await agent.runAgent({}, { onMessagesChanged: ({ messages }) => console.log(messages.at(-1)) });
`],
    openai: ["js", `// npm install openai. The first response of the run; resp_${run}.2 is the second.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: "${base}/openai/v1", apiKey: ${signed ? token : '"none"'} });
let last = -1;
for (let over = false; !over; ) {
  try {
    const after = last < 0 ? {} : { starting_after: last };
    for await (const event of await client.responses.retrieve("resp_${run}", { stream: true, ...after })) {
      last = event.sequence_number;
      console.log(last, event.type, event.delta ?? "");
    }
    over = true;
  } catch (e) {
    if (e instanceof OpenAI.APIError && e.status) throw e; // refused: no connection that broke
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
`],
    Python: ["python", `# pip install httpx
import json
import os
import time

import httpx

headers = {${signed ? `"Authorization": "Bearer " + os.environ["AGENTSTREAM_TOKEN"]` : ""}}
after = 0
over = False
while not over:
    try:
        with httpx.stream("GET", "${stream}", params={"after": after}, headers=headers, timeout=60) as answer:
            answer.raise_for_status()
            over = answer.status_code == 204
            rest = b""
            for part in answer.iter_bytes():
                *lines, rest = (rest + part).split(b"\\n")
                for line in lines:
                    if line.startswith(b"data: "):
                        event = json.loads(line[6:])
                        print(event["seq"], event["type"], event["payload"], flush=True)
                        after = max(after, event["seq"])
    except httpx.TransportError:
        time.sleep(1)
`],
  };
}

/** EventSource cannot set a header, so each connection has a ticket of its own. */
function ticketed(stream) {
  return `// Each connection has a ticket of its own: EventSource sends no headers. token is yours.
const run = "${stream.replace(/\/stream$/, "")}";
async function watch(after) {
  const answer = await fetch(\`\${run}/tickets\`, { method: "POST", headers: { Authorization: \`Bearer \${token}\` } });
  const { ticket } = await answer.json();
  const events = new EventSource(\`\${run}/stream?after=\${after}&ticket=\${ticket}\`);
  events.onmessage = ({ data }) => {
    const { seq, type, payload } = JSON.parse(data);
    after = seq;
    console.log(seq, type, payload);
  };
  events.onerror = () => {
    if (events.readyState === EventSource.CLOSED) return; // the run is over, or the request was refused
    events.close();
    setTimeout(watch, 1000, after);
  };
}
watch(0);
`;
}
