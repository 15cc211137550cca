// Runs as people have them, for pictures: a list of several, and one to look into.

const life = (state, reason) => ({ type: "run.lifecycle", payload: { state, ...(reason ? { reason } : {}) } });

/** Returns events with times: each may name how many milliseconds behind the one before it happened. */
function timed(ago, events) {
  let t = Date.now() - ago;
  return events.map(({ wait = 40, ...e }) => ({ ...e, ts: new Date((t += wait)).toISOString() }));
}

const talk = (title, agent, model, text, usage, ...end) => [
  { type: "session.created", payload: { title, agent } }, life("running"), { type: "message.start", payload: { message_id: "m", role: "assistant", model } }, { type: "text.delta", payload: { text } },
  { type: "message.end", payload: { message_id: "m", stop_reason: "end_turn", usage }, wait: 9000 }, ...end];

/** Stores runs for the list, the oldest first. */
export async function listed(post) {
  await post("run_nightly_deps", ...timed(5_400_000, talk("Nightly dependency update", "renovator", "claude-sonnet-5-5", "14 packages are updated.", { input_tokens: 48_210, output_tokens: 3_904, cost_usd: 0.2032 }, { ...life("done"), wait: 182_000 })));
  await post("run_invoice_4711", ...timed(3_000_000, talk("Why is invoice 4711 not paid?", "billing", "gpt-6-luna", "The bank refused it.", { input_tokens: 9_120, output_tokens: 611, cost_usd: 0.0041 }, { ...life("error", "the bank's interface answered 503"), wait: 21_000 })));
  await post("run_docs_review", ...timed(1_500_000, talk("Review the new docs for broken examples", "reviewer", "claude-haiku-4-5", "Two examples fail.", { input_tokens: 120_402, output_tokens: 8_211, cost_usd: 0.1614 }, { ...life("done"), wait: 96_000 })));
  await post("run_rename_api", ...timed(900_000, talk("Rename the billing API", "coder", "claude-sonnet-5-5", "I stop here.", { input_tokens: 31_007, output_tokens: 2_250, cost_usd: 0.1268 }, { ...life("aborted", "cancelled by ann"), wait: 44_000 })));
  await post("run_migrate_db", ...timed(240_000, talk("Move the orders table to the new schema", "coder", "claude-opus-5-5", "Here is my plan.", { input_tokens: 18_300, output_tokens: 1_420, cost_usd: 0.3810 }, { type: "plan.proposal", payload: { plan: { id: "p", steps: [{ id: "1", title: "Copy" }] } } }, { ...life("awaiting_approval"), wait: 1000 })));
}

/** Stores a run that has something of everything. */
export async function whole(post, run) {
  await post(run, ...timed(74_000, [
    { type: "session.created", payload: { title: "Find the leak in checkout", agent: "sre" } }, life("running"),
    { type: "message.start", payload: { message_id: "u1", role: "user" } }, { type: "text.delta", payload: { text: "Memory of **checkout** grows by 40 MB an hour since Tuesday. Find out why, and propose a fix." } }, { type: "message.end", payload: { message_id: "u1" } },
    { type: "turn.start", payload: { turn_id: "t1" } }, { type: "model.start", payload: { call_id: "c1", model: "claude-sonnet-5-5" } },
    { type: "message.start", payload: { message_id: "m1", role: "assistant", model: "claude-sonnet-5-5" } },
    { type: "reasoning.delta", payload: { text: "Tuesday's release is 2.14. I compare heap profiles of both versions before I read code." }, wait: 2500 },
    { type: "text.delta", payload: { text: "I compare heap profiles of 2.13 and 2.14 first, and let a second agent read the changes of Tuesday meanwhile." }, wait: 1500 },
    { type: "message.end", payload: { message_id: "m1", stop_reason: "tool_use", usage: { input_tokens: 2140, output_tokens: 188, cost_usd: 0.0092 } }, wait: 900 }, { type: "model.end", payload: { call_id: "c1" } },
    { type: "plan.proposal", payload: { plan: { id: "p", steps: [{ id: "1", title: "Compare heap profiles" }, { id: "2", title: "Read the changes of release 2.14" }, { id: "3", title: "Propose a fix with a test" }] } } },
    { type: "tool.start", payload: { call_id: "heap", tool: "heap_diff", input: { service: "checkout", from: "2.13.4", to: "2.14.0", window: "6h" } } },
    { type: "child.spawn", payload: { child_id: `${run}_reader`, prompt: "Read the commits between 2.13.4 and 2.14.0. Name what keeps memory." } },
    { type: "run.lifecycle", child_id: `${run}_reader`, payload: { state: "running" } },
    { type: "tool.start", child_id: `${run}_reader`, payload: { call_id: "log", tool: "git_log", input: { range: "2.13.4..2.14.0" } } },
    { type: "tool.end", child_id: `${run}_reader`, payload: { call_id: "log", ok: true, output: "31 commits" }, wait: 5200 },
    { type: "model.start", child_id: `${run}_reader`, payload: { call_id: "r", model: "claude-haiku-4-5" } },
    { type: "tool.output.delta", payload: { call_id: "heap", text: "retained: +38 MB/h  cart.sessionCache\n" }, wait: 6200 },
    { type: "tool.end", payload: { call_id: "heap", ok: true, output: { grows: "cart.sessionCache", retained_mb_per_hour: 38.2, owner: "cart/session.go:88" } }, wait: 4200 },
    { type: "model.end", child_id: `${run}_reader`, payload: { call_id: "r" }, wait: 3000 },
    { type: "run.lifecycle", child_id: `${run}_reader`, payload: { state: "done" } },
    { type: "tool.start", payload: { call_id: "test", tool: "run_tests", input: { package: "./cart", race: true } } },
    { type: "tool.end", payload: { call_id: "test", ok: false, error: "KAI-TOOL-FAIL-0001", error_detail: { type: "exit", message: "TestSessionCacheIsBounded: 10000 entries, want at most 512" } }, wait: 9800 },
    { type: "turn.end", payload: { turn_id: "t1", stop_reason: "end_turn" } },
    { type: "turn.start", payload: { turn_id: "t2" } }, { type: "model.start", payload: { call_id: "c2", model: "claude-sonnet-5-5" } },
    { type: "message.start", payload: { message_id: "m2", role: "assistant", model: "claude-sonnet-5-5" } },
    { type: "text.delta", payload: { text: "The cache of sessions has **no bound** since 2.14: its eviction was lost when it moved.\n\n```go\n// cart/session.go:88\nfunc (c *sessionCache) put(id string, s *session) {\n\tc.entries[id] = s // nothing is ever removed\n}\n```\n\n| version | retained | after 6 h |\n|---|---|---|\n| 2.13.4 | 11 MB | 11 MB |\n| 2.14.0 | 38 MB/h | 229 MB |\n\nI can bound it again at 512 entries, as before." }, wait: 6000 },
    { type: "message.end", payload: { message_id: "m2", stop_reason: "end_turn", usage: { input_tokens: 6480, output_tokens: 412, cost_usd: 0.0256 } }, wait: 800 }, { type: "model.end", payload: { call_id: "c2" } },
    { type: "input.requested", payload: { request_id: "q", prompt: "Shall I open a pull request with the bound and the test?", options: ["Open it", "Only the test", "No"] }, wait: 300 },
  ]));
}
