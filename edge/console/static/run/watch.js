// How a run is watched elsewhere: a program in each of the field's clients, to be copied.

import { h, fill } from "../dom.js";
import { code } from "../highlight.js";
import { dialog } from "../screen.js";
import { token } from "../server.js";
import { recipes } from "./recipes.js";

/** Shows how a run is watched with the clients that people have. */
export function watch(run) {
  const all = recipes(location.origin, run, token() !== "");
  const text = h("div", { class: "recipe" });
  const show = () => fill(text, code(all[choice.value][1], all[choice.value][0]));
  const choice = h("select", { id: "with", on: { change: show } }, Object.keys(all).map((name) => h("option", { value: name }, name)));
  show();
  dialog("Watch this run", h("div", { class: "share" }, h("label", { for: "with" }, "with ", choice), text), "Done", () => {}, "");
}
