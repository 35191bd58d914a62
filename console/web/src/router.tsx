import type { ComponentChildren } from "preact";
import { Store, useStore } from "./store";

const base = "/console";

/** A place in the console: a path below /console, such as ["streams", "order-1"], and the query. */
export interface Place {
  path: string[];
  query: URLSearchParams;
}

const place = new Store(read());
addEventListener("popstate", () => (place.value = read()));

function read(): Place {
  const path = location.pathname.slice(base.length).split("/").filter(Boolean).map(decode);
  return { path, query: new URLSearchParams(location.search) };
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export const usePlace = (): Place => useStore(place);

type Query = Record<string, string | number | undefined>;

/** Returns the address of a place. Parts of the query that are empty are left out. */
export function href(path: Array<string | number>, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return [base, ...path.map((part) => encodeURIComponent(part))].join("/") + (search && "?" + search);
}

/** Goes to an address of the console. `replace` puts it in place of the current one in the history. */
export function go(address: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  const before = place.value.path.join("/");
  place.value = read();
  if (place.value.path.join("/") !== before) {
    scrollTo(0, 0);
    document.getElementById("main")?.focus();
  }
}

/** Changes parts of the current query. */
export function goQuery(change: Query, options?: { replace?: boolean }): void {
  const query: Query = { ...Object.fromEntries(place.value.query), ...change };
  go(href(place.value.path, query), options);
}

interface LinkProps {
  to: string;
  class?: string;
  "aria-current"?: "page" | "true";
  "aria-label"?: string;
  "aria-keyshortcuts"?: string;
  children: ComponentChildren;
}

/** A link within the console. */
export function Link({ to, children, ...rest }: LinkProps) {
  const follow = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a href={to} onClick={follow} {...rest}>
      {children}
    </a>
  );
}
