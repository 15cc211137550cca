// Sessions themselves: create, look, change, list, archive, delete, and what is refused.
import assert from "node:assert/strict";
import { AuthenticationError, BadRequestError, ConflictError, NotFoundError } from "@anthropic-ai/sdk";
import { collect, create, end, eventually, ids, message, open, other, refused, unique } from "./qoder-lib.mjs";

const { sessions, asked } = open();
const agent = unique("agent_");

// Create. Fields that the library does not know pass through both ways.
const made = [];
for (let i = 0; i < 5; i++) {
  made.push(await create(sessions, {
    agent: i % 2 ? agent : { type: "agent", id: agent, version: 3 }, title: `Grüße 🌍 ${i}`, metadata: { n: String(i) },
    incremental_streaming_enabled: i === 0, vault_ids: ["vlt_1"],
  }));
}
for (const [i, s] of made.entries()) {
  assert.match(s.id, /^sess_[0-9a-f]{32}$/);
  assert.deepEqual([s.type, s.title, s.metadata, s.environment_id, s.status], ["session", `Grüße 🌍 ${i}`, { n: String(i) }, "env_e2e", "idle"]);
  assert.deepEqual([s.incremental_streaming_enabled, s.vault_ids, s.archived_at], [i === 0, ["vlt_1"], null]);
  assert.deepEqual([s.agent.type, s.agent.id], ["agent", agent]); // an object, whatever was sent
  for (const list of ["resources", "outcome_evaluations"]) assert.ok(Array.isArray(s[list]), list); // code loops over them
  for (const object of ["stats", "usage"]) assert.equal(typeof s[object], "object", object);
  assert.ok(Date.parse(s.created_at) && Date.parse(s.updated_at), "times");
}

// Retrieve, on both nodes; update: metadata is a patch, null takes away.
assert.deepEqual(await sessions.retrieve(made[0].id), made[0]);
assert.deepEqual(await other().sessions.retrieve(made[1].id), made[1]);
const changed = await sessions.update(made[1].id, { title: "changed", metadata: { n: null, more: "yes" } });
assert.deepEqual([changed.id, changed.title, changed.metadata], [made[1].id, "changed", { more: "yes" }]);
assert.deepEqual(changed, await sessions.retrieve(made[1].id));
assert.equal((await sessions.update(made[2].id, { title: null })).title, null);
assert.equal((await sessions.update(made[2].id, { incremental_streaming_enabled: true })).incremental_streaming_enabled, true);

// Lists: by pages, newest first unless asked otherwise, with filters.
const list = async (params) => ids(await collect(sessions.list({ agent_id: agent, ...params })));
const newest = ids(made).reverse();
await eventually(async () => assert.deepEqual(await list(), newest));
const before = asked.length;
assert.deepEqual(await list({ limit: 2 }), newest);
assert.equal(asked.length - before, 3, "pages");
assert.deepEqual(await list({ limit: 2, order: "asc" }), ids(made));
const later = made.filter((s) => Date.parse(s.created_at) > Date.parse(made[1].created_at));
assert.deepEqual(await list({ order: "asc", limit: 1, "created_at[gt]": made[1].created_at }), ids(later));
assert.deepEqual(await list({ "created_at[lt]": made[0].created_at }), []);
assert.deepEqual(await list({ statuses: ["running", "terminated"] }), []);
await eventually(async () => assert.deepEqual(await list({ statuses: ["idle", "running"] }), newest));
assert.deepEqual(ids(await collect(sessions.list({ agent_id: unique("agent_none_") }))), []);
await eventually(async () => {
  const [listed] = (await collect(sessions.list({ agent_id: agent, order: "asc" }))).filter((s) => s.id === made[1].id);
  assert.deepEqual([listed.title, listed.metadata, listed.agent.id], ["changed", { more: "yes" }, agent]);
});

// Archived: still to be read, takes nothing more. The answer says that trying again is no use.
const archived = await sessions.archive(made[4].id);
assert.ok(Date.parse(archived.archived_at));
assert.equal((await other().sessions.retrieve(made[4].id)).archived_at, archived.archived_at);
const tries = asked.length;
await refused(sessions.events.send(made[4].id, { events: [message("say x")] }), ConflictError, "conflict_error");
assert.equal(asked.length - tries, 1, "a refusal that is final is not tried again");
assert.deepEqual((await sessions.archive(made[4].id)).archived_at, archived.archived_at, "again");
await eventually(async () => {
  assert.deepEqual(await list(), newest.slice(1));
  assert.deepEqual(await list({ include_archived: true }), newest);
});

// Deleted: gone.
assert.deepEqual(await sessions.delete(made[3].id), { id: made[3].id, type: "session_deleted" });
await refused(sessions.retrieve(made[3].id), NotFoundError, "not_found_error");
await refused(other().sessions.events.send(made[3].id, { events: [message("say x")] }), NotFoundError, "not_found_error");
await refused(collect(sessions.events.list(made[3].id)), NotFoundError, "not_found_error");
await refused(sessions.events.stream(made[3].id), NotFoundError, "not_found_error");
await refused(sessions.delete(made[3].id), NotFoundError, "not_found_error");
await eventually(async () => assert.deepEqual(await list({ include_archived: true }), newest.filter((id) => id !== made[3].id)));

// What is wrong.
const id = made[0].id;
for (const nobody of ["sess_00000000000000000000000000000000", "a/../b?c", "x".repeat(300)]) {
  await refused(sessions.retrieve(nobody), NotFoundError, "not_found_error");
  await refused(sessions.events.stream(nobody), NotFoundError, "not_found_error");
  await refused(sessions.threads.retrieve(nobody, { session_id: id }), NotFoundError, "not_found_error");
}
for (const call of [
  () => sessions.create({ environment_id: "env_e2e" }),
  () => sessions.create({ agent: 7, environment_id: "env_e2e" }),
  () => create(sessions, { initial_events: [{ type: "user.interrupt" }] }),
  () => sessions.update(id, { metadata: "none" }),
  () => sessions.events.send(id, { events: [] }),
  () => sessions.events.send(id, {}),
  () => sessions.events.send(id, { events: [{ type: "agent.message", content: [] }] }),
  () => sessions.events.send(id, { events: [{ type: "user.message" }] }),
  () => sessions.events.send(id, { events: [{ type: "user.tool_confirmation", result: "perhaps", tool_use_id: "evt_x" }] }),
  () => sessions.events.list(id, { limit: 0 }),
  () => sessions.events.list(id, { limit: 1001 }),
  () => sessions.events.list(id, { order: "up" }),
  () => sessions.events.list(id, { page: "nonsense" }),
  () => sessions.events.list(id, { "created_at[gt]": "yesterday" }),
  () => sessions.list({ page: "nonsense" }),
  () => sessions.events.stream(id, { event_deltas: ["agent.message", "agent.tool_use"] }),
  () => sessions.events.stream(id, {}, { headers: { "Last-Event-ID": "evt_00000000000000000000000000000000" } }),
]) await refused(call(), BadRequestError, "invalid_request_error");
await refused(open({ authToken: "wrong" }).sessions.retrieve(id), AuthenticationError, "authentication_error");
await refused(open({ authToken: "wrong" }).sessions.events.stream(id), AuthenticationError, "authentication_error");

// What it does not know is ignored.
assert.deepEqual(await collect(sessions.events.list(id, { limit: 1000, some: "thing" })), []);
end();
