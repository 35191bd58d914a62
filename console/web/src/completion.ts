import { type Completion, type CompletionContext, type CompletionResult, pickedCompletion } from "@codemirror/autocomplete";
import { syntaxTree } from "@codemirror/language";
import type { SyntaxNode } from "@lezer/common";
import functions from "./functions.json";
import { nameOf } from "./json-places";

/** What completion may offer besides the language: the categories, types and fields of events. */
export interface Known {
  categories: string[];
  /** The paths of data by event type, such as customer.name. */
  fields: Record<string, string[]>;
}

const definitionFields: Record<string, string> = {
  aggregate: "the category of an aggregate", assert: "what each document must pass", database: "where documents are stored",
  handler: "a handler in Go", indexes: "paths in the document", initial: "a document before its first event", key: "the document's id",
  map: "event type to record", mode: "async, inline or live", name: "the projection's name", on: "event type to document",
  onError: "stop or park", partitionBy: "a path that narrows lists", publishChanges: "changes as events", source: "categories or a query",
  totals: "sums over all documents",
};

const eventFields: Record<string, string> = {
  data: "what the application sent", metadata: "or null", tags: "sorted", type: "text", stream: "text", id: "text", category: "the stream's first part",
  key: "the stream's second part", version: "in the stream", position: "in the log", occurredAt: "the client's time", recordedAt: "the service's time",
};

const variables: Record<string, string> = { doc: "the document, or initial", event: "the event", key: "the document's id", item: "what key gives, or null" };

/** The variables of each part of a definition that has expressions. */
const scopes: Record<string, string[]> = { on: ["doc", "event", "key", "item"], map: ["event", "key", "item"], key: ["event"], assert: ["doc"] };

/** What the parser expands. The last argument uses the names of those before it. */
const macros: Record<string, string> = {
  all: "list.all(x, condition)", exists: "list.exists(x, condition)", exists_one: "list.exists_one(x, condition)", existsOne: "list.existsOne(i, x, condition)",
  filter: "list.filter(x, condition)", map: "list.map(x, value)", sortBy: "list.sortBy(x, value)", transformList: "list.transformList(i, x, value)",
  transformMap: "object.transformMap(key, x, value)", transformMapEntry: "list.transformMapEntry(i, x, {key: value})",
  or: "x.?field.or(other)", orValue: "x.?field.orValue(value)", optMap: "x.?field.optMap(x, value)", optFlatMap: "x.?field.optFlatMap(x, optional)",
};

const methods = callables({ ...functions.methods, ...macros }, "method");
const globals = callables({ ...functions.functions, has: "has(x.field)", "cel.bind": "cel.bind(name, value, expression)" }, "function");

function callables(usages: Record<string, string>, type: string): Completion[] {
  return Object.entries(usages).map(([label, detail]) => ({
    label, detail, type,
    apply: (view, completion, from, to) => view.dispatch({
      changes: { from, to, insert: `${label}()` }, selection: { anchor: from + label.length + 1 }, annotations: pickedCompletion.of(completion),
    }),
  }));
}

const plain = (details: Record<string, string>, type: string, boost = 0): Completion[] => Object.entries(details).map(([label, detail]) => ({ label, detail, type, boost }));
const words = (labels: string[], type: string): Completion[] => [...new Set(labels)].map((label) => ({ label, type }));

/** Completes the names of a definition, and the expressions in its strings. */
export function completions(known: () => Known) {
  return (context: CompletionContext): CompletionResult | null => {
    const node = syntaxTree(context.state).resolveInner(context.pos, -1);
    const text = context.state.doc.toString();
    if (node.name === "PropertyName") return names(text, node, known());
    if (node.name !== "String" || context.pos <= node.from) return null;
    const path = pathOf(text, node);
    const part = path[0] ?? "";
    if (scopes[part]) return expression(context, node, part, path[1], known());
    const from = node.from + 1;
    if (part === "source" && path[1] === "categories") return { from, options: words(known().categories, "text"), validFor: /^[\w.]*$/ };
    if (part === "mode") return { from, options: words(["async", "inline", "live"], "enum") };
    if (part === "onError") return { from, options: words(["stop", "park"], "enum") };
    if (part === "indexes" || part === "partitionBy" || part === "totals") return { from, options: words(documentFields(text), "property"), validFor: /^[\w.]*$/ };
    return null;
  };
}

