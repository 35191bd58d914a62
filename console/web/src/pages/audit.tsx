import { useEffect, useState } from "preact/hooks";
import { type Client, type Event as LogEvent, ProblemError } from "../../../../client/typescript/src/index.js";
import { useData } from "../data";
import { count, exact, plural, quote, timeOf } from "../format";
import { go, goQuery, href, Link, usePlace } from "../router";
import { useMay, useSession } from "../session";
import { Await, Badge, Button, Code, Dialog, Facts, Field, Json, Select, Time, Title } from "../ui";
import { DetailsPanel, EventList, type Row, type Selection } from "./events";
import { Changes } from "./streams";

/** What an event of an audit log says. See docs/guides/audit.md. */
interface Entry {
  action?: string;
  actor?: { kind: string; key?: string; name?: string; issuer?: string; subject?: string; role?: string };
  targets?: Record<string, string>;
  query?: Record<string, string>;
  context?: { requestId?: string; address?: string; userAgent?: string };
  request?: unknown;
  before?: unknown;
  after?: unknown;
  status?: number;
  code?: string;
  network?: string;
  count?: number;
}

const entryOf = ({ data }: LogEvent): Entry => (data ?? {}) as Entry;

/** The types of events, with their names on the page. */
const outcomes: Array<[string, string]> = [
  ["ActionDone", "Done"], ["ActionRefused", "Refused"], ["ActionUnknown", "Unknown"], ["ActionStarted", "Started"], ["RequestsDenied", "Denied"], ["TenantErased", "Tenant erased"],
];

const nameOf = (type: string): string => outcomes.find(([of]) => of === type)?.[1] ?? type;

export function Audit() {
  const { query } = usePlace();
  const may = useMay();
  const [exporting, setExporting] = useState(false);
  const [actor, action, types] = [query.get("actor") ?? "", query.get("action") ?? "", query.get("outcome") ?? ""];
  const tags = [actor && `actor:${actor}`, action && `action:${action}`].filter(Boolean).join(" ");
  const selection: Selection = { scope: tags ? "tags" : "log", name: tags, types: types ? [types] : [], at: query.get("at") ?? "" };
  const key = JSON.stringify(selection);
  const live = query.get("live") === "1";
  const shown = query.get("event");
  const command = ["manifold audit", may("operator:read") && "--operator"].filter(Boolean).join(" ");
  const filtered = [command, actor && `--actor ${quote(actor)}`, action && `--action ${quote(action)}`, types && `--types ${quote(types)}`, "-o ndjson"].filter(Boolean).join(" ");
  return (
    <div class={shown ? "events with-details" : "events"}>
      <Title text="Audit log" about={may("operator:read") ? "What operators did" : "Who did what, and which requests were denied"} actions={<>
        <Button onPress={() => setExporting(true)}>Export …</Button>
        <Button tone={live ? "primary" : undefined} aria-pressed={live} onPress={() => goQuery({ live: live ? undefined : 1, at: undefined })}>{live ? "Stop live tail" : "Live tail"}</Button>
      </>} />
      <Filters key={key} actor={actor} action={action} outcome={types} at={selection.at} />
      <div class="events-body">
        <EventList key={key} audit selection={selection} live={live} shown={shown} row={auditRow} command={`${command} --follow`}
          empty={tags || types ? "There are no such entries. Follow the whole audit log on the command line:" : "No actions yet. Follow the audit log on the command line:"} />
        {shown && <Details id={shown} />}
      </div>
      {exporting && (
        <Dialog title="Export the audit log" close={() => setExporting(false)}>
          <p>What the filters select, one JSON object a line:</p>
          <Code text={filtered} />
          <p>The whole log, as an export:</p>
          <Code text={`curl -s '${location.origin}/audit/v1/export' -H "Authorization: Bearer $MANIFOLD_KEY" -H 'Accept: application/x-ndjson' > audit.ndjson`} />
          <div class="actions end"><Button tone="primary" onPress={() => setExporting(false)}>Close</Button></div>
        </Dialog>
      )}
    </div>
  );
}

function Filters(given: { actor: string; action: string; outcome: string; at: string }) {
  const [actor, setActor] = useState(given.actor);
  const [action, setAction] = useState(given.action);
  const [outcome, setOutcome] = useState(given.outcome);
  const [at, setAt] = useState(given.at);
  const [wrong, setWrong] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (at.trim() !== "" && !/^\d+$/.test(at.trim()) && timeOf(at) === undefined) return setWrong("Give a position, or a time in UTC such as 2026-03-01T09:30.");
    go(href(["audit"], { actor: actor.trim(), action: action.trim(), outcome, at: at.trim() }));
  };
  return (
    <form class="filters" role="search" aria-label="Audit log" onSubmit={submit}>
      <Field label="Action" value={action} placeholder="all, or createKey" data-search onInput={(event) => setAction(event.currentTarget.value)} />
      <Field label="Actor" value={actor} placeholder="all, or key:ID" onInput={(event) => setActor(event.currentTarget.value)} />
      <Select label="Outcome" value={outcome} options={[["", "all"], ...outcomes]} onChange={(event) => setOutcome(event.currentTarget.value)} />
      <Field label="Position or time (UTC)" value={at} placeholder="newest" onInput={(event) => setAt(event.currentTarget.value)} />
      <Button type="submit" tone="primary">Show</Button>
      {wrong && <p class="problem" role="alert">{wrong}</p>}
    </form>
  );
}

