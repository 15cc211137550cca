// The list of runs: what runs now on top, new ones as they appear.

import { h, fill, keys, patch, setText, short } from "./dom.js";
import { cost, count, duration, moment, time, tokens } from "./format.js";
import { badge, button, copier, failed, notice } from "./screen.js";

const states = ["running", "planning", "awaiting_approval", "paused", "redirecting", "done", "error", "aborted"];
const final = new Set(["done", "aborted", "error"]);
const every = 2000; // milliseconds between two looks at the newest page

/** Shows the runs. The newest page is read again and again; what is on the screen is changed in place. */
export async function runsScreen(s) {
  const { main, signal, client, go } = s;
  const list = new Map(); // run id → { info, row }
  let cursor = null;
  let query = "";
  let chosen = "";

  const body = h("tbody", {});
  const search = h("input", { type: "search", id: "search", placeholder: "Search", "aria-label": "Search runs", on: { input, keydown: toList } });
  const state = h("select", { id: "state", "aria-label": "State", on: { change } }, h("option", { value: "" }, "All states"), h("option", { value: "waits" }, "Waits for a person"), states.map((v) => h("option", { value: v }, v.replaceAll("_", " "))));
  const byID = h("form", { class: "inline", on: { submit: openByID } }, h("label", { for: "by-id", class: "hidden" }, "Run id"), h("input", { id: "by-id", placeholder: "Open by id", maxlength: "128" }), h("button", { type: "submit" }, "Open"));
  const more = button("Show older runs", older, "", { hidden: true });
  const empty = h("div", {});
  const status = h("p", { class: "hint", role: "status" });
  fill(main, h("div", { class: "bar" }, h("h1", {}, "Runs"), h("span", { class: "grow" }), search, state, byID),
    h("div", { class: "scroll" }, h("table", { class: "runs", "aria-label": "Runs", on: { keydown, click } },
      h("thead", {}, h("tr", {}, columns.map(([t, kind]) => h("th", { scope: "col", class: kind }, t)))), body)),
    empty, status, more);

  async function page(from) {
    const q = { limit: 50, ...(from ? { cursor: from } : {}) };
    if (chosen === "waits") q.waits = true;
    else if (chosen !== "") q.state = [chosen];
    return client.runsPage(q, signal);
  }

  function merge(runs) {
    for (const info of runs) {
      if (feed.test(info.run_id)) continue;
      const known = list.get(info.run_id);
      if (known === undefined) list.set(info.run_id, { info, row: rowOf(info) });
      else known.info = info;
    }
    draw();
  }

  function draw() {
    const rows = [];
    for (const { info, row } of [...list.values()].sort((a, b) => String(b.info.started_at).localeCompare(String(a.info.started_at)))) {
      update(row, info);
      if (matches(info, query)) rows.push(row);
    }
    patch(body, rows);
    more.hidden = cursor === null;
    if (empty.hasChildNodes() !== (rows.length === 0)) fill(empty, rows.length === 0 && (list.size === 0 && query === "" && chosen === ""
      ? notice("No runs yet", "A run appears here with its first event. This command begins one:", h("code", {}, first), copier(first))
      : notice("No matching runs", "None of the loaded runs matches the filter.")));
  }

  async function refresh(first) {
    const p = await page();
    if (first || list.size === 0) cursor = p.next_cursor;
    merge(p.runs);
  }

  function input() {
    query = search.value.trim().toLowerCase();
    draw();
  }

  async function change() {
    chosen = state.value;
    list.clear();
    fill(body);
    fill(empty);
    await attempt(() => refresh(true));
  }

  async function older() {
    await attempt(async () => {
      const p = await page(cursor);
      cursor = p.next_cursor;
      merge(p.runs);
    });
  }

  function openByID(e) {
    e.preventDefault();
    const id = document.getElementById("by-id").value.trim();
    if (id !== "") go("run", id);
  }

  function keydown(e) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (step === undefined) return;
    const links = [...body.querySelectorAll("a.run")];
    const at = links.indexOf(document.activeElement);
    links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
    e.preventDefault();
  }

  /** A click anywhere in a row opens its run; its link is what the keyboard and screen readers have. */
  function click(e) {
    const row = e.target.closest("tr[data-run]");
    if (row !== null && e.target.closest("a") === null && getSelection().isCollapsed) go("run", row.dataset.run);
  }

  function toList(e) {
    if (e.key !== "ArrowDown" && e.key !== "Enter") return;
    body.querySelector("a.run")?.focus();
    e.preventDefault();
  }

  async function attempt(f) {
    try {
      await f();
      setText(status, "");
    } catch (e) {
      if (!signal.aborted) setText(status, `The list could not be read: ${e.message}. It is tried again.`);
    }
  }

  keys({ "/": () => search.focus() }, signal);
  const tick = setInterval(draw, 1000);
  signal.addEventListener("abort", () => clearInterval(tick));
  try {
    await refresh(true);
  } catch (e) {
    return signal.aborted ? undefined : failed(main, e, s.open, () => go("sign-in", location.hash));
  }
  poll();

  async function poll() {
    for (;;) {
      await new Promise((r) => setTimeout(r, every));
      if (signal.aborted) return;
      if (document.visibilityState === "visible") await attempt(refresh);
    }
  }
}

