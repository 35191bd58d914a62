import type { ComponentChildren as Content } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Caller, Client, Event as LogEvent, Query } from "../../../../client/typescript/src/index.js";
import { useData } from "../data";
import { count, curl, exact, relative, timeOf } from "../format";
import { go, goQuery, href, Link, usePlace } from "../router";
import { session, useMay, useSession } from "../session";
import { Await, Badge, Button, copy, Empty, Facts, Field, Json, messageOf, Problem, Select, Time, Title } from "../ui";
import { VirtualList } from "../virtual-list";

/** How many events the page keeps. */
const ringSize = 5000;

/** How many events a request reads. */
const pageSize = 200;

/** Which events are shown, as the address says it. */
export interface Selection {
  scope: "log" | "category" | "stream" | "tags";
  name: string;
  types: string[];
  /** A position or time to begin at, going backward. */
  at: string;
}

function selectionOf(query: URLSearchParams): Selection {
  const of = (["category", "stream", "tags"] as const).find((scope) => query.get(scope));
  return { scope: of ?? "log", name: of ? query.get(of)! : "", types: words(query.get("types") ?? ""), at: query.get("at") ?? "" };
}

const words = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

const queryOf = ({ name, types }: Selection): Query => ({ items: [{ tags: name.split(/\s+/).filter(Boolean), ...(types.length > 0 ? { types } : {}) }] });

/** Reads the page of events before a position, or the newest, the newest first. */
async function readBefore(client: Client, s: Selection, before: number | undefined, signal: AbortSignal): Promise<LogEvent[]> {
  const time = before === undefined && s.at !== "" && !/^\d+$/.test(s.at) ? { until: timeOf(s.at) ?? s.at } : {}; // the service says what is wrong with an address's time
  const from = before ?? (/^\d+$/.test(s.at) ? Number(s.at) : undefined);
  const common = { direction: "backward" as const, count: pageSize, signal, ...time };
  const types = s.types.length > 0 ? { types: s.types } : {};
  if (s.scope === "tags") {
    const { events } = await client.readByQuery({ query: queryOf(s), direction: "backward", count: pageSize, ...time, ...(from === undefined ? {} : { before: from + 1 }) }, { signal });
    return events as LogEvent[];
  }
  if (s.scope === "stream") {
    const { events } = await client.readStream(s.name, { ...common, ...(from === undefined ? {} : { from }) });
    return s.types.length > 0 ? events.filter(({ type }) => s.types.includes(type)) : events;
  }
  const place = from === undefined ? {} : { from };
  const { events } = s.scope === "category" ? await client.readCategory(s.name, { ...common, ...types, ...place }) : await client.readAll({ ...common, ...types, ...place });
  return events;
}

/** Where the page before these events begins: of a stream, a version. */
const placeBefore = (s: Selection, event: LogEvent): number => (s.scope === "stream" ? event.version : event.position) - 1;

export function Events() {
  const { query } = usePlace();
  const selection = selectionOf(query);
  const key = JSON.stringify(selection);
  const live = query.get("live") === "1";
  const shown = query.get("event");
  return (
    <div class={shown ? "events with-details" : "events"}>
      <Title text="Events" actions={<Button tone={live ? "primary" : undefined} aria-pressed={live} onPress={() => goQuery({ live: live ? undefined : 1, at: undefined })}>{live ? "Stop live tail" : "Live tail"}</Button>} />
      <Filters key={key} selection={selection} />
      <div class="events-body">
        <EventList key={key} selection={selection} live={live} shown={shown} row={eventRow} empty={live ? "Waiting for the first event. For example:" : "There are no such events. Append the first one:"}
          command={curl("/v1/streams/order-1/events", { method: "POST", body: [{ type: "OrderPlaced", data: { customer: "Ada" } }] })} />
        {shown && <Details id={shown} />}
      </div>
    </div>
  );
}

