import { useEffect, useRef, useState } from "preact/hooks";
import { type Client, type Definition, type Fault, type JSONValue, type PlannedChange, type PreviewStep, type Projection, ProblemError, type Rebuild } from "../../../../client/typescript/src/index.js";
import type { Editor, Finding, Known, Place } from "../editor";
import { useData } from "../data";
import { drafts, type Read } from "../drafts";
import { count, plural } from "../format";
import { go, goQuery, href, Link, usePlace } from "../router";
import { useMay, useSession } from "../session";
import { Actor, ask, Badge, Button, Dialog, Empty, Facts, Field, Json, messageOf, Panel, Problem, Select, Time, Title, toast } from "../ui";
import { Changes } from "./streams";

const example: Definition = {
  name: "order-totals",
  source: { categories: ["order"] },
  key: "event.stream",
  initial: { total: 0 },
  on: { ItemAdded: 'merge(doc, {"total": doc.total + event.data.price})' },
};

/** The page on which a projection is created. */
export function NewProjection() {
  return (
    <>
      <Title text="Create a projection" about={<Link to={href(["projections"])}>All projections</Link>} />
      <DefinitionEditor stored={{ definition: example, revision: undefined }} id="" saved={(name) => go(href(["projections", name]))} />
    </>
  );
}

/** A projection's definition: an editor for those who may change it. */
export function DefinitionTab({ of: p, saved }: { of: Projection; saved: () => void }) {
  const { caller } = useSession();
  const may = useMay();
  const own = p.shared ? !caller.tenant && may("operator:operate") : caller.tenant && may("projections:write");
  if (!own) return <Panel title="Definition"><Json value={p.definition} label="Definition" /></Panel>;
  return <DefinitionEditor stored={p} id={p.name} saved={saved} />;
}

const textOf = (definition: Definition): string => JSON.stringify(definition, null, 2);

