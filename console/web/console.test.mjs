// Checks the console and the documentation in a browser, on a service that systemtest/web_console_test.go has filled. It prints a JSON array of
// problems.
import { accessible, api, browser, expect, given, open, problems, says, signedIn } from "./console.browser.mjs";

/** Keeps the text of the file that a page saves last. */
async function keepSaved(page) {
  await page.evaluate(() => {
    const create = URL.createObjectURL;
    URL.createObjectURL = (blob) => ((window.saved = blob.text()), create(blob));
  });
}

/** Every page, by a link that leads there, with words that it shows when it is complete. */
const [event] = (await api("GET", "/v1/streams/order-1")).events;
const [rebuild] = (await api("GET", "/v1/projections/orders/rebuilds")).rebuilds;
const audited = (await api("GET", "/audit/v1/streams/$all?direction=backward&count=1&types=ActionDone")).events[0];
const pages = [
  ["", "has stopped at an event"],
  ["/events", "older ones follow"],
  [`/events?category=order&event=${event.id}`, "Copy as curl"],
  ["/events?tags=sku:A-1", "ItemAdded"],
  ["/streams?prefix=order-1", "order-1"],
  ["/streams/order-1?version=3", "/items"],
  ["/projections", "parking"],
  ["/projections/orders?document=order-2", "After the event at"],
  ["/projections/broken?tab=definition&last=20", "Line 12, column 32"],
  ["/projections/orders?tab=definition&stream=order-1&step=2", "2 of 5"],
  ["/projections?create=1", "Ctrl-Space completes"],
  ["/projections/parking?tab=parked", "Retry all"],
  ["/rebuilds", "Dry run"],
  [`/rebuilds/orders/${rebuild.id}`, "/customer"],
  ["/delivery", "crm"],
  ["/delivery/groups/mail", "The group has no partitions"],
  ["/delivery/groups/mail?tab=dead-letters", "the address is unknown"],
  ["/delivery/groups/mail?tab=events", "Next"],
  ["/delivery/webhooks/crm", "Rotate"],
  ["/delivery/groups/egress.warehouse", "Members"],
  ["/audit", "createKey"],
  ["/audit?action=putWebhook&outcome=ActionDone", "putWebhook"],
  [`/audit?event=${audited.id}`, "Began"],
  ["/people", "No erasures yet."],
  ["/proof", "manifold verify --checkpoint log.checkpoint"],
  ["/admin", "heartbeat"],
  ["/admin/usage?days=7&figure=documents", "documents on "],
  ["/admin/schemas/OrderPlaced", "Compatibility"],
  ["/nowhere", "There is no such page"],
];

/** Opens every page: by reloads, which keep the session, or within the page. */
async function everyPage(width, scheme, reload) {
  const context = await browser.createBrowserContext();
  const page = await open(context, { width, scheme });
  await signedIn(page, given.key);
  expect("the key stays in the address bar", !page.url().includes("key="));
  for (const [path, text] of pages) {
    if (reload) await page.goto(`${given.url}/console${path}`);
    else await page.evaluate((path) => (history.pushState(null, "", path), dispatchEvent(new PopStateEvent("popstate"))), `/console${path}`);
    await says(page, text);
    await accessible(page);
  }
  await page.goto(`${given.url}/console`);
  await says(page, "shared / 1");
  const names = await page.$$eval("[aria-label='Lag of projections and groups'] td:first-child", (cells) => cells.map((cell) => cell.innerText.split(" / ")[0]));
  const counted = await page.$$eval(".figure", (figures) => figures.find((figure) => figure.innerText.startsWith("Projections and groups")).querySelector(".value").innerText);
  expect(`${counted} projections and groups are counted of ${names}`, Number(counted) === new Set(names).size);
  await context.close();
}

