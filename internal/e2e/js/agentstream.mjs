// Our own client, in Node: over fetch, or over ws.
import WebSocket from "ws";
import { Client, formatEvent } from "../../../clients/ts/dist/index.js";
import { base, detail, done, token, write } from "./lib.mjs";

const at = new URL(base);
const run = at.pathname.split("/").at(-2);
const client = new Client({ url: at.origin, token: () => token, WebSocket });
const states = {};
const watch = client.watch(run, {
  detail,
  gaps: "refetch", // what a connection that lags was spared is in the log
  transport: process.env.TRANSPORT,
  backoff: { first: 20, most: 200 },
  onState: (s) => (states[s.state] = (states[s.state] ?? 0) + 1),
});
for await (const { event, gap } of watch) {
  if (gap) write({ gap });
  else write({ data: formatEvent(event) });
}
done(states);
