// A link to one run: whoever has it reads the run until the link expires, and does nothing else.

import { h, fill } from "../dom.js";
import { time } from "../format.js";
import { copier, dialog, toast } from "../screen.js";
import { ask, sentence } from "../server.js";

const lives = [["1h", "an hour"], ["24h", "a day"], ["168h", "a week"], ["720h", "30 days"]];

/** Asks how long the link is to last, makes it, and shows it. */
export function share(run) {
  const ttl = h("select", { id: "ttl" }, lives.map(([v, t]) => h("option", { value: v, selected: v === "24h" }, t)));
  const content = h("div", { class: "share" }, h("p", {}, "Whoever has the link reads this run, and nothing else, until it expires."), h("label", { for: "ttl" }, "It lasts for ", ttl));
  dialog("Share this run", content, "Make the link", async () => {
    try {
      const made = await ask(`/v1/agent/runs/${encodeURIComponent(run)}/shares?ttl=${ttl.value}`, { method: "POST" });
      show(`${location.origin}/console/#/share/${made.share}`, made.expires_at);
    } catch (e) {
      toast(e.status === 404 ? "This server makes no share links (--share-secret)." : sentence(e), "bad");
    }
  }, "Cancel");
}

function show(link, until) {
  const field = h("input", { id: "link", readonly: true, value: link, "aria-label": "Link" });
  dialog("The link", h("div", { class: "share" }, h("div", { class: "inline" }, field, copier(link)), h("p", { class: "hint" }, `Until ${time(until)}. It ends early when the credential that made it is revoked.`)), "Done", () => {}, "");
  field.select();
}