async function signingIn() {
  const context = await browser.createBrowserContext();
  const page = await open(context, { quiet: true });
  await page.goto(`${given.url}/console/projections`);
  const { key, id } = await api("POST", "/v1/keys", { name: "browser", scopes: ["events:read", "documents:read", "subscriptions:write"] });
  await page.waitForSelector("input[type=password]");
  await page.type("input[type=password]", "mfk_wrong");
  await page.keyboard.press("Enter");
  await page.waitForSelector("[role=alert]");
  await accessible(page);
  await page.evaluate(() => document.querySelector("input").select());
  await page.type("input[type=password]", key);
  await page.keyboard.press("Enter");
  await says(page, "Rules that fold the log");

  const second = await open(context, { quiet: true });
  await second.goto(`${given.url}/console/events`);
  await second.waitForSelector(".shell").catch(() => problems.push("a second tab is not signed in"));
  expect("nothing is stored", await second.evaluate((key) => !JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]).includes(key), key));

  await api("DELETE", `/v1/keys/${id}`);
  await page.bringToFront(); // a hidden page asks for nothing
  await says(page, "no longer accepts this key");
  await context.close();
}

/** The browser goes to the identity provider and comes back. The token is renewed, and neither it nor the code is left anywhere. */
async function signingInWithProvider() {
  const context = await browser.createBrowserContext();
  const page = await open(context);
  const sent = [];
  page.on("request", (request) => request.url() === `${given.provider}/token` && sent.push(new URLSearchParams(request.postData())));
  await page.goto(`${given.url}/console/projections`);
  await page.locator("::-p-text(Sign in with Company)").click();
  await says(page, "Rules that fold the log");
  await says(page, "Ann");
  expect(`after the sign-in the page is ${page.url()}`, page.url() === `${given.url}/console/projections`);
  await page.waitForFunction(() => document.querySelector(".shell"));
  expect(`the provider was asked for ${sent.map((s) => s.get("grant_type"))}`, sent[0]?.get("code_verifier")?.length === 43 && sent[1]?.get("grant_type") === "refresh_token");
  expect("nothing is stored", await page.evaluate(() => localStorage.length + sessionStorage.length === 0 && document.cookie === ""));

  const foreign = await open(context, { quiet: true });
  await page.close(); // it would hand over its token
  await foreign.goto(`${given.url}/console/signed-in?code=stolen&state=foreign`);
  await says(foreign, "did not begin in this tab");
  await accessible(foreign);
  await context.close();
}

async function keyboardAndScopes() {
  const context = await browser.createBrowserContext();
  const page = await open(context);
  await signedIn(page, given.limitedKey, "/projections");
  const links = await page.$$eval("nav a", (all) => all.map((link) => link.textContent.trim()));
  expect(`a key for documents sees ${links}`, links.includes("Projections") && !links.includes("Events") && !links.includes("Delivery"));
  await page.goto(`${given.url}/console/projections/orders?tab=definition`);
  await says(page, "event.stream");
  expect("a key for documents may edit a definition", !(await page.$(".editor")));
  const { key: orders } = await api("POST", "/v1/keys", { name: "orders", scopes: ["events:read:order"] });
  await signedIn(page, orders, "/events?category=order");
  await says(page, "older ones follow");
  const own = await page.$$eval("nav a", (all) => all.map((link) => link.textContent.trim()));
  expect(`a key for a category sees ${own}`, own.includes("Events") && !own.includes("Proof"));
  await signedIn(page, given.key);
  await page.reload();
  await page.waitForSelector(".shell");
  while (!page.url().endsWith("/events")) { // a busy machine may press the second key too late
    await page.keyboard.press("g");
    await page.keyboard.press("e");
  }
  await says(page, "older ones follow");
  await page.keyboard.press("/");
  expect("/ does not focus the search", await page.evaluate(() => document.activeElement.hasAttribute("data-search")));
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("?");
  await says(page, "Search on the page");
  await accessible(page);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog"));
  await context.close();
}

