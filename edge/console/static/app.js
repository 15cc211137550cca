// Opens the screen that the address names, and closes the one before.

import { h, fill, keys, keysOn } from "./dom.js";
import { dialog, failed, toast } from "./screen.js";
import { connect, lent, takeBack, token, whoami, why } from "./server.js";
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
  const [, name = "", argument = "", query = ""] = /^#\/([\w-]*)\/?([^?]*)\??(.*)/.exec(location.hash) ?? [];
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
    account.textContent = lent() ? "Leave the link" : "Sign out";
    document.body.classList.toggle("shared", Boolean(who?.run));
    const asked = new URLSearchParams(query);
    await show({ main, signal, argument: decode(argument), event: Number(asked.get("event")) || 0, child: asked.get("child"), client: connect(), who, go, open });
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

const help = [["/", "Search the runs, or find in a run"], ["↑ ↓ Enter", "Choose and open a run, or a bar of the timeline"], ["j k", "Next and previous entry of a run"], [", .", "One event back, one event on"], ["p", "Play from here, or pause"], ["l", "Back to now"], ["a", "Go to what waits for you: a question, or a plan; Enter answers"], ["x", "Cancel the run; Enter says yes"], ["Ctrl Enter", "Send the message"], ["?", "This list"]];

function showKeys() {
  const on = h("input", { type: "checkbox", id: "keys-on", checked: keysOn(), on: { change: () => keysOn(on.checked) } });
  dialog("Keys", [h("dl", { class: "facts" }, help.map(([k, t]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, t)])), h("label", { for: "keys-on" }, on, " Single keys do something")], "Close", () => {}, "");
}

keys({ "?": showKeys });
document.getElementById("keys").addEventListener("click", showKeys);
account.addEventListener("click", () => {
  const again = lent();
  takeBack();
  if (again && location.hash === "#/runs") open();
  else go(again ? "runs" : "sign-in");
});
// A browser may keep a page that was left, with its stream, and it has six connections to a server that speaks HTTP/1.1.
addEventListener("pagehide", () => close.abort());
addEventListener("pageshow", (e) => e.persisted && open());
arrive().catch((e) => toast(`Not signed in: ${why(e)}.`, "bad")).then(() => {
  addEventListener("hashchange", open);
  open();
});
