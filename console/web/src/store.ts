import { useLayoutEffect, useState } from "preact/hooks";

/** A value that components follow. */
export class Store<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set value(value: T) {
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }

  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** Returns a store's value, and renders the component again when it changes. */
export function useStore<T>(store: Store<T>): T {
  const [, render] = useState(0);
  // Not useEffect, which runs after the next painting: the value may change before.
  useLayoutEffect(() => store.listen(() => render((n) => n + 1)), [store]);
  return store.value;
}
