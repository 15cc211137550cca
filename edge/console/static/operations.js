// How the node is: what an acknowledgement promises, what it needs, and what is not known.

import { h, fill } from "./dom.js";
import { notice } from "./screen.js";
import { ask } from "./server.js";

const promises = {
  process: "An acknowledged event survives a kill of the server, not a power cut.",
  disk: "An acknowledged event is on the disk of this machine.",
  quorum: "An acknowledged event is on the disks of most of the log's servers.",
};

/** Shows what the node reports, and reads it again every few seconds. */
export async function operationsScreen({ main, signal, who }) {
  const body = h("div", { class: "narrow" });
  fill(main, body);
  for (;;) {
    const ready = await ask("/readyz", { signal, any: true });
    if (signal.aborted) return;
    fill(body, h("h1", {}, "Operations"),
      ready.draining === true && notice("This node is shutting down", "Its streams are ended; clients go on at another node."),
      row("Ready", ready.ready ? "yes" : "no", ready.ready),
      row("Durability", ready.durability ? `${ready.durability}. ${promises[ready.durability] ?? ""}` : "unknown"),
      h("h2", {}, "Checks"),
      h("table", {}, h("thead", {}, h("tr", {}, ["Check", "State", "Took"].map((t) => h("th", { scope: "col" }, t)))),
        h("tbody", {}, (ready.checks ?? []).map((c) => h("tr", {}, h("td", {}, c.name), h("td", {}, h("span", { class: `dot ${c.ok ? "ok" : "failed"}` }), c.ok ? " ok" : " failed"), h("td", {}, `${c.duration_ms.toFixed(1)} ms`))))),
      h("h2", {}, "Access"),
      row("Tenant", who.tenant), row("Scopes", who.scopes.join(", ")), who.run && row("Only run", who.run),
      h("h2", {}, "Not known here"),
      h("p", { class: "hint" }, "Lag of partitions and limits are at /metrics of the operators' address; dead letters are listed by agentstream deadletters."));
    await new Promise((r) => setTimeout(r, 5000));
    if (signal.aborted) return;
  }
}

function row(name, value, ok) {
  return h("p", { class: "fact" }, h("span", { class: "hint" }, name), ok !== undefined && h("span", { class: `dot ${ok ? "ok" : "failed"}` }), ` ${value}`);
}
