// One run: its conversation, its timeline, its events, its controls, and the place in time that all of them show.

import { h, fill, framed, keys, save, setText, short } from "../dom.js";
import { cost, count, duration, moment, time, tokenText } from "../format.js";
import { badge, button, copier, failed, notice, toast } from "../screen.js";
import { why } from "../server.js";
import { controls } from "./controls.js";
import { conversation } from "./conversation.js";
import { Costs } from "./costs.js";
import { details } from "./details.js";
import { RunModel } from "./model.js";
import { player } from "./player.js";
import { share } from "./share.js";
import { watch } from "./watch.js";
import { waterfall } from "./waterfall.js";

/** Shows the run that the address names. */
export async function runScreen(s) {
  const { main, signal, argument: run, client, who, go } = s;
  const model = new RunModel(client, run, signal, changed, who.run === null);
  const connection = document.getElementById("connection");
  const signIn = () => go("sign-in", location.hash);
  const trouble = (e) => {
    if (signal.aborted) return;
    connection.textContent = "";
    failed(main, e, s.open, signIn);
  };

  const title = h("h1", {}, short(run, 128)), name = h("span", { class: "id" });
  const state = h("span", {}), facts = h("span", { class: "hint" }), lanes = h("span", {}), gaps = h("div", {}), away = h("div", {});
  const usage = h("details", { class: "usage", open: innerWidth > 800 }, h("summary", {}, "Usage"), h("div", {}));
  const events = details(client, run, signal);
  const costs = new Costs(run, signal, () => draw());
  const talk = conversation(model, { choose: (entry) => choose(entry.seq, entry.it.end_seq ?? entry.it.answered_seq ?? entry.seq, "talk"), openLane, blob, costs, signal });
  const place = player(model, { failed: trouble, resume: follow });
  const bars = waterfall(model, { choose: (bar) => choose(bar.seq, bar.last ?? model.newest, "bars", bar.lane.id), openLane, all: () => readSpans(true), signal });
  const steer = controls(model, { client, run, who });
  const panes = h("div", { class: "panes", data: { shows: "left" } }, h("div", { class: "pane left" }, talk.element, steer.element), h("div", { class: "pane right" }, bars.element, usage, events.element));
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Part of the screen" }, [["left", "Conversation"], ["right", "Timeline and events"]].map(([at, name]) => button(name, () => turn(at), "", { data: { at }, "aria-pressed": String(at === "left") })));
  let wanted = s.event; // the event that the address names, until it is shown
  let event = s.event; // that the address names

  fill(main, h("div", { class: "run-screen" },
    h("div", { class: "bar" }, h("a", { class: "back", href: "#/runs", "aria-label": "All runs" }, "‹"), title, name, copier(run, "Copy id"), state, facts, h("span", { class: "grow" }), lanes, button("Watch with …", () => watch(run)), who.run === null && button("Share", () => share(run))),
    away, gaps, place.element, tabs,
    panes));

  const draw = framed(() => {
    const { snapshot } = model.fold;
    drawState(state, model);
    const { spans } = model;
    const named = spans.title ?? model.listed?.title ?? null;
    setText(title, short(named ?? run, 128));
    setText(name, named === null ? "" : run);
    const sum = model.partial ? { total: { ...model.listed?.usage, cost_usd: model.listed?.cost_usd }, by_model: {} } : priced(snapshot, costs.sumUpTo(model.position));
    const began = Number.isFinite(spans.begin) && spans.left === "" ? spans.begin : Date.parse(model.listed?.started_at ?? "");
    const until = model.mode === "live" && !model.ended ? Date.now() : spans.end;
    setText(facts, [time(began), duration(until - began), model.newest > 0 && `${count(model.newest)} events`, tokenText(sum.total), cost(sum.total), model.partial ? `shown from #${count(model.start + 1)} on` : "", snapshot.reason ? short(snapshot.reason, 200) : ""].filter((t) => t && t !== "–").join(" · "));
    facts.title = moment(began);
    drawUsage(usage, sum);
    talk.update();
    place.update();
    bars.update();
    steer.update();
  });

  function changed(what) {
    if (signal.aborted) return;
    if (what === "place") talk.reset();
    if (what === "gap") drawGaps();
    const unseen = model.position === 0 && model.connection.state === "offline";
    if (unseen !== away.hasChildNodes()) fill(away, unseen && notice("The server cannot be reached", "Nothing of the run has come yet. It is asked for again and again.", button("Try again", s.open, "primary")));
    setText(connection, model.connection.text);
    connection.dataset.state = model.connection.state;
    if (wanted > 0 && model.position > 0) arrive().catch(trouble);
    draw();
  }

  /** Shows the event that the address names. */
  async function arrive() {
    const seq = wanted;
    wanted = 0;
    if (model.partial && seq <= model.start) await model.jump(seq);
    const [e] = await client.page(run, { after: seq - 1, limit: 1 }, signal);
    if (e?.seq === seq) choose(seq, seq, "bars", e.child_id);
  }

  /** Turns to a pane, where there is room for one alone. */
  function turn(at) {
    panes.dataset.shows = at;
    for (const b of tabs.children) b.setAttribute("aria-pressed", String(b.dataset.at === at));
  }

  function drawGaps() {
    const lost = model.gaps.reduce((n, g) => n + g.to - g.from + 1, 0);
    fill(gaps, lost > 0 && notice(`${count(lost)} events were left out`, "This connection was slower than the run. They are stored, and can be fetched.", button("Fetch them", () => {
      model.gaps = [];
      fill(gaps);
      follow();
    }, "primary")));
  }

  function choose(first, last, from, lane) {
    events.show(first, Math.max(first, last));
    bars.select(first);
    event = first;
    setAddress();
    if (from === "talk") turn("right");
    if (from === "bars") {
      if (lane !== talk.lane) openLane(lane);
      requestAnimationFrame(() => requestAnimationFrame(() => talk.select(first)));
    } else talk.select(first);
  }

  function openLane(id) {
    talk.reset(id);
    fill(lanes, id !== null && [h("span", { class: "hint" }, "child "), short(id, 60), " ", button("Back to the run", () => openLane(null), "quiet")]);
    if (id !== s.child) event = 0; // what was chosen is of another lane
    s.child = id;
    setAddress();
  }

  /** Makes the address that of what is shown: the child, and the event that is chosen. */
  function setAddress() {
    const query = new URLSearchParams();
    if (talk.lane !== null) query.set("child", talk.lane);
    if (event > 0) query.set("event", event);
    const text = query.toString();
    history.replaceState(null, "", `#/run/${encodeURIComponent(run)}${text === "" ? "" : `?${text}`}`);
  }

  async function blob(ref) {
    try {
      save((await client.blob(run, ref, signal)).content, ref);
    } catch (e) {
      toast(`The content could not be fetched: ${why(e)}.`, "bad");
    }
  }

  async function follow() {
    try {
      await model.follow();
    } catch (e) {
      trouble(e);
    }
  }

  function readSpans(all) {
    return model.readSpans(all).catch((e) => signal.aborted || (model.spans.ready(), [403, 404, 410].includes(e.status) || toast(`The timeline could not be read: ${why(e)}.`, "bad")));
  }

  openLane(s.child);
  draw();
  readSpans();
  costs.follow(model);
  const tick = setInterval(() => model.mode === "live" && !model.ended && draw(), 1000);
  signal.addEventListener("abort", () => clearInterval(tick));
  keys({ "/": () => document.getElementById("find").focus(), j: () => talk.step(1), k: () => talk.step(-1), ",": () => place.step(-1), ".": () => place.step(1), p: place.toggle, l: () => follow(), a: steer.attend, x: steer.cancel }, signal);
  await follow();
}

