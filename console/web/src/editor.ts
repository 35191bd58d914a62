/**
 * An editor of JSON definitions. It is a second bundle, so that pages without an editor do not load CodeMirror. It stands
 * in a shadow root, where CodeMirror adopts its style sheets: the page's policy forbids style elements.
 */
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json, jsonLanguage } from "@codemirror/lang-json";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, lintKeymap, linter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { celColours } from "./cel-colours";
import { completions, type Known } from "./completion";
import { type Finding, place, syntaxFindings } from "./json-places";

export type { Finding, Known };

export interface Options {
  /** What the field is called for those who cannot see it. */
  label: string;
  text: string;
  changed: (text: string) => void;
  /** Returns what is wrong with a text, some time after it was changed. */
  check: (text: string) => Promise<Finding[]>;
  /** Reports the places of what is wrong, whenever they were determined anew. */
  found: (places: Place[]) => void;
  /** What completion may offer. */
  known: () => Known;
  /** Ctrl-Enter was pressed. */
  run: () => void;
}

/** A finding, with its place in the text: line and column from 1. */
export interface Place {
  line: number;
  column: number;
  message: string;
}

export interface Editor {
  /** Moves the cursor to a line and column. */
  go: (place: Place) => void;
  replace: (text: string) => void;
  /** Shows findings that a check has not made, such as those of a save, if they are for the present text. */
  show: (of: string, findings: Finding[]) => void;
  destroy: () => void;
}

/** Puts an editor into an element. */
export function mount(parent: HTMLElement, options: Options): Editor {
  const root = parent.shadowRoot ?? parent.attachShadow({ mode: "open" });
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({ doc: options.text, extensions: extensionsOf(options) }),
  });
  return {
    replace: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } }),
    show: (of, findings) => {
      if (view.state.doc.toString() === of) view.dispatch(setDiagnostics(view.state, diagnosticsOf(view, findings, options)));
    },
    go: ({ line, column }) => {
      view.dispatch({ selection: { anchor: view.state.doc.line(line).from + column - 1 }, scrollIntoView: true });
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}

function diagnosticsOf(view: EditorView, findings: Finding[], { found }: Options): Diagnostic[] {
  const text = view.state.doc.toString();
  const diagnostics = findings.map((finding) => ({ ...place(text, finding), severity: "error" as const, message: finding.message }));
  found(diagnostics.map(({ from, message }) => {
    const line = view.state.doc.lineAt(from);
    return { line: line.number, column: from - line.from + 1, message };
  }));
  return diagnostics;
}

function extensionsOf(options: Options) {
  const { label, changed, check, known, run } = options;
  return [
    lineNumbers(),
    highlightActiveLine(),
    highlightActiveLineGutter(),
    lintGutter(),
    history(),
    drawSelection(),
    indentOnInput(),
    indentUnit.of("  "),
    bracketMatching(),
    closeBrackets(),
    autocompletion({ icons: false }),
    json(),
    jsonLanguage.data.of({ autocomplete: completions(known) }),
    syntaxHighlighting(colours),
    celColours,
    theme,
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
    EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
    linter(async (view) => {
      const text = view.state.doc.toString();
      const wrong = syntaxFindings(text);
      const findings = wrong.length > 0 ? wrong : await check(text);
      return view.state.doc.toString() === text ? diagnosticsOf(view, findings, options) : [];
    }, { delay: 400 }),
    keymap.of([
      { key: "Mod-Enter", run: () => (run(), true) },
      ...closeBracketsKeymap, ...completionKeymap, ...lintKeymap, ...historyKeymap, ...defaultKeymap,
    ]),
  ];
}

const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--info)" },
  { tag: tags.string, color: "var(--ok)" },
  { tag: tags.number, color: "var(--warn)" },
  { tag: [tags.bool, tags.null], color: "var(--bad)" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

const list = ".cm-tooltip.cm-tooltip-autocomplete > ul";

const theme = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--surface)", border: "1px solid var(--strong-line)", borderRadius: "8px", fontSize: "13px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", minHeight: "240px", maxHeight: "60vh", borderRadius: "8px" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--muted)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--raised) 70%, transparent)" },
  "& .cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 26%, transparent)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-soft)", outline: "1px solid var(--accent)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--bad-soft)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px" },
  // The default images are data URLs, which the policy forbids.
  ".cm-lint-marker-error": { content: "''", width: "9px", height: "9px", marginTop: "0.45em", borderRadius: "50%", backgroundColor: "var(--bad)" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "8px", boxShadow: "0 8px 30px rgb(0 0 0 / 25%)", overflow: "hidden" },
  ".cm-diagnostic": { maxWidth: "560px", padding: "8px 12px", fontFamily: "system-ui, sans-serif", whiteSpace: "pre-wrap" },
  ".cm-diagnostic-error": { borderLeft: "3px solid var(--bad)" },
  [list]: { fontFamily: "var(--mono)", fontSize: "12.5px", maxHeight: "260px", maxWidth: "min(560px, 90vw)" },
  [`${list} > li`]: { padding: "3px 10px", lineHeight: "1.5" },
  [`${list} > li[aria-selected]`]: { backgroundColor: "var(--accent-soft)", color: "var(--text)" },
  ".cm-completionDetail": { color: "var(--muted)", fontStyle: "normal", marginLeft: "1em" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "680", color: "var(--accent)" },
  ".cm-completionInfo": { padding: "8px 12px", maxWidth: "320px" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)", border: "0" },
});