function DefinitionEditor({ stored, id, saved }: { stored: Read; id: string; saved: (name: string) => void }) {
  const { client, caller } = useSession();
  const draft = `${caller.tenant?.id ?? ""} ${id}`;
  const drafted = drafts.get(draft);
  const [base, setBase] = useState<Read>(drafted?.base ?? { definition: stored.definition, revision: stored.revision });
  const [newest, setNewest] = useState<Read>(stored);
  const [aside, setAside] = useState(drafted?.aside);
  const original = textOf(base.definition);
  /** Others have saved another definition since the text was begun. Other changes of the projection do not matter. */
  const overtaken = textOf(newest.definition) !== original;
  const [text, setText] = useState(drafted?.text ?? original);
  const [plan, setPlan] = useState<PlannedChange>();
  const [trial, setTrial] = useState(0);
  const editor = useRef<Editor | undefined>(undefined);
  const fault = useRef<Met | undefined>(undefined);
  const changed = text !== original;
  const now = useRef({ base, aside }); // the editor reports a text before the next rendering
  const keep = (next: string, from: Read, other: string | undefined) => {
    now.current = { base: from, aside: other };
    if (next === textOf(from.definition) && other === undefined) drafts.delete(draft);
    else drafts.set(draft, { text: next, base: from, ...(other === undefined ? {} : { aside: other }) });
    setText(next);
    setBase(from);
    setAside(other);
  };
  const change = (next: string) => keep(next, now.current.base, now.current.aside);
  /** Shows what others have saved, and puts the text aside. */
  const reload = () => {
    keep(textOf(newest.definition), newest, text);
    editor.current?.replace(textOf(newest.definition));
  };
  const bringBack = () => {
    const back = aside!;
    keep(back, base, undefined);
    editor.current?.replace(back);
  };
  const definition = (): Definition => {
    const { name = id, ...rest } = JSON.parse(text) as Definition;
    return { name, ...rest };
  };
  /** Shows in the editor where the text that was sent is wrong. */
  const refused = (sent: string, error: unknown): unknown => {
    const finding = findingOf(error);
    if (finding) editor.current?.show(sent, [finding]);
    return error;
  };
  /** Shows in the editor where the definition cannot fold an event. */
  const faulted = (tried: string, { where = "", message }: Fault) => {
    fault.current = { text: tried, findings: [{ where, ...placeIn(message) }] };
    editor.current?.show(tried, fault.current.findings);
  };
  const review = async () => {
    try {
      const given = definition();
      await client.previewProjection({ definition: given, source: { events: [noEvent] } }); // a plan does not compile expressions
      const { changes } = await client.planProjections({ definitions: [given] });
      setPlan(changes.find(({ name }) => name === given.name) ?? { name: given.name!, action: "none", changes: [] });
    } catch (error) {
      throw refused(text, error);
    }
  };
  const discard = () => editor.current?.replace(original);
  const finish = (name: string) => {
    drafts.delete(draft);
    setPlan(undefined);
    saved(name);
  };
  return (
    <>
      <Panel title="Definition" actions={
        <>
          {changed && <Badge tone="warn">Not saved</Badge>}
          {changed && <Button onPress={discard}>Discard changes</Button>}
          <Button tone="primary" disabled={id !== "" && !changed} onPress={review}>{id === "" ? "Create …" : "Save …"}</Button>
        </>
      }>
        {overtaken && <Overtaken name={id} base={base} newest={newest} reload={reload} keepMine={() => keep(text, newest, aside)} />}
        {aside !== undefined && <p class="calm" role="status">Your text is put aside. <Button onPress={bringBack}>Bring it back</Button> <Button tone="quiet" onPress={() => keep(text, base, undefined)}>Forget it</Button></p>}
        <CodeField text={text} changed={change} run={() => setTrial(trial + 1)} editorRef={editor} fault={fault} />
        <p class="muted small">Ctrl-Space completes, Ctrl-Enter tries the definition. The strings of <code>key</code>, <code>on</code>, <code>map</code> and <code>assert</code> are{" "}
          <a href="/docs/reference/expressions">expressions</a>.</p>
      </Panel>
      <TryIt text={text} trial={trial} refused={refused} faulted={faulted} />
      {plan && <SaveDialog plan={plan} definition={definition()} base={plan.name === id ? { ...base, ...(!overtaken && { revision: newest.revision }) } : undefined}
        close={() => setPlan(undefined)} refused={(error) => refused(text, error)} overtaken={setNewest} saved={finish} />}
    </>
  );
}

/** Says that others have saved another definition since the text was begun, who and what, and what can be done. */
function Overtaken({ name, base, newest, reload, keepMine }: { name: string; base: Read; newest: Read; reload: () => void; keepMine: () => void }) {
  const { client } = useSession();
  const [comparing, setComparing] = useState(false);
  const versions = useData((signal) => client.listProjectionVersions(name, { signal }), [name, newest.revision]);
  const last = versions.data?.versions[0];
  return (
    <div class="problem" role="alert">
      <p>The definition was changed since you began to edit it{last && <>, last by {last.by ? <Actor name={last.by} /> : "the operator"} <Time at={last.at} /></>}. Your text is not saved, and stays here.</p>
      <div class="actions">
        <Button onPress={() => setComparing(true)}>Compare …</Button>
        <Button onPress={reload}>Show theirs, put mine aside</Button>
      </div>
      {comparing && (
        <Dialog title="What was changed since" close={() => setComparing(false)}>
          <Changes before={base.definition} after={newest.definition} />
          <p>Continue with your text to save it in place of theirs. Copy what you want to keep of these changes into it.</p>
          <div class="actions end">
            <Button onPress={() => setComparing(false)}>Close</Button>
            <Button tone="primary" onPress={keepMine}>Continue with my text</Button>
          </div>
        </Dialog>
      )}
    </div>
  );
}

/** Where a definition is wrong, by the API's answer. Paths begin with the definition's place in the request. */
function findingOf(error: unknown): Finding | undefined {
  if (!(error instanceof ProblemError)) return undefined;
  const { code, detail = "", title, where = "" } = error.problem;
  if (code !== "invalid-definition" && code !== "invalid-request") return undefined;
  const first = /^\d+ problems: (.*?): /.exec(detail);
  const unknown = /^unknown field ("(?:[^"\\]|\\.)*")/.exec(detail);
  const path = where.replace(/^definitions?(\[\d+\])?\.?/, "");
  return {
    where: path === "" && first ? first[1]! : path, ...placeIn(detail || title),
    ...(unknown ? { property: JSON.parse(unknown[1]!) as string } : {}),
  };
}

