import type { Answers, Attempt, Deliveries, Delivery, Event, Gap, Nack } from "./api.gen.js";
import { isPermanent, ProblemError } from "./errors.js";
import { backoff, linked, type RetryOptions, sleep } from "./retry.js";

/** What a handler may return in place of acknowledging its event. */
export type Settlement =
  /** Deliver the event again, after `delay` seconds; by default after the group's back-off. */
  | { action: "retry"; delay?: number; reason?: string }
  /** Make the event a dead letter. */
  | { action: "park"; reason?: string }
  /** Settle the event without having handled it. */
  | { action: "skip"; reason?: string };

/** What a handler gets beside the event. */
export interface DeliveryInfo {
  /** Counts the deliveries of the event, from 1. */
  attempt: number;
  /** The partition, of a group that has partitions. */
  partition?: number;
  /** How often the event has come back from the dead letters. */
  replays?: number;
  /** Events before this one that retention has removed. */
  gap?: Gap;
  /** Aborted when the lease was lost, or when the consumer cannot wait for the handler any longer. */
  signal: AbortSignal;
}

/**
 * Handles an event of a group. When it returns, the event is acknowledged, unless it returns a {@link Settlement}; any
 * other value is ignored. When it throws, the event is delivered again, until the group's `maxAttempts`. An event may
 * arrive more than once.
 */
export type Handler<E extends Event = Event> = (event: E, delivery: DeliveryInfo) => void | Settlement | Promise<void | Settlement>;

/** Options of a consumer. */
export interface ConsumeOptions {
  /** How many handlers run at the same time; default 10, at most 1,000. */
  concurrency?: number;
  /** Joins a group with partitions as a member, with this label. */
  member?: string;
  /** Stops the consumer as {@link Consumer.stop} does. */
  signal?: AbortSignal;
  /** Called with errors of handlers (with their event), and of requests that are sent again. */
  onError?: (error: unknown, event?: Event) => void;
}

/** What a consumer asks of the service. Each call rejects when its retries are used up. */
export interface GroupCalls {
  receive(batch: number, ack: Attempt[], memberId: string | undefined, signal: AbortSignal): Promise<{ deliveries: Deliveries; sentAt: number | undefined }>;
  ack(ids: Attempt[]): Promise<Answers>;
  nack(body: Nack): Promise<Answers>;
  extend(ids: Attempt[]): Promise<Answers>;
  join(label: string, signal: AbortSignal): Promise<string>;
  heartbeat(memberId: string): Promise<unknown>;
  leave(memberId: string): Promise<unknown>;
}

/** A member that does not receive has to give a sign of life so often, in milliseconds. */
const heartbeats = 15_000;

/** How long a consumer waits for running handlers before it receives more, in milliseconds. */
const gathers = 1;

/** How many events one answer settles. */
const mostAnswers = 1000;

/** The shortest and the longest lease, in milliseconds, by the contract's `ackTimeout`. */
const shortestLease = 1000;
const longestLease = 3_600_000;

interface Running {
  attempt: Attempt;
  controller: AbortController;
  lease: number; // milliseconds
  renewAt: number; // by performance.now
}

/**
 * Receives events of a group, and calls a handler for each. While handlers run, their leases are extended. Events whose
 * handlers have returned when the next request for events is sent are acknowledged by it, the others by separate
 * requests. Created by {@link Client.consume}, which starts it.
 */
export class Consumer {
  /**
   * Settled when the consumer has ended: fulfilled after {@link stop}, rejected if the service refuses the consumer, for
   * example because the group was removed.
   */
  readonly done: Promise<void>;

  readonly #calls: GroupCalls;
  readonly #handler: Handler<any>;
  readonly #options: ConsumeOptions;
  readonly #retry: RetryOptions;
  readonly #stopping = new AbortController();
  readonly #running = new Map<string, Running>();
  readonly #settled: Array<{ attempt: Attempt; as: Settlement | undefined }> = [];
  #flushing: Promise<void> | undefined;
  /** The next request for events is about to be sent, and takes the acknowledgements of `#handled`. */
  #gathering = false;
  #handled: Attempt[] = [];
  #renewal: ReturnType<typeof setTimeout> | undefined;
  #freed: () => void = () => {};

  /** Called by {@link Client.consume}. */
  constructor(calls: GroupCalls, handler: Handler<any>, options: ConsumeOptions, retry: RetryOptions) {
    this.#calls = calls;
    this.#handler = handler;
    this.#options = options;
    this.#retry = retry;
    const stop = () => void this.stop();
    if (options.signal?.aborted) this.#stopping.abort(new Error("the consumer was stopped"));
    this.done = this.#run().finally(() => options.signal?.removeEventListener("abort", stop));
    options.signal?.addEventListener("abort", stop, { once: true });
    this.done.catch(() => {}); // callers who do not wait for the end get the error by onError
  }

