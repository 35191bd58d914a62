import { useEffect, useRef, useState } from "preact/hooks";

/** What a component knows about something it has asked for. */
export interface Loaded<T> {
  data?: T;
  error?: unknown;
  /** Asks again at once. */
  reload: () => void;
}

/**
 * Asks for data when the component is shown and when `deps` change; with `every`, again after so many milliseconds while
 * the page is visible. Old data stays until new data is there, except after a change of `deps`.
 */
export function useData<T>(ask: (signal: AbortSignal) => Promise<T>, deps: unknown[], { every }: { every?: number } = {}): Loaded<T> {
  const key = JSON.stringify(deps);
  const [answer, setAnswer] = useState<{ key: string; data?: T; error?: unknown }>({ key });
  const [round, setRound] = useState(0);
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const run = async () => {
      if (every === undefined || document.visibilityState === "visible") {
        try {
          const data = await latest.current(controller.signal);
          if (!controller.signal.aborted) setAnswer({ key, data });
        } catch (error) {
          if (controller.signal.aborted) return;
          setAnswer((before) => ({ ...(before.key === key ? before : {}), key, error }));
        }
      }
      if (every !== undefined && !controller.signal.aborted) timer = setTimeout(run, every);
    };
    void run();
    return () => {
      controller.abort(new DOMException("the page was left", "AbortError"));
      clearTimeout(timer);
    };
  }, [key, round, every]);
  const current = answer.key === key ? answer : { key };
  return { data: current.data, error: current.error, reload: () => setRound((n) => n + 1) };
}

/** Collects the pages of a list, up to a number of items. */
export async function collect<P extends object, T>(pages: AsyncIterable<P>, items: (page: P) => T[], most = 500): Promise<{ items: T[]; more: boolean }> {
  const all: T[] = [];
  for await (const page of pages) {
    all.push(...items(page));
    if (all.length >= most) return { items: all.slice(0, most), more: true };
  }
  return { items: all, more: false };
}
