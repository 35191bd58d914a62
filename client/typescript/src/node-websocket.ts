// A client of WebSockets for Node.js, by RFC 6455, for what a follower needs: text messages from the service. Node.js has
// none before release 22, and that one cannot send a key or say why a handshake was refused.
import { problemOfText } from "./errors.js";
import { MessageQueue } from "./queue.js";

// The parts of Node's modules that are used, so that the package needs no types of Node.js.
interface Socket {
  write(data: Uint8Array): void;
  end(data?: Uint8Array): void;
  destroy(): void;
  destroySoon(): void; // after what was written
  setNoDelay(): void;
  on(event: "data", listener: (chunk: Uint8Array) => void): void;
  on(event: "error", listener: (error: Error) => void): void;
  on(event: "close", listener: () => void): void;
}
interface Answer {
  statusCode: number;
  headers: Record<string, string | undefined>;
  on(event: "data", listener: (chunk: Uint8Array) => void): void;
  on(event: "error" | "end" | "aborted", listener: () => void): void;
}
interface Request {
  on(event: "response", listener: (answer: Answer) => void): void;
  on(event: "upgrade", listener: (answer: Answer, socket: Socket, head: Uint8Array) => void): void;
  on(event: "error", listener: (error: Error) => void): void;
  end(): void;
  destroy(): void;
}
interface NodeHTTP {
  request(url: URL, options: { method: string; headers: Record<string, string>; agent: false }): Request;
}

/** Returns Node's module for a scheme, and undefined in a browser. */
export function nodeHTTP(scheme: string): NodeHTTP | undefined {
  const { process } = globalThis as { process?: { getBuiltinModule?: (name: string) => unknown } };
  return process?.getBuiltinModule?.(scheme === "https:" ? "node:https" : "node:http") as NodeHTTP | undefined;
}

/** The largest message that is accepted, in bytes. An event has at most a few MiB. */
const mostBytes = 64 << 20;

const opcode = { continuation: 0, text: 1, close: 8, ping: 9, pong: 10 } as const;

/** Opens a WebSocket. It rejects with the service's problem if that refuses the handshake. */
export function connectInNode(http: NodeHTTP, url: URL, headers: Record<string, string>, signal: AbortSignal): Promise<MessageQueue> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const key = btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(16))));
    const request = http.request(url, {
      method: "GET",
      agent: false,
      headers: { ...headers, Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key },
    });
    const abort = () => {
      request.destroy();
      reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
    const settle = () => signal.removeEventListener("abort", abort);
    request.on("error", (error) => {
      settle();
      reject(error);
    });
    request.on("response", (answer) => {
      const chunks: Uint8Array[] = [];
      const refuse = () => {
        settle();
        reject(problemOfText(answer.statusCode, new TextDecoder().decode(concat(chunks))));
      };
      answer.on("data", (chunk) => chunks.push(chunk));
      answer.on("end", refuse);
      answer.on("error", refuse);
    });
    request.on("upgrade", (_, socket, head) => {
      settle();
      resolve(receive(socket, head, signal));
    });
    request.end();
  });
}

/** Puts the messages of a connection into a queue. */
function receive(socket: Socket, head: Uint8Array, signal: AbortSignal): MessageQueue {
  const queue = new MessageQueue(() => {
    signal.removeEventListener("abort", abort);
    socket.write(frame(opcode.close, new Uint8Array([0x03, 0xe8]))); // 1000
    socket.destroySoon();
  });
  const abort = () => {
    queue.end(signal.reason);
    socket.destroy();
  };
  signal.addEventListener("abort", abort, { once: true });
  const frames = new FrameReader();
  const read = (chunk: Uint8Array) => {
    try {
      for (const message of frames.read(chunk)) {
        if (message.opcode === opcode.text) queue.push(message.text);
        else if (message.opcode === opcode.ping) socket.write(frame(opcode.pong, message.payload));
        else if (message.opcode === opcode.close) {
          queue.end();
          socket.end(frame(opcode.close, message.payload.subarray(0, 2)));
        }
      }
    } catch (error) {
      queue.end(error);
      socket.destroy();
    }
  };
  socket.setNoDelay();
  socket.on("error", (error) => queue.end(error));
  socket.on("close", () => queue.end(new Error("the connection was lost")));
  socket.on("data", read);
  read(head);
  return queue;
}

/** Returns a frame of a client, whose payload is at most 125 bytes. */
function frame(code: number, payload: Uint8Array): Uint8Array {
  const mask = crypto.getRandomValues(new Uint8Array(4));
  const all = new Uint8Array(6 + payload.length);
  all.set([0x80 | code, 0x80 | payload.length, ...mask]);
  payload.forEach((byte, i) => (all[6 + i] = byte ^ mask[i % 4]!));
  return all;
}

interface Message {
  opcode: number;
  payload: Uint8Array;
  text: string;
}

/** Cuts what arrives into messages. */
class FrameReader {
  #chunks: Uint8Array[] = [];
  #size = 0;
  #needed = 2;
  #parts: Uint8Array[] = []; // of a message in several frames

  *read(chunk: Uint8Array): Generator<Message> {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    while (this.#size >= this.#needed) {
      const all = this.#chunks.length === 1 ? this.#chunks[0]! : concat(this.#chunks);
      this.#chunks = [all];
      const header = frameHeader(all);
      if (!header || all.length < header.start + header.length) {
        this.#needed = header ? header.start + header.length : this.#needed + 1;
        continue;
      }
      const payload = all.subarray(header.start, header.start + header.length);
      this.#chunks = [all.subarray(header.start + header.length)];
      this.#size -= header.start + header.length;
      this.#needed = 2;
      if (header.opcode >= 8) {
        yield { opcode: header.opcode, payload, text: "" };
        continue;
      }
      this.#parts.push(payload);
      if (!header.final) {
        if (this.#parts.reduce((sum, part) => sum + part.length, 0) > mostBytes) throw new Error("a message is too large");
        continue;
      }
      const whole = concat(this.#parts);
      this.#parts = [];
      yield { opcode: opcode.text, payload: whole, text: new TextDecoder().decode(whole) };
    }
  }
}

function frameHeader(bytes: Uint8Array): { final: boolean; opcode: number; start: number; length: number } | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const short = bytes[1]! & 0x7f;
  const start = short === 126 ? 4 : short === 127 ? 10 : 2;
  if (bytes.length < start) return undefined;
  const length = short === 126 ? view.getUint16(2) : short === 127 ? Number(view.getBigUint64(2)) : short;
  if (length > mostBytes) throw new Error("a message is too large");
  return { final: (bytes[0]! & 0x80) !== 0, opcode: bytes[0]! & 0x0f, start, length };
}

function concat(chunks: Uint8Array[]): Uint8Array {
  if (chunks.length === 1) return chunks[0]!;
  const all = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}
