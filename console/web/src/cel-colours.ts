/** Colours the expressions (CEL) in the strings of a definition. */
import { syntaxTree } from "@codemirror/language";
import { RangeSetBuilder } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { isExpression } from "./completion";

/** The tokens of an expression as JSON writes it: a quotation mark follows a backslash, and so does the n of a new line. */
const token = new RegExp([
  String.raw`(?<comment>\/\/(?:(?!\\n).)*)`,
  String.raw`(?<string>\\"(?:\\\\(?:\\"|.)|(?!\\").)*\\"|'(?:\\\\(?:\\"|.)|[^'])*')`,
  String.raw`(?<number>\b(?:0x[\da-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)u?\b)`,
  String.raw`(?<keyword>(?<!\.)\b(?:true|false|null|in)\b)`,
  String.raw`(?<variable>(?<!\.)\b(?:doc|state|event|key|item|command)\b)`,
  String.raw`(?<word>[A-Za-z_]\w*)`,
  String.raw`(?<operator>[-+*/%<>=!?:&|]+)`,
].join("|"), "g");

const marks = Object.fromEntries(["comment", "string", "number", "keyword", "variable", "word", "operator"].map((kind) => [kind, Decoration.mark({ class: `cel-${kind}` })]));

function colour(view: EditorView): DecorationSet {
  const text = view.state.doc.toString();
  const found = new RangeSetBuilder<Decoration>();
  let done = 0; // a string may be in two of the ranges
  for (const { from, to } of view.visibleRanges) {
    syntaxTree(view.state).iterate({ from, to, enter: ({ node }) => {
      if (node.name !== "String" || node.from < done || !isExpression(text, node)) return;
      done = node.to;
      for (const match of text.slice(node.from + 1, node.to - 1).matchAll(token)) {
        const kind = Object.keys(marks).find((name) => match.groups![name] !== undefined)!;
        const start = node.from + 1 + match.index;
        found.add(start, start + match[0].length, marks[kind]!);
      }
    } });
  }
  return found.finish();
}

const plugin = ViewPlugin.fromClass(class {
  decorations: DecorationSet;

  constructor(view: EditorView) {
    this.decorations = colour(view);
  }

  update(update: ViewUpdate) {
    if (update.docChanged || update.viewportChanged || syntaxTree(update.startState) !== syntaxTree(update.state)) this.decorations = colour(update.view);
  }
}, { decorations: (value) => value.decorations });

/** Both the token and the string around it have a colour, whichever of the elements is inside. */
const both = (kind: string, color: string) => ({ [`& .cel-${kind}, & .cel-${kind} span, & span .cel-${kind}`]: { color } });

export const celColours = [plugin, EditorView.theme({
  ...both("comment", "var(--muted)"), ...both("string", "var(--ok)"), ...both("number", "var(--warn)"), ...both("keyword", "var(--bad)"),
  ...both("variable", "var(--info)"), ...both("word", "var(--text)"), ...both("operator", "var(--muted)"),
})];
