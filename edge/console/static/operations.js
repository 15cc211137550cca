// How the node is: what an acknowledgement promises, what it needs, how far the archive is, and what is not known.

import { fill, h, short, visible } from "./dom.js";
import { bytes, count, duration, time } from "./format.js";
import { costText } from "./run/costs.js";
import { button, confirmed, notice, toast } from "./screen.js";
import { ask, explain, sentence } from "./server.js";

const costsEvery = 60_000; // ms
const costRows = 500;

const limits = {
  tenant_events_per_second: "Events a second, for each tenant", tenant_bytes_per_second: "Bytes a second, for each tenant", tenant_requests_at_once: "Requests at once, for each tenant", tenant_streams: "Streams at once, for each tenant",
  streams: "Open streams at this node", event_bytes: "An event", body_bytes: "A request", body_memory_bytes: "All requests at once", blob_bytes: "A blob", run_blob_bytes: "The blobs of a run", tenant_blob_bytes: "The blobs of a tenant",
};

/** Shows what the node reports, and reads it again every few seconds. */
export async function operationsScreen({ main, signal, who }) {
  const spent = h("div", {}), lost = h("div", {}), node = h("div", {}), stored = h("div", {}), letters = h("div", {}), bounds = h("div", {});
  fill(main, h("div", { class: "narrow" }, h("h1", {}, "Operations"), node,
    card("Lost for ever", lost), card("Stored in the archive", stored), card("Dead letters", letters), card("Cost by day", spent), card("Limits", bounds),
    card("Access", h("dl", { class: "facts" }, fact("Tenant", who.tenant), fact("Scopes", who.scopes.join(", ")), fact("Ends", who.expires_at === null ? "never" : time(who.expires_at))))));
  const may = who.scopes.includes("operate");
  const unseen = h("p", { class: "hint" }, "Not known to you: the scope operate is needed to see it.");
  if (!who.scopes.includes("read") || who.run !== null) fill(spent, h("p", { class: "hint" }, "Not known to you: the scope read, for all runs, is needed to see it."));
  if (!may) [lost, stored, letters, bounds].forEach((e) => fill(e, unseen.cloneNode(true)));

  /** Draws a part, or says why it is not known. */
  async function part(e, path, draw) {
    try {
      const value = await ask(path, { signal });
      if (e.dataset.sign !== JSON.stringify(value)) draw(value);
      e.dataset.sign = JSON.stringify(value);
    } catch (error) {
      if (signal.aborted) return;
      e.dataset.sign = "";
      fill(e, h("p", { class: "hint" }, `Not known: ${error.status === 501 ? "this node has no archive, or its database role may only read runs." : explain(error).title + "."}`));
    }
  }

  for (let again = 0; ; ) { // again: when costs are asked for once more
    const ready = await ask("/readyz", { signal, any: true });
    if (signal.aborted) return;
    let version = "not known to you";
    if (may) {
      await part(stored, "/v1/agent/operations", (o) => {
        version = o.version;
        drawPartitions(stored, o.partitions);
        drawLosses(lost, o.losses);
        drawLimits(bounds, o.limits);
        bounds.dataset.version = o.version;
      });
      version = bounds.dataset.version ?? version;
      if (!letters.contains(document.activeElement)) await part(letters, "/v1/agent/deadletters", (v) => drawLetters(letters, v));
    }
    if (who.scopes.includes("read") && who.run === null && Date.now() >= again) {
      again = Date.now() + costsEvery;
      await part(spent, "/v1/agent/costs", (v) => drawCosts(spent, v.costs));
    }
    if (signal.aborted) return;
    drawNode(node, ready, version);
    await new Promise((r) => setTimeout(r, 3000));
    if (signal.aborted) return;
  }
}

function card(title, body) {
  return h("section", { class: "card" }, h("h2", {}, title), body);
}

function fact(name, value, ok) {
  return [h("dt", {}, name), h("dd", {}, ok !== undefined && h("span", { class: `dot ${ok ? "ok" : "failed"}` }), value)];
}

function table(names, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": names[0] }, h("table", {}, h("thead", {}, h("tr", {}, names.map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, rows)));
}

function drawNode(e, ready, version) {
  fill(e, ready.draining === true && notice("This node is shutting down", "Its streams are ended; clients go on at another node."),
    h("section", { class: "card" }, h("h2", {}, "This node"), h("dl", { class: "facts" },
      fact("Ready", ready.ready ? "yes" : "no", ready.ready === true),
      fact("Durability", ready.durability || "unknown"),
      fact("Version", version),
      (ready.checks ?? []).map((c) => fact(c.name, `${c.ok ? "ok" : "failed"}, ${c.duration_ms.toFixed(1)} ms`, c.ok)))));
}

