import { useState } from "preact/hooks";
import type { Fault, ParkedDocument, ProjectionState } from "../../../../client/typescript/src/index.js";
import { collect, useData } from "../data";
import { count, curl, duration, plural } from "../format";
import { goQuery, href, Link, usePlace } from "../router";
import { useMay, useSession } from "../session";
import { ask, Await, Badge, Button, copy, Empty, Facts, Field, Json, Panel, Table, Tabs, Time, Title, toast } from "../ui";
import { record } from "../samples";
import { LagTrend } from "./home";

export function Projections() {
  const { path } = usePlace();
  return path[1] === undefined ? <List /> : <Details key={path[1]} name={path[1]} />;
}

const first = `curl -s -X PUT '${location.origin}/v1/projections/orders' -H "Authorization: Bearer $MANIFOLD_KEY" -H 'Content-Type: application/json' \\
  -d '{"source": {"categories": ["order"]}, "key": "event.stream", "on": {"*": "merge(doc, event.data)"}}'`;

function List() {
  const { client, caller } = useSession();
  const list = useData(async (signal) => {
    const { projections } = await client.listProjections({ signal });
    // An operator has no log of its own, so a shared projection has no state there.
    const states = caller.tenant ? await Promise.all(projections.map(({ name }) => client.getProjectionState(name, { signal }).catch(() => undefined))) : [];
    return projections.map((projection, i) => {
      const state = states[i];
      if (state) record(`lag projection ${projection.name}`, state.lagPositions ?? 0);
      return { projection, state };
    });
  }, [], { every: 3000 });
  return (
    <>
      <Title text="Projections" about="Rules that fold the log into documents" />
      <Panel>
        <Await of={list} what="projections">
          {(rows) => rows.length === 0 ? <Empty command={first}>There is no projection yet. Make one:</Empty> : (
            <Table label="Projections" heads={["Name", "State", "Lag", "Trend", "Parked", "Mode", "Changed"]} rows={rows} keyOf={({ projection }) => projection.name}
              row={({ projection: p, state }) => [
                <Link to={href(["projections", p.name])}>{p.name}</Link>,
                state ? <StateBadge of={state} /> : p.shared ? <Badge>Shared</Badge> : "–",
                state ? lagOf(state) : "–",
                <LagTrend id={`projection ${p.name}`} />,
                state?.parked ? <Badge tone="warn">{count(state.parked)}</Badge> : "0",
                p.definition.mode ?? "async",
                <Time at={p.updatedAt} />,
              ]} />
          )}
        </Await>
      </Panel>
    </>
  );
}

function StateBadge({ of: { state } }: { of: ProjectionState }) {
  const shown = { running: ["info", "Catching up"], "caught-up": ["ok", "Caught up"], faulted: ["bad", "Stopped"], held: ["warn", "Held"], unavailable: ["bad", "Unavailable"], lost: ["bad", "Lost"] } as const;
  const [tone, text] = shown[state];
  return <Badge tone={tone}>{text}</Badge>;
}

function lagOf({ lagPositions, lagSeconds }: ProjectionState): string {
  if (lagPositions === undefined) return "–";
  return lagPositions === 0 ? "0" : `${count(lagPositions)}${lagSeconds === undefined ? "" : ` · ${duration(lagSeconds)}`}`;
}

function Details({ name }: { name: string }) {
  const { client, caller } = useSession();
  const may = useMay();
  const { query } = usePlace();
  const projection = useData((signal) => client.getProjection(name, { signal }), [name]);
  const state = useData(async (signal) => {
    if (!caller.tenant) return undefined;
    const answer = await client.getProjectionState(name, { signal });
    record(`lag projection ${name}`, answer.lagPositions ?? 0);
    return answer;
  }, [name], { every: 2000 });
  const tabs: Array<[string, string]> = [
    ...(may("documents:read") ? [["documents", "Documents"] as [string, string]] : []),
    ...(caller.tenant ? [["parked", `Parked${state.data?.parked ? ` (${count(state.data.parked)})` : ""}`] as [string, string]] : []),
    ["definition", "Definition"],
  ];
  const wanted = query.get("tab");
  const tab = tabs.some(([id]) => id === wanted) ? wanted! : tabs[0]![0];
  return (
    <>
      <Title text={name} about={<Link to={href(["projections"])}>All projections</Link>}
        actions={<Link class="button" to={href(["rebuilds"], { projection: name })}>Rebuilds</Link>} />
      <Await of={projection} what="the projection">
        {(p) => (
          <>
            {state.data && <Status of={state.data} name={name} reload={state.reload} />}
            {!state.data && <Facts of={[["Build", count(p.build)], ["Version", count(p.version)], ["Changed", <Time at={p.updatedAt} />]]} />}
            <Tabs label="Parts of the projection" tabs={tabs} current={tab} choose={(id) => goQuery({ tab: id }, { replace: true })} />
            {tab === "documents" && <Documents name={name} />}
            {tab === "parked" && <Parked name={name} reload={state.reload} />}
            {tab === "definition" && <Panel title="Definition"><Json value={p.definition} label="Definition" /></Panel>}
          </>
        )}
      </Await>
    </>
  );
}

