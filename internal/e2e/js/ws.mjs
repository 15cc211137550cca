// npm ws: bare WebSocket, resumed by query.
import WebSocket from "ws";
import { auth, cursor, done, fail, isOver, print, url } from "./lib.mjs";

let made = 0, pings = 0;

function open() {
  made++;
  const ws = new WebSocket(url(cursor()).replace(/^http/, "ws"), "koder-agent-stream-v1", { headers: auth });
  let got = 0;
  ws.on("open", () => ws.protocol === "koder-agent-stream-v1" || fail(new Error(`subprotocol ${ws.protocol}`)));
  ws.on("ping", () => pings++);
  ws.on("message", (data, binary) => {
    if (binary) fail(new Error("binary message"));
    got++;
    print(data.toString("utf8"));
  });
  ws.on("error", () => {}); // close follows
  ws.on("close", (code, reason) => {
    if (code === 1000 && got === 0 && isOver()) return done({ made, pings });
    if (code === 1008) fail(new Error(`closed: ${reason}`));
    setTimeout(open, 20);
  });
}

open();
