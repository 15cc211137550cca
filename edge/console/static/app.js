// Opens the screen that the address names, and closes the one before.

import { h, fill } from "./dom.js";
import { failed, toast } from "./screen.js";
import { connect, keepToken, token, whoami } from "./server.js";
import { runsScreen } from "./runs.js";
import { runScreen } from "./run/run.js";
import { sessionsScreen } from "./sessions.js";
import { operationsScreen } from "./operations.js";
import { arrive } from "./oidc.js";
import { shareScreen } from "./share.js";
import { signInScreen } from "./signin.js";

const main = document.getElementById("main");
const account = document.getElementById("account");
let close = new AbortController();

const screens = { runs: runsScreen, run: runScreen, sessions: sessionsScreen, operations: operationsScreen, share: shareScreen, "sign-in": signInScreen };

/** Opens the screen of the address: #/name/argument. */
async function open() {
  close.abort();
  close = new AbortController();
  const { signal } = close;
  const [, name = "", argument = ""] = /^#\/([\w-]*)\/?([^?]*)/.exec(location.hash) ?? [];
  const show = screens[name] ?? screens.runs;
  for (const a of document.querySelectorAll("nav a")) {
    const here = a.hash.startsWith(`#/${name === "run" ? "runs" : name || "runs"}`);
    if (here) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  document.getElementById("connection").textContent = "";
  fill(main, h("p", { class: "loading" }, "Loading …"));
  try {
    const who = name === "sign-in" || name === "share" ? undefined : await whoami(signal);
    if (signal.aborted) return;
    account.hidden = token() === "";
    document.body.classList.toggle("shared", Boolean(who?.run));
    await show({ main, signal, argument: decode(argument), client: connect(), who, go, open });
  } catch (e) {
    if (signal.aborted) return;
    if (e?.status === 401 && !e.shared && name !== "sign-in") return go("sign-in", location.hash);
    failed(main, e, open, () => go("sign-in", location.hash));
  }
}

/** Goes to another screen. */
function go(name, argument = "") {
  location.hash = `#/${name}${argument === "" ? "" : "/" + encodeURIComponent(argument)}`;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

account.addEventListener("click", () => {
  keepToken("");
  go("sign-in");
});
arrive().catch((e) => toast(`Not signed in: ${e.message}`, "bad")).then(() => {
  addEventListener("hashchange", open);
  open();
});
