import { MessageQueue } from "./queue.js";
import { connectInNode, nodeHTTP } from "./node-websocket.js";

/** Where a WebSocket leads, with a credential for it. */
export interface SocketTarget {
  /** With the scheme http or https. */
  url: URL;
  /** Sent with the handshake, where that is possible. */
  headers: () => Promise<Record<string, string>>;
  /** A ticket, for where headers cannot be sent. */
  ticket: () => Promise<string | undefined>;
  /** Finds out why a handshake failed: a browser does not say. It rejects if the service refuses the request. */
  explain: (url: URL) => Promise<void>;
}

/**
 * Opens a WebSocket, and iterates over its text messages until it ends. It ends without an error if the service closes it.
 * Node.js can send a key with the handshake, and learns why one is refused. Browsers need a ticket.
 */
export async function* socketMessages(target: SocketTarget, signal: AbortSignal): AsyncGenerator<string, void, undefined> {
  const http = nodeHTTP(target.url.protocol);
  if (http) {
    yield* (await connectInNode(http, target.url, await target.headers(), signal)).read();
    return;
  }
  const url = new URL(target.url);
  const ticket = await target.ticket();
  if (ticket !== undefined) url.searchParams.set("ticket", ticket);
  const opened = { yes: false };
  const queue = connect(url, opened, signal);
  try {
    yield* queue.read();
  } catch (error) {
    if (!opened.yes && !signal.aborted) await target.explain(url);
    throw error;
  }
}

function connect(address: URL, opened: { yes: boolean }, signal: AbortSignal): MessageQueue {
  signal.throwIfAborted();
  const url = new URL(address);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(url);
  const queue = new MessageQueue(() => {
    signal.removeEventListener("abort", abort);
    socket.close();
  });
  const abort = () => {
    queue.end(signal.reason);
    socket.close();
  };
  signal.addEventListener("abort", abort, { once: true });
  socket.onopen = () => (opened.yes = true);
  socket.onmessage = (message) => queue.push(String(message.data));
  socket.onclose = (event) =>
    queue.end(event.wasClean ? undefined : new Error(`the WebSocket was closed with ${event.code}${event.reason && ": " + event.reason}`));
  return queue;
}
