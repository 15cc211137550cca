// Steering a run: what is possible in its state and with the token's scopes, and nothing else.

import { h, fill, patch, short, visible } from "../dom.js";
import { RawJSON } from "../lib/index.js";
import { asked, button, confirmed, toast } from "../screen.js";
import { sentence } from "../server.js";
import { schemaForm } from "./form.js";
import { read } from "./values.js";

const over = new Set(["done", "aborted", "error"]);

/** Returns { element, update } with the controls of a run. What others do is seen by update as well. */
export function controls(model, { client, run, who }) {
  const may = who?.scopes?.includes("command");
  const row = h("div", { class: "controls", role: "group", "aria-label": "Control" });
  const say = h("textarea", { id: "say", rows: "1", placeholder: "Say something (Ctrl Enter sends)", "aria-label": "Message", on: { keydown } });
  const form = h("form", { class: "say", on: { submit } }, say, h("button", { type: "submit", class: "primary" }, "Send"));
  const questions = h("div", {});
  const element = h("section", { class: "control", "aria-label": "Control" }, questions, row, form);
  const forms = new WeakMap(); // question → its form, which keeps what is typed in it
  let shown = "";

  /** Sends a command, says what became of it, and returns whether it is stored. */
  async function act(what, f) {
    try {
      await f();
      toast(`${what}: stored`);
      return true;
    } catch (e) {
      toast(sentence(e), "bad");
      return false;
    }
  }

  const decided = new Set(); // questions and plans (by their seq) whose decision is sent: a second press says nothing new

  async function decide(subject, what, f) {
    if (decided.has(subject)) return;
    decided.add(subject);
    if (!(await act(what, f))) decided.delete(subject);
  }

  function submit(e) {
    e.preventDefault();
    const text = say.value.trim();
    if (text === "") return;
    say.value = "";
    act("Message", () => client.send(run, text, {})).catch(() => (say.value = text));
  }

  function keydown(e) {
    if (e.key === "Enter" && (e.metaKey || e.ctrlKey)) form.requestSubmit();
  }

  function update() {
    const s = model.fold.snapshot;
    const live = model.mode === "live" && model.position > 0;
    element.hidden = !may || !live;
    if (!may || !live) return;
    const pending = s.commands.map((c) => c.command);
    const open = s.inputs.filter((q) => q.state === "open").slice(-5);
    const sign = JSON.stringify([s.state, pending, open.map((q) => [q.child_id, q.request_id]), s.plan?.seq, s.plan?.decided_seq]);
    if (sign === shown) return;
    shown = sign;
    const done = over.has(s.state);
    const gate = s.plan !== null && s.plan.decided_seq === null && !done && s.plan.gate !== null;
    fill(row,
      gate && [button("Approve plan", () => decide(s.plan.seq, "Approval", () => client.approvePlan(run, s.plan.plan_id ?? undefined)), "primary"), button("Reject plan", () => asked("Why is the plan rejected?", "Reject plan", (t) => decide(s.plan.seq, "Rejection", () => client.rejectPlan(run, t))))],
      !done && ["running", "planning", null].includes(s.state) && !pending.includes("pause") && button("Pause", () => act("Pause", () => client.pause(run))),
      !done && (s.state === "paused" || pending.includes("pause")) && !pending.includes("resume") && button("Resume", () => act("Resume", () => client.resume(run)), "primary"),
      !done && button("Redirect", () => asked("What should it do instead?", "Redirect", (t) => act("Redirection", () => client.redirect(run, t)))),
      !done && !pending.includes("cancel") && button("Cancel run", () => confirmed("Cancel this run? The agent is asked to stop.", () => act("Cancel", () => client.cancel(run))), "danger"),
      pending.length > 0 && h("span", { class: "hint" }, `waiting for the agent: ${pending.join(", ")}`));
    patch(questions, done ? [] : open.map((q) => forms.get(q) ?? forms.set(q, question(q)).get(q)));
  }

  function question(q) {
    const options = list(q.options);
    const to = q.child_id === null ? {} : { child_id: q.child_id };
    const answer = (value) => decide(q, "Answer", () => client.command(run, "answer", { ...to, request_id: q.request_id, answer: value }));
    const schema = q.schema === null ? undefined : schemaForm(read(q.schema));
    const field = h("input", { "aria-label": "Answer", placeholder: "Answer" });
    const trouble = h("p", { class: "error", role: "alert" });
    const send = (e) => {
      e.preventDefault();
      trouble.textContent = "";
      try {
        if (schema !== undefined) answer(schema.value());
        else if (field.value !== "") answer(field.value);
      } catch (error) {
        trouble.textContent = `${error.message}.`;
      }
    };
    return h("form", { class: "card ask", on: { submit: send } },
      h("p", { dir: "auto" }, h("b", {}, visible(short(q.prompt ?? "The agent asks", 1000)))), schema?.element, trouble,
      h("div", { class: "actions" }, options.slice(0, 20).map((o) => button(short(labelOf(o), 80), () => answer(valueOf(o)), "primary")), schema === undefined && field, h("button", { type: "submit" }, "Answer")));
  }

  /** Goes to what a person is asked: the first field or button of a question, or of a plan. */
  function attend() {
    const first = questions.querySelector("input, select, textarea, button") ?? row.querySelector("button.primary");
    first?.focus();
    first?.scrollIntoView({ block: "nearest" });
  }

  const cancel = () => row.querySelector("button.danger")?.click();

  return { element, update, attend, cancel };
}

function list(raw) {
  try {
    const v = raw?.exact();
    return Array.isArray(v) ? v : [];
  } catch {
    return [];
  }
}

// A number that JavaScript would change is a RawJSON: it is shown and sent as it is stored.
const described = (o) => typeof o === "object" && o !== null && !(o instanceof RawJSON);
const labelOf = (o) => String(described(o) ? o.label ?? o.title ?? o.id ?? o.value : o);
const valueOf = (o) => (described(o) ? o.value ?? o.id ?? o.label : o);
