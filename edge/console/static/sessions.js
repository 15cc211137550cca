// Sessions: runs that a person begins and talks to. Whoever answers sessions here answers; in dev it is the demo agent.

import { h, fill, short } from "./dom.js";
import { moment, time } from "./format.js";
import { badge, failed, notice } from "./screen.js";
import { ask, why } from "./server.js";

/** Shows the newest sessions and a form that begins one. */
export async function sessionsScreen(s) {
  const { main, signal, client, who, go } = s;
  const text = h("textarea", { id: "first", rows: "3", required: true, placeholder: "What should the agent do?", "aria-label": "First message" });
  const title = h("input", { id: "title", maxlength: "200", placeholder: "Title (optional)", "aria-label": "Title" });
  const error = h("p", { class: "error", role: "alert" });
  const form = h("form", { class: "card", on: { submit } }, h("h2", {}, "Begin a session"), title, text,
    h("p", { class: "hint" }, "In dev the demo agent answers. It knows the words think, tool, tools, confirm, delegate, wait and long."), error,
    h("button", { type: "submit", class: "primary" }, "Begin"));
  const list = h("ul", { class: "sessions" });
  fill(main, h("div", { class: "narrow" }, h("h1", {}, "Sessions"), who?.scopes?.includes("write") ? form : h("p", { class: "hint" }, "The token does not allow to begin sessions."), list));

  try {
    const { data = [] } = await ask("/v1/sessions?limit=30", { signal });
    fill(list, data.length === 0 ? notice("No sessions yet", "") : data.map((x) => h("li", {}, h("a", { href: `#/run/${encodeURIComponent(x.id)}` }, short(x.title || x.id, 100)), x.title && h("span", { class: "id" }, x.id), h("span", { class: "grow" }), badge(x.status), h("span", { class: "hint", title: moment(x.created_at) }, time(x.created_at)))));
  } catch (e) {
    if (!signal.aborted) failed(list, e, s.open, () => go("sign-in", location.hash));
  }

  async function submit(e) {
    e.preventDefault();
    error.textContent = "";
    const make = form.querySelector("button");
    make.disabled = true;
    try {
      const session = await ask("/v1/sessions", { method: "POST", body: { agent: "console", environment_id: "console", ...(title.value.trim() === "" ? {} : { title: title.value.trim() }) } });
      await client.send(session.id, text.value.trim());
      go("run", session.id);
    } catch (e) {
      error.textContent = `The session could not be begun: ${why(e)}.`;
      make.disabled = false;
    }
  }
}