/** Splits a message into the place in its expression and the rest. */
function placeIn(message: string): { message: string; line?: number; column?: number } {
  const at = /(?:^|: )line (\d+), column (\d+): /.exec(message);
  if (!at) return { message };
  return { message: message.replace(/(^|: )line \d+, column \d+: /, "$1"), line: Number(at[1]), column: Number(at[2]) };
}

/** The editor's module, which has a file of its own. The page names it. */
const loadEditor = () => import(document.querySelector<HTMLMetaElement>("meta[name=editor]")!.content) as Promise<typeof import("../editor")>;

/** What a trial of a text has met. It stands until the text changes. */
interface Met {
  text: string;
  findings: Finding[];
}

interface CodeFieldProps {
  text: string;
  changed: (text: string) => void;
  run: () => void;
  editorRef: { current: Editor | undefined };
  fault: { current: Met | undefined };
}

function CodeField({ text, changed, run, editorRef, fault }: CodeFieldProps) {
  const { client } = useSession();
  const may = useMay();
  const host = useRef<HTMLDivElement>(null);
  const latest = useRef({ changed, run });
  latest.current = { changed, run };
  const valid = useRef<string[]>([]);
  const categories = (valid.current = categoriesOf(text) ?? valid.current);
  const known = useData((signal) => (may("events:read") ? sample(client, categories, signal) : Promise.resolve(nothing)), [categories]);
  const [wrong, setWrong] = useState<Place[]>([]);
  const knownNow = useRef<Known>(nothing);
  knownNow.current = known.data ?? nothing;
  const editor = useData(loadEditor, []);
  useEffect(() => {
    if (!editor.data) return;
    editorRef.current = editor.data.mount(host.current!, {
      label: "Definition", text,
      changed: (next) => latest.current.changed(next),
      run: () => latest.current.run(),
      known: () => knownNow.current,
      found: setWrong,
      check: async (written) => {
        const findings = await check(client, written);
        return findings.length === 0 && fault.current?.text === written ? fault.current.findings : findings;
      },
    });
    return () => {
      editorRef.current?.destroy();
      editorRef.current = undefined;
    };
  }, [editor.data]);
  return (
    <>
      {editor.error !== undefined && <Problem error="The editor could not be loaded. Load the console again." />}
      <div class="editor" ref={host} />
      <ul class="wrongs" aria-live="polite" aria-label="What is wrong">
        {wrong.map((place) => (
          <li key={`${place.line} ${place.column} ${place.message}`}>
            <button type="button" onClick={() => editorRef.current?.go(place)}>Line {place.line}, column {place.column}</button> {place.message}
          </li>
        ))}
      </ul>
    </>
  );
}

const nothing: Known = { categories: [], fields: {} };

/** An event that hardly any definition has a rule for: the definition is compiled, and at most this event folded. */
const noEvent = { stream: "manifold.check-1", type: "Nothing", data: {} };

async function check(client: Client, text: string): Promise<Finding[]> {
  try {
    await client.previewProjection({ definition: JSON.parse(text) as Definition, source: { events: [noEvent] } });
    return [];
  } catch (error) {
    const finding = findingOf(error);
    return finding ? [finding] : [];
  }
}

/** How many of the newest events of a category tell completion what there is, and of how many categories. */
const sampled = 100;
const sampledCategories = 5;

/** The categories that a definition reads, if its text is JSON. */
function categoriesOf(text: string): string[] | undefined {
  try {
    return ((JSON.parse(text) as Definition).source?.categories ?? []).slice(0, sampledCategories);
  } catch {
    return undefined;
  }
}

