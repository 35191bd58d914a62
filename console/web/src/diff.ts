/** One place in which two JSON values differ. */
export interface Change {
  /** A JSON Pointer; empty for the whole value. */
  path: string;
  before?: unknown;
  after?: unknown;
}

/** Returns the places in which two JSON values differ, in the order of the members. */
export function diff(before: unknown, after: unknown, path = ""): Change[] {
  if (isContainer(before) && isContainer(after) && Array.isArray(before) === Array.isArray(after)) {
    const a = before as Record<string, unknown>;
    const b = after as Record<string, unknown>;
    const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
    return names.flatMap((name) => diff(a[name], b[name], `${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`));
  }
  return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ path, before, after }];
}

const isContainer = (value: unknown): boolean => typeof value === "object" && value !== null;