function Filters({ selection }: { selection: Selection }) {
  const [scope, setScope] = useState(selection.scope);
  const [name, setName] = useState(selection.name);
  const [types, setTypes] = useState(selection.types.join(" "));
  const [at, setAt] = useState(selection.at);
  const [wrong, setWrong] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (at !== "" && !/^\d+$/.test(at) && timeOf(at) === undefined) return setWrong("Give a position, or a time in UTC such as 2026-03-01T09:30.");
    go(href(["events"], { ...(scope === "log" ? {} : { [scope]: name.trim() }), types: words(types).join(","), at: at.trim() }));
  };
  const labels = { category: "Category", stream: "Stream", tags: "Tags", log: "" };
  return (
    <form class="filters" role="search" aria-label="Events" onSubmit={submit}>
      <Select label="Events of" value={scope} options={[["log", "the whole log"], ["category", "a category"], ["stream", "a stream"], ["tags", "tags"]]}
        onChange={(event) => setScope(event.currentTarget.value as Selection["scope"])} />
      {scope !== "log" && <Field label={labels[scope]} value={name} required data-search placeholder={{ category: "order", stream: "order-1001", tags: "course:c1" }[scope]} onInput={(event) => setName(event.currentTarget.value)} />}
      <Field label="Types" value={types} placeholder="all" data-search={scope === "log" ? true : undefined} onInput={(event) => setTypes(event.currentTarget.value)} />
      <Field label={selection.scope === "stream" ? "Version or time (UTC)" : "Position or time (UTC)"} value={at} placeholder="newest" onInput={(event) => setAt(event.currentTarget.value)} />
      <Button type="submit" tone="primary">Show</Button>
      {wrong && <p class="problem" role="alert">{wrong}</p>}
    </form>
  );
}

interface Ring {
  events: LogEvent[];
  /** All older events are there. */
  complete: boolean;
  /** How many rows new events have pushed down since the last rendering. */
  added: number;
}

/** The events of a live tail whose credential has expired, until the next sign-in. */
let interrupted: { of: string; caller: string; ring: Ring } | undefined;

/** Those whose tails continue for each other. */
const callerOf = ({ tenant, scopes }: Caller): string => JSON.stringify([tenant?.id, scopes]);

session.listen(() => {
  const { current, reason } = session.value;
  if (current ? callerOf(current.caller) !== interrupted?.caller : reason === undefined) interrupted = undefined;
});

/**
 * Reads history page by page and, if live, follows the log, or the audit log. It keeps a bounded number of events, the newest
 * first. A live tail that ends since its credential has expired continues from its position when the same caller signs in.
 */
function useEvents(selection: Selection, live: boolean, ofAudit: boolean) {
  const { client: own, audit, caller } = useSession();
  const client = ofAudit ? audit : own;
  const of = JSON.stringify([callerOf(caller), ofAudit, selection]);
  const [kept] = useState(() => (live && interrupted?.of === of ? interrupted.ring : undefined));
  const [ring, setRing] = useState<Ring>(kept ?? { events: [], complete: false, added: 0 });
  const [state, setState] = useState<{ loading: boolean; error?: unknown; connection: "connecting" | "live" | "broken" }>({ loading: !kept, connection: "connecting" });
  const [ready, setReady] = useState(kept !== undefined);
  const latest = useRef<Ring | undefined>(undefined);
  latest.current = ready ? ring : undefined; // without history, a follower would begin at the start of the log
  useEffect(() => {
    interrupted = undefined;
    return () => {
      if (live && latest.current && session.value.reason !== undefined) interrupted = { of, caller: callerOf(caller), ring: { ...latest.current, added: 0 } };
    };
  }, [live]);
  const loading = useRef(false);
  const newest = useRef<number | undefined>(undefined);
  newest.current = ring.events[0]?.position;
  const controller = useMemo(() => new AbortController(), []);
  useEffect(() => () => controller.abort(new DOMException("left", "AbortError")), []);

  const older = async () => {
    if (loading.current) return;
    loading.current = true;
    setState((s) => ({ ...s, loading: true, error: undefined }));
    const last = ring.events.at(-1);
    try {
      const read = last && placeBefore(selection, last) < 1 ? [] : await readBefore(client, selection, last && placeBefore(selection, last), controller.signal);
      setRing((r) => {
        const events = [...r.events, ...read].slice(0, ringSize);
        return { events, complete: read.length === 0 || (read.length < pageSize && selection.scope !== "tags") || r.events.length + read.length > ringSize, added: 0 };
      });
      setState((s) => ({ ...s, loading: false }));
      setReady(true);
    } catch (error) {
      if (!controller.signal.aborted) setState((s) => ({ ...s, loading: false, error }));
    } finally {
      loading.current = false;
    }
  };
  useEffect(() => {
    if (!kept) void older();
  }, []);

  useEffect(() => {
    if (!live || !ready) return;
    const left = new AbortController();
    const follower = client.follow({
      from: newest.current === undefined ? "start" : newest.current + 1, signal: left.signal,
      ...(selection.scope === "stream" ? { stream: selection.name } : selection.scope === "category" ? { category: selection.name } : {}),
      ...(selection.scope === "tags" ? { query: queryOf(selection) } : selection.types.length > 0 ? { types: selection.types } : {}),
      onReconnect: () => setState((s) => ({ ...s, connection: "broken" })),
      onCaughtUp: () => setState((s) => (s.connection === "live" ? s : { ...s, connection: "live" })),
    });
    // Events are shown ten times a second at most, however many arrive.
    let arrived: LogEvent[] = [];
    const timer = setInterval(() => {
      if (arrived.length === 0) return;
      const batch = arrived.reverse();
      arrived = [];
      setRing((r) => {
        const newest = r.events[0]?.position ?? 0;
        const fresh = batch.filter(({ position }) => position > newest);
        return { events: [...fresh, ...r.events].slice(0, ringSize), complete: r.complete || r.events.length + fresh.length > ringSize, added: fresh.length };
      });
    }, 100);
    void (async () => {
      try {
        for await (const event of follower) {
          arrived.push(event);
          if (arrived.length > ringSize) arrived.splice(0, arrived.length - ringSize);
        }
      } catch (error) {
        if (!left.signal.aborted) setState((s) => ({ ...s, error }));
      }
    })();
    return () => {
      clearInterval(timer);
      left.abort(new DOMException("left", "AbortError"));
    };
  }, [live, ready]);
  return { ring, ...state, older };
}

