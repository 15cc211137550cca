// Holds the fold that is compiled in the folder of the first argument to the cases in the others, and prints each that it
// shows otherwise.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2);
const { Fold, same, solid } = await import(pathToFileURL(`${folder}/metis-fold.js`).href);
let held = 0;
for (const file of files) {
  const c = JSON.parse(readFileSync(file, "utf8"));
  const fold = new Fold(c.session);
  for (const frame of c.frames) fold.frame(frame);
  if (same(fold.shown(), solid(c.state))) held++;
  else console.log(`${file} shows\n${JSON.stringify(fold.shown())}\nwant\n${JSON.stringify(solid(c.state))}`);
}
console.log(`${held} of ${files.length}`);
