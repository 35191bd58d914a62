/**
 * Returns the members of a JSON object, or the elements of an array with empty names, with their values as they are written:
 * numbers keep all digits, of which JavaScript's have at most 17. The text must be valid.
 */
export function members(json: string): Array<[name: string, value: string]> {
  const found: Array<[string, string]> = [];
  const open = /[[{]/.exec(json)!;
  for (let at = skipSpace(json, open.index + 1); !"]}".includes(json[at] ?? "]"); ) {
    let name = "";
    if (open[0] === "{") {
      const end = endOf(json, at);
      name = JSON.parse(json.slice(at, end)) as string;
      at = skipSpace(json, json.indexOf(":", end) + 1);
    }
    const end = endOf(json, at);
    found.push([name, json.slice(at, end)]);
    at = skipSpace(json, end);
    if (json[at] === ",") at = skipSpace(json, at + 1);
  }
  return found;
}

function skipSpace(json: string, at: number): number {
  while (/\s/.test(json[at] ?? "")) at++;
  return at;
}

/** The end of the value that begins at a place. */
function endOf(json: string, from: number): number {
  let depth = 0;
  for (let at = from; at < json.length; at++) {
    const c = json[at]!;
    if (c === '"') {
      for (at++; json[at] !== '"'; at++) if (json[at] === "\\") at++;
      if (depth === 0) return at + 1;
    } else if (c === "{" || c === "[") {
      depth++;
    } else if (c === "}" || c === "]") {
      if (depth === 0) return at;
      if (--depth === 0) return at + 1;
    } else if (depth === 0 && (c === "," || /\s/.test(c))) {
      return at;
    }
  }
  return json.length;
}