/** What a row of a list of events shows, in the columns of its layout. */
export interface Row {
  type: Content;
  stream: Content;
  data: Content;
}

interface EventListProps {
  selection: Selection;
  live: boolean;
  /** The event whose details are open. */
  shown: string | null;
  /** The list is of the audit log. */
  audit?: boolean;
  row: (event: LogEvent) => Row;
  empty: string;
  command: string;
}

/** A list of events that grows at its end by scrolling and, if live, at its beginning. */
export function EventList({ selection, live, shown, audit = false, row, empty, command }: EventListProps) {
  const { ring, loading, error, connection, older } = useEvents(selection, live, audit);
  const state = live && <Badge tone={connection === "live" ? "ok" : "warn"}>{{ connecting: "Connecting", live: "Live", broken: "Reconnecting" }[connection]}</Badge>;
  const notFound = error !== undefined && ring.events.length === 0;
  if (notFound) return <div class="events-list"><Problem error={error} retry={older} /></div>;
  if (ring.events.length === 0 && !loading) {
    return (
      <div class="events-list">
        {live && <p class="status" role="status">{state}</p>}
        <Empty command={command}>{empty}</Empty>
      </div>
    );
  }
  return (
    <div class="events-list">
      <p class="status" role="status">
        {state}
        <span>{ring.events.length >= ringSize ? `the newest ${count(ringSize)} events` : `${count(ring.events.length)} events`}{ring.complete || loading ? "" : ", older ones follow"}</span>
        {error !== undefined && <span class="wrong">{messageOf(error)}</span>}
      </p>
      <VirtualList label="Events, the newest first" items={ring.events} added={ring.added} atEnd={ring.complete ? undefined : older} keyOf={({ id }) => id}
        row={(event) => (
          <Link to={href([audit ? "audit" : "events"], { ...Object.fromEntries(new URLSearchParams(location.search)), event: event.id })} aria-current={event.id === shown ? "true" : undefined} class="event-row">
            <span class="position">{count(event.position)}</span>
            <Cells {...row(event)} />
            <time dateTime={event.recordedAt} title={exact(event.recordedAt)}>{relative(event.recordedAt)}</time>
          </Link>
        )} />
    </div>
  );
}

const Cells = ({ type, stream, data }: Row) => <><span class="type" title={typeof type === "string" ? type : undefined}>{type}</span><span class="stream">{stream}</span><span class="data">{data}</span></>;

const eventRow = ({ type, stream, data, gap }: LogEvent): Row => ({ type, stream, data: gap ? gap.message : summary(data) });

