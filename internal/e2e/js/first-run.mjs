// What a new user does in the console: open the link, see the demo run, cancel it. Prints a line for each.
//   node first-run.mjs CONSOLE-LINK CHROMIUM PROFILE
import puppeteer from "puppeteer-core";
import { patient } from "./wait.mjs";

const [link, executablePath, userDataDir] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath, headless: true, pipe: true, userDataDir, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
const begun = Date.now();
const step = (text) => console.log(`${((Date.now() - begun) / 1000).toFixed(1).padStart(9)} s  in the browser: ${text}`);
try {
  const page = await browser.newPage();
  const until = (f, ...args) => page.waitForFunction(patient(f), { timeout: 60_000, polling: 50 }, ...args);
  const press = async (text, at) => {
    await until((t, s) => [...document.querySelectorAll(`${s} button`)].some((b) => b.innerText.trim() === t), text, at);
    await page.evaluate((t, s) => [...document.querySelectorAll(`${s} button`)].find((b) => b.innerText.trim() === t).click(), text, at);
  };
  await page.goto(link);
  await until(() => document.querySelector(".conversation")?.innerText.length > 100);
  step(`the run is seen: ${await (await until(() => document.querySelector(".bar .badge").innerText)).jsonValue()}`);
  await press("Cancel run", ".control");
  await press("Yes", "dialog");
  await until(() => document.querySelector(".bar .badge").innerText.includes("aborted"));
  step("cancelled");
} finally {
  await browser.close();
}
