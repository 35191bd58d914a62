import { useEffect, useRef, useState } from "preact/hooks";
import { type Client, type JSONValue, type ListDocumentsOptions, operations } from "../../../../client/typescript/src/index.js";
import { useData } from "../data";
import { bytes, count, curl, plural, quote } from "../format";
import { members } from "../json-members";
import { goQuery, href, Link, usePlace } from "../router";
import { save, savedBytes } from "../save";
import { useMay, useSession } from "../session";
import { Await, Button, Code, copy, Dialog, Empty, Field, Json, Panel, Problem, Select, Table, toast } from "../ui";

/** How many fields a table has as columns if none are chosen. */
const defaultColumns = 6;

/** How many documents the page lists, and how many documents an export has at most. */
const listed = 50;
const exported = 50_000;

/** Documents of a projection. If they are keyed by stream, a shown document leads to the events that made it. */
export function Documents({ name, byStream }: { name: string; byStream: boolean }) {
  const { client } = useSession();
  const { query } = usePlace();
  const filter = query.get("filter") ?? "";
  const orderBy = query.get("orderBy") ?? "";
  const shown = query.get("document");
  const [typed, setTyped] = useState(filter);
  const [order, setOrder] = useState(orderBy);
  const [exporting, setExporting] = useState(false);
  const selection = { ...(filter ? { filter } : {}), ...(orderBy ? { orderBy } : {}) };
  const documents = useData((signal) => client.listDocuments(name, { pageSize: listed, signal, ...selection }), [name, filter, orderBy]);
  const seen = useRef(new Map<string, JSONValue>()); // also those of earlier filters
  for (const { document } of documents.data?.documents ?? []) for (const [field, value] of Object.entries(document)) if (!seen.current.has(field) || value !== null) seen.current.set(field, value as JSONValue);
  const fields = [...seen.current.keys()];
  const chosen = query.get("columns") === null ? fields.slice(0, defaultColumns) : query.get("columns")!.split(",").filter(Boolean);
  const submit = (event: Event) => {
    event.preventDefault();
    goQuery({ filter: typed.trim(), orderBy: order.trim(), document: undefined });
  };
  const add = (condition: string) => {
    const next = typed.trim() === "" ? condition : `${/\|\||\?/.test(typed) ? `(${typed.trim()})` : typed.trim()} && ${condition}`;
    setTyped(next);
    goQuery({ filter: next, document: undefined });
  };
  const path = `/v1/projections/${encodeURIComponent(name)}/documents?${new URLSearchParams(selection)}`;
  return (
    <Panel title="Documents" actions={
      <>
        <Button onPress={() => copy(curl(path), "Copied the command")}>Copy as curl</Button>
        <Button disabled={!documents.data?.documents.length} onPress={() => setExporting(true)}>Export …</Button>
      </>
    }>
      <form class="filters" role="search" aria-label="Documents" onSubmit={submit}>
        <Field label="Filter" class="wide" value={typed} data-search placeholder='doc.status == "paid" && doc.total > 100' onInput={(event) => setTyped(event.currentTarget.value)} />
        <Field label="Order" value={order} placeholder="total desc" onInput={(event) => setOrder(event.currentTarget.value)} />
        <Button type="submit" tone="primary">Show</Button>
      </form>
      {fields.length > 0 && (
        <div class="choices">
          <ConditionForm seen={seen.current} add={add} />
          <ColumnForm fields={fields} chosen={chosen} />
        </div>
      )}
      {shown !== null && <Shown name={name} id={shown} byStream={byStream} />}
      <Await of={documents} what="documents">
        {({ documents: rows, warnings }) => rows.length === 0 ? (
          filter ? <p class="muted">No document matches the filter. <Link to={href(["projections", name], { tab: "documents" })}>Show all</Link></p>
            : <Empty command={`manifold projection documents ${quote(name)}`}>There are no documents yet. They appear as events are folded. On the command line:</Empty>
        ) : (
          <>
            {warnings?.map((warning) => <p key={warning} class="notice">{warning}</p>)}
            <Table label="Documents" heads={["Document", ...chosen, "Position"]} rows={rows} keyOf={({ id }) => id}
              row={({ id, document, position }) => [
                <Link to={href(["projections", name], { ...Object.fromEntries(query), document: id })}>{id}</Link>,
                ...chosen.map((field) => cell(document[field])), count(position),
              ]} />
            {rows.length >= listed && <p class="muted">The first {listed} documents. Narrow the filter to see others, or export them all.</p>}
          </>
        )}
      </Await>
      {exporting && <Export name={name} selection={selection} columns={chosen} close={() => setExporting(false)} />}
    </Panel>
  );
}

