import type { Fault, ParkedDocument, ProjectionState } from "../../../../client/typescript/src/index.js";
import { collect, useData } from "../data";
import { count, duration, plural } from "../format";
import { goQuery, href, Link, usePlace } from "../router";
import { useMay, useSession } from "../session";
import { ask, Await, Badge, Button, Empty, Facts, Panel, Table, Tabs, Time, Title, toast } from "../ui";
import { record } from "../samples";
import { Documents } from "./documents";
import { DefinitionTab, NewProjection } from "./definition";
import { LagTrend } from "./home";

export function Projections() {
  const { path, query } = usePlace();
  const may = useMay();
  if (path[1] === undefined && query.get("create") && may("projections:write", "operator:operate")) return <NewProjection />;
  return path[1] === undefined ? <List /> : <Details key={path[1]} name={path[1]} />;
}

const first = `curl -s -X PUT '${location.origin}/v1/projections/orders' -H "Authorization: Bearer $MANIFOLD_KEY" -H 'Content-Type: application/json' \\
  -d '{"source": {"categories": ["order"]}, "key": "event.stream", "on": {"*": "merge(doc, event.data)"}}'`;

function List() {
  const { client, caller } = useSession();
  const may = useMay();
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
      <Title text="Projections" about="Rules that fold the log into documents"
        actions={may("projections:write", "operator:operate") && <Link class="button primary" to={href(["projections"], { create: 1 })}>Create …</Link>} />
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
                (p.definition.mode ?? "async") + (p.shared ? ", shared" : ""),
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
            {tab === "documents" && <Documents name={name} byStream={(p.definition.key ?? "event.stream") === "event.stream"} />}
            {tab === "parked" && <Parked name={name} reload={state.reload} />}
            {tab === "definition" && <DefinitionTab key={p.revision} of={p} saved={projection.reload} />}
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
            <Table label="Parked documents" heads={["Document", "Waiting events", "Fault", "Event", "Since", ""]} rows={items} keyOf={({ id }) => id}
            row={(document) => [
              document.id, count(document.events), document.fault.message,
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
