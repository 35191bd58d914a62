/** How often, and after which pauses, a request is sent again. */
export interface RetryOptions {
  /** How many times a request is sent at most; default 8. */
  attempts?: number;
  /** The first pause in milliseconds; default 100. Each further one is twice as long. */
  minDelay?: number;
  /** The longest pause in milliseconds, unless `Retry-After` asks for more; default 10,000. */
  maxDelay?: number;
}

/** Returns the pause after a number of failures, in milliseconds, half of it by chance, so that clients spread out. */
export function backoff(failures: number, { minDelay = 100, maxDelay = 10_000 }: RetryOptions): number {
  const longest = Math.min(maxDelay, minDelay * 2 ** Math.min(failures - 1, 30));
  return longest * (0.5 + Math.random() / 2);
}

/** Reads a Retry-After header: milliseconds, 0 if there is none. */
export function retryAfter(headers: Headers): number {
  const text = headers.get("Retry-After");
  if (!text) return 0;
  const seconds = Number(text);
  const pause = Number.isNaN(seconds) ? Date.parse(text) - Date.now() : seconds * 1000;
  return pause > 0 ? pause : 0;
}

/** Waits for milliseconds. It rejects with the signal's reason if that comes first. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const ended = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", ended);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", ended, { once: true });
  });
}

/** A controller that also aborts with the given signals. `release` has to be called, or the signals keep it. */
export function linked(...signals: Array<AbortSignal | undefined>): { controller: AbortController; release: () => void } {
  const controller = new AbortController();
  const releases = signals.map((signal) => {
    if (!signal) return () => {};
    const abort = () => controller.abort(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    return () => signal.removeEventListener("abort", abort);
  });
  return { controller, release: () => releases.forEach((release) => release()) };
}

/** Returns a random UUID. Unlike crypto.randomUUID, it also works in pages that were not loaded over TLS. */
export function uuid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
