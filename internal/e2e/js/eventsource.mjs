// npm eventsource: comes back by itself, with its own cursor. At a status that is not 200 it gives up,
// and the script makes a new one, as a page would.
import { EventSource } from "eventsource";
import { auth, cursor, done, isOver, print, url } from "./lib.mjs";

let made = 0, reconnected = 0;

function open() {
  made++;
  const source = new EventSource(url(cursor()), { fetch: (u, init) => fetch(u, { ...init, headers: { ...init.headers, ...auth } }) });
  source.onmessage = (e) => print(e.data, e.lastEventId);
  source.addEventListener("error", (e) => {
    if (source.readyState !== EventSource.CLOSED) return reconnected++;
    if (e.code === 204 && isOver()) return done({ made, reconnected });
    setTimeout(open, 50);
  });
}

open();
