// What a client sees of a log, with nothing but the interfaces of EventSource and WebSocket: it runs with those of Node's packages and
// with a browser's own. The connections go through a proxy that cuts them, so an EventSource has to come back by itself.

// served follows by server-sent events until it has seen so many.
export function served({ EventSource, url, ticket, count }) {
  return new Promise((resolve, reject) => {
    const seen = { positions: [], caughtUp: 0, breaks: 0 };
    const source = new EventSource(`${url}/v1/subscribe/$all?from=start&ticket=${ticket}`);
    source.addEventListener("event", (message) => {
      const event = JSON.parse(message.data);
      if (message.lastEventId !== String(event.position)) {
        reject(new Error(`the id of position ${event.position} is ${message.lastEventId}`));
      }
      seen.positions.push(event.position);
      if (seen.positions.length >= count) {
        source.close();
        resolve(seen);
      }
    });
    source.addEventListener("caught-up", () => seen.caughtUp++);
    source.addEventListener("error", () => {
      seen.breaks++;
      if (source.readyState === 2) {
        reject(new Error(`the EventSource gave up after ${seen.positions.length} events`));
      }
    });
  });
}

// socket follows over WebSockets until it has seen so many, and opens another where one breaks.
export function socket({ WebSocket, url, ticket, count }) {
  const seen = { positions: [], caughtUp: 0, breaks: 0 };
  return new Promise((resolve, reject) => {
    const open = () => {
      const from = (seen.positions.at(-1) ?? 0) + 1;
      const ws = new WebSocket(`${url.replace(/^http/, "ws")}/v1/subscribe/$all?from=${from}&ticket=${ticket}`);
      let ended = false;
      ws.addEventListener("message", (message) => {
        const frame = JSON.parse(message.data);
        if (frame.caughtUp) seen.caughtUp++;
        if (!frame.event || ended) return;
        seen.positions.push(frame.event.position);
        if (seen.positions.length >= count) {
          ended = true;
          ws.close();
          resolve(seen);
        }
      });
      ws.addEventListener("error", () => {});
      ws.addEventListener("close", () => {
        if (ended) return;
        if (++seen.breaks > 100) reject(new Error(`it breaks off again and again, after ${seen.positions.length} events`));
        else open();
      });
    };
    open();
  });
}

// consume is a consumer of a group over the gateway: it publishes, subscribes, acknowledges all, and waits until it has seen so many.
export function consume({ WebSocket, url, ticket, group, count }) {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(`${url.replace(/^http/, "ws")}/v1/ws?ticket=${ticket}`);
    const seen = { events: [], acknowledged: 0 };
    const waiting = new Map();
    let last = 0;
    const ask = (message, answered) => {
      const id = String(++last);
      waiting.set(id, answered);
      ws.send(JSON.stringify({ ...message, id }));
    };
    ws.addEventListener("open", () => {
      for (let n = 0; n < count; n++) {
        ask({ op: "PUBLISH", message: { topic: "greeting", key: String(n % 3), type: "Greeted", payload: { n } } }, () => {});
      }
      ask({ op: "SUBSCRIBE", subscription: "mine", group }, () => {});
    });
    ws.addEventListener("message", (message) => {
      const got = JSON.parse(message.data);
      switch (got.op) {
        case "OK":
          waiting.get(got.id)(got);
          break;
        case "EVENT":
          seen.events.push({ stream: got.event.stream, version: got.event.version, n: got.event.data.n, attempt: got.attempt });
          ask({ op: "ACK", subscription: "mine", ids: [{ id: got.event.id, attempt: got.attempt }] }, (ok) => {
            if (ok.results[0].outcome === "done") seen.acknowledged++;
            if (seen.acknowledged >= count) {
              ws.close();
              resolve(seen);
            }
          });
          break;
        default:
          reject(new Error(`unexpected: ${message.data}`));
      }
    });
    ws.addEventListener("close", (event) => reject(new Error(`closed: ${event.code} ${event.reason}`)));
  });
}

// all does the three at the same time, and tells of each what it saw or what went wrong.
export async function all(given) {
  const told = {};
  await Promise.all(Object.entries({ served, socket, consume }).map(async ([name, run]) => {
    try {
      told[name] = await run({ ...given, ...given[name] });
    } catch (error) {
      told[name] = { error: String(error) };
    }
  }));
  return told;
}
