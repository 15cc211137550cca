// Package postgres keeps runs in PostgreSQL.
//
// # What it is
//
// A [Store] is a persister.Store on a pgx pool: agent_runs, agent_run_lanes, agent_run_events,
// agent_dead_letters and agent_log_offsets. [Migrate] creates and updates the tables from embedded migrations. The Store
// also reads: Head and Packs satisfy the History of the read side and the Archive of the write side
// by shape.
//
// # Contract
//
// agent_run_events has the columns of the Koder Agent Stream Protocol §6 (id, run_id,
// koder_user_id, child_id, seq, type, ts, payload) and two more: run_day, the day on which
// the run's first pack was written, by which the table is partitioned, so that the key is unique and a run lies in one
// partition; and line, the event as it came, which is what replay gives out. payload is a view of
// line for queries. It is null where jsonb cannot hold it (see jsonbHolds) and null alone never
// means that the event is damaged. Rows that nobody can have stored yet are copied into their day's
// partition, others are inserted (docs/decisions/0024-copy.md). What the views of docs/sql.md read is
// stored with them, in tables without partitions. Every statement names the tenant.
//
// # Concurrency
//
// A Store is safe for concurrent use, also beside other processes. Transactions move their offset first, then
// lock run rows in one order, and insert events after that, so they wait but do not deadlock. Who is overtaken
// waits at the offset and writes nothing. Partitions are created on
// demand under an advisory lock and attached without stopping readers or writers.
//
// # What it does not do
//
// It expires nothing, and it does not retry: the persister does.
//
// # Where to look next
//
// persister.Walk for how packs are put together again, persistertest for what is promised.
package postgres
