// Signing in to the console at an OpenID Connect issuer. Each check prints a line.
import puppeteer from "puppeteer-core";

const { BASE, CHROMIUM, PROFILE } = process.env;
const browser = await puppeteer.launch({ executablePath: CHROMIUM, headless: true, pipe: true, userDataDir: PROFILE, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
const page = await browser.newPage();
const trouble = [];
page.on("pageerror", (e) => trouble.push(e.message));
page.on("console", (m) => m.type() === "error" && !m.text().includes("401") && trouble.push(m.text()));
const shows = async (text) => {
  await page.waitForFunction((t) => document.body.innerText.includes(t), { timeout: 30_000 }, text).catch(async (e) => {
    throw new Error(`no ${text}: ${e.message}; ${await page.evaluate(() => `${location.href} ${document.body.innerText}`)}; ${trouble}`);
  });
};
const press = (text) => page.evaluate((t) => [...document.querySelectorAll("button")].find((b) => b.innerText.startsWith(t)).click(), text);

await page.goto(`${BASE}/console/#/operations`);
await shows("Sign in at ");
await press("Sign in at ");
await shows("Tenant");
await shows("acme");
if (await page.evaluate(() => location.search !== "" || location.hash !== "#/operations")) throw new Error(`the address is ${page.url()}`);
console.log("ok signed in, back where the person was going, without the code in the address");

await press("Sign out");
await shows("Sign in at ");
await page.goto(`${BASE}/console/?code=stolen&state=forged`);
await shows("this tab has not asked for it");
await shows("Sign in at ");
console.log("ok a code that this tab has not asked for signs nobody in");
await browser.close();
if (trouble.length > 0) throw new Error(trouble.join("; "));
