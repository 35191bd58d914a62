// Tests of the installed package against a service: MANIFOLD_URL and MANIFOLD_KEY name a tenant of it, and a POST to
// MANIFOLD_RESTART restarts it.
import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import test from "node:test";
import { Client, ConnectionError, ProblemError, responseOf } from "@manifold-es/client";

const { MANIFOLD_URL: url, MANIFOLD_KEY: key, MANIFOLD_RESTART: restart } = process.env;
const client = new Client({ url, key });
const quick = { minDelay: 10, maxDelay: 200, attempts: 100 };

process.on("unhandledRejection", (error) => {
  console.error("unhandled rejection", error);
  process.exit(3);
});

/** Starts a proxy before the service. `cut` decides for each connection after how many bytes of answers it is cut. */
async function proxy(t, cut) {
  const { hostname, port } = new URL(url);
  const open = new Set();
  let connections = 0;
  const server = net.createServer((socket) => {
    const behind = net.connect(Number(port), hostname);
    let left = cut(connections++);
    const end = () => {
      socket.destroy();
      behind.destroy();
      open.delete(socket);
    };
    for (const side of [socket, behind]) side.on("error", end).on("close", end);
    socket.on("data", (chunk) => {
      open.add(socket); // fetch also opens connections that it does not use yet
      behind.write(chunk);
    });
    behind.on("data", (chunk) => {
      left -= chunk.length;
      if (left < 0) end();
      else socket.write(chunk);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${server.address().port}`, open, connections: () => connections };
}

const numbered = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => ({ type: "Counted", data: { n: from + i } }));

test("problems are typed", async () => {
  await client.putSchema("Measured", { schema: { type: "object", required: ["value"], properties: { value: { type: "number" } } } });
  await client.putSchemaRule("meter", { mode: "enforce" });
  const violation = await client.appendToStream("meter-1", [{ type: "Measured", data: { value: "x" } }]).catch((error) => error);
  assert.ok(violation instanceof ProblemError);
  assert.equal(violation.code, "schema-violation");
  assert.equal(violation.status, 422);
  assert.equal(violation.violations[0].pointer, "/value");
  assert.ok(violation.requestId);
  const bad = await client.appendToStream("meter-1", [{ type: "a b", data: {} }]).catch((error) => error);
  assert.deepEqual([bad.code, bad.where], ["invalid-request", "events[0].type"]);
  const unknown = await new Client({ url, key: "mfk_wrong" }).listStreams().catch((error) => error);
  assert.equal(unknown.code, "unauthenticated");
  await assert.rejects(client.getProjection("missing"), { name: "ProblemError", code: "not-found" });
});

test("an append whose answer is lost happens once", async (t) => {
  const cutting = await proxy(t, (n) => (n < 3 ? 0 : Infinity));
  const flaky = new Client({ url: cutting.url, key: async () => key, retry: quick });
  const appended = await flaky.appendToStream("retry-1", numbered(1, 3), { expectedVersion: "none" });
  assert.equal(appended.version, 3);
  assert.equal(cutting.connections(), 4);
  assert.equal(responseOf(appended).status, 200); // the first request appended the events
  const published = await flaky.publish({ topic: "retry", key: "2", payload: {} });
  assert.equal((await client.getStreamMetadata("retry-2")).version, published.events[0].version);
});

test("a request that may take effect twice is not repeated after a lost answer", async (t) => {
  const cutting = await proxy(t, () => 0);
  const flaky = new Client({ url: cutting.url, key, retry: quick });
  await assert.rejects(flaky.takeSnapshot("retry-1"), ConnectionError);
  assert.equal(cutting.connections(), 1);
  await assert.rejects(flaky.listStreams({ retry: { attempts: 3 } }), ConnectionError);
  assert.equal(cutting.connections(), 4);
  await assert.rejects(flaky.listStreams({ retry: false }), ConnectionError);
  assert.equal(cutting.connections(), 5);
});

test("a pause that the service asks for is kept", async () => {
  const times = [];
  const limited = new Client({
    url,
    key,
    retry: quick,
    fetch: (...request) => {
      times.push(performance.now());
      if (times.length > 1) return fetch(...request);
      const problem = { type: "/docs/errors#too-many-requests", title: "Too many requests", status: 429, code: "too-many-requests" };
      return Promise.resolve(new Response(JSON.stringify(problem), { status: 429, headers: { "Retry-After": "1" } }));
    },
  });
  await limited.takeSnapshot("retry-1").catch((error) => assert.equal(error.name, "ProblemError")); // it has no aggregate
  assert.ok(times[1] - times[0] >= 990, `it waited ${times[1] - times[0]} ms`);
});

test("a signal ends everything", async () => {
  const reason = new Error("enough");
  await assert.rejects(client.listStreams({ signal: AbortSignal.abort(reason) }), reason);
  await client.putSubscription("idle", { source: { categories: ["idle"] } });
  const controller = new AbortController();
  const receiving = client.receive("idle", { wait: 20 }, { signal: controller.signal });
  setTimeout(() => controller.abort(reason), 50);
  await assert.rejects(receiving, reason);
  const down = new Client({ url: "http://127.0.0.1:9", key });
  await assert.rejects(down.listStreams({ signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
  for (const transport of ["sse", "websocket"]) {
    const following = new AbortController();
    await assert.rejects(async () => {
      for await (const _ of client.follow({ category: "idle", transport, signal: following.signal, onCaughtUp: () => following.abort(reason) }));
    }, reason);
  }
});

test("lists, events, and queries go over all pages", async () => {
  for (let i = 0; i < 3; i++) await client.appendToStream("page-1", numbered(i * 1000 + 1, i * 1000 + 1000));
  await client.append({ streams: [{ stream: "tagged-1", events: [{ type: "Tagged", data: {}, tags: ["course:c1"] }] }] });
  const read = async (options) => {
    let count = 0;
    for await (const event of client.events(options)) {
      assert.equal(event.data.n, ++count);
    }
    return count;
  };
  assert.equal(await read({ stream: "page-1" }), 3000);
  assert.equal(await read({ category: "page", types: ["Counted"] }), 3000);
  const { events, position } = await client.query({ items: [{ types: ["Counted"] }] });
  assert.ok(events.length >= 3000);
  const head = await client.query({ items: [{ tags: ["course:c1"] }] });
  assert.equal(head.events.length, 1);
  const condition = { failIfEventsMatch: { items: [{ tags: ["course:c1"] }] }, after: head.events[0].position - 1 };
  const failed = await client.append({ streams: [{ stream: "tagged-1", events: [{ type: "Tagged", data: {} }] }], condition }).catch((error) => error);
  assert.equal(failed.code, "condition-failed");
  assert.equal(failed.failedCondition.events[0].stream, "tagged-1");
  assert.ok(position >= 3000);
  let names = 0;
  for await (const page of client.pages(client.listStreams({ pageSize: 1 }))) names += page.streams.length;
  assert.ok(names >= 3);
});

for (const transport of ["sse", "websocket"]) {
  test(`a follower over ${transport} resumes after the last event`, async (t) => {
    const stream = `${transport}-1`;
    for (let i = 0; i < 4; i++) await client.appendToStream(stream, numbered(i * 500 + 1, i * 500 + 500));
    const cutting = await proxy(t, (n) => [40_000, 90_000, 0, 0][n] ?? Infinity);
    let reconnects = 0;
    const follower = new Client({ url: cutting.url, key, retry: quick }).follow({ stream, transport, onReconnect: () => reconnects++ });
    let n = 0;
    for await (const event of follower) {
      assert.equal(event.data.n, ++n);
      assert.equal(follower.position, event.position);
      if (n === 2000) break;
    }
    assert.equal(reconnects, 4);
    while (cutting.open.size > 0) await new Promise((resolve) => setTimeout(resolve, 5)); // leaving the loop closes it
    await client.appendToStream(stream, numbered(2001, 2001));
    for await (const event of follower) {
      assert.equal(event.data.n, 2001); // the follower continues
      setImmediate(() => follower.close());
    }
  });

  test(`a follower over ${transport} gets the reason of a refusal`, async () => {
    const follow = async (options, from = client) => {
      for await (const _ of from.follow({ transport, ...options }));
    };
    await assert.rejects(follow({ filter: "event.dat == 1" }), { name: "ProblemError", code: "invalid-request" });
    await assert.rejects(follow({}, new Client({ url, key: "mfk_wrong" })), { name: "ProblemError", code: "unauthenticated" });
  });

  test(`a follower over ${transport} takes tickets`, async () => {
    let tickets = 0;
    const ticket = async () => (tickets++, (await client.createTicket()).ticket);
    for await (const event of new Client({ url, ticket }).follow({ stream: "retry-1", transport })) {
      if (event.version === 3) break;
    }
    assert.equal(tickets, 1);
  });
}

test("a large event arrives over a WebSocket", async () => {
  const text = "ü🙂".repeat(100_000);
  await client.appendToStream("large-1", [{ type: "Large", data: { text } }]);
  for await (const event of client.follow({ stream: "large-1", transport: "websocket" })) {
    assert.equal(event.data.text, text);
    break;
  }
});

test("a WebSocket that a slow consumer does not read is closed, and opened again", async (t) => {
  const text = "x".repeat(900_000);
  for (let n = 1; n <= 14; n++) await client.appendToStream("heavy-1", [{ type: "Heavy", data: { n, text } }]);
  let reconnects = 0;
  let n = 0;
  const passing = await proxy(t, () => Infinity);
  const patient = new Client({ url: passing.url, key, retry: quick });
  for await (const event of patient.follow({ stream: "heavy-1", transport: "websocket", onReconnect: () => reconnects++ })) {
    assert.equal(event.data.n, ++n);
    // Meanwhile the queue fills up, which closes the connection.
    while (n === 1 && passing.open.size > 0) await new Promise((resolve) => setTimeout(resolve, 5));
    if (n === 14) break;
  }
  assert.equal(reconnects, 1);
});

test("a consumer handles every event, and stops gracefully", async () => {
  await client.putSubscription("work", { source: { categories: ["job"] }, ordering: "stream", ackTimeout: 10, backoff: { min: 0.001, max: 0.001 }, maxAttempts: 3 });
  for (let i = 0; i < 10; i++) await client.appendToStream(`job-${i}`, numbered(1, 10));
  const versions = new Map();
  let running = 0;
  let most = 0;
  const errors = [];
  const handled = new Map();
  const circular = {};
  circular.self = circular;
  const values = [undefined, null, true, { rowCount: 1 }, 1n, circular, { action: "ack" }]; // each acknowledges the event
  const all = new Promise((resolve) => {
    const consumer = client.consume("work", async (event, { attempt, signal }) => {
      most = Math.max(most, ++running);
      try {
        if (event.stream === "job-1" && event.version === 3 && attempt < 3) throw new Error("not yet");
        if (event.stream === "job-2" && event.version === 5) return { action: "park", reason: "\0" + "ü".repeat(2000), cause: 1n };
        if (event.stream === "job-3" && event.version === 1) await new Promise((resolve) => setTimeout(resolve, 11_000)); // longer than its lease
        assert.ok(!signal.aborted);
        assert.equal((versions.get(event.stream) ?? 0) < event.version, true);
        versions.set(event.stream, event.version);
        handled.set(event.id, (handled.get(event.id) ?? 0) + 1);
        return values[event.version % values.length];
      } finally {
        running--;
        if (handled.size === 99) resolve(consumer);
      }
    }, { concurrency: 4, onError: (error) => errors.push(String(error.cause ?? error)) });
  });
  const consumer = await all;
  await consumer.stop();
  assert.ok(most <= 4 && most > 1, `${most} at once`);
  assert.ok([...handled.values()].every((times) => times === 1));
  assert.deepEqual(errors, ["Error: not yet", "Error: not yet"]);
  assert.equal((await client.listDeadLetters("work")).deadLetters.length, 1);
  const { progress } = await client.getSubscription("work");
  assert.deepEqual([progress[0].inFlight, progress[0].retrying], [0, 0]);
});

test("a consumer acknowledges in its next receive, and separately while it waits or after a failure", async () => {
  await client.putSubscription("next", { source: { categories: ["next"] } });
  await client.appendToStream("next-1", numbered(1, 3));
  const calls = [];
  let failing = true;
  const watched = new Client({ url, key, retry: quick, fetch: (input, init) => {
    const call = new URL(input).pathname.split("/").pop();
    const { ack, ids } = JSON.parse(init.body);
    calls.push(`${call} ${(ack ?? ids ?? []).length}`);
    if (call !== "receive" || ack === undefined || !failing) return fetch(input, init);
    failing = false;
    return Promise.reject(new TypeError("the connection broke"));
  } });
  const consumer = watched.consume("next", async ({ version }) => {
    if (version === 3) await client.appendToStream("next-1", numbered(4, 4));
    if (version < 4) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
    void consumer.stop();
  }, { concurrency: 3 });
  await consumer.done;
  const [first, second, third] = calls; // 2 if the append takes longer than a millisecond, as it mostly does
  assert.match(`${first}, ${second}, ${third}`, /^receive 0, receive ([23]), ack \1$/, calls.join(", "));
  assert.equal(calls.at(-1), "ack 1", calls.join(", "));
  const { progress } = await client.getSubscription("next");
  assert.equal(progress[0].inFlight, 0);
});

test("the lease of a handler that has returned is not renewed", async () => {
  await client.putSubscription("renewed", { source: { categories: ["renewed"] }, ackTimeout: 2 });
  await client.appendToStream("renewed-1", numbered(1, 1));
  const errors = [];
  let second;
  const begun = new Promise((resolve) => (second = resolve));
  const consumer = client.consume("renewed", async (event) => {
    if (event.stream === "renewed-1") {
      setTimeout(() => client.appendToStream("renewed-2", numbered(1, 1)), 200);
      await begun; // and returns before half of its lease is over
    } else {
      second();
      await new Promise((resolve) => setTimeout(resolve, 1200));
      void consumer.stop();
    }
  }, { onError: (error) => errors.push(String(error)) });
  await consumer.done;
  assert.deepEqual(errors, []);
});

test("the progress of a rebuild continues after its connection has ended", async () => {
  const frames = ["event: progress\ndata: 1\n\n", "event: progress\ndata: 2\n\n", "event: ended\ndata: 3\n\n"];
  const ending = new Client({ url, retry: quick, fetch: async () => new Response(frames.shift()) });
  const seen = [];
  for await (const progress of ending.rebuildProgress("totals", "1")) seen.push(progress);
  assert.deepEqual(seen, [1, 2, 3]);
});

test("an import takes a stream", async () => {
  const echoing = new Client({ url, fetch: async (address, init) => new Response(await new Request(address, init).text()) });
  const answer = await echoing.importEvents(new Blob(["{}\n"]).stream());
  assert.equal(await answer.text(), "{}\n");
});

test("stopping waits for running handlers, and gives up those that take too long", async () => {
  await client.putSubscription("slow", { source: { categories: ["slow"] } });
  await client.appendToStream("slow-1", numbered(1, 1));
  let begun;
  const begins = new Promise((resolve) => (begun = resolve));
  let release;
  const released = new Promise((resolve) => (release = resolve));
  const patient = client.consume("slow", async () => {
    begun();
    await released;
  });
  await begins;
  const stopping = patient.stop();
  await client.appendToStream("slow-2", numbered(2, 2)); // not received any more
  release();
  await stopping;
  assert.equal((await client.getSubscription("slow")).progress[0].checkpoint > 0, true);

  const aborted = new Promise((resolve) => {
    const hasty = client.consume("slow", async (event, { signal }) => {
      assert.equal(event.stream, "slow-2");
      void hasty.stop({ timeout: 10 });
      await once(signal, "abort");
      resolve(hasty);
    });
  });
  await (await aborted).done;
  assert.equal((await client.receive("slow", { wait: 5 })).deliveries[0].attempt, 2);
});

test("a group with partitions gets a member", async () => {
  await client.putSubscription("parts", { source: { categories: ["part"] }, partitions: 4 });
  for (let i = 0; i < 8; i++) await client.appendToStream(`part-${i}`, numbered(1, 1));
  const partitions = new Set();
  await new Promise((resolve, reject) => {
    let left = 8;
    const consumer = client.consume("parts", (event, { partition }) => {
      partitions.add(partition);
      if (--left === 0) void consumer.stop().then(resolve);
    }, { member: "tests" });
    consumer.done.catch(reject);
  });
  assert.ok(partitions.size > 1);
  assert.equal((await client.listSubscriptionMembers("parts")).members.length, 0);
});

test("a consumer that the service refuses ends", async () => {
  const errors = [];
  const consumer = client.consume("missing", () => {}, { onError: (error) => errors.push(error) });
  await assert.rejects(consumer.done, { name: "ProblemError", code: "not-found" });
  assert.equal(errors.length, 1);
});

test("followers and consumers outlive a restart of the service", async () => {
  await client.putSubscription("outlive", { source: { categories: ["outlive"] } });
  const patient = new Client({ url, key, retry: quick });
  const seen = { sse: [], websocket: [], group: [] };
  const done = [];
  const appended = 20;
  for (const transport of ["sse", "websocket"]) {
    done.push((async () => {
      for await (const event of patient.follow({ category: "outlive", transport })) {
        if (seen[transport].push(event.data.n) === appended) return;
      }
    })());
  }
  let all;
  const handled = new Promise((resolve) => (all = resolve));
  const consumer = patient.consume("outlive", (event) => {
    if (seen.group.push(event.data.n) === appended) all();
  });
  await patient.appendToStream("outlive-1", numbered(1, 10));
  const restarted = fetch(restart, { method: "POST" });
  for (let n = 11; n <= appended; n++) await patient.appendToStream("outlive-1", numbered(n, n), { expectedVersion: n - 1 });
  assert.equal((await restarted).status, 200);
  await Promise.all([...done, handled]);
  await consumer.stop();
  const want = numbered(1, appended).map(({ data }) => data.n);
  assert.deepEqual(seen.sse, want);
  assert.deepEqual(seen.websocket, want);
  assert.deepEqual([...new Set(seen.group)].sort((a, b) => a - b), want);
});
