// What the scripts that test the console share: a browser, the API, and pages that report errors.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

/** What the Go test gives. */
export const given = JSON.parse(process.argv[2]);
/** What is wrong. */
export const problems = [];
const patience = 90_000;

export const browser = await puppeteer.launch({
  executablePath: given.browser,
  userDataDir: given.profile,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-first-run"],
});

export async function api(method, path, body) {
  const response = await fetch(given.url + path, {
    method, headers: { Authorization: `Bearer ${given.key}`, "Content-Type": "application/json" }, ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === "" ? undefined : JSON.parse(text);
}

export function expect(what, holds) {
  if (!holds) problems.push(what);
}

/** Opens a page that reports each error and each violation of the policy. */
export async function open(context, { width = 1440, height = 850, scheme = "light", quiet = false } = {}) {
  const page = await context.newPage();
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  page.setDefaultTimeout(patience);
  page.on("dialog", (dialog) => dialog.accept()); // the page is left with unsaved changes
  page.on("pageerror", (error) => problems.push(`${page.url()}: ${error.message}`));
  page.on("console", (message) => !quiet && message.type() === "error" && problems.push(`${page.url()}: ${message.text()}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith("http") && url.origin !== given.url && url.origin !== given.provider) problems.push(`${page.url()} requests ${url.href}`);
    if ((url.pathname + url.search).includes("mfk_")) problems.push(`${page.url()} sends the key in a URL`);
  });
  return page;
}

export const says = (page, text) => page.waitForFunction((text) => document.body.innerText.includes(text), {}, text).catch(() => problems.push(`${page.url()} does not say ${text}`));

export async function signedIn(page, key, path = "") {
  await page.goto(`${given.url}/console${path}#key=${encodeURIComponent(key)}`);
  await page.waitForSelector(".shell");
}

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Reports what axe finds on a page, and whether the page is wider than the screen. */
export async function accessible(page) {
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`);
  });
  for (const violation of violations) problems.push(`${page.url()}: ${violation}`);
  expect(`${page.url()} is wider than the screen`, await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
}
