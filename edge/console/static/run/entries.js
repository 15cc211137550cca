// What is shown of a lane, in the order in which it was said and done: a message is parted at the calls that it asks for, and
// each call stands at its block. No elements here.

/** The entries of a lane. What is shown already keeps its entry, so that its element stays. */
export class Entries {
  #known = new WeakMap(); // what an entry is about → its entries, by their parts of it

  /**
   * Returns the entries of a lane: { seq, at, kind, it }. One of a message also has `blocks`, those that it shows, `from`, its first
   * one's place, and `to`, which is Infinity for the message's last part. Notes are of the lane.
   */
  read(snapshot, lane, notes = []) {
    const own = (list) => list.filter((it) => it.child_id === lane);
    const messages = own(snapshot.messages), calls = own(snapshot.tool_calls);
    const asked = assign(messages, calls);
    const out = [];
    for (const m of messages) this.#message(out, m, asked);
    for (const c of calls) if (!asked.placed.has(c)) out.push(this.#entry("tool", c, c.start_seq));
    for (const c of snapshot.children) if (c.parent_id === lane) out.push(this.#entry("child", c, c.spawn_seq));
    for (const q of own(snapshot.inputs)) out.push(this.#entry("input", q, q.seq));
    const { plan } = snapshot;
    if (plan !== null && plan.child_id === lane) out.push(this.#entry("plan", plan, plan.seq));
    for (const n of notes) out.push(this.#entry("note", n, n.seq));
    return out.sort((a, b) => a.at - b.at);
  }

  #message(out, m, { at, placed, outputs }) {
    const last = m.end_seq ?? Infinity;
    let from = 0, seq = m.start_seq ?? 0;
    const part = (to) => {
      const shows = to === 0 || m.blocks.slice(from, to).some((b) => !outputs.has(b)) || (m.error !== null && to === m.blocks.length);
      if (!shows) return;
      const entry = this.#entry("message", m, seq, Math.min(seq, last), from, to === m.blocks.length ? Infinity : to);
      out.push(Object.assign(entry, { blocks: m.blocks.slice(from, to).filter((b) => !outputs.has(b)) }));
    };
    m.blocks.forEach((b, i) => {
      const calls = at.get(b);
      if (calls === undefined) return;
      if (i > from || i === 0) part(i);
      for (const c of calls) {
        seq = Math.max(seq, c.start_seq ?? 0);
        out.push(this.#entry("tool", c, c.start_seq, Math.min(seq, last)));
      }
      from = i + 1;
    });
    if (from < m.blocks.length || from === 0 || m.error !== null) part(m.blocks.length); // what follows the last call
  }

  #entry(kind, it, seq, at = seq ?? 0, from = 0, to = Infinity) {
    let of = this.#known.get(it);
    if (of === undefined) this.#known.set(it, (of = new Map()));
    const key = `${from}-${to}`;
    if (!of.has(key)) of.set(key, { kind, it, from, to });
    return Object.assign(of.get(key), { seq: seq ?? 0, at });
  }
}

/**
 * Finds the block of each call: { at: block → its calls, placed: the calls that have one, outputs: the blocks that only say what
 * a call has said }. A call belongs to the newest message before it that asks for it; one that was told with its message, to that.
 */
function assign(messages, calls) {
  const asks = new Map(), outputs = new Set(), at = new Map(), placed = new Set();
  const known = new Map(calls.map((c) => [c.call_id, c]));
  for (const m of messages) {
    const seen = new Set();
    for (const b of m.blocks) {
      const id = callOf(b);
      if (id === undefined || !known.has(id)) continue;
      if (said.test(b.kind ?? "") && (seen.has(id) || asks.has(id) || m.role !== "assistant") && known.get(id).output !== null) outputs.add(b);
      else if (!seen.has(id)) asks.set(id, [...(asks.get(id) ?? []), { m, b }]);
      seen.add(id);
    }
  }
  for (const c of calls) {
    const all = asks.get(c.call_id) ?? [];
    const ask = all.findLast(({ m }) => m.start_seq <= c.start_seq) ?? all.find(({ m }) => m.start_seq === m.end_seq);
    if (ask === undefined) continue;
    at.set(ask.b, [...(at.get(ask.b) ?? []), c]);
    placed.add(c);
  }
  return { at, placed, outputs };
}

const said = /result$/i; // kinds of blocks that hold what a call has returned
const ids = new WeakMap();
const longest = 64 << 10; // characters of a block that are read for the id of its call

/** Returns the id of the call that a block is about; undefined for none. */
function callOf(b) {
  if (b.call_id) return b.call_id;
  if (b.block === undefined || b.block.text.length > longest) return undefined;
  if (!ids.has(b)) {
    let v;
    try {
      v = b.block.value();
    } catch {
      v = undefined;
    }
    const id = v?.tool_use_id ?? v?.call_id ?? v?.id;
    ids.set(b, typeof id === "string" && id !== "" ? id : undefined);
  }
  return ids.get(b);
}

/** Returns what of a sum decides its entries: when it is the same again, so are they. */
export function outline({ messages, tool_calls, children, inputs, plan }) {
  let blocks = 0, open = 0, ended = 0;
  for (const m of messages) {
    blocks += m.blocks.length;
    if (m.end_seq === null) open++;
  }
  for (const c of tool_calls) if (c.end_seq !== null) ended++;
  return [messages.length, blocks, open, tool_calls.length, ended, children.length, inputs.length, plan?.seq].join();
}
