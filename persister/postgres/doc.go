// Package postgres keeps runs in PostgreSQL.
//
// # What it is
//
// A [Store] is a persister.Store on a pgx pool: agent_runs, agent_run_lanes, agent_run_events,
// agent_dead_letters and agent_log_offsets. Package tables creates and changes the tables, package projection makes the
// rows of the views. The Store also reads: Head and Packs implement the History of the read side and the Archive of the
// write side.
//
// # Contract
//
// agent_run_events has the columns of the Koder Agent Stream Protocol §6 (id, run_id, koder_user_id, child_id, seq,
// type, ts, payload) and two more: run_day, the day on which the run's first pack was written, by which the table is
// partitioned, so that the key is unique and a run is in one partition; and line, the event as it arrived, from which
// replay is made. payload is the payload of line for queries. It is null when jsonb cannot hold it (see jsonbHolds),
// which does not mean that the event is damaged. Rows that cannot be stored already are copied into their day's
// partition, others are inserted (docs/decisions/0024-copy.md). Rows for the views of docs/sql.md are stored with them,
// in tables without partitions. Every statement names the tenant.
//
// # Concurrency
//
// A Store is safe for concurrent use, also by several processes. Transactions move their offset first, then lock rows
// of runs in one order, and insert events after that, so they wait but do not deadlock. A process that is overtaken
// waits at the offset and writes nothing. Partitions are created on demand under an advisory lock and attached without
// stopping readers or writers.
//
// # What it does not do
//
// It does not decide what expires: package retention does. It does not retry: the persister does.
//
// # Where to look next
//
// persister.Walk for how packs are made of rows, persistertest for what a store promises.
package postgres