const actorName = ({ actor }: Entry): string => (actor ? actor.name || actor.subject || actor.key || actor.kind : "nobody");

/** The actor as the event's tag names it: the service shortens a subject that no tag can contain. */
const actorTag = ({ tags }: LogEvent): string => tags?.find((tag) => tag.startsWith("actor:"))?.slice("actor:".length) ?? "";

const parameters = (of: Record<string, string> | undefined): string => Object.entries(of ?? {}).map(([name, value]) => `${name}: ${value}`).join(", ");

function auditRow(event: LogEvent): Row {
  const entry = entryOf(event);
  const outcome = nameOf(event.type) + (entry.code ? `: ${entry.code}` : "");
  const bad = ["ActionRefused", "ActionUnknown", "RequestsDenied"].includes(event.type);
  return {
    type: entry.action ?? event.stream, stream: <span class={bad ? "wrong" : ""}>{outcome}</span>,
    data: [`by ${actorName(entry)}`, parameters(entry.targets), parameters(entry.query), entry.count !== undefined && plural(entry.count, "request")].filter(Boolean).join(" · "),
  };
}

function OutcomeBadge({ of: e }: { of: LogEvent }) {
  const tone = e.type === "ActionDone" ? "ok" : e.type === "ActionStarted" || e.type === "TenantErased" ? "info" : "bad";
  return <Badge tone={tone}>{nameOf(e.type)}</Badge>;
}

/** An event, and the other one of the same action, its beginning or its outcome, unless retention has removed it. */
async function loadPair(audit: Client, id: string, signal: AbortSignal): Promise<{ event: LogEvent; other?: LogEvent }> {
  const event = await audit.readEvent(id, { signal });
  const cause = event.tags?.find((tag) => tag.startsWith("cause:"))?.slice("cause:".length);
  if (cause !== undefined) {
    try {
      return { event, other: await audit.readEvent(cause, { signal }) };
    } catch (error) {
      if (error instanceof ProblemError && error.status === 404) return { event };
      throw error;
    }
  }
  if (event.type !== "ActionStarted") return { event };
  const { events } = await audit.query({ items: [{ tags: [`cause:${id}`] }] }, { after: event.position, signal });
  return events[0] ? { event, other: events[0] } : { event };
}

function Details({ id }: { id: string }) {
  const { audit } = useSession();
  const { query } = usePlace();
  const pair = useData((signal) => loadPair(audit, id, signal), [id]);
  const underWay = pair.data?.event.type === "ActionStarted" && !pair.data.other;
  useEffect(() => {
    if (!underWay) return;
    const timer = setTimeout(pair.reload, 3000);
    return () => clearTimeout(timer);
  }, [pair.data, pair.error]);
  const at = (event: string) => href(["audit"], { ...Object.fromEntries(query), event });
  return (
    <DetailsPanel title={(pair.data && (entryOf(pair.data.event).action ?? nameOf(pair.data.event.type))) ?? "Action"}>
      <Await of={pair} what="the entry">
        {({ event: e, other }) => {
          const entry = entryOf(e);
          const [started, ended] = e.type === "ActionStarted" ? [e, other] : [other, e];
          const before = started && entryOf(started).before;
          const after = ended && entryOf(ended).after;
          const request = started && entryOf(started).request;
          const { actor, context } = entry;
          return (
            <>
              <Facts of={[
                ["Outcome", <><OutcomeBadge of={e} />{entry.status !== undefined && ` ${entry.status}`}{entry.code && ` ${entry.code}`}</>],
                actor && ["Actor", <><Link to={href(["audit"], { actor: actorTag(e) })}>{actorName(entry)}</Link> <span class="muted">{actor.kind}{actor.role && `, ${actor.role}`}</span></>],
                entry.action !== undefined && ["Action", <Link to={href(["audit"], { action: entry.action })}>{entry.action}</Link>],
                entry.targets && ["Target", parameters(entry.targets)], entry.query && ["Query", parameters(entry.query)],
                entry.count !== undefined && ["Requests", count(entry.count)], entry.network !== undefined && ["Network", entry.network],
                ["Time", <><Time at={e.recordedAt} /> <span class="muted">{exact(e.recordedAt)}</span></>],
                other && [e.type === "ActionStarted" ? "Ended" : "Began", <Link to={at(other.id)}>{nameOf(other.type)} at {count(other.position)}</Link>],
                ["Position", count(e.position)], context?.address !== undefined && ["Address", context.address],
                context?.userAgent !== undefined && ["Program", context.userAgent], context?.requestId !== undefined && ["Request", <code>{context.requestId}</code>],
              ]} />
              {underWay && <p class="problem">There is no outcome. The action is under way, or the process ended before it was recorded: it may have taken effect.</p>}
              {before !== undefined && after !== undefined && <><h3>Changes</h3><Changes before={before} after={after} /></>}
              {request !== undefined && <><h3>Request</h3><Json value={request} label="Request" /></>}
              {before !== undefined && <><h3>Before</h3><Json value={before} label="Before" /></>}
              {after !== undefined && <><h3>After</h3><Json value={after} label="After" /></>}
            </>
          );
        }}
      </Await>
    </DetailsPanel>
  );
}
