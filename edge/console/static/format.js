// Numbers, times and amounts, as people write them.

/** Returns a duration in milliseconds as text: 850 ms, 4.2 s, 3 min 20 s, 2 h 5 min. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  const m = Math.round(s / 60);
  return m < 2880 ? `${Math.floor(m / 60)} h ${m % 60} min` : `${Math.round(m / 1440)} days`;
}

// Made once: making one takes longer than all else of a frame.
const numbers = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const calendar = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

/** Returns a whole number with its thousands apart. */
export function count(n) {
  return n === undefined || n === null ? "–" : numbers.format(n);
}

/** Returns a number of bytes as text. */
export function bytes(n) {
  if (n < 1024) return `${n} B`;
  return n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;
}

/** Returns a time as the reader's clock shows it, with the day unless it is today. */
export function time(ts) {
  const d = new Date(ts);
  if (Number.isNaN(d.getTime())) return "–";
  return (d.toDateString() === new Date().toDateString() ? clock : calendar).format(d);
}

/** Returns a time in full: the reader's day, clock and zone, and UTC as it is stored. */
export function moment(ts) {
  const d = new Date(ts);
  return Number.isNaN(d.getTime()) ? "" : `${exact.format(d)} · ${d.toISOString()}`;
}

/** Returns tokens in and out of usage counts, under any of the providers' names; undefined for none. */
export function tokens(usage) {
  const of = (...names) => names.reduce((sum, n) => sum ?? (typeof usage?.[n] === "number" ? usage[n] : undefined), undefined);
  const input = of("input_tokens", "prompt_tokens", "promptTokenCount");
  const output = of("output_tokens", "completion_tokens", "candidatesTokenCount");
  return input === undefined && output === undefined ? undefined : { input: input ?? 0, output: output ?? 0 };
}

/** Returns token counts as text. */
export function tokenText(usage) {
  const t = tokens(usage);
  return t === undefined ? "–" : `${count(t.input)} in · ${count(t.output)} out`;
}

/** Returns the cost in US dollars that usage names, as text. The console computes none: what it was not given is unknown. */
export function cost(usage) {
  const v = usage?.cost_usd ?? usage?.total_cost_usd;
  if (typeof v === "number") return `$${v.toFixed(4)}`;
  const micro = usage?.cost_micro_usd ?? usage?.cost_microusd;
  return typeof micro === "number" ? `$${(micro / 1e6).toFixed(4)}` : "–";
}
