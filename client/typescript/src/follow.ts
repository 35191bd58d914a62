import type { Event, Frame, Gap, Query } from "./api.gen.js";
import { isPermanent } from "./errors.js";
import { backoff, linked, type RetryOptions, sleep } from "./retry.js";

/** What a follower receives, and how. */
export interface FollowOptions {
  /** Only one stream, which need not exist yet. */
  stream?: string;
  /** Only one category. Without it and `stream`, the whole log. */
  category?: string;
  /** Where to begin: `start` (the default), `end`, a position or an event's id, included, or a time of recording. */
  from?: number | string;
  /** Only events of these types. */
  types?: readonly string[];
  /** Only events that this query matches. */
  query?: Query;
  /** Only events for which this expression is true. */
  filter?: string;
  /** How events come: server-sent events (the default), or a WebSocket. */
  transport?: "sse" | "websocket";
  /** Ends the follower: its iteration rejects with the signal's reason. */
  signal?: AbortSignal;
  /** Called when all events up to the head have been sent, each time. */
  onCaughtUp?: (position: number) => void;
  /** Called when retention has removed events that the follower might have received. */
  onGap?: (gap: Gap) => void;
  /** Called before each new connection, with the reason, which is undefined if the service ended the last one. */
  onReconnect?: (reason: unknown) => void;
}

/** A connection is given up after so many milliseconds without a frame. The service sends one every 15 s. */
const silence = 45_000;

/** Opens one connection, from a place on, and iterates over its frames until it ends. */
export type Connect = (from: number | string | undefined, signal: AbortSignal, alive: () => void) => AsyncIterable<Frame>;

/**
 * Iterates over the events of a log in order, each once, and continues with new ones as they are appended. A connection
 * that breaks is opened again after the last event that was yielded. A refusal by the service rejects the iteration.
 *
 * Leaving the loop closes the connection. Iterating again continues after the last event.
 */
export class Follower<E extends Event = Event> implements AsyncIterable<E> {
  readonly #connect: Connect;
  readonly #options: FollowOptions;
  readonly #retry: RetryOptions;
  readonly #closed = new AbortController();
  #position: number | undefined;

  /** Called by {@link Client.follow}. */
  constructor(connect: Connect, options: FollowOptions, retry: RetryOptions) {
    this.#connect = connect;
    this.#options = options;
    this.#retry = retry;
  }

  /**
   * The position up to which the follower has yielded every event, or passed over it; undefined before the first frame. A
   * new follower continues with `from: position + 1`.
   */
  get position(): number | undefined {
    return this.#position;
  }

  /** Ends the iteration, without an error. */
  close(): void {
    this.#closed.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<E, void, undefined> {
    const { signal, onCaughtUp, onGap, onReconnect } = this.#options;
    for (let failures = 0; ; ) {
      signal?.throwIfAborted();
      if (this.#closed.signal.aborted) return;
      const { controller, release } = linked(signal, this.#closed.signal);
      const quiet = new Watchdog(silence, () => controller.abort(new Error(`no frame has come for ${silence / 1000} s`)));
      let reason: unknown;
      let outside = false; // in the consumer's code
      try {
        const from = this.#position === undefined ? this.#options.from : this.#position + 1;
        for await (const frame of this.#connect(from, controller.signal, () => quiet.restart())) {
          failures = 0;
          outside = true;
          quiet.pause(); // the consumer may take its time
          if (frame.event) {
            this.#position = frame.event.position;
            yield frame.event as E;
          } else if (frame.caughtUp) {
            this.#position = frame.caughtUp.position;
            onCaughtUp?.(frame.caughtUp.position);
          } else if (frame.checkpoint) {
            this.#position = frame.checkpoint.position;
          } else if (frame.gap) {
            onGap?.(frame.gap);
          }
          outside = false;
          if (this.#closed.signal.aborted) return;
          quiet.restart();
        }
      } catch (error) {
        if (outside) throw error;
        if (signal?.aborted) throw signal.reason;
        if (this.#closed.signal.aborted) return;
        if (isPermanent(error)) throw error;
        reason = error;
      } finally {
        quiet.stop();
        controller.abort();
        release();
      }
      failures++;
      const waiting = linked(signal, this.#closed.signal);
      try {
        await sleep(backoff(failures, this.#retry), waiting.controller.signal);
      } catch (error) {
        if (this.#closed.signal.aborted) return;
        throw error;
      } finally {
        waiting.release();
      }
      onReconnect?.(reason);
    }
  }
}

/** Calls a function when nothing has restarted it for some time. Restarting is cheap: it moves no timer. */
class Watchdog {
  #deadline: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #patience: number;
  readonly #call: () => void;

  constructor(patience: number, call: () => void) {
    this.#patience = patience;
    this.#call = call;
    this.#deadline = performance.now() + patience;
    this.#arm(patience);
  }

  restart(): void {
    this.#deadline = performance.now() + this.#patience;
  }

  pause(): void {
    this.#deadline = Infinity;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #arm(milliseconds: number): void {
    this.#timer = setTimeout(() => {
      const left = this.#deadline - performance.now();
      if (left <= 0) this.#call();
      else this.#arm(Math.min(left, this.#patience));
    }, milliseconds);
  }
}
