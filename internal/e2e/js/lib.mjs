// What the scripts have in common. Each watches one run until the server says that it is over, and
// prints one line of JSON for each event as its client hands it over: {"id","data"}.

export const base = process.env.STREAM; // …/v1/agent/runs/{run}/stream
export const token = process.env.TOKEN;
export const detail = process.env.DETAIL; // full or default
export const auth = { Authorization: `Bearer ${token}` };

export const url = (after) => `${base}?detail=${detail}&after=${after}`;

let last = 0;
let ended = false;

/** Prints an event. */
export function print(data, id) {
  const e = JSON.parse(data);
  last = e.seq;
  ended = e.type === "run.lifecycle" && e.child_id === null && ["done", "aborted", "error"].includes(e.payload.state);
  write({ id, data });
}

/** seq of the last event. */
export const cursor = () => last;
/** Whether the last event ends the run. */
export const isOver = () => ended;

export function write(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

/** Ends the script. */
export function done(stats = {}) {
  process.stdout.write(JSON.stringify({ ...stats, over: true }) + "\n", () => process.exit(0));
}

export function fail(e) {
  console.error(e);
  process.exit(1);
}

process.on("unhandledRejection", fail);
