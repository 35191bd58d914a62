import type { ButtonHTMLAttributes, ComponentChildren, SelectHTMLAttributes } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { ConnectionError, ProblemError } from "../../../client/typescript/src/index.js";
import { exact, relative } from "./format";
import { Store, useStore } from "./store";

type Children = ComponentChildren;

/** A page's title, with what one can do beside it. */
export function Title({ text, about, actions }: { text: string; about?: Children; actions?: Children }) {
  useEffect(() => {
    document.title = `${text} · Manifold`;
  }, [text]);
  return (
    <header class="title">
      <div>
        <h1>{text}</h1>
        {about && <p class="muted">{about}</p>}
      </div>
      {actions && <div class="actions">{actions}</div>}
    </header>
  );
}

export function Panel({ title, actions, children, class: name = "" }: { title?: string; actions?: Children; children: Children; class?: string }) {
  return (
    <section class={`panel ${name}`} aria-label={title}>
      {(title || actions) && (
        <div class="panel-head">
          {title && <h2>{title}</h2>}
          {actions && <div class="actions">{actions}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

type Tone = "ok" | "warn" | "bad" | "info" | "plain";

/** A short state, with a mark that does not depend on colour alone. */
export function Badge({ tone = "plain", children }: { tone?: Tone; children: Children }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

interface ButtonProps extends Omit<ButtonHTMLAttributes, "onClick"> {
  tone?: "primary" | "danger" | "quiet";
  /** A promise disables the button until it is settled; an error is shown as a toast. */
  onPress?: () => unknown;
  children: Children;
}

export function Button({ tone, onPress, children, class: name = "", ...rest }: ButtonProps) {
  const [busy, setBusy] = useState(false);
  const press = async () => {
    setBusy(true);
    try {
      await onPress?.();
    } catch (error) {
      toast(messageOf(error), "bad");
    } finally {
      setBusy(false);
    }
  };
  return (
    <button type="button" {...rest} class={`button ${tone ?? ""} ${name}`} disabled={busy || Boolean(rest.disabled)} onClick={onPress && press}>
      {children}
    </button>
  );
}

/** A moment, as the time since or until it. The exact time is its title. */
export function Time({ at }: { at: string }) {
  const now = useStore(clock);
  return (
    <time dateTime={at} title={exact(at)}>
      {relative(at, now)}
    </time>
  );
}

const clock = new Store(Date.now());
setInterval(() => {
  if (document.visibilityState === "visible") clock.value = Date.now();
}, 5000);

/** Who did something, as the service names it. A key is shown by its name; its id is the title. */
export function Actor({ name }: { name: string }) {
  return <span title={name}>{name.replace(/^key [0-9a-f-]{36} \((.*)\)$/, "key $1")}</span>;
}

/** The product's mark. */
export function Mark() {
  return <svg class="mark" viewBox="0 0 20 20" aria-hidden="true"><path d="M3 16V5l7 7 7-7v11" /></svg>;
}

/** What to show until data is there: after a moment, in words. */
export function Loading({ what }: { what: string }) {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return <p class="muted loading" role="status">{slow && `Loading ${what} …`}</p>;
}

export function messageOf(error: unknown): string {
  if (error instanceof ProblemError) {
    const { where, detail, title } = error.problem;
    return (where && where !== "Authorization" ? where + ": " : "") + (detail || title);
  }
  if (error instanceof ConnectionError) return "The service does not answer. Check that it runs and that this machine reaches it.";
  return error instanceof Error ? error.message : String(error);
}

/** An error, with the way to ask again. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  return (
    <div class="problem" role="alert">
      <p>{messageOf(error)}</p>
      {error instanceof ProblemError && error.requestId && <p class="muted small">request {error.requestId}</p>}
      {retry && <Button onPress={retry}>Try again</Button>}
    </div>
  );
}

/** Shows data, or that it is being loaded, or why it is missing. */
export function Await<T>({ of, what, children }: { of: { data?: T; error?: unknown; reload: () => void }; what: string; children: (data: T) => Children }) {
  return (
    <>
      {of.error !== undefined && <Problem error={of.error} retry={of.reload} />}
      {of.data !== undefined ? children(of.data) : of.error === undefined && <Loading what={what} />}
    </>
  );
}

/** Says that there is nothing yet, and shows the first command. */
export function Empty({ children, command }: { children: Children; command?: string }) {
  return (
    <div class="empty">
      <p>{children}</p>
      {command && <Code text={command} />}
    </div>
  );
}

export async function copy(text: string, what = "Copied"): Promise<void> {
  await navigator.clipboard.writeText(text);
  toast(what);
}

/** Text to copy, such as a command. */
export function Code({ text, label = "Copy" }: { text: string; label?: string }) {
  return (
    <div class="code">
      <pre tabIndex={0}>{text}</pre>
      <Button tone="quiet" onPress={() => copy(text)}>{label}</Button>
    </div>
  );
}

/** A JSON value, formatted with colours, or as it is. */
export function Json({ value, label, tools = true }: { value: unknown; label: string; tools?: boolean }) {
  const [raw, setRaw] = useState(false);
  const text = JSON.stringify(value, null, raw ? undefined : 2) ?? "nothing";
  return (
    <div class="json">
      {tools && (
        <div class="json-tools">
          <Button tone="quiet" aria-pressed={raw} onPress={() => setRaw(!raw)}>{raw ? "Formatted" : "Raw"}</Button>
          <Button tone="quiet" onPress={() => copy(text)}>Copy</Button>
        </div>
      )}
      <pre tabIndex={0} role="group" aria-label={label}>{raw ? text : coloured(text)}</pre>
    </div>
  );
}

const tokens = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g;

function coloured(text: string): Children[] {
  if (text.length > 200_000) return [text];
  const parts: Children[] = [];
  let end = 0;
  for (const match of text.matchAll(tokens)) {
    parts.push(text.slice(end, match.index));
    const kind = match[2] !== undefined ? "name" : match[1] !== undefined ? "string" : match[3] !== undefined ? "word" : "number";
    parts.push(<span class={kind}>{match[1] ?? match[0]}</span>, match[2] ?? "");
    end = match.index + match[0].length;
  }
  parts.push(text.slice(end));
  return parts;
}

/** Names and values, such as the facts of an event. */
export function Facts({ of }: { of: Array<[string, Children] | false | undefined> }) {
  return (
    <dl class="facts">
      {of.filter((fact) => fact !== false && fact !== undefined).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A table that scrolls sideways where it does not fit. The heads are shown beside the cells on a phone. */
export function Table<T>({ label, heads, rows, row, keyOf }: { label: string; heads: string[]; rows: T[]; row: (item: T) => Children[]; keyOf: (item: T) => string }) {
  return (
    <div class="table" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>{heads.map((head, i) => (head ? <th scope="col" key={head}>{head}</th> : <td key={i} />))}</tr>
        </thead>
        <tbody>
          {rows.map((item) => (
            <tr key={keyOf(item)}>
              {row(item).map((cell, i) => <td key={i} data-head={heads[i]}>{cell}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface FieldProps {
  label: string;
  value: string;
  onInput: (event: { currentTarget: HTMLInputElement }) => void;
  type?: "text" | "password";
  placeholder?: string;
  required?: boolean;
  autofocus?: boolean;
  class?: string;
  title?: string | undefined;
  inputMode?: "decimal" | undefined;
  /** The key / focuses the field. */
  "data-search"?: boolean;
}

export function Field({ label, class: name = "", type = "text", ...rest }: FieldProps) {
  const id = useId();
  return (
    <div class={`field ${name}`}>
      <label for={id}>{label}</label>
      <input id={id} type={type as "text"} autocomplete="off" spellcheck={false} {...rest} />
    </div>
  );
}

/** A field of several lines, for code. */
export function Area({ label, value, ...rest }: { label: string; value: string; rows: number; required?: boolean; title?: string | undefined; onInput: (event: { currentTarget: HTMLTextAreaElement }) => void }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea id={id} value={value} autocomplete="off" spellcheck={false} {...rest} />
    </div>
  );
}

export function Select({ label, options, ...rest }: SelectHTMLAttributes & { label: string; options: Array<[string, string]> }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} {...rest}>
        {options.map(([value, text]) => <option key={value} value={value} selected={value === rest.value}>{text}</option>)}
      </select>
    </div>
  );
}

/** A dialog that takes the focus, and gives it back. It is open as long as it is rendered. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: Children }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const outside = (event: MouseEvent) => event.target === dialog.current && close();
  return (
    <dialog ref={dialog} aria-labelledby={id} onClose={close} onClick={outside}>
      <div class="dialog">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

interface Question {
  title: string;
  text: string;
  action: string;
  /** What has to be typed to confirm. */
  name?: string;
  /** A text that the action takes, such as a reason. */
  input?: { label: string; value?: string; optional?: boolean };
  run: (input: string) => unknown;
}

const question = new Store<Question | undefined>(undefined);

/** Asks before something is done. What cannot be undone has a name, which has to be typed. */
export const ask = (q: Question): void => {
  question.value = q;
};

export function Questions() {
  const q = useStore(question);
  return q ? <Ask key={q.title} q={q} /> : null;
}

function Ask({ q }: { q: Question }) {
  const [typed, setTyped] = useState("");
  const [input, setInput] = useState(q.input?.value ?? "");
  const close = () => (question.value = undefined);
  const run = async () => {
    await q.run(input);
    close();
  };
  const ready = (!q.name || typed === q.name) && (!q.input || q.input.optional || input !== "");
  return (
    <Dialog title={q.title} close={close}>
      <p>{q.text}</p>
      {q.input && <Field label={q.input.label} value={input} onInput={(event) => setInput(event.currentTarget.value)} />}
      {q.name && <Field label={`Type ${q.name} to confirm`} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />}
      <div class="actions end">
        <Button onPress={close}>Cancel</Button>
        <Button tone={q.name ? "danger" : "primary"} disabled={!ready} onPress={run}>{q.action}</Button>
      </div>
    </Dialog>
  );
}

const toasts = new Store<Array<{ id: number; text: string; tone: Tone }>>([]);
let lastToast = 0;

/** Reports a result, for some seconds. */
export function toast(text: string, tone: Tone = "ok"): void {
  const id = ++lastToast;
  toasts.value = [...toasts.value.slice(-3), { id, text, tone }];
  setTimeout(() => dismiss(id), tone === "bad" ? 15_000 : 5000);
}

const dismiss = (id: number) => (toasts.value = toasts.value.filter((t) => t.id !== id));

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {useStore(toasts).map(({ id, text, tone }) => (
        <div class={`toast ${tone}`} key={id}>
          <span>{text}</span>
          <button type="button" class="button quiet" aria-label="Dismiss" onClick={() => dismiss(id)}>×</button>
        </div>
      ))}
    </div>
  );
}

/** How a figure went, as a line. The text says it to those who cannot see it. */
export function Trend({ values, label }: { values: number[]; label: string }) {
  if (values.length < 2) return <span class="trend" />;
  const top = Math.max(...values, 1);
  const points = values.map((value, i) => `${((i / (values.length - 1)) * 100).toFixed(1)},${(22 - (value / top) * 20).toFixed(1)}`);
  return (
    <svg class="trend" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <polyline points={points.join(" ")} />
    </svg>
  );
}

/** A part of a whole. */
export function Progress({ done, total, label }: { done: number; total: number; label: string }) {
  return <progress value={Math.min(done, total)} max={Math.max(total, 1)} aria-label={label} />;
}

export function Tabs({ label, tabs, current, choose }: { label: string; tabs: Array<[string, string]>; current: string; choose: (tab: string) => void }) {
  return (
    <div class="tabs" role="group" aria-label={label}>
      {tabs.map(([id, text]) => (
        <button type="button" key={id} aria-pressed={id === current} onClick={() => choose(id)}>{text}</button>
      ))}
    </div>
  );
}
