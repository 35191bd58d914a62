// Takes the pictures of docs/guides/console-tour.md, for systemtest/console_screenshots_test.go: each page as it looks on a
// desk and on a phone, in both schemes. It prints a JSON array of problems.
import { mkdir, rm } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { accessible, api, browser, given, open, problems, says, signedIn } from "./console.browser.mjs";

/** What is added to a picture's name, and how it looks. */
const forms = [
  ["", { width: 1440, height: 900, scheme: "light" }],
  ["-dark", { width: 1440, height: 900, scheme: "dark" }],
  ["-phone", { width: 390, height: 844, scheme: "light" }],
  ["-phone-dark", { width: 390, height: 844, scheme: "dark" }],
];

await rm(given.pictures, { recursive: true, force: true });
await mkdir(given.pictures, { recursive: true });

/**
 * Takes the pictures of a page, once it shows a text. `first` does what is needed before, and `at` names the panel that is
 * at the top.
 */
async function take(name, key, path, text, { first, at } = {}) {
  await Promise.all(forms.map(async ([form, look]) => {
    const context = await browser.createBrowserContext();
    const page = await open(context, look);
    if (key) await signedIn(page, key, path);
    else await page.goto(`${given.url}/console${path}`);
    await first?.(page, form);
    await says(page, text);
    await page.waitForNetworkIdle({ idleTime: 250, concurrency: 5, timeout: 5000 }).catch(() => {}); // pages that follow are never idle
    if (form === "" || form === "-phone-dark") await accessible(page);
    await page.evaluate((at) => {
      document.activeElement?.blur();
      if (at) scrollTo(0, document.querySelector(`section[aria-label="${at}"]`).offsetTop - document.querySelector(".top").offsetHeight - 16);
    }, at);
    await page.screenshot({ path: `${given.pictures}/${name}${form}.webp`, type: "webp", quality: 50 });
    await context.close();
  }));
}

const press = (text) => (page) => page.locator(`button ::-p-text(${text})`).click();
const fill = (page, label, text) => page.locator(`::-p-aria([name='${label}'][role='textbox'])`).fill(text);
const { key, operatorKey, emptyKey } = given;

/** An erasure waits for rebuilds, so it comes first. */
const erasure = await api("POST", "/v1/subjects/p-2017/erase", { reason: "request 4711 of 2026" });
await take("erasure-running", key, `/people/erasures/${erasure.id}`, "Progress");
for (let state; state !== "done"; await sleep(1000)) ({ state } = await api("GET", `/v1/erasures/${erasure.id}`));
await take("erasure", key, `/people/erasures/${erasure.id}`, "Save the receipt");

const rebuild = await api("POST", "/v1/projections/declaration/rebuilds", {
  approve: "manual", definition: JSON.parse(JSON.stringify((await api("GET", "/v1/projections/declaration")).definition).replace('\\"saved\\"', '\\"draft\\"')),
});
for (const label of ["payroll-1", "payroll-2"]) {
  const { memberId } = await api("POST", "/v1/subscriptions/payroll/members", { label });
  setInterval(() => void api("PUT", `/v1/subscriptions/payroll/members/${memberId}`).catch(() => {}), 5000).unref(); // the next one is soon enough
  await api("POST", "/v1/subscriptions/payroll/receive", { batch: 25, memberId });
}
const [payout] = (await api("GET", "/v1/categories/payout/events?direction=backward&count=1")).events;
const audited = (await api("GET", "/audit/v1/streams/$all?direction=backward&count=100&types=ActionDone")).events.find(({ data }) => data.action === "putRetention");

await take("sign-in", "", "", "Sign in with University");
const drawn = (page) => page.waitForSelector(".trend polyline"); // after the second sample
await take("home", key, "", "Compare and approve", { first: drawn });
await take("empty", emptyKey, "/delivery", "There is no group yet");
await take("navigation", key, "/streams", "Sign out", {
  first: (page, form) => (form.startsWith("-phone") ? press("Menu")(page) : page.keyboard.press("?")),
});

await take("events", key, "/events", "older ones follow");
await take("event", key, `/events?event=${payout.id}`, "Caused by");
await take("tail", key, "/events?category=declaration&live=1", "Live", {
  first: async (page, form) => {
    await says(page, "Live");
    const [{ stream, id, type, data }] = given.tail.splice(0, 1);
    await api("POST", `/v1/streams/${stream}/events`, [{ id, type, data }]);
    await says(page, stream);
  },
});
await take("streams", key, "/streams?prefix=declaration-7", "1 command");
await take("stream", key, "/streams/declaration-6997?version=17", "/rejections");
await take("command", key, "/streams/declaration-6997", "It would be rejected", {
  at: "Send a command", first: async (page) => (await fill(page, "reason", "the trip was cancelled"), press("Try without")(page)),
});

await take("projections", key, "/projections", "budgets", { first: drawn });
await take("documents", key, `/projections/declaration?${new URLSearchParams({ filter: 'doc.status == "rejected" && doc.rejections > 1', orderBy: "amountCents desc" })}`, "declaration-");
await take("document", key, "/projections/declaration?document=declaration-6997", "How it was folded");
await take("stopped", key, "/projections/paid-amounts", "Stopped at an event");
await take("definition", key, "/projections/paid-amounts?tab=definition&last=200", "Line 12, column", { at: "Definition" });
await take("trial", key, "/projections/declaration?tab=definition&stream=declaration-6997&step=17", "17 of 27", { at: "Try it" });
await take("parked", key, "/projections/budgets?tab=parked", "Retry all");

await take("rebuilds", key, "/rebuilds", "Dry run");
await take("rebuild", key, `/rebuilds/declaration/${rebuild.id}`, "Save all differences");

await take("delivery", key, "/delivery", "travel-office");
await take("group", key, "/delivery/groups/payroll", "payroll-2");
await take("dead-letters", key, "/delivery/groups/reminders?tab=dead-letters", "the employee has no address");
await take("in-flight", key, "/delivery/groups/reminders?tab=events", "the mail server is busy");
await take("webhook", key, "/delivery/webhooks/travel-office", "connection refused");
await take("attempt", key, "/delivery/webhooks/ledger", "Response", { first: press("Details") });

await take("audit", key, "/audit", "startRebuild");
await take("audit-entry", key, `/audit?event=${audited.id}`, "Changes");

await take("people", key, "/people", "request 4711");
await take("person", key, "/people", "1 EmployeeRegistered", { first: async (page) => (await fill(page, "Id, as in the tag subject:ID", "p-2018"), press("Show what would be erased")(page)) });
await take("proof", key, "/proof", "manifold verify");

await take("keys", key, "/admin", "privacy-office");
await take("retention", key, "/admin", "heartbeat", { at: "Retention" });
await take("schema", key, "/admin/schemas/EmployeeRegistered", "Compatibility");
await take("usage", key, "/admin/usage", "Stored events");

await take("operator", operatorKey, "", "university");
await take("tenants", operatorKey, "/admin", "Cluster members");
await take("tenant", operatorKey, `/admin/tenants/${given.tenant}`, "Suspend");
await take("all-usage", operatorKey, "/admin/usage", "By tenant");
await take("egress", operatorKey, "/delivery/egresses/warehouse", "university", { first: press("Show the tenants") });

await browser.close();
console.log(JSON.stringify(problems));
process.exit();