async function operator() {
  const context = await browser.createBrowserContext();
  const page = await open(context);
  await signedIn(page, given.operatorKey);
  await says(page, "Group shared"); // after a minute
  const late = await page.$$eval("td[data-head=Consumer]", (cells) => cells.map((cell) => cell.innerText));
  expect(`an operator sees a consumer twice in ${late}`, late.length === new Set(late).size);
  await page.goto(`${given.url}/console/admin`);
  await says(page, "Cluster members");
  await accessible(page);
  await page.goto(`${given.url}/console/admin/tenants/${given.tenant}`);
  await says(page, "Suspend");
  await accessible(page);
  await page.goto(`${given.url}/console/admin/usage`);
  await says(page, "By tenant");
  await page.waitForSelector(".uplot canvas");
  await accessible(page);
  await page.locator("td a ::-p-text(acme)").click();
  await says(page, "Stored events");
  await accessible(page);
  await context.close();
}

/** An operator sees which broker does not answer, and how far each tenant is. A tenant sees its own group alone. */
async function egress() {
  const context = await browser.createBrowserContext();
  for (const [width, scheme] of [[1440, "light"], [390, "dark"]]) {
    const page = await open(context, { width, scheme });
    await signedIn(page, given.operatorKey, "/delivery");
    await says(page, "Broker does not answer");
    await says(page, "127.0.0.1:1");
    await accessible(page);
    await page.locator("td a ::-p-text(warehouse)").click();
    await says(page, "Does not answer");
    await page.locator("button ::-p-text(Show the tenants)").click();
    await says(page, "acme");
    expect(`the egress's address is ${page.url()}`, page.url().endsWith("/console/delivery/egresses/warehouse"));
    await accessible(page);
    for (const [path, text] of [["/audit", "createTenant"], ["/proof", "Signing keys"]]) {
      await page.goto(`${given.url}/console${path}`);
      await says(page, text);
      await accessible(page);
    }
    const links = await page.$$eval("nav a", (all) => all.map((link) => link.textContent.trim()));
    expect(`an operator sees ${links}`, !links.includes("People") && links.includes("Delivery"));
    await page.close();
  }
  await context.close();
}

/** The audit log is filtered, followed and read: what was done, by whom, and what changed. */
async function auditLog() {
  const context = await browser.createBrowserContext();
  const page = await open(context);
  await signedIn(page, given.key, "/audit?live=1");
  await says(page, "Live");
  await api("PUT", "/v1/retention/probe", { maxAge: 86400 });
  await api("PUT", "/v1/retention/probe", { maxAge: 172800 });
  await says(page, "putRetention");
  await page.locator("::-p-aria([name='Action'][role='textbox'])").fill("putRetention");
  await page.locator("form button ::-p-text(Show)").click();
  await page.waitForFunction(() => new URLSearchParams(location.search).get("action") === "putRetention");
  await page.locator(".virtual li a").click();
  await says(page, "Changes");
  await says(page, "/maxAge");
  await says(page, "172800");
  await accessible(page);
  await page.locator("aside a ::-p-text(Started at)").click();
  await says(page, "Done at");
  await page.locator("aside dd a ::-p-text(all)").click();
  await page.waitForFunction(() => new URLSearchParams(location.search).get("actor")?.startsWith("key:"));
  await page.locator("button ::-p-text(Export …)").click();
  await says(page, "--actor 'key:");
  // An address may come from somebody else: no part of it is a command.
  await page.goto(`${given.url}/console/audit?actor=${encodeURIComponent("token:auth0|1;'$(id)")}`);
  await says(page, "There are no such entries");
  await page.locator("button ::-p-text(Export …)").click();
  await says(page, `--actor 'token:auth0|1;'\\''$(id)'`);
  await accessible(page);
  await context.close();
}

