import { Store, useStore } from "./store";

/** A figure at a time, in milliseconds. */
export interface Sample {
  at: number;
  value: number;
}

/** How many samples of a figure are kept. */
const most = 90;

const series = new Map<string, Store<Sample[]>>();

function storeOf(name: string): Store<Sample[]> {
  let store = series.get(name);
  if (!store) series.set(name, (store = new Store<Sample[]>([])));
  return store;
}

/** Keeps a figure for its trend, while the console is open. */
export function record(name: string, value: number): void {
  const store = storeOf(name);
  store.value = [...store.value.slice(1 - most), { at: Date.now(), value }];
}

export const useSamples = (name: string): Sample[] => useStore(storeOf(name));