// A feed of the tenant is no agent's run, and never ends (schema.IsFeed).
const feed = /^runtime-(account|memory|transfer|provider|message-.*)$/;

const first = `curl -d '{"type":"run.lifecycle","payload":{"state":"running"}}' ${location.origin}/v1/agent/runs/hello/events`;

// The columns behind the state and the name, with their class.
const columns = [["State"], ["Run"], ["Agent", "c-agent"], ["Model", "c-model"], ["Started", "c-started"], ["Took", "num"], ["Events", "num"], ["Tokens in", "num"], ["Tokens out", "num"], ["Cost", "num c-cost"]];

function matches(info, query) {
  return query === "" || [info.run_id, info.title, info.agent, info.model].some((t) => t?.toLowerCase().includes(query));
}

function rowOf(info) {
  const link = h("a", { class: "run", href: `#/run/${encodeURIComponent(info.run_id)}` });
  return h("tr", { data: { run: info.run_id } }, h("td", { class: "state" }), h("td", { class: "name" }, link, h("span", { class: "id" })), columns.slice(2).map(([name, kind]) => h("td", { class: kind, data: { name } })));
}

function update(row, info) {
  const cell = row.children;
  const shown = info.waits_for ? `waits: ${info.waits_for} ${info.waits_since ?? ""}` : info.state;
  if (row.dataset.state !== shown) {
    row.dataset.state = shown;
    fill(cell[0], badge(info.state || "no state"), info.waits_for && h("span", { class: "waits" }, ` waits for ${info.waits_for}${info.waits_since ? ` since ${time(info.waits_since)}` : ""}`));
  }
  const [link, id] = cell[1].children;
  setText(link, short(info.title || info.run_id, 90));
  setText(id, info.title ? info.run_id : "");
  const began = Date.parse(info.started_at ?? "");
  const ended = info.ended_at ? Date.parse(info.ended_at) : final.has(info.state) ? Date.parse(info.updated_at ?? "") : info.state ? Date.now() : Date.parse(info.updated_at ?? "");
  const used = tokens(info.usage);
  const texts = [info.agent ?? "", info.model ?? "", time(info.started_at), duration(ended - began), count(info.last_seq), used ? count(used.input) : "", used ? count(used.output) : "", cost({ cost_usd: info.cost_usd, ...info.usage })];
  texts.forEach((t, i) => {
    setText(cell[i + 2], t === "" ? "–" : short(t, 60));
    cell[i + 2].classList.toggle("unknown", t === "" || t === "–");
  });
  cell[4].title = moment(info.started_at);
}