function cell(value: unknown): string {
  if (value === undefined) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 60 ? text.slice(0, 60) + "…" : text;
}

/** Conditions, as expressions of a field and a value. */
const conditions = {
  "==": ["is", (field: string, value: string) => `${field} == ${value}`],
  "!=": ["is not", (field: string, value: string) => `${field} != ${value}`],
  "<": ["is less than", (field: string, value: string) => `${field} < ${value}`],
  "<=": ["is at most", (field: string, value: string) => `${field} <= ${value}`],
  ">": ["is more than", (field: string, value: string) => `${field} > ${value}`],
  ">=": ["is at least", (field: string, value: string) => `${field} >= ${value}`],
  contains: ["contains", (field: string, value: string) => `${field}.contains(${value})`],
  begins: ["begins with", (field: string, value: string) => `${field}.startsWith(${value})`],
  in: ["has the element", (field: string, value: string) => `${value} in ${field}`],
  has: ["exists", (field: string) => `has(${field})`],
} as const;

type Condition = keyof typeof conditions;

/** Words that the language of filters does not take as a field's name after a dot. */
const reserved = new Set("as break const continue else false for function if import in let loop namespace null package return true var void while".split(" "));

const textConditions: Condition[] = ["contains", "begins"];

/** Writes conditions of a filter for those who do not know its language. */
function ConditionForm({ seen, add }: { seen: Map<string, JSONValue>; add: (condition: string) => void }) {
  const fields = [...seen.keys()];
  const [chosen, setField] = useState("");
  const [condition, setCondition] = useState<Condition>("==");
  const [value, setValue] = useState("");
  const field = chosen || fields[0]!;
  const plain = /^[A-Za-z_]\w*$/.test(field) && !reserved.has(field);
  const offered = Object.entries(conditions).filter(([id]) => id !== "has" || plain); // has() takes no brackets
  const submit = (event: Event) => {
    event.preventDefault();
    add(conditions[condition][1](`doc${plain ? `.${field}` : `[${JSON.stringify(field)}]`}`, literal(value, textConditions.includes(condition) || typeof seen.get(field) === "string")));
    setValue("");
  };
  return (
    <details>
      <summary>Add a condition</summary>
      <form class="filters" onSubmit={submit} aria-label="Add a condition">
        <Select label="Field" value={field} options={fields.map((name) => [name, name])} onChange={(event) => {
          setField(event.currentTarget.value);
          setCondition("==");
        }} />
        <Select label="Condition" value={condition} options={offered.map(([id, [text]]) => [id, text])} onChange={(event) => setCondition(event.currentTarget.value as Condition)} />
        {condition !== "has" && <Field label="Value" value={value} onInput={(event) => setValue(event.currentTarget.value)} />}
        <Button type="submit">Add</Button>
      </form>
    </details>
  );
}

/** A typed value in the language of filters: a number, true, false or null as it is, unless the field has texts. */
function literal(value: string, text: boolean): string {
  return !text && /^(-?(0|[1-9]\d*)(\.\d+)?|true|false|null)$/.test(value.trim()) ? value.trim() : JSON.stringify(value);
}

function ColumnForm({ fields, chosen }: { fields: string[]; chosen: string[] }) {
  const choose = (field: string, wanted: boolean) => goQuery({ columns: fields.filter((name) => (name === field ? wanted : chosen.includes(name))).join(",") || "," }, { replace: true });
  return (
    <details>
      <summary>Choose columns</summary>
      <fieldset class="columns-form">
        <legend class="visually-hidden">Columns</legend>
        {fields.map((field) => (
          <label class="check" key={field}>
            <input type="checkbox" checked={chosen.includes(field)} onChange={(event) => choose(field, event.currentTarget.checked)} /> {field}
          </label>
        ))}
      </fieldset>
    </details>
  );
}

type Format = "ndjson" | "csv";