  /**
   * Stops gracefully: it receives no more, waits until all running handlers have returned and their events are settled, and
   * leaves the group. After `timeout` milliseconds it aborts the signals of handlers that still run, and gives their
   * events back. It never rejects: {@link done} has errors.
   */
  async stop({ timeout = 30_000 }: { timeout?: number } = {}): Promise<void> {
    this.#stopping.abort(new Error("the consumer was stopped"));
    const late = setTimeout(() => this.#abandon(), timeout);
    await this.done.catch(() => {});
    clearTimeout(late);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    let memberId: string | undefined;
    const beat = setInterval(() => {
      if (memberId !== undefined) this.#calls.heartbeat(memberId).catch((error) => this.#report(error));
    }, heartbeats);
    try {
      for (let failures = 0; !signal.aborted; ) {
        try {
          if (this.#options.member !== undefined && memberId === undefined) {
            memberId = await this.#calls.join(this.#options.member, signal);
          }
          const free = await this.#vacancy(signal);
          if (signal.aborted) break;
          const { deliveries, sentAt } = await this.#receive(free, memberId, signal);
          failures = 0;
          this.#gathering = true;
          for (const delivery of deliveries.deliveries) void this.#handle(delivery, sentAt);
        } catch (error) {
          if (signal.aborted) break;
          if (memberId !== undefined && error instanceof ProblemError && error.status === 404) {
            memberId = undefined; // it was removed from the members: join again, which fails if the group is gone
          } else if (isPermanent(error)) {
            throw error;
          }
          this.#report(error);
          await sleep(backoff(++failures, this.#retry), signal).catch(() => {});
        }
      }
    } catch (error) {
      this.#report(error);
      this.#stopping.abort(error);
      throw error;
    } finally {
      this.#answer(this.#stopGathering());
      while (this.#running.size > 0) await this.#wait();
      clearTimeout(this.#renewal);
      while (this.#flushing) await this.#flushing;
      clearInterval(beat);
      if (memberId !== undefined) await this.#calls.leave(memberId).catch((error) => this.#report(error));
    }
  }

  /**
   * Waits until a handler may begin, and up to a millisecond longer while others run, so that the next request
   * acknowledges all that end in this time. Returns how many may begin, unless the signal was aborted.
   */
  async #vacancy(signal: AbortSignal): Promise<number> {
    this.#gathering = true;
    const concurrency = Math.min(1000, this.#options.concurrency ?? 10);
    while (this.#running.size >= concurrency && !signal.aborted) await this.#wait(signal);
    if (this.#running.size > 0 && !signal.aborted) {
      const late = linked(signal);
      const timer = setTimeout(() => late.controller.abort(), gathers);
      while (this.#running.size > 0 && !late.controller.signal.aborted) await this.#wait(late.controller.signal);
      clearTimeout(timer);
      late.release();
    }
    return concurrency - this.#running.size;
  }

  async #receive(free: number, memberId: string | undefined, signal: AbortSignal): ReturnType<GroupCalls["receive"]> {
    const handled = this.#stopGathering();
    try {
      return await this.#calls.receive(free, handled, memberId, signal);
    } catch (error) {
      this.#answer(handled);
      throw error;
    }
  }

  /**
   * Returns the events to acknowledge in the request that is sent now. Events whose handlers return later are
   * acknowledged separately.
   */
  #stopGathering(): Attempt[] {
    const handled = this.#handled;
    this.#handled = [];
    this.#gathering = false;
    return handled;
  }

  /** Waits until a handler has ended, or the signal is aborted. */
  async #wait(signal?: AbortSignal): Promise<void> {
    const { controller, release } = linked(signal);
    await new Promise<void>((resolve) => {
      this.#freed = resolve;
      if (controller.signal.aborted) resolve();
      controller.signal.addEventListener("abort", () => resolve(), { once: true });
    });
    release();
  }

  async #handle(delivery: Delivery, sentAt: number | undefined): Promise<void> {
    const { event } = delivery;
    const attempt = { id: event.id, attempt: delivery.attempt };
    const lease = leaseLength(delivery.ackDeadline, sentAt ?? Date.now());
    const running: Running = { attempt, controller: new AbortController(), lease, renewAt: performance.now() + lease / 2 };
    const key = `${event.id} ${delivery.attempt}`;
    this.#running.set(key, running);
    this.#scheduleRenewal();
    let as: Settlement | undefined;
    try {
      const info: DeliveryInfo = { attempt: delivery.attempt, signal: running.controller.signal };
      if (delivery.partition !== undefined) info.partition = delivery.partition;
      if (delivery.replays !== undefined) info.replays = delivery.replays;
      if (delivery.gap !== undefined) info.gap = delivery.gap;
      as = settlementOf(await this.#handler(event, info));
    } catch (error) {
      this.#report(error, event);
      as = { action: "retry", reason: reasonOf(error) };
    }
    if (this.#running.delete(key)) this.#settle(attempt, as); // else it was abandoned, or its lease was lost
    this.#freed();
  }

  #settle(attempt: Attempt, as: Settlement | undefined): void {
    if (as === undefined && this.#gathering) this.#handled.push(attempt);
    else this.#answer([attempt], as);
  }

  #answer(attempts: Attempt[], as?: Settlement): void {
    for (const attempt of attempts) this.#settled.push({ attempt, as });
    if (attempts.length > 0) this.#flushing ??= this.#flush();
  }

  /** Sends answers, as many as have collected in one request, until none is left. */
  async #flush(): Promise<void> {
    while (this.#settled.length > 0) {
      const { as } = this.#settled[0]!;
      const same = this.#settled.filter((one) => isSame(one.as, as)).slice(0, mostAnswers);
      for (const one of same) this.#settled.splice(this.#settled.indexOf(one), 1);
      const ids = same.map(({ attempt }) => attempt);
      try {
        await (as === undefined ? this.#calls.ack(ids) : this.#calls.nack({ ids, ...as }));
      } catch (error) {
        this.#report(error); // their leases expire, and the events are delivered again
      }
    }
    this.#flushing = undefined;
  }

  /** Gives back the events of handlers that still run. */
  #abandon(): void {
    const reason = new Error("the consumer was stopped");
    for (const [key, running] of this.#running) {
      this.#running.delete(key);
      this.#settle(running.attempt, { action: "retry", delay: 0, reason: "the consumer was stopped" });
      running.controller.abort(reason);
    }
    this.#freed();
  }

  #scheduleRenewal(): void {
    clearTimeout(this.#renewal);
    let next = Infinity;
    for (const { renewAt } of this.#running.values()) next = Math.min(next, renewAt);
    if (next < Infinity) this.#renewal = setTimeout(() => void this.#renew(), Math.max(0, next - performance.now()));
  }

  /** Extends the leases of which half is over. */
  async #renew(): Promise<void> {
    const now = performance.now();
    const due = [...this.#running].filter(([, { renewAt }]) => renewAt <= now + 100);
    for (const [, running] of due) running.renewAt = now + running.lease / 2;
    this.#scheduleRenewal();
    if (due.length === 0) return; // the handler whose lease it was has returned
    try {
      const { results } = await this.#calls.extend(due.map(([, { attempt }]) => attempt));
      for (const { id, attempt, outcome } of results) {
        const key = `${id} ${attempt}`;
        const running = this.#running.get(key);
        if (outcome === "done" || !running) continue;
        this.#running.delete(key);
        running.controller.abort(new Error(`the lease of event ${id} was lost: ${outcome}`));
        this.#freed();
      }
    } catch (error) {
      this.#report(error);
    }
  }

  #report(error: unknown, event?: Event): void {
    try {
      this.#options.onError?.(error, event);
    } catch {
      // A fault of the callback must not stop the consumer.
    }
  }
}

/**
 * Returns how long a lease lasts, in milliseconds. The deadline is by the clock of the service's database, and `sentAt` by
 * that of its process, in whole seconds, rounded down. These two clocks should agree; the consumer's only matters where a
 * browser hides the header. A length that no group can have shows that the clocks differ: the lease may be as short as the
 * shortest then.
 */
function leaseLength(deadline: string, sentAt: number): number {
  const length = Date.parse(deadline) - sentAt - 1000;
  return length >= shortestLease && length <= longestLease ? length : shortestLease;
}

/** Returns the settlement that a handler has returned; undefined, which acknowledges the event, for any other value. */
function settlementOf(value: unknown): Settlement | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { action, delay, reason } = value as { action?: unknown; delay?: unknown; reason?: unknown };
  if (action !== "retry" && action !== "park" && action !== "skip") return undefined;
  const kept = reason === undefined || reason === null ? {} : { reason: reasonOf(reason) };
  return action === "retry" && typeof delay === "number" ? { action, delay, ...kept } : { action, ...kept };
}

function isSame(a: Settlement | undefined, b: Settlement | undefined): boolean {
  const delay = (one: Settlement | undefined) => (one?.action === "retry" ? one.delay : undefined);
  return a?.action === b?.action && a?.reason === b?.reason && Object.is(delay(a), delay(b));
}

/** Returns the reason that is kept with an event: at most 1,000 bytes of UTF-8. */
function reasonOf(error: unknown): string {
  const text = (error instanceof Error ? error.message : String(error)).replaceAll("\0", "");
  return text.slice(0, new TextEncoder().encodeInto(text, new Uint8Array(1000)).read);
}
