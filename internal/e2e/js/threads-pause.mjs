// What the SDK makes of a second run whose terminal comes alone, some milliseconds after all else of the run. The server is a few
// lines here, so that nothing but the SDK is judged. The SDK pauses a subscription a turn of the event loop after an event that
// follows a terminal, and resumes it with the next event: 1.11 not with one that is itself of the root's lifecycle. There the
// last terminal stays in the queue of one who only watches, until somebody resumes the subscription.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { WebSocketServer } from "ws";
import { all, end, old, open, patient, watch } from "./threads-lib.mjs";

let seq = 0;
const event = (method, data) => ({ type: "event", event_id: `e-${++seq}`, seq, method, params: { namespace: [], timestamp: 1, data } });
const runs = [1, 2].flatMap((id) => [
  event("lifecycle", { event: "running" }), event("tasks", { id, ok: true }), event("lifecycle", { event: "completed" }),
]);

/** The messages go out one by one: each follows when the client has answered the ping after the one before, and had turns of its loop. */
const serve = async (socket) => {
  for (const e of runs) {
    socket.send(JSON.stringify(e));
    const seen = new Promise((resolve) => socket.once("pong", resolve));
    socket.ping();
    await seen;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  sent();
};
let sent;
const all6 = new Promise((resolve) => (sent = resolve));
const server = createServer();
new WebSocketServer({ server }).on("connection", (socket) => socket.on("message", (text) => {
  socket.send(JSON.stringify({ type: "success", id: JSON.parse(text).id, result: { subscription_id: "s" } }));
  serve(socket);
}));
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const thread = watch(open(`http://127.0.0.1:${server.address().port}`), "t");
const sub = await thread.subscribe({ channels: all });
const got = [];
(async () => {
  for (; got.length < runs.length; await sub.waitForResume()) for await (const e of sub) got.push(e.seq);
})();
await patient(all6, () => "all that the server sends");
const want = runs.map((e) => e.seq);
assert.deepEqual(got, old ? want.slice(0, -1) : want);
sub.resume();
await new Promise((resolve) => setTimeout(resolve, 20));
assert.deepEqual(got, want, "the terminal was there");
end();
