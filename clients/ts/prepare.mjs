// Builds dist/ whenever npm prepares this folder: to install it, to pack it, or to work in it. npm does not install what a
// linked folder needs to be built, so that is done here, by the lock file. Another install's settings (its workspace, "omit
// dev", "global") would change what is installed, so of those only the ones that say where packages come from are passed on.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

const here = import.meta.dirname ?? new URL(".", import.meta.url).pathname;
const sources = /^npm_config_(registry|cache|offline|prefer_offline|userconfig|globalconfig|proxy|https_proxy|noproxy|ca|cafile|strict_ssl)$/i;

function run(command, args) {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_config_/i.test(name) || sources.test(name)));
  // What this prints is no answer of npm's: npm pack --json has its own.
  const done = spawnSync(process.execPath, [command, ...args], { cwd: here, env, stdio: ["ignore", 2, 2] });
  if (done.status !== 0) process.exit(done.status ?? 1);
}

const tsc = join(here, "node_modules", "typescript", "bin", "tsc");
if (!existsSync(tsc)) {
  const npm = process.env.npm_execpath;
  if (!npm) {
    console.error("agentstream: run npm ci in clients/ts first: there is no TypeScript to build it with");
    process.exit(1);
  }
  run(npm, ["ci", "--ignore-scripts", "--include=dev", "--no-audit", "--no-fund", "--loglevel=error"]);
}
run(tsc, ["-p", "src/react"]);
