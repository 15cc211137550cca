// @microsoft/fetch-event-source: comes back by itself. It takes its cursor from each id line, also of a
// frame that never ends: a cut between the id line and the empty line behind it loses that event. With
// CURSOR=page the page sends the cursor of what it was given instead.
import { auth, cursor, detail, done, isOver, print, url } from "./lib.mjs";

// It asks the page whether it is visible.
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
globalThis.window = globalThis;
const { fetchEventSource } = await import("@microsoft/fetch-event-source");

class Over extends Error {}
let made = 0, reconnected = 0;

for (;;) {
  made++;
  try {
    await fetchEventSource(url(cursor()), {
      headers: auth,
      fetch: process.env.CURSOR === "page" ? (u, init) => fetch(u, { ...init, headers: { ...init.headers, "last-event-id": String(cursor()) } }) : fetch,
      openWhenHidden: true,
      async onopen(res) {
        if (res.status === 204 && isOver()) throw new Over();
        if (res.status !== 200) throw new Error(`status ${res.status}`);
      },
      onmessage(m) {
        if (m.data !== "") print(m.data, m.id); // it also tells of frames that are nothing but a hint
      },
      onerror(e) {
        if (e instanceof Over) throw e;
        reconnected++;
        return 20;
      },
    });
  } catch (e) {
    if (e instanceof Over) break;
    throw e;
  }
}
done({ made, reconnected, detail });