/** A person's events are exported, an erasure is tried, requested, approved by another key, watched and receipted. */
async function erasing() {
  const context = await browser.createBrowserContext();
  const page = await open(context);
  const press = (page, text) => page.locator(`button ::-p-text(${text})`).click();
  const fill = (page, label, text) => page.locator(`::-p-aria([name='${label}'][role='textbox'])`).fill(text);
  await signedIn(page, given.key, "/people");
  await keepSaved(page);
  await fill(page, "Id, as in the tag subject:ID", "c-17");
  await press(page, "Export events");
  await page.waitForFunction(() => window.saved);
  const exported = await page.evaluate(() => window.saved);
  expect(`the export is ${exported}`, JSON.parse(exported).data.email === "ada@example.com");
  await press(page, "Show what would be erased");
  await says(page, "1 CustomerRegistered");
  await fill(page, "Reason, without personal data: it is kept", "request 4711");
  await page.locator("label ::-p-text(somebody else has approved)").click();
  await accessible(page);
  await press(page, "Erase …");
  await fill(page, "Type c-17 to confirm", "c-17");
  await page.locator("dialog button ::-p-text(Erase)").click();
  await says(page, "Nothing is erased until another person or key approves it");
  expect(`the person's id is in ${page.url()}`, /\/console\/people\/erasures\/[0-9a-f-]{36}$/.test(page.url()));
  await accessible(page);

  const others = await browser.createBrowserContext();
  const other = await open(others, { width: 390, scheme: "dark" });
  await signedIn(other, given.secondKey, new URL(page.url()).pathname.slice("/console".length));
  await press(other, "Approve …");
  await other.locator("dialog button ::-p-text(Approve)").click();
  await says(other, "Progress");
  await accessible(other);
  await api("POST", `/v1/projections/orders/rebuilds/${rebuild.id}/cancel`); // the erasure waits for its end
  const erasure = new URL(page.url()).pathname.split("/").at(-1); // it takes longer than a page may wait
  for (let left = 240, now; left > 0 && now?.state !== "done"; left--) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    now = await api("GET", `/v1/erasures/${erasure}`);
    expect(`the erasure is ${JSON.stringify(now)}`, left > 1 || now.state === "done");
  }
  await says(other, "Save the receipt");
  await accessible(other);
  await keepSaved(other);
  await press(other, "Save the receipt");
  await other.waitForFunction(() => window.saved);
  const receipt = await other.evaluate(() => window.saved);
  expect(`the receipt is ${receipt}`, receipt.includes("request 4711") && !receipt.includes("c-17"));
  await other.goto(`${given.url}/console/people`);
  await says(other, "request 4711");
  await accessible(other);
  await Promise.all([context.close(), others.close()]);
}

/** A live tail whose key expires leads to the sign-in, and continues from its position with the key that replaces it. */
async function expiringTail() {
  const context = await browser.createBrowserContext();
  const page = await open(context, { quiet: true });
  const category = "expiring";
  const append = (events) => api("POST", `/v1/streams/${category}-1/events`, events.map((n) => ({ type: "Ticked", data: { n } })));
  await append([1, 2, 3]);
  const { key, id } = await api("POST", "/v1/keys", { name: "expiring", scopes: ["events:read"] });
  await signedIn(page, key, `/events?category=${category}&live=1`);
  await says(page, "Live");
  await append([4]);
  await says(page, "4 events");
  const { key: renewed } = await api("POST", `/v1/keys/${id}/rotate`, { overlap: 1 });
  await says(page, "no longer accepts this key: it has expired");
  await accessible(page);
  // More than the page of history that a new list would begin with.
  await append(Array.from({ length: 300 }, (_, i) => 5 + i));
  await page.type("input[type=password]", renewed);
  await page.keyboard.press("Enter");
  await says(page, "304 events");
  await append([305]);
  await says(page, "305 events");
  await context.close();
}

/** A command is tried, rejected and sent, and the stream grows. */
async function command() {
  const context = await browser.createBrowserContext();
  const page = await open(context, { quiet: true });
  await signedIn(page, given.key, "/streams/order-2");
  const price = async (text) => {
    const field = await page.waitForSelector("form.command input");
    await field.click({ count: 3 });
    await field.type(text);
  };
  const press = (text) => page.locator(`form.command button ::-p-text(${text})`).click();
  await price("-1");
  await press("Try without appending");
  await says(page, "It would be rejected (price).");
  await accessible(page);
  await price("12.5");
  await press("Try without");
  await says(page, "It would append 1 event.");
  await press("Send");
  await says(page, "Accepted: order-2 is at version 6.");
  await says(page, "6 of 6");
  await context.close();
}

const inEditor = (page, selector) => page.waitForFunction((selector) => document.querySelector(".editor")?.shadowRoot?.querySelector(selector), {}, selector);

