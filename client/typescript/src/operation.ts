import type { RetryOptions } from "./retry.js";

/** Options of every call. */
export interface CallOptions {
  /** Ends the call: its promise is rejected with the signal's reason. */
  signal?: AbortSignal;
  /** Overrides the client's retries; `false` sends the request once. */
  retry?: RetryOptions | false;
}

/** An operation of the contract, as a request is made from it. */
export interface Operation {
  method: string;
  path: string;
  /** Names of the parameters in the query; the options have the same. */
  query?: string[];
  /** Headers by the names of their options. */
  headers?: Record<string, string>;
  /** A request whose answer was lost may be sent again. */
  repeatable?: true;
  /** The answer is JSON, and is returned as it was sent. */
  verbatim?: true;
  /** The answer is not JSON. */
  raw?: true;
  /** The body is lines of JSON. */
  lines?: true;
}
