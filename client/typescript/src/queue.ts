/** How much text waits for a slow reader, in characters, before the connection is given up. */
const most = 8 << 20;

/**
 * The messages of a connection that a reader has not taken yet. A WebSocket cannot be slowed down, so a connection whose
 * messages fill the queue is closed with `close`; the reader takes what is there, and then connects again.
 */
export class MessageQueue {
  readonly #messages: string[] = [];
  readonly #close: () => void;
  #size = 0;
  #ended = false;
  #error: unknown;
  #wake: () => void = () => {};

  constructor(close: () => void) {
    this.#close = close;
  }

  push(message: string): void {
    if (this.#ended) return;
    this.#messages.push(message);
    this.#size += message.length;
    if (this.#size > most) {
      this.end();
      this.#close();
    }
    this.#wake();
  }

  /** Ends the messages. With an error, the reader gets it after the last message. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wake();
  }

  /** Takes the messages in their order, to the end. */
  async *read(): AsyncGenerator<string, void, undefined> {
    try {
      for (;;) {
        const taken = this.#messages.splice(0);
        for (const message of taken) {
          this.#size -= message.length;
          yield message;
        }
        if (taken.length > 0) continue;
        if (this.#error !== undefined) throw this.#error;
        if (this.#ended) return;
        await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    } finally {
      this.end();
      this.#close();
    }
  }
}
