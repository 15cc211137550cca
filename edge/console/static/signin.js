// Signing in by a token or an API key, which this tab keeps until it is closed.

import { h, fill } from "./dom.js";
import { keepToken, whoami } from "./server.js";

/** Asks for a token, tries it, and goes on to where the person was going. */
export function signInScreen({ main, argument, open }) {
  const field = h("input", { id: "token", type: "password", name: "token", autocomplete: "off", spellcheck: "false", required: true });
  const error = h("p", { class: "error", role: "alert" });
  const form = h("form", { class: "card sign-in", on: { submit } },
    h("h1", {}, "Sign in"),
    h("p", {}, "Enter a token or an API key of this server. It stays in this tab, and is forgotten when the tab is closed."),
    h("label", { for: "token" }, "Token"), field, error,
    h("button", { class: "primary", type: "submit" }, "Sign in"));
  fill(main, form);
  field.focus();

  async function submit(e) {
    e.preventDefault();
    error.textContent = "";
    keepToken(field.value.trim());
    try {
      await whoami();
    } catch (e) {
      keepToken("");
      error.textContent = e.status === 401 ? "The server does not know this token." : `The server cannot be asked: ${e.message}`;
      field.focus();
      return;
    }
    const to = argument.startsWith("#/") && !argument.startsWith("#/sign-in") ? argument : "#/runs";
    if (location.hash === to) open();
    else location.hash = to;
  }
}
