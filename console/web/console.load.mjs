// Measures the console in a browser, for systemtest/console_load_test.go: the first paint, the memory while 2,000 events
// arrive a second, and what two tabs show after the service was killed. It prints {problems, figures}.
import { setTimeout as sleep } from "node:timers/promises";
import { api, browser, expect, given, open, problems, says, signedIn } from "./console.browser.mjs";

const figures = {};
const batch = 100;
const everyMs = 50;
const settled = 15_000; // by then the page keeps as many events as it ever does
const watched = 20_000;

/** The time to the first paint with nothing cached, in ms: the median of seven. */
async function firstPaint() {
  const times = [];
  for (let i = 0; i < 7; i++) {
    const context = await browser.createBrowserContext();
    const page = await open(context);
    await page.goto(`${given.url}/console`);
    const painted = await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
    times.push(await painted.jsonValue());
    await context.close();
  }
  return times.sort((a, b) => a - b)[3];
}

/** Appends events at the full rate until it is stopped. Whatever fails is sent again with the same ids. */
function append() {
  const begin = Date.now();
  let stopped = false;
  let appended = 0;
  let position = 0;
  const done = (async () => {
    for (let i = 0; !stopped; i++) {
      await sleep(begin + i * everyMs - Date.now());
      const events = Array.from({ length: batch }, (_, n) => ({ id: crypto.randomUUID(), type: "Ticked", data: { n: i * batch + n, text: "of some length, as events are" } }));
      for (;;) {
        try {
          ({ position } = await api("POST", "/v1/streams/load-1/events", events));
          break;
        } catch (error) {
          if (stopped) throw error;
          await sleep(100);
        }
      }
      appended += batch;
    }
    return { appended, position };
  })();
  return { rate: () => (appended * 1000) / (Date.now() - begin), stop: () => ((stopped = true), done) };
}

/** The bytes of the script's objects, and the nodes of the document. */
async function memory(page) {
  const session = await page.createCDPSession();
  await session.send("HeapProfiler.collectGarbage");
  await session.detach();
  const { JSHeapUsedSize, Nodes } = await page.metrics();
  return { bytes: JSHeapUsedSize, nodes: Nodes };
}

/** The times between frames while the list scrolls, in ms: the 95th percentile. A page has frames only in front. */
const frames = (page) => page.bringToFront().then(() => page.evaluate(async () => {
  const list = document.querySelector(".virtual");
  const times = [];
  for (let i = 0, last = performance.now(); i < 120; i++) {
    list.scrollTop += 200;
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - last);
    last = performance.now();
  }
  list.scrollTop = 0;
  return times.sort((a, b) => a - b)[Math.floor(times.length * 0.95)];
}));

/** The positions of all events that a page keeps, newest first. */
const positions = (page) => page.bringToFront().then(() => page.evaluate(async () => {
  const list = document.querySelector(".virtual");
  const found = new Set();
  for (list.scrollTop = 0; ; list.scrollTop += list.clientHeight) {
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    for (const row of list.querySelectorAll(".position")) found.add(Number(row.textContent.replaceAll(",", "")));
    if (list.scrollTop + list.clientHeight >= list.scrollHeight - 1) return [...found];
  }
}));

try {
  figures.firstPaint = await firstPaint();
  const context = await browser.createBrowserContext();
  const first = await open(context, { quiet: true }); // requests fail while the service is away
  await signedIn(first, given.key, "/events?category=load&live=1");
  await says(first, "Live");
  const second = await open(context, { quiet: true });
  await second.goto(`${given.url}/console/events?live=1`);
  await says(second, "Live");
  const tabs = [first, second];

  const appending = append();
  await sleep(settled);
  const before = await Promise.all(tabs.map(memory));
  figures.frames = await frames(first);
  await sleep(watched);
  const after = await Promise.all(tabs.map(memory));
  figures.growth = Math.max(...after.map(({ bytes }, i) => bytes - before[i].bytes));
  figures.nodes = Math.max(...after.map(({ nodes }, i) => nodes - before[i].nodes));
  figures.heap = Math.max(...after.map(({ bytes }) => bytes));
  figures.rate = appending.rate();

  await fetch(given.restart, { method: "POST" }); // answered when the service runs again
  await sleep(3000);
  const { appended, position } = await appending.stop();
  for (const page of tabs) {
    await says(page, position.toLocaleString("en"));
    await says(page, "Live");
    const kept = await positions(page);
    expect(`${page.url()} shows ${kept.length} events from ${Math.min(...kept)} to ${Math.max(...kept)}, after ${appended} up to ${position}`,
      kept.length === 5000 && Math.max(...kept) === position && Math.min(...kept) === position - 4999);
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify({ problems, figures }));
