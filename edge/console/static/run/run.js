// One run: its conversation, its timeline, its events, its controls, and the place in time that all of them show.

import { h, fill, framed, setText, short } from "../dom.js";
import { cost, count, duration, time, tokenText } from "../format.js";
import { badge, button, failed, notice, toast } from "../screen.js";
import { controls } from "./controls.js";
import { conversation } from "./conversation.js";
import { details } from "./details.js";
import { RunModel } from "./model.js";
import { player } from "./player.js";
import { share } from "./share.js";
import { waterfall } from "./waterfall.js";

/** Shows the run that the address names. */
export async function runScreen(s) {
  const { main, signal, argument: run, client, who, go } = s;
  const model = new RunModel(client, run, signal, changed);
  const connection = document.getElementById("connection");
  const signIn = () => go("sign-in", location.hash);
  const trouble = (e) => {
    if (signal.aborted) return;
    connection.textContent = "";
    failed(main, e, s.open, signIn);
  };

  const title = h("h1", {}, short(run, 128)), name = h("span", { class: "id" });
  const state = h("span", {}), facts = h("span", { class: "hint" }), lanes = h("span", {}), gaps = h("div", {}), away = h("div", {});
  const usage = h("details", { class: "usage" }, h("summary", {}, "Usage"), h("div", {}));
  const events = details(client, run, signal);
  const talk = conversation(model, { choose: (entry) => choose(entry.seq, entry.it.end_seq ?? entry.it.answered_seq ?? entry.seq, "talk"), openLane, blob });
  const time = player(model, { failed: trouble, resume: follow });
  const bars = waterfall(model, { choose: (bar) => choose(bar.seq, bar.last ?? model.newest, "bars", bar.lane.id), openLane, signal });
  const steer = controls(model, { client, run, who });

  fill(main, h("div", { class: "run-screen" },
    h("div", { class: "bar" }, h("a", { class: "back", href: "#/runs", "aria-label": "All runs" }, "‹"), title, name, state, facts, h("span", { class: "grow" }), lanes, who.run === null && button("Share", () => share(run))),
    away, gaps, time.element,
    h("div", { class: "panes" }, h("div", { class: "pane left" }, talk.element, steer.element), h("div", { class: "pane right" }, bars.element, usage, events.element))));

  const draw = framed(() => {
    const { snapshot } = model.fold;
    if (state.dataset.state !== String(snapshot.state)) {
      state.dataset.state = String(snapshot.state);
      fill(state, badge(snapshot.state));
    }
    const { spans } = model;
    setText(title, short(spans.title ?? run, 128));
    setText(name, spans.title === null ? "" : run);
    setText(facts, [Number.isFinite(spans.begin) ? duration(spans.end - spans.begin) : "", `${count(model.newest)} events`, model.partial ? "without its beginning: too long to be summed up here" : tokenText(snapshot.usage.total), snapshot.reason ? short(snapshot.reason, 200) : ""].filter((t) => t !== "" && t !== "–").join(" · "));
    drawUsage(usage, model.partial ? { total: {}, by_model: {} } : snapshot.usage);
    talk.update();
    time.update();
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
    draw();
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
    if (from === "bars") {
      if (lane !== talk.lane) openLane(lane);
      requestAnimationFrame(() => requestAnimationFrame(() => talk.select(first)));
    } else talk.select(first);
  }

  function openLane(id) {
    talk.reset(id);
    fill(lanes, id !== null && [h("span", { class: "hint" }, "child "), short(id, 60), " ", button("Back to the run", () => openLane(null), "quiet")]);
  }

  async function blob(ref) {
    try {
      const { content, contentType } = await client.blob(run, ref, signal);
      const url = URL.createObjectURL(new Blob([content], { type: contentType }));
      h("a", { href: url, download: ref }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch (e) {
      toast(`The content could not be fetched: ${e.message}`, "bad");
    }
  }

  async function follow() {
    try {
      await model.follow();
    } catch (e) {
      trouble(e);
    }
  }

  talk.reset(null);
  model.readSpans().catch((e) => signal.aborted || (model.spans.ready(), [403, 404, 410].includes(e.status) || toast(`The timeline could not be read: ${e.message}`, "bad")));
  await follow();
}

function drawUsage(e, { total, by_model }) {
  const sign = JSON.stringify([total, by_model]);
  if (e.dataset.sign === sign) return;
  e.dataset.sign = sign;
  const names = Object.keys(by_model);
  e.hidden = names.length === 0;
  fill(e.lastChild, h("table", {}, h("thead", {}, h("tr", {}, ["Model", "Tokens", "Cost"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, names.map((n) => h("tr", {}, h("td", {}, short(n || "unknown", 80)), h("td", {}, tokenText(by_model[n])), h("td", {}, cost(by_model[n])))),
      h("tr", { class: "sum" }, h("td", {}, "all"), h("td", {}, tokenText(total)), h("td", {}, cost(total))))));
}
