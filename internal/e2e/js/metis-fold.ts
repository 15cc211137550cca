// A client of the metis protocol in TypeScript, written from the protocol's text: frames become what it shows (3.4, 5.3,
// 5.4). metis-conformance.mjs holds it to the conformance suite (11.3).

type Block = Record<string, unknown> & { type: string };
type Status = "partial" | "complete" | "cancelled" | "error";
interface Message { id: string; role: string; status: Status; blocks: Block[] }
interface Tool { id: string; name: string; state: string }
interface State {
  turn: { id: string; state: "in_flight" | "completed" | "cancelled" } | null;
  messages: Message[];
  tools: Tool[];
  errors: string[];
  ended: string;
  workers: Record<string, State>;
  delegates: Record<string, string>;
}
interface Envelope { id: string; session_id: string; turn_id: string | null; type: string; payload: Payload }
interface Delta { message_id: string; content_block_index: number }
interface Payload extends Partial<Delta> {
  text?: string; signature?: string | null; tool_use_id?: string; tool_name?: string; partial_json?: string;
  final_input?: unknown; final_content?: Block[]; omitted_bytes?: number; stop_reason?: string; error_class?: string;
  worker_session_id?: string; failure_mode?: string; disposition?: string;
}
export type Frame =
  | { type: "snapshot"; session: { current_turn_id: string | null }; snapshot_at_event_id: string;
      messages: { id: string; role: string; content: Block[]; metadata: { status: Status } }[] }
  | { type: "event"; event: Envelope }
  | { type: "other" };

const nothing = (): State => ({ turn: null, messages: [], tools: [], errors: [], ended: "", workers: {}, delegates: {} });
const domains = new Set(["message", "text", "thinking", "tool", "turn", "llm", "session", "delegate", "route", "routing",
  "skill", "memory", "feedback", "pattern"]);
const toolStates: Record<string, string> = {
  "tool.use_start": "asked", "tool.use_end": "ready", "tool.called": "running", "tool.completed": "done",
  "tool.confirmation_requested": "waiting", "tool.confirmation_resolved": "ready",
};

export class Fold {
  state = nothing();
  last = "";
  replaced: string[] = [];
  skipped = 0;

  constructor(private readonly session: string) {}

  /** What is shown, without what is empty. */
  shown(): unknown {
    return solid({ ...this.state, last: this.last, replaced: this.replaced, skipped: this.skipped });
  }

  frame(f: Frame): void {
    if (f.type === "snapshot") {
      this.state = nothing();
      this.last = f.snapshot_at_event_id;
      if (f.session.current_turn_id !== null) this.state.turn = { id: f.session.current_turn_id, state: "in_flight" };
      this.state.messages = f.messages.map((m) => ({ id: m.id, role: m.role, status: m.metadata.status, blocks: m.content }));
    } else if (f.type === "event") {
      this.last = f.event.id;
      this.event(f.event);
    }
  }

  private event(e: Envelope): void {
    const s = e.session_id === this.session ? this.state : (this.state.workers[e.session_id] ??= nothing());
    const p = e.payload;
    const domain = e.type.split(".")[0] as string;
    switch (domain) {
      case "message": case "text": case "thinking":
        this.message(s, e.type, p);
        break;
      case "tool":
        if (e.type.startsWith("tool.use_")) this.message(s, e.type, p);
        tool(s, e.type, p);
        break;
      case "turn":
        s.turn = { id: e.turn_id ?? "", state: e.type === "turn.started" ? "in_flight" : e.type === "turn.completed" ? "completed" : "cancelled" };
        break;
      case "llm":
        if (e.type === "llm.call_failed") s.errors.push(p.error_class ?? "");
        break;
      case "session":
        s.ended = p.disposition ?? "";
        break;
      case "delegate":
        s.delegates[p.worker_session_id ?? ""] = e.type === "delegate.started" ? "running" : e.type === "delegate.completed" ? "done" : p.failure_mode ?? "";
        break;
      default:
        if (!domains.has(domain)) this.skipped++;
    }
  }

  private message(s: State, type: string, p: Payload): void {
    const id = p.message_id ?? "";
    let m = s.messages.findLast((x) => x.id === id);
    if (m === undefined) s.messages.push((m = { id, role: "assistant", status: "partial", blocks: [] }));
    const at = (kind: string): Block => {
      const i = p.content_block_index ?? 0;
      while (m.blocks.length < i) m.blocks.push(null as unknown as Block);
      if (m.blocks[i]?.type !== kind) m.blocks[i] = kind === "tool_use" ? { type: kind } : { type: kind, text: "" };
      return m.blocks[i] as Block;
    };
    switch (type) {
      case "text.delta": case "thinking.delta": {
        const b = at(type === "text.delta" ? "text" : "thinking");
        b.text = String(b.text) + (p.text ?? "");
        if (p.signature != null) b.signature = p.signature;
        break;
      }
      case "tool.use_start":
        Object.assign(at("tool_use"), { id: p.tool_use_id, name: p.tool_name, partial_json: "" });
        break;
      case "tool.use_input_delta": {
        const b = at("tool_use");
        b.partial_json = String(b.partial_json ?? "") + (p.partial_json ?? "");
        break;
      }
      case "tool.use_end": {
        const b = at("tool_use");
        b.input = p.final_input;
        delete b.partial_json;
        break;
      }
      case "message.complete":
        m.status = p.stop_reason === "cancelled" || p.stop_reason === "error" ? p.stop_reason : "complete";
        if (p.final_content === undefined) break;
        if (!same(streamed(m.blocks), streamed(p.final_content))) this.replaced.push(id);
        m.blocks = p.final_content;
    }
  }
}

/** Leaves out blocks that cannot be streamed, and members that are null. */
function streamed(blocks: Block[]): unknown {
  return blocks.filter((b) => b !== null && ["text", "thinking", "tool_use"].includes(b.type))
    .map((b) => Object.fromEntries(Object.entries(b).filter(([, v]) => v !== null)));
}

function tool(s: State, type: string, p: Payload): void {
  const state = type === "tool.failed" ? p.error_class ?? "" : toolStates[type];
  if (state === undefined) return;
  const t = s.tools.find((x) => x.id === p.tool_use_id);
  if (t !== undefined) t.state = state;
  else s.tools.push({ id: p.tool_use_id ?? "", name: p.tool_name ?? "", state });
}

/** Leaves out what is empty: null and no elements are the same. */
export function solid(v: unknown): unknown {
  if (Array.isArray(v)) return v.map((x) => solid(x));
  if (v === null || typeof v !== "object") return v;
  const all = Object.entries(v).map(([k, x]) => [k, solid(x)] as const);
  return Object.fromEntries(all.filter(([, x]) => x !== null && !(typeof x === "object" && Object.keys(x as object).length === 0)));
}

/** Reports whether two values are the same JSON, whatever the order of members. */
export function same(a: unknown, b: unknown): boolean {
  const sorted = (_: string, v: unknown) =>
    v === null || typeof v !== "object" || Array.isArray(v) ? v : Object.fromEntries(Object.entries(v).sort(([x], [y]) => (x < y ? -1 : 1)));
  return JSON.stringify(a, sorted) === JSON.stringify(b, sorted);
}