/** Replaces the text of the editor. */
async function write(page, text) {
  await (await inEditor(page, ".cm-content")).click();
  await page.keyboard.down("Control");
  await page.keyboard.press("a");
  await page.keyboard.up("Control");
  await page.keyboard.sendCharacter(text);
}

/** A projection is written with an error at its place, completed, tried step by step, created, changed and rebuilt. */
async function definition() {
  const context = await browser.createBrowserContext();
  const page = await open(context, { quiet: true });
  const text = (value) => JSON.stringify({ name: "order-totals", source: { categories: ["order"] }, initial: { total: 0 }, on: { ItemAdded: `merge(doc, {"total": doc.total + ${value}})` } });
  const press = (text) => page.locator(`button ::-p-text(${text})`).click();
  await signedIn(page, given.key, "/projections");
  await page.locator("a ::-p-text(Create …)").click();
  await write(page, '{"name": "order-totals", "on": {}, "on": {}}');
  await says(page, 'duplicate field "on"');
  await write(page, text("dco"));
  const place = `Line 1, column ${text("dco").indexOf("dco") + 1}`;
  await says(page, place);
  await says(page, 'there is no variable "dco"');
  await accessible(page);
  await press(place);
  for (let i = 0; i < 3; i++) await page.keyboard.press("Delete");
  await page.keyboard.type("event.data.pri");
  await inEditor(page, ".cm-tooltip-autocomplete li[aria-selected]");
  await accessible(page);
  await page.keyboard.press("Enter");
  await page.waitForFunction((place) => !document.body.innerText.includes(place), {}, place);
  await page.keyboard.down("Control");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Control");
  await says(page, "1 of 20");
  await page.waitForFunction(() => document.activeElement.classList.contains("steps"));
  await page.keyboard.press("ArrowRight");
  await says(page, "2 of 20");
  await says(page, "/total");
  await accessible(page);
  expect(`a step's address is ${page.url()}`, page.url().includes("step=2"));
  await press("Create …");
  await says(page, "events will be folded.");
  await page.locator("dialog button ::-p-text(Create)").click();
  await page.waitForFunction(() => location.pathname === "/console/projections/order-totals");
  await press("Definition");
  await inEditor(page, ".cel-variable");
  await write(page, text("event.data.price * 2"));
  await says(page, "Not saved");
  // Somebody else saves another definition meanwhile. Nobody's is lost.
  const { definition } = await api("GET", "/v1/projections/order-totals");
  await api("PUT", "/v1/projections/order-totals", { ...definition, assert: ["doc.total < 1000000000"] });
  for (let state; state !== "caught-up" || !(await api("GET", "/v1/projections/order-totals")).definition.assert; ) ({ state } = await api("GET", "/v1/projections/order-totals/state"));
  await press("Save …");
  await press("Save and rebuild");
  await says(page, "The definition was changed since you began to edit it, last by");
  await accessible(page);
  await press("Show theirs, put mine aside");
  await says(page, "Your text is put aside");
  await press("Bring it back");
  await page.waitForFunction(() => document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText.includes("price * 2"));
  await press("Save …");
  await says(page, "Save and rebuild");
  await says(page, "on.ItemAdded");
  await accessible(page);
  await page.locator("dialog button ::-p-text(Save and rebuild)").click();
  await page.waitForFunction(() => location.pathname.startsWith("/console/rebuilds/order-totals/"));
  await says(page, "Live");
  // The difference of a rebuild that waits for approval, and documents, are saved with all digits.
  const { id } = await api("POST", "/v1/projections/order-totals/rebuilds", { approve: "manual", definition: { on: { ItemAdded: '{"n": 12345678901234567}' } } });
  await signedIn(page, given.key, `/rebuilds/order-totals/${id}`);
  await keepSaved(page);
  await press("Save all differences");
  await says(page, "Saved all differences");
  const difference = (await page.evaluate(() => window.saved)).trim().split("\n");
  expect(`the difference begins with ${difference[0]}`, difference.every((line) => JSON.parse(line).id && line.includes(':12345678901234567}')));
  await press("Approve");
  await says(page, "Live");
  await signedIn(page, given.key, "/projections/order-totals");
  await keepSaved(page);
  await press("Export …");
  await page.locator("dialog button ::-p-text(Export)").click();
  await page.waitForFunction(() => window.saved);
  const exported = await page.evaluate(() => window.saved);
  expect(`the export begins with ${exported.slice(0, 100)}`, exported.includes('"document":{"n":12345678901234567}}\n'));
  await context.close();
}