async function sample(client: Client, categories: string[], signal: AbortSignal): Promise<Known> {
  const page = { direction: "backward" as const, count: sampled, signal };
  const lists = await Promise.all([client.readAll(page), ...categories.map((category) => client.readCategory(category, page).catch(() => ({ events: [] })))]);
  const [newest, ...own] = lists.map(({ events }) => events);
  const fields = Object.create(null) as Known["fields"]; // a type may be called "constructor"
  for (const { type, data } of categories.length > 0 ? own.flat() : newest!) fields[type] = [...new Set([...(fields[type] ?? []), ...paths(data)])];
  return { categories: [...new Set(lists.flatMap(({ events }) => events).map(({ stream }) => stream.split("-")[0]!))], fields };
}

/** The paths of a value's fields, those of nested objects as well. */
function paths(value: unknown, prefix = "", depth = 0): string[] {
  if (typeof value !== "object" || value === null || Array.isArray(value) || depth > 3) return [];
  return Object.entries(value).filter(([name]) => /^[A-Za-z_]\w*$/.test(name)).flatMap(([name, child]) => [prefix + name, ...paths(child, `${prefix}${name}.`, depth + 1)]);
}

const effects: Record<PlannedChange["action"], string> = {
  create: "The projection folds the log from its start.",
  change: "The change takes effect at once. Documents stay as they are.",
  rebuild: "A rebuild creates all documents again with this definition. Until it ends, the present documents serve reads; then they are swapped. You can pause, cancel and roll it back.",
  remove: "", // one definition is planned, and none removed
  none: "The definition has not changed. There is nothing to save.",
};

interface SaveDialogProps {
  plan: PlannedChange;
  definition: Definition;
  /** What the definition was made from; undefined: there must be no projection of its name. */
  base: Read | undefined;
  close: () => void;
  refused: (error: unknown) => unknown;
  /** Others have saved this since. */
  overtaken: (newest: Read) => void;
  saved: (name: string) => void;
}

function SaveDialog({ plan, definition, base, close, refused, overtaken, saved }: SaveDialogProps) {
  const { client } = useSession();
  const { name, action, events, changes } = plan;
  /** Saves the definition, unless others have saved another one since. */
  const putOver = async (revision: number | undefined, acceptLoss: boolean): Promise<Projection | Rebuild | undefined> => {
    try {
      return await client.putProjection(name, definition, { ...(acceptLoss && { acceptLoss }), ...(revision === undefined ? { ifNoneMatch: "*" } : { ifMatch: `"${revision}"` }) });
    } catch (error) {
      if (!base || !(error instanceof ProblemError) || error.code !== "precondition-failed") throw error;
      const newest = await client.getProjection(name);
      if (textOf(newest.definition) !== textOf(base.definition)) {
        overtaken(newest);
        return undefined;
      }
      if (newest.revision === revision) throw error;
      return putOver(newest.revision, acceptLoss); // only something else of the projection has changed
    }
  };
  const put = async (acceptLoss: boolean) => {
    const answer = await putOver(base?.revision, acceptLoss);
    if (!answer) {
      close();
      return;
    }
    saved(name);
    if ("projection" in answer) {
      toast(`A rebuild of ${name} has started`);
      go(href(["rebuilds", name, answer.id]));
    } else {
      toast(action === "create" ? `Projection ${name} is created` : `${name} is saved`);
    }
  };
  const save = async () => {
    try {
      await put(false);
    } catch (error) {
      close();
      if (!(error instanceof ProblemError) || error.code !== "events-removed") throw refused(error);
      ask({ title: "Continue without removed events?", text: messageOf(error), action: "Save without them", run: () => put(true) });
    }
  };
  const verb = { create: "Create", change: "Save", rebuild: "Save and rebuild", remove: "", none: "" }[action];
  return (
    <Dialog title={action === "create" ? `Create ${name}?` : `Save ${name}?`} close={close}>
      <p>{effects[action]}{events !== undefined && ` ${plural(events, "event")} will be folded.`}</p>
      {action !== "create" && changes.length > 0 && (
        <ul class="fields" aria-label="Changed fields">
          {changes.map(({ field, before, after }) => (
            <li key={field}>
              <code>{field}</code>
              {before !== undefined && <del>{shown(before)}</del>}
              {after !== undefined && <ins>{shown(after)}</ins>}
            </li>
          ))}
        </ul>
      )}
      <div class="actions end">
        <Button onPress={close}>{verb ? "Cancel" : "Close"}</Button>
        {verb && <Button tone="primary" onPress={save}>{verb}</Button>}
      </div>
    </Dialog>
  );
}