function names(text: string, node: SyntaxNode, known: Known): CompletionResult | null {
  const path = pathOf(text, node.parent!).slice(0, -1);
  const options = path.length === 0 ? plain(definitionFields, "property")
    : path.length > 1 ? []
    : path[0] === "on" || path[0] === "map" ? [...words(Object.keys(known.fields), "type"), { label: "*", detail: "all other types", type: "type" }]
    : path[0] === "source" ? words(["categories", "query"], "property")
    : path[0] === "totals" ? words(["by", "sum"], "property") : [];
  return options.length === 0 ? null : { from: node.from + 1, options };
}

/** Whether a string of a definition is an expression. */
export const isExpression = (text: string, string: SyntaxNode): boolean => scopes[pathOf(text, string)[0] ?? ""] !== undefined;

/** The names of the properties in which a node is. Elements of arrays have no name. */
function pathOf(text: string, node: SyntaxNode): string[] {
  const path: string[] = [];
  for (let at: SyntaxNode | null = node; at; at = at.parent) if (at.name === "Property") path.unshift(nameOf(text, at));
  return path;
}

function expression(context: CompletionContext, node: SyntaxNode, part: string, type: string | undefined, known: Known): CompletionResult | null {
  const before = context.state.sliceDoc(node.from + 1, context.pos);
  const [, chain = "", word = ""] = /((?:[A-Za-z_]\w*\.\??)*)([A-Za-z_]\w*)?$/.exec(before) ?? [];
  const afterValue = chain === "" && /[\])]\.\??\w*$/.test(before);
  if (word === "" && chain === "" && !afterValue && !context.explicit) return null;
  const from = context.pos - word.length;
  const at = chain.replaceAll("?", "");
  const validFor = /^\w*$/;
  if (afterValue) return { from, options: methods, validFor };
  if (at === "") {
    const own = Object.fromEntries(scopes[part]!.map((name) => [name, variables[name]!]));
    return { from, options: [...plain(own, "variable", 2), ...globals], validFor: /^[\w.]*$/ };
  }
  if (at === "event.") return { from, options: plain(eventFields, "property", 1), validFor };
  const namespace = globals.filter(({ label }) => label.startsWith(at));
  if (namespace.length > 0) return { from: context.pos - word.length - at.length, options: namespace, validFor: /^[\w.]*$/ };
  const paths = at.startsWith("event.data.") ? below(fieldsOf(known, type), at.slice("event.data.".length))
    : at.startsWith("doc.") ? below(documentFields(context.state.doc.toString()), at.slice("doc.".length)) : [];
  return { from, options: [...words(paths, "property").map((option) => ({ ...option, boost: 1 })), ...methods], validFor };
}

const fieldsOf = (known: Known, type: string | undefined): string[] => known.fields[type ?? ""] ?? Object.values(known.fields).flat();

/** The next names of the paths that begin with a prefix. */
const below = (paths: string[], prefix: string): string[] => paths.filter((path) => path.startsWith(prefix)).map((path) => path.slice(prefix.length).split(".")[0]!).filter(Boolean);

/** The fields that documents are likely to have: those of initial, and the keys that expressions write. */
function documentFields(text: string): string[] {
  const written = [...text.matchAll(/\\"([A-Za-z_]\w*)\\"\s*:/g)].map((match) => match[1]!);
  try {
    const { initial } = JSON.parse(text) as { initial?: object };
    return [...new Set([...Object.keys(initial ?? {}), ...written])];
  } catch {
    return [...new Set(written)];
  }
}