/** The beginning of an event's data, on one line. */
function summary(data: unknown): string {
  if (typeof data !== "object" || data === null || Array.isArray(data)) return JSON.stringify(data) ?? "";
  return Object.entries(data).slice(0, 8).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ").slice(0, 200);
}

/** The panel beside a list of events. It is open while the address has an event. */
export function DetailsPanel({ title, children }: { title: string; children: Content }) {
  const close = () => goQuery({ event: undefined });
  useEffect(() => {
    const press = (event: KeyboardEvent) => event.key === "Escape" && !document.querySelector("dialog[open]") && close();
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return (
    <aside class="details panel" aria-label="Event">
      <div class="panel-head">
        <h2>{title}</h2>
        <Button tone="quiet" aria-label="Close the event" onPress={close}>×</Button>
      </div>
      {children}
    </aside>
  );
}

function Details({ id }: { id: string }) {
  const { client } = useSession();
  const may = useMay();
  const event = useData((signal) => client.readEvent(id, { signal }), [id]);
  return (
    <DetailsPanel title={event.data?.type ?? "Event"}>
      <Await of={event} what="the event">
        {(e) => (
          <>
            <Facts of={[
              ["Stream", <Link to={href(["streams", e.stream], { version: e.version })}>{e.stream}</Link>],
              ["Version", count(e.version)],
              ["Position", <Link to={href(["events"], { at: e.position, event: e.id })}>{count(e.position)}</Link>],
              ["Recorded", <><Time at={e.recordedAt} /> <span class="muted">{exact(e.recordedAt)}</span></>],
              e.occurredAt !== undefined && ["Occurred", <><Time at={e.occurredAt} /> <span class="muted">{exact(e.occurredAt)}</span></>],
              ["Id", <code>{e.id}</code>],
              e.tags && e.tags.length > 0 && ["Tags", e.tags.map((tag) => (tag.startsWith("subject:") ? <span key={tag} class="tag">{tag}</span> : <Link key={tag} class="tag" to={href(["events"], { tags: tag })}>{tag}</Link>))],
            ]} />
            <div class="actions">
              <Button onPress={() => copy(curl(`/v1/events/${e.id}`), "Copied the command")}>Copy as curl</Button>
              {may("events:append") && <Button onPress={() => copy(curl(`/v1/streams/${encodeURIComponent(e.stream)}/events`, { method: "POST", body: [{ type: e.type, data: e.data }] }), "Copied the command")}>Copy append as curl</Button>}
            </div>
            {e.gap && <p class="problem">{e.gap.message}</p>}
            <h3>Data</h3>
            <Json value={e.data} label="Data" />
            {e.metadata !== undefined && <><h3>Metadata</h3><Json value={e.metadata} label="Metadata" /></>}
            <Causes of={e} />
          </>
        )}
      </Await>
    </DetailsPanel>
  );
}

/** The longest chain of causes that is followed. */
const mostCauses = 10;

const causeOf = ({ metadata }: LogEvent): string | undefined => {
  const { causationId, caused_by } = (metadata ?? {}) as { causationId?: unknown; caused_by?: unknown };
  const cause = causationId ?? (Array.isArray(caused_by) ? caused_by[0] : caused_by);
  return typeof cause === "string" && /^[0-9a-f-]{36}$/.test(cause) ? cause : undefined;
};

/** The events that led to an event, as `causationId` or `caused_by` in their metadata says it. */
function Causes({ of }: { of: LogEvent }) {
  const { client } = useSession();
  const chain = useData(async (signal) => {
    const causes: LogEvent[] = [];
    for (let id = causeOf(of); id !== undefined && causes.length < mostCauses; id = causeOf(causes.at(-1)!)) causes.push(await client.readEvent(id, { signal }));
    return causes;
  }, [of.id]);
  if (causeOf(of) === undefined) return null;
  return (
    <>
      <h3>Caused by</h3>
      <Await of={chain} what="the causes">
        {(causes) => (
          <ol class="causes">
            {causes.map((cause) => <li key={cause.id}><Link to={href(["events"], { event: cause.id })}>{cause.type}</Link> <span class="muted">{cause.stream} · {count(cause.position)}</span></li>)}
          </ol>
        )}
      </Await>
    </>
  );
}
