// Opens a share link: the token in it is lent to this tab, and is taken out of the address. Anybody can make somebody follow a
// link, so it signs nobody in: only a share of one run is accepted, and the tab's own token is kept for afterwards.

import { lendToken, whoami } from "./server.js";

const share = /^shr_[\w-]+\.[\w-]+$/;

/** Goes to the run that the link is for. */
export async function shareScreen({ argument, signal }) {
  if (!share.test(argument)) throw notShare();
  const who = await whoami(signal, argument).catch((e) => {
    throw Object.assign(e, { shared: true });
  });
  if (signal.aborted) return;
  if (typeof who.run !== "string") throw notShare();
  lendToken(argument);
  location.replace(`#/run/${encodeURIComponent(who.run)}`);
}

const notShare = () => Object.assign(new Error("no share"), { notShare: true });
