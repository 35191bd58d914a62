import {
  type Attempt,
  type Command,
  type CommandOutcome,
  type Document,
  type Event,
  type Frame,
  type ListDocumentsOptions,
  Operations,
  type Query,
  type Rebuild,
  type SendCommandOptions,
} from "./api.gen.js";
import { Consumer, type ConsumeOptions, type Handler } from "./consume.js";
import { ConnectionError, problemOf, problemOfText, ProblemError } from "./errors.js";
import { Follower, type FollowOptions } from "./follow.js";
import type { CallOptions, Operation } from "./operation.js";
import { backoff, linked, retryAfter, type RetryOptions, sleep, uuid } from "./retry.js";
import { serverSentEvents } from "./sse.js";
import { socketMessages } from "./websocket.js";

/** A key or token, or a function that returns the current one, called for each request. */
export type Credential = string | (() => string | Promise<string>);

/** Options of a client. */
export interface ClientOptions {
  /** The service's address, such as `https://events.example.com`; in a browser, by default the page's origin. */
  url?: string | URL;
  /** What requests carry as `Authorization: Bearer`. */
  key?: Credential;
  /**
   * Gets a ticket for each connection of a follower, in place of a key: for pages, whose server keeps the key and creates
   * tickets. Without it, WebSockets in a browser get tickets with the key.
   */
  ticket?: () => string | Promise<string>;
  /** Default of each call. */
  retry?: RetryOptions;
  /** Used in place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** Which events {@link Client.events} reads: of a stream, a category, or by default the whole log. */
export interface EventsOptions extends CallOptions {
  stream?: string;
  category?: string;
  /** The first version of the stream, or the first position. */
  from?: number;
  direction?: "forward" | "backward";
  /** Only events of these types; not of a stream. */
  types?: string[];
  /** Only events recorded at or after this time. */
  since?: string;
  /** Only events recorded before this time. */
  until?: string;
}

/** Options of {@link Client.query}. */
export interface QueryOptions extends CallOptions {
  /** Only events after this position. */
  after?: number;
  /** Only events recorded at or after this time. */
  since?: string;
  /** Only events recorded before this time. */
  until?: string;
}

/** The events that a query matches. */
export interface QueryResult<E extends Event = Event> {
  events: E[];
  /** The events are complete up to here. Give it as `after` of an append's condition. */
  position: number;
}

/** How long one attempt may take until its answer is there, in milliseconds. */
const patience = 90_000;

/** How long a consumer's request waits for events, in seconds. */
const longPoll = 20;

const responses = new WeakMap<object, Response>();

/**
 * Returns the response that an answer was decoded from: its status, and headers such as `ETag`. Its body has been read.
 * Only answers that are objects or arrays have one.
 */
export function responseOf(answer: object): Response | undefined {
  return responses.get(answer);
}

/**
 * Calls a service. It has a method for each operation of the contract (see {@link Operations}), and more convenient ones
 * for what programs do most.
 *
 * A request that fails for a while is sent again: after 429 and 503, and, if that cannot take effect twice, after a lost
 * answer. Appends, publications and commands get an `Idempotency-Key`, which names the same event ids each time. A refusal
 * rejects with a ProblemError, a connection that does not recover with a ConnectionError.
 *
 * Positions and versions are numbers: they stay below 2^53.
 */
export class Client extends Operations {
  readonly #base: string;
  readonly #key: Credential | undefined;
  readonly #ticket: (() => string | Promise<string>) | undefined;
  readonly #retry: RetryOptions;
  readonly #fetch: typeof fetch;

  constructor({ url, key, ticket, retry = {}, fetch: given }: ClientOptions = {}) {
    super();
    const address = url ?? (globalThis as { location?: { origin: string } }).location?.origin;
    if (address === undefined) throw new TypeError("url: the address of the service is missing");
    this.#base = new URL(address).href.replace(/\/+$/, "");
    this.#key = key;
    this.#ticket = ticket;
    this.#retry = retry;
    this.#fetch = given ?? ((input, init) => fetch(input, init));
  }

  /** Iterates over events up to the head of the log, as it is when the last page is read. */
  async *events<E extends Event = Event>(options: EventsOptions = {}): AsyncGenerator<E, void, undefined> {
    const { stream, category, types, ...rest } = options;
    const page = { ...rest, count: 1000 };
    const filtered = types === undefined ? page : { ...page, types };
    const first =
      stream !== undefined ? this.readStream(stream, page) : category !== undefined ? this.readCategory(category, filtered) : this.readAll(filtered);
    for await (const { events } of this.pages(first, options)) yield* events as E[];
  }