function Status({ of: s, name, reload }: { of: ProjectionState; name: string; reload: () => void }) {
  return (
    <>
      <Facts of={[
        ["State", <StateBadge of={s} />],
        ["Lag", <>{lagOf(s)} <LagTrend id={`projection ${name}`} /></>],
        s.checkpoint !== undefined && ["Position", `${count(s.checkpoint)} of ${count(s.head)}`],
        ["Build", count(s.build)],
        s.parked !== undefined && ["Parked documents", count(s.parked)],
      ]} />
      {s.error && <p class="problem">{s.error}{s.nextTry && <> It is tried again <Time at={s.nextTry} />.</>}</p>}
      {s.loss && <p class="problem">Retention has removed events of {s.loss.map(({ category }) => category).join(", ")} that the documents lack.</p>}
      {s.fault && <Stopped fault={s.fault} name={name} reload={reload} />}
    </>
  );
}

function Stopped({ fault, name, reload }: { fault: Fault; name: string; reload: () => void }) {
  const { client } = useSession();
  const may = useMay();
  const retry = async () => {
    await client.retryProjection(name);
    toast("The event is tried again");
    reload();
  };
  const skip = () => ask({
    title: "Skip the event?", text: `${name} continues without the event at position ${count(fault.position)}. You can withdraw this later, and rebuild.`,
    action: "Skip", input: { label: "Reason" },
    run: async (reason) => {
      await client.skipEvent(name, { position: fault.position, reason });
      toast("The event is skipped");
      reload();
    },
  });
  return (
    <Panel title="Stopped at an event" class="bad" actions={may("projections:write") && <><Button tone="primary" onPress={retry}>Retry</Button><Button onPress={skip}>Skip</Button></>}>
      <FaultFacts fault={fault} />
    </Panel>
  );
}

function FaultFacts({ fault }: { fault: Fault }) {
  return (
    <>
      <p><strong>{fault.message}</strong></p>
      <Facts of={[
        ["Event", <Link to={href(["events"], { event: fault.eventId })}>{fault.type ?? "event"} at {count(fault.position)}</Link>],
        fault.stream !== undefined && ["Stream", <Link to={href(["streams", fault.stream])}>{fault.stream}</Link>],
        fault.documentId !== undefined && ["Document", fault.documentId],
        fault.where !== undefined && ["Where", <code>{fault.where}</code>],
        fault.expression !== undefined && ["Expression", <code>{fault.expression}</code>],
        ["Since", <Time at={fault.at} />],
        fault.nextRetryAt !== undefined && ["Next retry", <Time at={fault.nextRetryAt} />],
      ]} />
    </>
  );
}

