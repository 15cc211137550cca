// The list of runs: what runs now on top, new ones as they appear.

import { h, fill, keys, patch, setText, short } from "./dom.js";
import { cost, count, duration, moment, time, tokens } from "./format.js";
import { badge, button, copier, failed, notice } from "./screen.js";
import { firstEvent } from "./run/recipes.js";
import { token, why } from "./server.js";

const states = ["running", "planning", "awaiting_approval", "paused", "redirecting", "done", "error", "aborted"];
const final = new Set(["done", "aborted", "error"]);
const every = 2000; // milliseconds between two looks at the newest page
const most = 1000; // rows: who looks for more narrows the search
const checks = 8; // runs that may have changed and are on no page that is read again, of one look
const ages = { "": "Any time", "1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days" };
const units = { h: 3600e3, d: 86400e3 };
const orders = { "": "Newest first", "started-asc": "Oldest first", updated: "Changed last", duration: "Longest", "duration-asc": "Shortest", events: "Most events" };

/** Shows the runs. The newest page is read again and again; what is on the screen is changed in place. */
export async function runsScreen(s) {
  const { main, signal, client, go } = s;
  let list = new Map(); // run id → { info, row }, in the order of the list
  let cursor = null;
  let asked = 0; // which filter an answer is for
  const filter = new URLSearchParams(location.hash.split("?")[1] ?? ""); // the address holds it
  const of = (name) => filter.get(name) ?? "";

  const body = h("tbody", {});
  const search = h("input", { type: "search", id: "search", placeholder: "Search", "aria-label": "Search runs", title: "Words of id, title, agent, model, tags or the first message", maxlength: "150", value: of("q"), on: { input, keydown: toList } });
  const state = h("select", { id: "state", "aria-label": "State", on: { change } }, h("option", { value: "" }, "All states"), h("option", { value: "waits" }, "Waits for a person"), states.map((v) => h("option", { value: v }, v.replaceAll("_", " "))));
  const choice = (id, name, texts) => h("select", { id, "aria-label": name, on: { change } }, Object.entries(texts).map(([value, text]) => h("option", { value }, text)));
  const age = choice("age", "Began", ages), order = choice("order", "Order", orders);
  const tag = button("", () => set({ tag: "" }), "quiet", { id: "tag", title: "Show runs with and without this tag" });
  for (const [name, field] of Object.entries({ state, age, order })) field.value = of(name);
  const byID = h("form", { class: "inline", on: { submit: openByID } }, h("label", { for: "by-id", class: "hidden" }, "Run id"), h("input", { id: "by-id", placeholder: "Open by id", maxlength: "128" }), h("button", { type: "submit" }, "Open"));
  const more = button("Show older runs", older, "", { hidden: true });
  const empty = h("div", {});
  const status = h("p", { class: "hint", role: "status" });
  fill(main, h("div", { class: "bar" }, h("h1", {}, "Runs"), h("span", { class: "grow" }), tag, search, state, age, order, byID),
    h("div", { class: "scroll" }, h("table", { class: "runs", "aria-label": "Runs", on: { keydown, click } },
      h("thead", {}, h("tr", {}, columns.map(([t, kind]) => h("th", { scope: "col", class: kind }, t)))), body)),
    empty, status, more);

  async function page(from) {
    const q = { limit: 50, q: of("q"), tag: of("tag"), agent: of("agent"), model: of("model"), reason: of("reason"), ...(from ? { cursor: from } : {}) };
    if (of("state") === "waits") q.waits = true;
    else if (of("state") !== "") q.state = of("state").split(",");
    const [, n, unit] = /^(\d+)([hd])$/.exec(of("age")) ?? [];
    if (unit !== undefined) q.since = new Date(Date.now() - n * units[unit]).toISOString();
    [q.order, q.direction] = of("order").split("-");
    return client.runsPage(q, signal);
  }

  /** Takes runs over; those of the newest page stand before the others. */
  function merge(runs, front) {
    const before = list;
    if (front) list = new Map();
    for (const info of runs) {
      if (feed.test(info.run_id)) continue;
      const known = before.get(info.run_id);
      if (known !== undefined) known.info = info;
      list.set(info.run_id, known ?? { info, row: rowOf(info, (tag) => set({ tag })) });
    }
    if (front) for (const [id, entry] of before) if (!list.has(id) && list.size < most) list.set(id, entry);
    draw();
  }

  function draw() {
    const rows = [];
    const all = [...list.values()];
    if (["", "started-asc"].includes(of("order"))) {
      const sign = of("order") === "" ? -1 : 1;
      all.sort((a, b) => sign * String(a.info.started_at).localeCompare(String(b.info.started_at)));
    }
    for (const { info, row } of all) {
      update(row, info);
      rows.push(row);
    }
    patch(body, rows);
    setText(tag, of("tag") === "" ? "" : `tag: ${of("tag")} ×`);
    tag.hidden = of("tag") === "";
    more.hidden = cursor === null || list.size >= most;
    if (list.size >= most) setText(status, `${most} runs are shown. Narrow the search to see others.`);
    if (empty.hasChildNodes() !== (rows.length === 0)) fill(empty, rows.length === 0 && ([...filter].every(([name, v]) => v === "" || name === "order")
      ? notice("No runs yet", "A run appears here with its first event. This command begins one:", h("code", {}, first()), copier(first()))
      : notice("No matching runs", "No run matches the filter.", button("Show all runs", () => go("runs")))));
  }

  async function refresh(first) {
    const turn = asked;
    const p = await page();
    if (turn !== asked) return; // the filter is another one by now
    if (first || list.size === 0) cursor = p.next_cursor;
    merge(p.runs, true);
    await recheck(new Set(p.runs.map((r) => r.run_id)), turn);
  }

  /** Looks at runs that go on by what is on the screen, and are not on the newest page: they may have ended, or match no more. */
  let checked = 0;
  async function recheck(fresh, turn) {
    const open = [...list.values()].filter(({ info }) => !fresh.has(info.run_id) && !final.has(info.state));
    const some = open.length <= checks ? open : Array.from({ length: checks }, (_, i) => open[(checked + i) % open.length]);
    checked += checks;
    const now = await Promise.all(some.map(({ info }) => client.run(info.run_id, signal).catch((e) => (e?.status === 404 ? null : info))));
    if (turn !== asked) return;
    some.forEach((entry, i) => {
      const changed = now[i] !== null && now[i].state !== entry.info.state;
      if (now[i] === null || (changed && of("state") !== "" && !of("state").split(",").includes(now[i].state))) list.delete(entry.info.run_id);
      else entry.info = { ...entry.info, ...now[i], ...(changed ? { waits_for: null, waits_since: null } : {}) };
    });
    if (some.length > 0) draw();
  }

  /** Changes the filter, and with it the address, so that Back and a bookmark have it. */
  async function set(change) {
    for (const [name, value] of Object.entries(change)) value === "" ? filter.delete(name) : filter.set(name, value);
    history.replaceState(history.state, "", "#/runs" + (filter.size > 0 ? `?${filter}` : ""));
    asked++;
    list = new Map();
    cursor = null;
    await attempt(() => refresh(true));
  }

  let typing;
  function input() {
    clearTimeout(typing);
    typing = setTimeout(() => !signal.aborted && set({ q: search.value.trim() }), 200);
  }

  function change() {
    return set({ state: state.value, age: age.value, order: order.value });
  }

  async function older() {
    await attempt(async () => {
      const turn = asked;
      const p = await page(cursor);
      if (turn !== asked) return;
      cursor = p.next_cursor;
      merge(p.runs, false);
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
    if (row !== null && e.target.closest("a, button") === null && getSelection().isCollapsed) go("run", row.dataset.run);
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
      if (!signal.aborted) setText(status, `The list could not be read: ${why(e)}. It is tried again.`);
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

const first = () => firstEvent(location.origin, token() !== "");

// The columns behind the state and the name, with their class.
const columns = [["State"], ["Run"], ["Agent", "c-agent"], ["Model", "c-model"], ["Started", "c-started"], ["Took", "num"], ["Events", "num"], ["Tokens in", "num"], ["Tokens out", "num"], ["Cost", "num c-cost"], ["Reason", "c-reason"]];

function rowOf(info, byTag) {
  const link = h("a", { class: "run", href: `#/run/${encodeURIComponent(info.run_id)}` });
  return h("tr", { data: { run: info.run_id } }, h("td", { class: "state" }), h("td", { class: "name" }, link, h("span", { class: "id" }), (info.tags ?? []).map((tag) => button(tag, () => byTag(tag), "quiet tag", { title: `Show runs with the tag ${tag}` }))), columns.slice(2).map(([name, kind]) => h("td", { class: kind, data: { name } })));
}

function update(row, info) {
  const cell = row.children;
  const shown = info.waits_for ? `waits: ${info.waits_for} ${info.waits_since ?? ""}` : info.state;
  if (row.dataset.state !== shown) {
    row.dataset.state = shown;
    fill(cell[0], badge(info.state), info.waits_for && h("span", { class: "waits" }, ` waits for ${info.waits_for}${info.waits_since ? ` since ${time(info.waits_since)}` : ""}`));
  }
  const [link, id] = cell[1].children;
  const name = info.title || info.opening;
  setText(link, short(name || info.run_id, 90));
  setText(id, name ? info.run_id : "");
  const began = Date.parse(info.started_at ?? "");
  const ended = info.ended_at ? Date.parse(info.ended_at) : final.has(info.state) ? Date.parse(info.updated_at ?? "") : info.state ? Date.now() : Date.parse(info.updated_at ?? "");
  const used = tokens(info.usage);
  const texts = [info.agent ?? "", info.model ?? "", time(info.started_at), duration(ended - began), count(info.last_seq), used ? count(used.input) : "", used ? count(used.output) : "", spent(info), info.reason ?? ""];
  texts.forEach((t, i) => {
    setText(cell[i + 2], t === "" ? "–" : short(t, 60));
    cell[i + 2].classList.toggle("unknown", t === "" || t === "–");
  });
  cell[4].title = moment(info.started_at);
  cell[9].title = unpriced(info);
}

/** Returns what a run costs, with a + where the cost of some messages is not known. */
function spent(info) {
  const known = cost({ cost_usd: info.cost_usd, ...info.usage });
  return known !== "–" && info.unpriced_models?.length > 0 ? `${known} +` : known;
}

function unpriced(info) {
  const names = (info.unpriced_models ?? []).map((name) => short(name || "a model without a name", 60));
  return names.length === 0 ? "" : `No price is known for ${names.join(", ")}`;
}