const shown = (value: JSONValue): string => (typeof value === "string" ? value : JSON.stringify(value));

/** How many of the newest events are tried if nothing else is chosen. */
const defaultLast = 20;

/** A step with the document before it: that of the last step of the same document. */
interface Step extends PreviewStep {
  before?: JSONValue;
}

function withBefore(steps: PreviewStep[], initial: JSONValue | undefined): Step[] {
  const documents = new Map<string, JSONValue | undefined>();
  return steps.map((step) => {
    if (step.documentId === undefined) return step;
    const before = documents.get(step.documentId);
    if (step.document !== undefined) documents.set(step.documentId, step.document ?? undefined);
    return { ...step, before: before ?? initial };
  });
}

/** Folds real events by the edited definition, and shows what each of them does. */
function TryIt({ text, trial, refused, faulted }: { text: string; trial: number; refused: (sent: string, error: unknown) => unknown; faulted: (tried: string, fault: Fault) => void }) {
  const { client, caller } = useSession();
  const may = useMay();
  const { query } = usePlace();
  const [stream, setStream] = useState(query.get("stream") ?? "");
  const [last, setLast] = useState(query.get("last") ?? String(defaultLast));
  const [of, setOf] = useState<"last" | "stream">(query.get("stream") ? "stream" : "last");
  const [steps, setSteps] = useState<{ of: string; list: Step[] }>();
  const [error, setError] = useState<unknown>();
  const frame = useRef<HTMLDivElement>(null);
  const [started, setStarted] = useState(0);
  const left = useRef(false);
  useEffect(() => () => void (left.current = true), []);
  const run = async (step: number) => {
    setError(undefined);
    try {
      const definition = JSON.parse(text) as Definition;
      const source = of === "stream" ? { stream: stream.trim() } : { last: Number(last) };
      const result = await client.previewProjection({ definition, source });
      if (left.current) return; // another page has the address
      setSteps({ of: text, list: withBefore(result.steps, definition.initial) });
      const fault = result.steps.find(({ fault }) => fault)?.fault;
      if (fault) faulted(text, fault);
      goQuery({ stream: source.stream, last: source.last, step }, { replace: true });
    } catch (failure) {
      setSteps(undefined);
      setError(refused(text, failure));
    }
  };
  const allowed = Boolean(caller.tenant) && may("events:read");
  /** Begins with a step, which the arrow keys move from there. */
  const start = async (step = 1) => {
    await run(step);
    setStarted(started + 1);
  };
  useEffect(() => {
    if (started > 0) frame.current?.focus();
  }, [started]);
  useEffect(() => {
    if (!allowed) return;
    if (trial > 0) void start();
    else if (query.get("stream") || query.get("last")) void start(Number(query.get("step")) || 1); // a link leads to a step
  }, [trial]);
  if (!allowed) {
    return <Panel title="Try it"><p class="muted">{caller.tenant ? "Your key needs the scope events:read to try a definition on events." : "An operator cannot read a tenant's events, so the definition is checked but not tried on events here."}</p></Panel>;
  }
  const submit = (event: Event) => {
    event.preventDefault();
    void start();
  };
  return (
    <Panel title="Try it" actions={steps && steps.of !== text && <Badge tone="warn">The definition has changed since</Badge>}>
      <p class="muted">Folds real events from an empty state. Nothing is stored.</p>
      <form class="filters" onSubmit={submit} aria-label="Try it">
        <Select label="Events" value={of} options={[["last", "the newest"], ["stream", "of a stream"]]} onChange={(event) => setOf(event.currentTarget.value as "last" | "stream")} />
        {of === "stream" ? <Field label="Stream" value={stream} required placeholder="order-1001" onInput={(event) => setStream(event.currentTarget.value)} />
          : <Select label="How many" value={last} options={[...new Set(["20", "100", "500", "1000", last])].map((n) => [n, count(Number(n))])} onChange={(event) => setLast(event.currentTarget.value)} />}
        <Button type="submit" tone="primary">Try</Button>
      </form>
      {error !== undefined && <p class="problem" role="alert">{error instanceof SyntaxError ? "The definition is not valid JSON." : messageOf(error)}</p>}
      {steps && (steps.list.length === 0 ? <Empty>No event of the log is for this definition.</Empty> : <Steps list={steps.list} frame={frame} />)}
    </Panel>
  );
}

