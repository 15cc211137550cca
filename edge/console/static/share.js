// Opens a share link: the token in it is this tab's from now on, and is taken out of the address.

import { keepToken, whoami } from "./server.js";

/** Goes to the run that the link is for. */
export async function shareScreen({ argument, signal }) {
  keepToken(argument);
  const who = await whoami(signal).catch((e) => {
    keepToken("");
    throw Object.assign(e, { shared: true });
  });
  if (signal.aborted) return;
  location.replace(who.run === null ? "#/runs" : `#/run/${encodeURIComponent(who.run)}`);
}