/** Shows the state of a run: then and now apart, where what is shown is not now. */
function drawState(e, model) {
  const { state } = model.fold.snapshot;
  const isPast = model.mode !== "live" && model.position < model.newest;
  const sign = model.position === 0 ? "loading" : `${state} ${isPast ? model.now : ""}`;
  if (e.dataset.state === sign) return;
  e.dataset.state = sign;
  if (model.position === 0) fill(e, h("span", { class: "hint", role: "status" }, "Loading …"));
  else if (isPast) fill(e, h("span", { class: "hint" }, "then "), badge(state), h("span", { class: "hint" }, " now "), badge(model.now));
  else fill(e, badge(state));
}

const reported = new WeakMap(); // what a message's usage says → its cost in US dollars

/** Returns the usage of a sum with what its messages cost: as the server knows it, or else as they say. */
function priced({ usage: { total, by_model }, messages }, known) {
  const sum = { total: { ...total }, by_model: {} };
  for (const [name, own] of Object.entries(by_model)) sum.by_model[name] = { ...own };
  if (known !== undefined) {
    sum.total.cost_usd = known.total;
    for (const [name, own] of Object.entries(sum.by_model)) own.cost_usd = known.by_model[name];
    return sum;
  }
  for (const m of messages) {
    if (m.usage === null) continue;
    if (!reported.has(m.usage)) reported.set(m.usage, Number(m.usage.value()?.cost_usd) || 0);
    for (const of of [sum.total, sum.by_model[m.model ?? ""]]) if (of !== undefined && reported.get(m.usage) > 0) of.cost_usd = (of.cost_usd ?? 0) + reported.get(m.usage);
  }
  return sum;
}

function drawUsage(e, { total, by_model }) {
  const sign = JSON.stringify([total, by_model]);
  if (e.dataset.sign === sign) return;
  e.dataset.sign = sign;
  const names = Object.keys(by_model);
  e.hidden = Object.values(total).every((n) => n === undefined || n === null);
  fill(e.lastChild, h("table", {}, h("thead", {}, h("tr", {}, ["Model", "Tokens", "Cost"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, names.map((n) => h("tr", {}, h("td", {}, short(n || "unknown", 80)), h("td", {}, tokenText(by_model[n])), h("td", {}, cost(by_model[n])))),
      h("tr", { class: "sum" }, h("td", {}, "all"), h("td", {}, tokenText(total)), h("td", {}, cost(total))))));
}