  /** Reads all events that a query matches. */
  async query<E extends Event = Event>(query: Query, options: QueryOptions = {}): Promise<QueryResult<E>> {
    const { signal, retry, ...rest } = options;
    const call = callOptions(signal, retry);
    const events: E[] = [];
    for (let after = options.after; ; ) {
      const answer = await this.readByQuery({ query, ...rest, ...(after === undefined ? {} : { after }), count: 1000 }, call);
      events.push(...(answer.events as E[]));
      if (!answer.more) return { events, position: answer.position };
      after = answer.next ?? answer.position;
    }
  }

  /** Iterates over the documents of a projection that `filter` selects, on all pages. */
  async *documents<D = any>(
    projection: string,
    options: ListDocumentsOptions = {},
  ): AsyncGenerator<Document & { document: D }, void, undefined> {
    for await (const page of this.pages(this.listDocuments(projection, options), options)) {
      yield* page.documents as Array<Document & { document: D }>;
    }
  }

  /**
   * Iterates over the pages of a list, from the answer to its first request:
   *
   *     for await (const page of client.pages(client.listStreams({ prefix: "order-" }))) ...
   */
  async *pages<T extends object>(first: T | Promise<T>, { signal, retry }: CallOptions = {}): AsyncGenerator<T, void, undefined> {
    for (let page = await first; ; ) {
      yield page;
      const next = nextOf(responseOf(page));
      if (next === undefined) return;
      page = await this.send({ method: "GET", path: next, repeatable: true }, [], callOptions(signal, retry));
    }
  }

  /**
   * Iterates over the pages of a list as the texts that the service sends. They keep the digits of large numbers, which
   * JavaScript's do not have:
   *
   *     for await (const text of client.pageTexts(operations.listDocuments, ["orders"], { pageSize: 1000 })) ...
   */
  async *pageTexts(list: Operation, path: Array<string | number>, options: CallOptions & Record<string, unknown> = {}): AsyncGenerator<string, void, undefined> {
    for (let operation: Operation = { ...list, verbatim: true }; ; ) {
      const { text, response } = await this.send(operation, path, options);
      yield text;
      const next = nextOf(response);
      if (next === undefined) return;
      operation = { method: "GET", path: next, repeatable: true, verbatim: true };
    }
  }

  /** Sends a command to a stream. A rejection throws a ProblemError with the code `rejected` and the rule's `reason`. */
  command(stream: string, command: string, data: Command["data"], options: SendCommandOptions & { metadata?: Command["metadata"] } = {}): Promise<CommandOutcome> {
    const hyphen = stream.indexOf("-");
    if (hyphen < 0) throw new TypeError(`stream ${stream}: the name has no hyphen`);
    const { metadata, ...rest } = options;
    const body = metadata === undefined ? { data } : { data, metadata };
    return this.sendCommand(stream.slice(0, hyphen), stream.slice(hyphen + 1), command, body, rest);
  }