function Parked({ name, reload }: { name: string; reload: () => void }) {
  const { client } = useSession();
  const may = useMay();
  const parked = useData((signal) => collect(client.pages(client.listParkedDocuments(name, { signal }), { signal }), (page) => page.parked, 100), [name], { every: 5000 });
  const refresh = () => {
    parked.reload();
    reload();
  };
  const replay = async (id: string) => {
    const { stillParked } = await client.replayParkedDocument(name, id);
    toast(stillParked > 0 ? `${id} meets the fault again` : `${id} is up to date`, stillParked > 0 ? "bad" : "ok");
    refresh();
  };
  const replayAll = async () => {
    const { documents, stillParked } = await client.replayParkedDocuments(name);
    toast(`${plural(documents, "document")} up to date, ${count(stillParked)} still parked`);
    refresh();
  };
  const discard = (document: ParkedDocument) => ask({
    title: "Discard the waiting events?", text: `${document.id} stays as it is, without ${plural(document.events, "waiting event")}. Only a rebuild brings them back.`,
    action: "Discard", name: document.id,
    run: async () => {
      await client.discardParkedDocument(name, document.id);
      toast(`The waiting events of ${document.id} are discarded`);
      refresh();
    },
  });
  const write = may("projections:write");
  return (
    <Panel title="Parked documents" actions={write && parked.data && parked.data.items.length > 0 && <Button onPress={replayAll}>Retry all</Button>}>
      <Await of={parked} what="parked documents">
        {({ items, more }) => items.length === 0 ? <p class="muted">No document is parked.</p> : (
          <>
            {more && <p class="muted">The first {count(items.length)} documents.</p>}
            <Table label="Parked documents" heads={["Document", "Waiting", "Fault", "Event", "Since", ""]} rows={items} keyOf={({ id }) => id}
            row={(document) => [
              document.id, plural(document.events, "event"), document.fault.message,
              <Link to={href(["events"], { event: document.fault.eventId })}>{count(document.fault.position)}</Link>,
              <Time at={document.fault.at} />,
              write && <div class="actions"><Button onPress={() => replay(document.id)}>Retry</Button><Button onPress={() => discard(document)}>Discard</Button></div>,
              ]} />
          </>
        )}
      </Await>
    </Panel>
  );
}

/** How many fields a table of documents has as columns. */
const columns = 6;

function Documents({ name }: { name: string }) {
  const { client } = useSession();
  const { query } = usePlace();
  const filter = query.get("filter") ?? "";
  const orderBy = query.get("orderBy") ?? "";
  const shown = query.get("document");
  const [typed, setTyped] = useState(filter);
  const [order, setOrder] = useState(orderBy);
  const documents = useData((signal) => client.listDocuments(name, { pageSize: 50, signal, ...(filter ? { filter } : {}), ...(orderBy ? { orderBy } : {}) }), [name, filter, orderBy]);
  const submit = (event: Event) => {
    event.preventDefault();
    goQuery({ filter: typed.trim(), orderBy: order.trim(), document: undefined });
  };
  const path = `/v1/projections/${encodeURIComponent(name)}/documents?${new URLSearchParams({ ...(filter ? { filter } : {}), ...(orderBy ? { orderBy } : {}) })}`;
  return (
    <Panel title="Documents" actions={<Button onPress={() => copy(curl(path), "Copied the command")}>Copy as curl</Button>}>
      <form class="filters" role="search" aria-label="Documents" onSubmit={submit}>
        <Field label="Filter" class="wide" value={typed} data-search placeholder='doc.status == "paid" && doc.total > 100' onInput={(event) => setTyped(event.currentTarget.value)} />
        <Field label="Order" value={order} placeholder="total desc" onInput={(event) => setOrder(event.currentTarget.value)} />
        <Button type="submit" tone="primary">Show</Button>
      </form>
      {shown !== null && <Shown name={name} id={shown} />}
      <Await of={documents} what="documents">
        {({ documents: rows, warnings }) => {
          const fields = [...new Set(rows.slice(0, 20).flatMap(({ document }) => Object.keys(document)))].slice(0, columns);
          return rows.length === 0 ? <p class="muted">{filter ? "No document matches the filter." : "There is no document yet."}</p> : (
            <>
              {warnings?.map((warning) => <p key={warning} class="notice">{warning}</p>)}
              <Table label="Documents" heads={["Document", ...fields, "Position"]} rows={rows} keyOf={({ id }) => id}
                row={({ id, document, position }) => [
                  <Link to={href(["projections", name], { ...Object.fromEntries(query), document: id })}>{id}</Link>,
                  ...fields.map((field) => cell(document[field])), count(position),
                ]} />
              {rows.length >= 50 && <p class="muted">The first 50 documents. Narrow the filter to see others.</p>}
            </>
          );
        }}
      </Await>
    </Panel>
  );
}

function cell(value: unknown): string {
  if (value === undefined) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 60 ? text.slice(0, 60) + "…" : text;
}

function Shown({ name, id }: { name: string; id: string }) {
  const { client } = useSession();
  const document = useData((signal) => client.getDocument(name, id, { signal }), [name, id], { every: 3000 });
  return (
    <div class="shown">
      <div class="panel-head"><h3>{id}</h3><Button tone="quiet" aria-label="Close the document" onPress={() => goQuery({ document: undefined })}>×</Button></div>
      <Await of={document} what="the document">{(d) => <><p class="muted small">After the event at <Link to={href(["events"], { at: d.position })}>position {count(d.position)}</Link></p><Json value={d.document} label="Document" /></>}</Await>
    </div>
  );
}
