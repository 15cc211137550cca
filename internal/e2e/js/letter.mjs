// A client that was written from the text of the Koder Agent Stream Protocol alone and imports nothing: it listens
// as EventSource.onmessage does, knows the eight types of its section 3, resumes with Last-Event-ID, and renders what a
// person would see. It reads names of runs, one a line, and prints for each the timeline that it got: in one piece by
// default and with ?profile=koder-1, and cut off behind every k-th event (CUTS connections at most, 0: every event).
import { createInterface } from "node:readline";

const cuts = Number(process.env.CUTS ?? 0);
const final = ["done", "aborted", "error"];

/** EventSource (WHATWG HTML 9.2) over fetch. onmessage hears frames without a name; false from it cuts the connection. */
async function listen(url, lastEventId, onmessage) {
  const headers = { Accept: "text/event-stream", ...(lastEventId === "" ? {} : { "Last-Event-ID": lastEventId }) };
  const res = await fetch(url, { headers });
  if (res.status === 204) return "over";
  if (res.status !== 200) throw new Error(`${url}: ${res.status} ${await res.text()}`);
  let rest = "", data = [], name = "", id = lastEventId;
  const decoder = new TextDecoder();
  for await (const chunk of res.body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split(/\r\n|\n|\r/);
    rest = lines.pop();
    for (const line of lines) {
      const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
      if (line === "") {
        if (data.length > 0 && (name === "" || name === "message")) {
          if (onmessage({ data: data.join("\n"), lastEventId: id }) === false) return "cut"; // leaving the loop closes the connection
        }
        [data, name] = [[], ""];
      } else if (field === "data") data.push(value);
      else if (field === "event") name = value;
      else if (field === "id") id = value;
    }
  }
  return "ended";
}

/** One speaker: the run itself, or a child (3.6: clients group by child_id). */
const lane = () => ({ text: "", reasoning: "", tools: [], steps: [], plans: [], spawned: [], state: null, reason: null });

/** What a person would see. */
class Timeline {
  lanes = {};
  events = 0;
  seq = 0;
  disorder = 0;
  unknown = {};

  take(e) {
    this.events++;
    if (e.seq <= this.seq) this.disorder++;
    this.seq = e.seq;
    const l = (this.lanes[e.child_id ?? "-"] ??= lane()), p = e.payload;
    switch (e.type) {
      case "reasoning.delta":
        return void (l.reasoning += p.text);
      case "text.delta":
        return void (l.text += p.text);
      case "tool.start":
        return void l.tools.push({ call_id: p.call_id, tool: p.tool, input: p.input });
      case "tool.end": {
        const call = l.tools.findLast((t) => t.call_id === p.call_id);
        return void Object.assign(call ?? {}, { done: true, ok: p.ok, output: p.output, error: p.error ?? null });
      }
      case "step.boundary":
        return void l.steps.push(p.step_index);
      case "child.spawn":
        return void l.spawned.push(p.child_id);
      case "plan.proposal":
        return void l.plans.push(p.plan.steps.map((s) => s.title));
      case "run.lifecycle":
        return void ([l.state, l.reason] = [p.state, p.reason ?? null]);
      default:
        this.unknown[e.type] = (this.unknown[e.type] ?? 0) + 1; // not of this protocol: passed over
    }
  }
  get over() {
    return final.includes(this.lanes["-"]?.state);
  }
}

/** Reads a run to its end, cutting the connection behind every k-th event; 0: never. */
async function read(url, k) {
  const seen = new Timeline();
  let cursor = "", connections = 0;
  for (;;) {
    let got = 0;
    connections++;
    const how = await listen(url, cursor, (m) => {
      const e = JSON.parse(m.data);
      cursor = m.lastEventId;
      seen.take(e);
      return !(++got >= k && k > 0);
    });
    if (how === "ended" && got === 0) throw new Error(`${url}: a connection behind ${cursor || "the start"} brings nothing that onmessage hears`);
    if (how === "over" || (how === "ended" && seen.over && k === 0)) return { ...seen, connections };
  }
}

for await (const run of createInterface({ input: process.stdin })) {
  const url = `${process.env.BASE}/v1/agent/runs/${run}/stream`;
  const [plain, profile] = [await read(url, 0), await read(url + "?profile=koder-1", 0)];
  const k = cuts > 0 ? Math.max(1, Math.ceil(profile.events / cuts)) : 1;
  const cut = await read(url + "?profile=koder-1", k);
  const same = JSON.stringify({ ...cut, connections: 0, events: 0 }) === JSON.stringify({ ...profile, connections: 0, events: 0 });
  console.log(JSON.stringify({ run, plain, profile, cut: same, connections: cut.connections, every: k }));
}