  /** Follows the log, a category or a stream: `for await (const event of client.follow({ category: "order" })) ...` */
  follow<E extends Event = Event>(options: FollowOptions = {}): Follower<E> {
    const target =
      options.stream !== undefined
        ? `streams/${encodeURIComponent(options.stream)}`
        : options.category !== undefined
          ? `categories/${encodeURIComponent(options.category)}`
          : "$all";
    const open = (from: number | string | undefined, signal: AbortSignal, alive: () => void): AsyncGenerator<Frame, void, undefined> => {
      const url = new URL(`${this.#base}/v1/subscribe/${target}`);
      if (from !== undefined) url.searchParams.set("from", String(from));
      if (options.types) url.searchParams.set("types", options.types.join(","));
      if (options.query) url.searchParams.set("query", JSON.stringify(options.query));
      if (options.filter) url.searchParams.set("filter", options.filter);
      return options.transport === "websocket" ? this.#framesBySocket(url, signal) : this.#framesByEvents(url, signal, alive);
    };
    return new Follower<E>(open, options, this.#retry);
  }

  /** Starts a consumer of a group, which calls the handler for each event until it is stopped. */
  consume<E extends Event = Event>(group: string, handler: Handler<E>, options: ConsumeOptions = {}): Consumer {
    const calls = {
      receive: async (batch: number, ack: Attempt[], memberId: string | undefined, signal: AbortSignal) => {
        const wanted = { batch, wait: longPoll, ...(ack.length > 0 ? { ack } : {}), ...(memberId === undefined ? {} : { memberId }) };
        // A limit of receives must not delay acknowledgements: nothing extends their leases.
        const deliveries = await this.receive(group, wanted, ack.length > 0 ? { signal, retry: false } : { signal });
        const sentAt = Date.parse(responseOf(deliveries)?.headers.get("Date") ?? "");
        return { deliveries, sentAt: Number.isNaN(sentAt) ? undefined : sentAt };
      },
      ack: (ids: Attempt[]) => this.ackEvents(group, { ids }),
      nack: (body: Parameters<Client["nackEvents"]>[1]) => this.nackEvents(group, body),
      extend: (ids: Attempt[]) => this.extendEvents(group, { ids }),
      join: async (label: string, signal: AbortSignal) => (await this.joinSubscription(group, { label }, { signal })).memberId,
      heartbeat: (memberId: string) => this.heartbeatSubscription(group, memberId),
      leave: (memberId: string) => this.leaveSubscription(group, memberId),
    };
    return new Consumer(calls, handler, options, this.#retry);
  }

  /**
   * Iterates over the progress of a rebuild, until it has ended. If the service ends the connection before that, it is
   * opened again, and the rebuild as it is then comes first.
   */
  async *rebuildProgress(projection: string, rebuildId: string, options: CallOptions = {}): AsyncGenerator<Rebuild, void, undefined> {
    for (let connections = 1; ; connections++) {
      const response = await this.watchRebuild(projection, rebuildId, options);
      for await (const { name, data } of serverSentEvents(response.body!)) {
        yield JSON.parse(data) as Rebuild;
        if (name === "ended") return;
      }
      await sleep(backoff(connections, { ...this.#retry, ...(options.retry || {}) }), options.signal);
    }
  }

  protected async send(operation: Operation, path: Array<string | number>, options: CallOptions & Record<string, any>, body?: unknown): Promise<any> {
    const { signal } = options;
    const retry = options.retry === false ? { attempts: 1 } : { ...this.#retry, ...options.retry };
    const attempts = retry.attempts ?? 8;
    const url = this.#base + expand(operation, path, options);
    const headers = headersOf(operation, options, body !== undefined);
    const text = body === undefined ? null : operation.lines ? (body as BodyInit) : JSON.stringify(body);
    const repeatable = operation.repeatable && !(text instanceof ReadableStream);
    for (let attempt = 1; ; attempt++) {
      signal?.throwIfAborted();
      const key = await this.#currentKey();
      let failure: unknown;
      let pause = 0;
      const { controller, release } = linked(signal);
      const late = setTimeout(() => controller.abort(new Error(`no answer within ${patience / 1000} s`)), patience);
      try {
        const init = { method: operation.method, headers, body: text, ...(text instanceof ReadableStream && { duplex: "half" }) };
        if (operation.raw) {
          // The answer is read later, so only the caller's signal may end it.
          const response = await this.#request(url, signal ? { ...init, signal } : init, key);
          if (response.ok) return response;
          throw await problemOf(response);
        }
        const response = await this.#request(url, { ...init, signal: controller.signal }, key);
        const answer = response.status === 204 || response.status === 304 ? "" : await response.text();
        if (response.ok || response.status === 304) return operation.verbatim ? { text: answer, response } : decode(response, answer);
        const problem = problemOfText(response.status, answer);
        const notCarriedOut = problem.code === "too-many-requests" || problem.code === "overloaded";
        const transient = [429, 502, 503, 504].includes(response.status) && problem.code !== "not-caught-up";
        if (!transient || !(repeatable || notCarriedOut)) throw problem;
        failure = problem;
        pause = retryAfter(response.headers);
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (error instanceof ProblemError) throw error;
        failure = error;
        if (!repeatable && !wasRefused(error)) throw lost(error, operation);
      } finally {
        clearTimeout(late);
        release();
      }
      if (attempt >= attempts) throw failure instanceof ProblemError ? failure : lost(failure, operation);
      await sleep(Math.max(pause, backoff(attempt, retry)), signal);
    }
  }

  /** Sends a request with the credential. */
  #request(url: string, init: RequestInit & { headers: Record<string, string> }, key: string | undefined): Promise<Response> {
    return this.#fetch(url, key === undefined ? init : { ...init, headers: { ...init.headers, Authorization: `Bearer ${key}` } });
  }

  async #currentKey(): Promise<string | undefined> {
    return typeof this.#key === "function" ? this.#key() : this.#key;
  }

  async *#framesByEvents(url: URL, signal: AbortSignal, alive: () => void): AsyncGenerator<Frame, void, undefined> {
    const response = await this.#openEvents(url, signal);
    alive();
    for await (const { name, data } of serverSentEvents(response.body!)) {
      if (name === "event") yield { event: JSON.parse(data) };
      else if (name === "caught-up") yield { caughtUp: JSON.parse(data) };
      else if (name === "checkpoint") yield { checkpoint: JSON.parse(data) };
      else if (name === "gap") yield { gap: JSON.parse(data) };
    }
  }

  /** Opens a stream of server-sent events. It rejects with the problem if the service refuses. */
  async #openEvents(address: URL, signal: AbortSignal): Promise<Response> {
    const url = new URL(address);
    const init = { headers: { Accept: "text/event-stream" }, cache: "no-store" as const, signal };
    let response: Response;
    if (this.#ticket) {
      url.searchParams.set("ticket", await this.#ticket());
      response = await this.#fetch(url.href, init); // simple, by the rules of CORS: another origin's page may send it
    } else {
      response = await this.#request(url.href, init, await this.#currentKey());
    }
    if (!response.ok) throw await problemOf(response);
    return response;
  }

  async *#framesBySocket(url: URL, signal: AbortSignal): AsyncGenerator<Frame, void, undefined> {
    const ticket = async () => (this.#ticket ? this.#ticket() : (await this.createTicket({ signal })).ticket);
    const target = {
      url,
      headers: async (): Promise<Record<string, string>> => {
        if (this.#ticket) url.searchParams.set("ticket", await this.#ticket());
        const key = this.#ticket ? undefined : await this.#currentKey();
        return key === undefined ? {} : { Authorization: `Bearer ${key}` };
      },
      ticket,
      explain: async () => {
        const response = await this.#openEvents(url, signal);
        await response.body?.cancel();
      },
    };
    for await (const message of socketMessages(target, signal)) yield JSON.parse(message) as Frame;
  }
}

function callOptions(signal: AbortSignal | undefined, retry: RetryOptions | false | undefined): CallOptions {
  return { ...(signal && { signal }), ...(retry !== undefined && { retry }) };
}

/** Returns the path of a request with its query. */
function expand(operation: Operation, path: Array<string | number>, options: Record<string, unknown>): string {
  let next = 0;
  const expanded = operation.path.replace(/\{[^}]+\}/g, () => encodeURIComponent(path[next++]!));
  const query = new URLSearchParams();
  for (const name of operation.query ?? []) {
    const value = options[name];
    if (value !== undefined) query.set(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  const text = query.toString();
  return text === "" ? expanded : `${expanded}?${text}`;
}

function headersOf(operation: Operation, options: Record<string, unknown>, hasBody: boolean): Record<string, string> {
  const headers: Record<string, string> = {};
  if (!operation.raw) headers["Accept"] = "application/json";
  if (hasBody) headers["Content-Type"] = operation.lines ? "application/x-ndjson" : "application/json";
  for (const [option, name] of Object.entries(operation.headers ?? {})) {
    const value = options[option] ?? (name === "Idempotency-Key" ? uuid() : undefined);
    if (value !== undefined) headers[name] = String(value);
  }
  return headers;
}

/** The path of the next page of a list. */
function nextOf(response: Response | undefined): string | undefined {
  return /<([^>]*)>\s*;\s*rel="?next"?/.exec(response?.headers.get("Link") ?? "")?.[1];
}

function decode(response: Response, text: string): unknown {
  if (text === "") return undefined;
  const answer: unknown = JSON.parse(text);
  if (typeof answer === "object" && answer !== null) responses.set(answer, response);
  return answer;
}

function lost(cause: unknown, { method, path }: Operation): ConnectionError {
  const text = cause instanceof Error ? cause.message : String(cause);
  return new ConnectionError(`${method} ${path}: no answer: ${text}`, { cause });
}

/** Reports whether no connection was made, so that the request was certainly not carried out. Only Node.js says so. */
function wasRefused(error: unknown): boolean {
  const { cause } = error as { cause?: { code?: string } };
  return cause?.code === "ECONNREFUSED" || cause?.code === "ENOTFOUND";
}
