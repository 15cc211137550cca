// Signing in by a token or an API key, which this tab keeps until it is closed.

import { h, fill } from "./dom.js";
import { button } from "./screen.js";
import { issuer, leave } from "./oidc.js";
import { keepToken, sentence, whoami, why } from "./server.js";

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
  issuer().then((o) => o !== null && form.append(h("p", { class: "hint" }, "or"), button(`Sign in at ${new URL(o.issuer).host}`, () => leave(o, target(argument)).catch((e) => (error.textContent = `The issuer cannot be asked: ${why(e)}.`))))).catch(() => {});
  field.focus();

  async function submit(e) {
    e.preventDefault();
    error.textContent = "";
    keepToken(field.value.trim());
    try {
      await whoami();
    } catch (e) {
      keepToken("");
      error.textContent = e.status === 401 ? "The server does not know this token." : sentence(e);
      field.focus();
      return;
    }
    const to = target(argument);
    if (location.hash === to) open();
    else location.hash = to;
  }
}

const target = (argument) => (argument.startsWith("#/") && !argument.startsWith("#/sign-in") ? argument : "#/runs");
