// Runs the bundle where there is no page: it gets to where it asks for one. What a module exports alone, it exports in the bundle.
import { readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

globalThis.location = { origin: "http://page.example", hash: "" };
const [file, folder] = process.argv.slice(2);
const script = readFileSync(file, "utf8");
const modules = readdirSync(folder, { recursive: true }).filter((n) => n.endsWith(".js") && statSync(join(folder, n)).isFile()).map((n) => n.replaceAll("\\", "/"));
const parts = new Map(script.split(/^\/\/ (?=[\w/-]+\.js$)/m).slice(1).map((p) => [p.split("\n", 1)[0], p]));
for (const name of modules.filter((n) => n !== "app.js")) {
  const part = parts.get(name);
  if (part === undefined) {
    if (!name.startsWith("lib/")) console.log(`${name} is not part of the bundle`);
    continue;
  }
  const returned = /\nreturn \{ (.*) \};\n\}\)\(\);\n?$/.exec(part)?.[1] ?? "";
  const own = Object.keys(await import(pathToFileURL(join(folder, name))));
  if (name === "lib/index.js") continue; // it only passes on
  const names = returned.split(",").map((n) => n.trim().split(":")[0]).filter(Boolean).sort();
  if (JSON.stringify(names) !== JSON.stringify(own.sort())) console.log(`${name} has ${names}, and alone ${own}`);
}
globalThis.document = { getElementById: () => console.log("asked for its page") ?? process.exit(0) };
await import(pathToFileURL(file));