function drawPartitions(e, partitions) {
  if (partitions === null) {
    fill(e, h("p", { class: "hint" }, "Not known here: another process stores the log's events in the archive. Its operators' address has it, at /readyz and /metrics."));
    return;
  }
  fill(e, table(["Partition", "State", "Behind by", "Oldest", "Seen"], partitions.map((p) => h("tr", {}, h("td", {}, p.stream),
    h("td", {}, h("span", { class: `dot ${p.trouble === null ? "ok" : "failed"}` }), p.trouble === null ? p.state : short(p.trouble, 120)),
    h("td", {}, p.lag_at === null ? "unknown" : p.lag_messages === 0 ? "nothing" : `${count(p.lag_events_estimate)} events, about`),
    h("td", {}, p.lag_at === null || p.lag_messages === 0 ? "–" : duration(p.lag_seconds * 1000)), h("td", {}, p.lag_at === null ? "not now" : time(p.lag_at))))));
}

function drawLosses(e, losses) {
  if (losses === null) {
    fill(e, h("p", { class: "hint" }, "Not known here: this node has no archive, or its database role may not read what is recorded."));
    return;
  }
  fill(e, losses.length === 0 ? h("p", { class: "hint" }, "Nothing: the archive records no event that was acknowledged and is gone.")
    : table(["What", "Reason", "Found"], losses.map((l) => h("tr", {}, h("td", {}, h("span", { class: `dot ${l.open ? "failed" : "ok"}` }), l.text), h("td", {}, l.reason), h("td", {}, time(l.found_at))))));
}

function drawCosts(e, costs) {
  if (costs.length === 0) {
    fill(e, h("p", { class: "hint" }, "No model has been called in the last 30 days."));
    return;
  }
  const sums = new Map(); // of each day
  for (const c of costs) {
    const sum = sums.get(c.day) ?? { cost_usd: null, unpriced_messages: 0 };
    if (c.cost_usd !== null) sum.cost_usd = (sum.cost_usd ?? 0) + c.cost_usd;
    sum.unpriced_messages += c.unpriced_messages;
    sums.set(c.day, sum);
  }
  const row = (day, model, c, kind) => h("tr", { class: kind }, h("td", {}, day), h("td", {}, model), h("td", { class: "num" }, c.messages === undefined ? "" : count(c.messages)),
    h("td", { class: "num" }, c.messages === undefined ? "" : count(c.input_tokens + c.cache_read_tokens + c.cache_write_tokens)), h("td", { class: "num" }, c.messages === undefined ? "" : count(c.output_tokens)),
    h("td", { class: "num" }, costText(c) || "–"));
  fill(e, h("p", { class: "hint" }, "Days are UTC, the newest first. A + is beside a sum that lacks messages without a known price."),
    table(["Day", "Model", "Messages", "Tokens in", "Tokens out", "Cost"], costs.slice(0, costRows).flatMap((c, i) => [
      c.day !== costs[i - 1]?.day && row(c.day, "all", sums.get(c.day), "sum"), row("", short(c.model ?? "unknown", 80), c)]).filter(Boolean)),
    costs.length > costRows && h("p", { class: "hint" }, `${count(costs.length - costRows)} older rows are left out: GET /v1/agent/costs has them.`));
}

function drawLimits(e, given) {
  fill(e, h("dl", { class: "facts" }, Object.entries(given).map(([name, n]) => fact(limits[name] ?? name, n === 0 ? "no bound" : name.includes("bytes") ? bytes(n) : count(n)))));
}

function drawLetters(e, { deadletters, all }) {
  if (all === 0) {
    fill(e, h("p", { class: "hint" }, "None: the archive has stored everything that the log has taken."));
    return;
  }
  fill(e, h("p", { class: "hint" }, `${count(all)} of this tenant${all > deadletters.length ? `; the newest ${deadletters.length}` : ""}. The log has taken them, and the archive could not store them.`),
    deadletters.map((l) => letterView(l, (text, bad) => {
      toast(text, bad ? "bad" : "");
      e.dataset.sign = "";
      document.activeElement?.blur();
    })));
}

function letterView(l, done) {
  const at = `/v1/agent/deadletters/${encodeURIComponent(l.id)}`;
  const act = async (f) => {
    try {
      done(...(await f()));
    } catch (e) {
      done(sentence(e), true);
    }
  };
  const retry = () => act(async () => {
    const r = await ask(`${at}/retry`, { method: "POST" });
    return [r.stored ? "Stored" : `It stays: ${r.error}`, !r.stored];
  });
  const drop = () => confirmed("Drop this dead letter? What is dropped is gone.", () => act(async () => {
    await ask(at, { method: "DELETE" });
    return ["Dropped"];
  }));
  return h("details", { class: "letter" }, h("summary", {}, h("b", {}, l.reason.replaceAll("_", " ")), ` ${l.run_id || "no run"}${l.seq ? ` #${l.seq}` : ""} `, h("span", { class: "hint" }, `${time(l.since)} · ${bytes(l.bytes)}${l.tries ? ` · tried ${l.tries}×` : ""}`)),
    h("p", {}, short(l.error || l.detail, 500)), h("pre", { tabindex: "0" }, visible(l.body)),
    h("div", { class: "actions" }, button("Try again", retry, "primary"), button("Drop", drop, "danger"), h("code", { class: "id" }, l.id)));
}