/** Reads all pages of the selection and saves them as a file. */
function Export({ name, selection, columns, close }: { name: string; selection: ListDocumentsOptions; columns: string[]; close: () => void }) {
  const { client } = useSession();
  const [format, setFormat] = useState<Format>("ndjson");
  const [done, setDone] = useState<number>();
  const [error, setError] = useState<unknown>();
  const controller = useRef(new AbortController());
  useEffect(() => () => controller.current.abort(new DOMException("the dialog was closed", "AbortError")), []);
  const run = async () => {
    setError(undefined);
    setDone(0);
    try {
      const { file, documents, more } = await write(client, name, selection, format, columns, setDone, controller.current.signal);
      save(file, `${name}.${format}`);
      toast(more ? `Exported the first ${plural(documents, "document")}` : `Exported ${plural(documents, "document")}`);
      close();
    } catch (failure) {
      if (!controller.current.signal.aborted) setError(failure);
    } finally {
      setDone(undefined);
    }
  };
  const command = `manifold projection documents ${quote(name)} --all${selection.filter ? ` --filter ${quote(selection.filter)}` : ""}${selection.orderBy ? ` --order-by ${quote(selection.orderBy)}` : ""}`;
  return (
    <Dialog title="Export documents" close={close}>
      <p>All documents that match the filter, in the chosen order, up to {count(exported)} or {bytes(savedBytes)}.</p>
      <Select label="Format" value={format} options={[["ndjson", "NDJSON: a line of JSON for each document"], ["csv", "CSV: the shown columns, for a spreadsheet"]]} onChange={(event) => setFormat(event.currentTarget.value as Format)} />
      <p class="muted small">On the command line, without limits:</p>
      <Code text={command} />
      {error !== undefined && <Problem error={error} />}
      {done !== undefined && <p role="status">{plural(done, "document")} read …</p>}
      <div class="actions end">
        <Button onPress={close}>Cancel</Button>
        <Button tone="primary" onPress={run}>Export</Button>
      </div>
    </Dialog>
  );
}

async function write(client: Client, name: string, selection: ListDocumentsOptions, format: Format, columns: string[], progress: (documents: number) => void, signal: AbortSignal) {
  const parts = format === "csv" ? [new Blob([row(["id", ...columns, "position"].map((head) => JSON.stringify(head)))])] : []; // the browser may keep blobs on disk
  let size = 0;
  let documents = 0;
  for await (const page of client.pageTexts(operations.listDocuments, [name], { ...selection, pageSize: 1000, signal })) {
    const texts = members(new Map(members(page)).get("documents")!).map(([, text]) => text);
    const part = new Blob(texts.map((text) => (format === "csv" ? rowOf(text, columns) : text + "\n")));
    parts.push(part);
    size += part.size;
    documents += texts.length;
    progress(documents);
    if (documents >= exported || size >= savedBytes) return { file: new Blob(parts, { type: kinds[format] }), documents, more: true };
  }
  return { file: new Blob(parts, { type: kinds[format] }), documents, more: false };
}

const kinds: Record<Format, string> = { ndjson: "application/x-ndjson", csv: "text/csv" };

/** The row of a document, from the JSON that the service sends. */
function rowOf(text: string, columns: string[]): string {
  const parts = new Map(members(text));
  const fields = new Map(members(parts.get("document")!));
  return row([parts.get("id"), ...columns.map((field) => fields.get(field)), parts.get("position")]);
}

const row = (values: Array<string | undefined>): string => values.map(csvCell).join(",") + "\r\n";

/**
 * A cell with a JSON value. A text that a spreadsheet would take for a formula begins with an apostrophe: documents have what
 * others have sent.
 */
function csvCell(json = "null"): string {
  if (json === "null") return "";
  const text = json.startsWith('"') ? (JSON.parse(json) as string).replace(/^(?=[=+\-@\t\r])/, "'") : json;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function Shown({ name, id, byStream }: { name: string; id: string; byStream: boolean }) {
  const { client } = useSession();
  const may = useMay();
  const document = useData((signal) => client.getDocument(name, id, { signal }), [name, id], { every: 3000 });
  return (
    <div class="shown">
      <div class="panel-head">
        <h3>{id}</h3>
        <div class="actions">
          {byStream && may("events:read") && <Link class="button" to={href(["projections", name], { tab: "definition", stream: id })}>How it was folded</Link>}
          <Button tone="quiet" aria-label="Close the document" onPress={() => goQuery({ document: undefined })}>×</Button>
        </div>
      </div>
      <Await of={document} what="the document">{(d) => <><p class="muted small">After the event at <Link to={href(["events"], { at: d.position })}>position {count(d.position)}</Link></p><Json value={d.document} label="Document" /></>}</Await>
    </div>
  );
}
