// A response that outlives its script: kill it, start it again with the id that it has printed, and the rest follows.
//
//	node openai.mjs "Tell me a long story"
//	node openai.mjs resp_… 17
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.AGENTSTREAM ?? "http://127.0.0.1:8080"}/openai/v1`, apiKey: process.env.AGENTSTREAM_TOKEN ?? "none" });
const [what = "Tell me a long story", after] = process.argv.slice(2);
let last = after === undefined ? -1 : Number(after); // the number of the newest event that is here
let id = what;
if (!what.startsWith("resp_")) {
  const headers = { "Idempotency-Key": crypto.randomUUID() }; // a repeat begins nothing
  ({ id } = await client.responses.create({ model: "demo", input: what, background: true }, { headers }));
}
console.error(`response ${id}`);
for (let over = false; !over; ) {
  try {
    const from = last < 0 ? {} : { starting_after: last };
    for await (const event of await client.responses.retrieve(id, { stream: true, ...from })) {
      last = event.sequence_number;
      if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
    }
    over = true; // a body ends cleanly after the last event alone
  } catch (e) {
    if (e instanceof OpenAI.APIError && e.status) throw e; // refused: asking again changes nothing
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}
console.error(`\nended with event ${last}`);