/** One step at a time, by buttons, the slider or the arrow keys. */
function Steps({ list, frame }: { list: Step[]; frame: { current: HTMLDivElement | null } }) {
  const { query } = usePlace();
  const at = Math.min(Math.max(Number(query.get("step")) || 1, 1), list.length);
  const step = list[at - 1]!;
  const show = (next: number) => goQuery({ step: Math.min(Math.max(next, 1), list.length) }, { replace: true });
  const firstFault = list.findIndex(({ fault }) => fault) + 1;
  const press = (event: KeyboardEvent) => {
    if ((event.target as HTMLElement).closest("input, select, textarea, pre")) return;
    const move = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 1, End: list.length }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    show(move);
  };
  return (
    <div class="steps" role="group" tabIndex={-1} ref={frame} onKeyDown={press} aria-label="Steps">
      <div class="slider">
        <Button aria-label="Previous step" aria-keyshortcuts="ArrowLeft" disabled={at <= 1} onPress={() => show(at - 1)}>‹</Button>
        <input type="range" min={1} max={list.length} value={at} aria-label="Step" onInput={(event) => show(Number(event.currentTarget.value))} />
        <Button aria-label="Next step" aria-keyshortcuts="ArrowRight" disabled={at >= list.length} onPress={() => show(at + 1)}>›</Button>
        <output aria-live="polite">{count(at)} of {count(list.length)}</output>
      </div>
      {firstFault > 0 && firstFault !== at && <p class="calm"><Badge tone="bad">Fault</Badge> Step {count(firstFault)} cannot be folded. <Button onPress={() => show(firstFault)}>Go to the fault</Button></p>}
      <Facts of={[
        ["Event", <Link to={href(["events"], { event: step.event })}>{step.type} at {count(step.position)}</Link>],
        step.stream !== undefined && ["Stream", <Link to={href(["streams", step.stream])}>{step.stream}</Link>],
        ["Document", step.documentId ?? <span class="muted">none</span>],
        step.item !== undefined && ["Item", <code>{JSON.stringify(step.item)}</code>],
      ]} />
      <Outcome of={step} />
      <div class="thirds">
        <section aria-label="Event"><h3>Data of the event</h3><Json value={step.data} label="Data of the event" tools={false} /></section>
        {step.documentId !== undefined && (
          <>
            <section aria-label="Before"><h3>Document before</h3>{step.before === undefined ? <p class="muted">There is none.</p> : <Json value={step.before} label="Document before" tools={false} />}</section>
            <section aria-label="After"><h3>Document after</h3><After of={step} /></section>
          </>
        )}
      </div>
    </div>
  );
}

function After({ of: step }: { of: Step }) {
  if (step.fault || step.parked) return <p class="muted">As before.</p>;
  return step.document === null ? <p class="muted">It is removed.</p> : <Json value={step.document} label="Document after" tools={false} />;
}

function Outcome({ of: { fault, parked, documentId, before, document } }: { of: Step }) {
  if (fault) {
    return (
      <div class="problem" role="alert">
        <p><strong>{fault.where}</strong>: {fault.message}</p>
        {fault.expression !== undefined && <p><code>{fault.expression}</code></p>}
      </div>
    );
  }
  if (parked) return <p class="problem">The document is parked by an earlier fault, so this event waits.</p>;
  if (documentId === undefined) return <p class="muted">The definition leaves this event out.</p>;
  return document === null ? <p class="calm"><Badge>Removed</Badge> The event removes the document.</p> : <Changes before={before} after={document} />;
}