/**
 * What a newcomer does with the pages alone: finds out why an order's total is wrong, mends the projection, tries it,
 * rebuilds, rolls back, delivers a dead letter again, and rotates a webhook's secret.
 */
async function newcomer() {
  const context = await browser.createBrowserContext();
  const page = await open(context);
  const follow = (text) => page.locator(`a ::-p-text(${text})`).click();
  const press = (text) => page.locator(`button ::-p-text(${text})`).click();
  const confirm = (text) => page.locator(`dialog button ::-p-text(${text})`).click();
  const next = () => page.locator("button[aria-label='Next step']").click();
  const definition = (total) => ({ source: { categories: ["order"] }, initial: { total: 0 }, on: { ItemAdded: `merge(doc, {"total": ${total}})` } });
  await api("PUT", "/v1/projections/order-prices", definition("event.data.price"));
  await api("POST", "/v1/projections/order-prices/catch-up?timeout=30");
  await signedIn(page, given.key);

  await follow("Projections");
  await follow("order-prices");
  await follow("order-0");
  await says(page, '"total": 4.5');
  await accessible(page);
  await follow("How it was folded");
  await says(page, "1 of 5");
  await next();
  await next();
  await says(page, '"price": 2.5');
  await says(page, '"total": 1.5'); // and after the event 2.5, which is not the sum
  await write(page, JSON.stringify(definition("doc.total + event.data.price")));
  await says(page, "The definition has changed since");
  await page.locator("form[aria-label='Try it'] button").click();
  await page.waitForFunction(() => !document.body.innerText.includes("has changed since"));
  for (let i = 0; i < 4; i++) await next();
  await says(page, '"total": 7.5'); // before the last event
  await press("Save …");
  await confirm("Save and rebuild");
  await says(page, "Can be rolled back until");
  await follow("the projection");
  await follow("order-0");
  await says(page, '"total": 12');
  await follow("Rebuilds");
  await page.locator("::-p-xpath(//tr[contains(., 'order-prices')]//a[time])").click();
  await press("Roll back");
  const before = page.url();
  await page.locator("::-p-aria(Type order-prices to confirm[role='textbox'])").fill("order-prices");
  await confirm("Roll back");
  await page.waitForFunction((before) => location.href !== before, {}, before); // the page of the rebuild that rolls back
  await says(page, "Live");
  await follow("the projection");
  await follow("order-0");
  await says(page, '"total": 4.5');

  await follow("Home");
  await follow("Review and replay");
  await says(page, "the address is unknown");
  await page.locator("td button ::-p-text(Replay)").click();
  await says(page, "The event is delivered again");

  await follow("Delivery");
  await follow("crm");
  await press("Rotate");
  await confirm("Rotate");
  await says(page, "It is shown only this once");
  expect("the new secret is shown", await page.$eval("dialog", (dialog) => dialog.innerText.includes("whsec_")));
  await confirm("Close");
  await context.close();
}

