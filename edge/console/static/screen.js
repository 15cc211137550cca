// What all screens share: messages for when there is nothing to see, and how an error is shown.

import { h, fill } from "./dom.js";
import { explain } from "./server.js";

/** Returns a notice with a title, a sentence and what one can do. */
export function notice(title, text, ...actions) {
  return noticeOf("h2", title, text, actions);
}

function noticeOf(level, title, text, actions) {
  return h("section", { class: "notice", role: "alert" }, h(level, {}, title), text && h("p", {}, text), actions.length > 0 && h("div", { class: "actions" }, actions));
}

/** Shows an error in place of a screen. again is what a retry does. */
export function failed(main, error, again, signIn) {
  const x = explain(error);
  const actions = [x.signIn && button("Sign in", signIn, "primary"), x.retry && button("Try again", again, "primary"), h("a", { href: "#/runs", class: "button" }, "All runs")];
  fill(main, noticeOf("h1", x.title, x.text, actions));
  main.firstChild.dataset.code = error.code ?? error.status ?? "";
}

/** Returns a button. */
export function button(text, click, kind = "", props = {}) {
  return h("button", { type: "button", class: kind, ...props, on: { click } }, text);
}

/** Returns a button that copies a text; null where pages may not. */
export function copier(text, name = "Copy", props = {}) {
  if (navigator.clipboard === undefined) return null;
  return button(name, () => navigator.clipboard.writeText(text).then(() => toast("Copied"), () => toast("The browser does not allow it.", "bad")), "quiet", props);
}

/** Shows a short message at the edge of the page; it goes away by itself. */
export function toast(text, kind = "") {
  let at = document.getElementById("toasts");
  if (at === null) document.body.append((at = h("div", { id: "toasts", role: "status", "aria-live": "polite" })));
  const e = h("div", { class: `toast ${kind}` }, text);
  at.append(e);
  setTimeout(() => e.remove(), 6000);
}

/** Returns the name of a run's state with its colour; a run without a state is "none", as in lists on the terminal. */
export function badge(state) {
  const name = state || "none";
  return h("span", { class: `badge s-${name}` }, name.replaceAll("_", " "));
}

/** Asks for a text in a dialog; yes names the button that sends it. */
export function asked(title, yes, then) {
  const field = h("textarea", { rows: "3", required: true, "aria-label": title });
  dialog(title, field, yes, () => field.value.trim() !== "" && then(field.value.trim()));
  field.focus();
}

/** Asks whether something is to be done. */
export function confirmed(title, then) {
  dialog(title, null, "Yes", then, "No");
}

/** Shows a dialog; then is called when it is agreed to. */
export function dialog(title, content, yes, then, no = "Cancel") {
  const d = h("dialog", { "aria-label": title });
  fill(d, h("form", { method: "dialog", on: { submit: () => then() } }, h("h2", {}, title), content,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, yes), no !== "" && button(no, () => d.close(), "quiet"))));
  d.addEventListener("close", () => d.remove());
  document.body.append(d);
  d.showModal();
}
