// The place in a run that the screen shows: a slider over all of it, playing on, single steps, and back to now.

import { h, setText } from "../dom.js";
import { count, moment, time } from "../format.js";
import { button } from "../screen.js";

/** Returns { element, update } with the controls of time. failed is called with what cannot be shown. */
export function player(model, { failed, resume }) {
  const slider = h("input", { type: "range", min: "1", max: "1", value: "1", "aria-label": "Place in the run", on: { input: moved } });
  const place = h("output", { class: "place" });
  const live = button("Live", resume, "live-button", { "aria-pressed": "true" });
  const play = button("▶ Play", toggle, "", { "aria-label": "Play" });
  const speed = h("select", { "aria-label": "Speed", on: { change: () => model.mode === "playing" && start() } }, [1, 4, 16].map((n) => h("option", { value: n }, `${n}×`)));
  const element = h("div", { class: "player", role: "group", "aria-label": "Time" },
    button("|◀", () => go(model.jump(1)), "quiet steps", { "aria-label": "First event" }), button("◀", () => go(model.step(-1)), "quiet steps", { "aria-label": "One event back" }),
    play, button("▶|", () => go(model.step(1)), "quiet steps", { "aria-label": "One event on" }), speed, slider, place, live);
  let wait = 0;

  function moved() {
    clearTimeout(wait);
    const to = Number(slider.value);
    setText(place, `#${count(to)} of ${count(model.newest)}`);
    wait = setTimeout(() => {
      wait = 0;
      go(model.jump(to));
    }, 120);
  }

  function toggle() {
    if (model.mode === "playing") model.pause();
    else start();
  }

  function start() {
    go(model.play(Number(speed.value)));
  }

  function go(work) {
    work.catch(failed);
  }

  function update() {
    const { mode, newest, position } = model;
    slider.max = String(Math.max(1, newest));
    const moving = wait !== 0; // by somebody who has not let go: what comes meanwhile does not move it
    if (!moving && (document.activeElement !== slider || mode !== "past")) slider.value = String(Math.max(1, position));
    slider.setAttribute("aria-valuetext", `event ${position} of ${newest}`);
    const at = model.fold.snapshot.last_ts;
    if (!moving) setText(place, position === 0 ? "" : `#${count(position)} of ${count(newest)}${at === null ? "" : ` · ${time(at)}`}`); // 0: nothing is read yet
    place.title = at === null ? "" : moment(at);
    live.setAttribute("aria-pressed", String(mode === "live"));
    setText(live, model.over ? "Newest" : "Live");
    setText(play, mode === "playing" ? "❚❚ Pause" : "▶ Play");
    play.setAttribute("aria-label", mode === "playing" ? "Pause playing" : "Play");
  }

  return { element, update, toggle, step: (n) => go(model.step(n)) };
}
