// A receiver of webhooks that checks signatures by the library of Standard Webhooks, and fails a third of all requests:
// some of them when it has what was sent already. GET /report says what came.
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const hook = new Webhook(process.env.SECRET);
const report = { bad: 0, failed: 0, twice: 0, runs: {} };
const seen = new Set();

function take(id) {
  if (seen.has(id)) {
    report.twice++;
    return;
  }
  seen.add(id);
  const run = id.slice(0, id.lastIndexOf("/"));
  (report.runs[run] ??= []).push(Number(id.slice(id.lastIndexOf("/") + 1)));
}

const server = createServer(async (request, answer) => {
  if (request.method === "GET") {
    answer.end(JSON.stringify(report));
    return;
  }
  const parts = [];
  for await (const part of request) parts.push(part);
  try {
    const event = hook.verify(Buffer.concat(parts).toString(), request.headers);
    const { tenant, run_id, seq } = event.data;
    if (`${tenant}/${run_id}/${seq}` !== request.headers["webhook-id"]) throw new Error("another event");
  } catch {
    report.bad++;
  }
  const luck = Math.random() * 3;
  if (luck >= 0.5) take(request.headers["webhook-id"]);
  if (luck < 1) report.failed++;
  answer.writeHead(luck < 1 ? 500 : 204).end();
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
