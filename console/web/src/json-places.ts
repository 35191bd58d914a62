import { jsonLanguage } from "@codemirror/lang-json";
import type { SyntaxNode } from "@lezer/common";

/** Something that is wrong with a JSON text. */
export interface Finding {
  message: string;
  /** The value, such as on.ItemAdded or indexes[0]; empty for the whole text. */
  where?: string;
  /** Within the string there: a line from 1, and a column from 1 in characters. */
  line?: number;
  column?: number;
  /** A property of the object there. */
  property?: string;
  /** Instead of all these: where it is in the text. */
  range?: Range;
}

export interface Range {
  from: number;
  to: number;
}

const parse = (text: string): SyntaxNode => jsonLanguage.parser.parse(text).topNode;

/** Returns the range of a text that a finding is about. If the value is missing, it is that of the nearest one around it. */
export function place(text: string, { where = "", line, column, property, range }: Finding): Range {
  if (range) return range;
  const value = parse(text).firstChild;
  if (!value) return { from: 0, to: text.length };
  const node = find(text, value, where);
  if (property !== undefined && node.name === "Object") {
    const found = node.getChildren("Property").find((p) => nameOf(text, p) === property);
    if (found) return rangeOf(found.firstChild!);
  }
  if (node.name === "String" && line !== undefined && column !== undefined) return within(text, node, line, column);
  if (node.name === "Object" || node.name === "Array") return firstLine(text, node.parent?.name === "Property" ? node.parent : node);
  return rangeOf(node);
}

const rangeOf = ({ from, to }: SyntaxNode): Range => ({ from, to });

/** An object is marked on its first line only. */
function firstLine(text: string, { from, to }: SyntaxNode): Range {
  const end = text.indexOf("\n", from);
  return { from, to: end < 0 ? to : Math.min(to, end) };
}

/** Follows a path. Names may have dots, so each step takes the longest name that the rest begins with. */
function find(text: string, value: SyntaxNode, path: string): SyntaxNode {
  const index = /^\[(\d+)\]\.?/.exec(path);
  if (index && value.name === "Array") {
    const item = items(value)[Number(index[1])];
    return item ? find(text, item, path.slice(index[0].length)) : value;
  }
  if (path === "" || value.name !== "Object") return value;
  const begins = (name: string) => path === name || path.startsWith(`${name}.`) || path.startsWith(`${name}[`);
  const [next] = value.getChildren("Property").filter((p) => begins(nameOf(text, p))).sort((a, b) => nameOf(text, b).length - nameOf(text, a).length);
  const child = next?.lastChild;
  if (!next || !child || child.name === "PropertyName") return value;
  return find(text, child, path.slice(nameOf(text, next).length).replace(/^\./, ""));
}

/** The values of an array. */
function items(array: SyntaxNode): SyntaxNode[] {
  const all: SyntaxNode[] = [];
  for (let node = array.firstChild; node; node = node.nextSibling) if (!/^[[\],⚠]$/.test(node.name)) all.push(node);
  return all;
}

/** The name of a property. */
export function nameOf(text: string, property: SyntaxNode): string {
  const name = property.getChild("PropertyName");
  return name ? decode(text.slice(name.from, name.to)) : "";
}

function decode(literal: string): string {
  try {
    return JSON.parse(literal) as string;
  } catch {
    return literal.slice(1, -1);
  }
}

/** One character of a JSON string, or one escape sequence; a surrogate pair is one character. */
const character = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]/suy;

/** Returns the range of the word at a line and column of what a string says, which differs from how it is written. */
function within(text: string, { from, to }: SyntaxNode, line: number, column: number): Range {
  let [l, c] = [1, 1];
  character.lastIndex = from + 1;
  while (character.lastIndex < to - 1 && (l < line || (l === line && c < column))) {
    const [raw] = character.exec(text) ?? [];
    if (raw === undefined) break;
    if (raw === "\\n") [l, c] = [l + 1, 1];
    else c++;
  }
  const start = Math.min(character.lastIndex, to - 1);
  const word = /^[\p{L}\p{N}_]+/u.exec(text.slice(start, to - 1));
  return start >= to - 1 ? { from: to - 1, to } : { from: start, to: start + (word?.[0].length ?? 1) };
}

/** What is wrong with a text as JSON, such as two properties of one name, of which JSON.parse drops one. */
export function syntaxFindings(text: string): Finding[] {
  const found: Finding[] = [];
  let broken: SyntaxNode | undefined;
  parse(text).cursor().iterate((ref) => {
    if (ref.type.isError) broken ??= ref.node;
    if (ref.name !== "Object") return;
    const seen = new Set<string>();
    for (const property of ref.node.getChildren("Property")) {
      const name = nameOf(text, property);
      if (seen.has(name)) found.push({ range: rangeOf(property.firstChild!), message: `duplicate field ${JSON.stringify(name)}` });
      seen.add(name);
    }
  });
  try {
    JSON.parse(text);
  } catch (error) {
    const from = Math.min(broken ? broken.from : text.length, Math.max(text.length - 1, 0));
    const reason = (error as Error).message.replace(/,? *(\.\.\.)?".*$/s, "").replace(/ (in JSON )?at position.*$/s, "");
    found.unshift({ range: { from, to: Math.max(from + 1, broken?.to ?? 0) }, message: `not valid JSON: ${reason}` });
  }
  return found;
}
