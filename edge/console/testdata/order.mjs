// Prints what the console shows of each run in a folder of JSON lines, in its order: one line of JSON for each file.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Fold, parseEvent } from "../static/lib/index.js";
import { Entries } from "../static/run/entries.js";

const dir = process.argv[2];
for (const file of readdirSync(dir).sort()) {
  const fold = new Fold();
  for (const line of readFileSync(join(dir, file), "utf8").split("\n")) if (line !== "") fold.add(parseEvent(line));
  const shown = new Entries().read(fold.snapshot, null).flatMap(({ kind, it, blocks }) => {
    if (kind === "tool") return [`call ${it.call_id}`];
    return blocks.filter((b) => ["text", "reasoning"].includes(b.kind) && b.text !== "").map((b) => `${b.kind} ${b.index}`);
  });
  console.log(JSON.stringify({ file, shown }));
}