/** Documents are filtered by a condition that the page writes, and exported with the chosen columns. */
async function documents() {
  const context = await browser.createBrowserContext();
  const page = await open(context);
  const press = (text) => page.locator(`button ::-p-text(${text})`).click();
  await signedIn(page, given.key, "/projections/orders");
  await keepSaved(page);
  await page.locator("summary ::-p-text(Add a condition)").click();
  await page.locator("::-p-aria([name='Field'][role='combobox'])").fill("items");
  await page.locator("::-p-aria([name='Condition'][role='combobox'])").fill(">=");
  await page.locator("::-p-aria([name='Value'][role='textbox'])").fill("4");
  await page.locator("form[aria-label='Add a condition'] button").click();
  await page.waitForFunction(() => new URLSearchParams(location.search).get("filter") === "doc.items >= 4");
  await page.locator("summary ::-p-text(Choose columns)").click();
  await page.locator("label ::-p-text(customer)").click();
  await page.waitForFunction(() => new URLSearchParams(location.search).get("columns") === "items");
  await accessible(page);
  await press("Export …");
  await says(page, "On the command line, without limits");
  await accessible(page);
  await page.locator("dialog button ::-p-text(Export)").click();
  await says(page, "Exported 200 documents");
  const lines = (await page.evaluate(() => window.saved)).trim().split("\n");
  expect(`the export has ${lines.length} lines, such as ${lines[0]}`, lines.length === 200 && JSON.parse(lines[0]).document.items === 4);
  await press("Export …");
  await page.locator("::-p-aria([name='Format'][role='combobox'])").fill("csv");
  await page.locator("dialog button ::-p-text(Export)").click();
  await page.waitForFunction(() => !document.querySelector("dialog"));
  const table = await page.evaluate(() => window.saved);
  expect(`the table begins with ${table.slice(0, 60)}`, /^id,items,position\r\norder-0,4,\d+\r\n/.test(table));
  await context.close();
}

/** More events than the page keeps arrive while it follows the log: the rows in the document stay few, and none is lost. */
async function liveTail() {
  const context = await browser.createBrowserContext();
  const page = await open(context);
  await signedIn(page, given.key, "/events?category=load&live=1");
  await says(page, "Live");
  let last;
  let most = 0;
  for (let batch = 0; batch < 12; batch++) {
    const events = Array.from({ length: 500 }, (_, i) => ({ type: "Ticked", data: { n: batch * 500 + i } }));
    ({ position: last } = await api("POST", "/v1/streams/load-1/events", events));
    most = Math.max(most, await page.$$eval(".virtual li", (rows) => rows.length));
  }
  await says(page, "the newest 5,000 events");
  await says(page, last.toLocaleString("en"));
  most = Math.max(most, await page.$$eval(".virtual li", (rows) => rows.length));
  expect(`the live tail has ${most} rows in the document`, most <= 80);
  await context.close();
}

/** The start page, each kind of page of the documentation, and its search. */
async function documentation(width, scheme) {
  const context = await browser.createBrowserContext();
  const page = await open(context, { width, scheme });
  for (const path of ["/", "/docs", "/docs/tutorial", "/docs/architecture", "/docs/reference/configuration", "/docs/errors"]) {
    await page.goto(given.url + path);
    await accessible(page);
  }
  await page.goto(`${given.url}/docs/guides/console-tour`);
  await accessible(page);
  await page.evaluate(() => scrollTo(0, 2000));
  expect("the list of pages leaves the screen", width < 821 || await page.$eval(".sections", (list) => list.getBoundingClientRect().top === 56));
  await page.keyboard.press("/");
  await page.keyboard.type("dead letters replay");
  await page.waitForSelector(".results a");
  await accessible(page);
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  expect(`the search leads to ${page.url()}`, await page.evaluate(() => /dead letter/i.test(document.querySelector("main").innerText)));
  await page.goto(`${given.url}/docs/api`); // Swagger UI, in which axe finds something
  await says(page, "/v1/streams/{streamId}/events");
  expect(`${page.url()} is wider than the screen`, await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await context.close();
}

try {
  await Promise.all([everyPage(1440, "light", true), everyPage(390, "dark", false)]);
  const rest = async () => {
    await Promise.all([signingIn(), signingInWithProvider(), keyboardAndScopes(), operator(), egress(), auditLog(), expiringTail(), command(), definition(), newcomer(), documents(), liveTail()]);
    await Promise.all([documentation(1440, "light"), documentation(420, "dark")]);
  };
  await Promise.all([erasing(), rest()]); // the service takes a minute to erase
} catch (error) {
  problems.push(error.stack);
} finally {
  await browser.close();
}
console.log(JSON.stringify(problems));
