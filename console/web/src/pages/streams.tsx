import { useEffect, useRef, useState } from "preact/hooks";
import { type Event as LogEvent, ProblemError, type State } from "../../../../client/typescript/src/index.js";
import { useData } from "../data";
import { diff } from "../diff";
import { bytes, count, curl, plural } from "../format";
import { go, goQuery, href, Link, usePlace } from "../router";
import { useMay, useSession } from "../session";
import { CommandForm } from "./command-form";
import { Await, Badge, Button, copy, Empty, Facts, Field, Json, Panel, Problem, Table, Time, Title } from "../ui";

export function Streams() {
  const { path } = usePlace();
  return path[1] === undefined ? <Find /> : <Stream key={path[1]} name={path[1]} />;
}

function Find() {
  const { client } = useSession();
  const { query } = usePlace();
  const prefix = query.get("prefix") ?? "";
  const [typed, setTyped] = useState(prefix);
  const streams = useData((signal) => client.listStreams({ pageSize: 200, signal, ...(prefix ? { prefix } : {}) }), [prefix]);
  const aggregates = useData((signal) => client.listAggregates({ signal }), []);
  const submit = (event: Event) => {
    event.preventDefault();
    goQuery({ prefix: typed.trim() });
  };
  return (
    <>
      <Title text="Streams" about="The events of one aggregate each, and its state at any version" />
      <form class="filters" role="search" aria-label="Streams" onSubmit={submit}>
        <Field label="Name begins with" value={typed} data-search placeholder="order-" onInput={(event) => setTyped(event.currentTarget.value)} />
        <Button type="submit" tone="primary">Find</Button>
        <Button disabled={typed.trim() === ""} onPress={() => go(href(["streams", typed.trim()]))}>Open this stream</Button>
      </form>
      <div class="columns">
        <Panel title="Streams">
          <Await of={streams} what="streams">
            {({ streams: names }) => names.length === 0 ? (
              <Empty command={curl("/v1/streams/order-1/events", { method: "POST", body: [{ type: "OrderPlaced", data: { customer: "Ada" } }] })}>No stream begins so. An append makes a stream:</Empty>
            ) : (
              <>
                <ul class="names">{names.map((name) => <li key={name}><Link to={href(["streams", name])}>{name}</Link></li>)}</ul>
                {names.length >= 200 && <p class="muted">The first 200 streams. Give more of the name to see others.</p>}
              </>
            )}
          </Await>
        </Panel>
        <Panel title="Aggregates">
          <Await of={aggregates} what="aggregates">
            {({ aggregates: list }) => list.length === 0 ? (
              <Empty command="manifold aggregate put order.yaml">A definition folds the events of a category's streams into states. There is none yet.</Empty>
            ) : (
              <ul class="names">{list.map(({ category, commands }) => (
                <li key={category}><Link to={href(["streams"], { prefix: `${category}-` })}>{category}</Link> <span class="muted">{commands ? plural(Object.keys(commands).length, "command") : "no commands"}</span></li>
              ))}</ul>
            )}
          </Await>
        </Panel>
      </div>
    </>
  );
}

/** How many events of a stream the page lists, around the shown version. */
const listed = 100;

function Stream({ name }: { name: string }) {
  const { client } = useSession();
  const may = useMay();
  const { query } = usePlace();
  const about = useData((signal) => client.getStreamMetadata(name, { signal }), [name], { every: 5000 });
  const newest = about.data?.version ?? 0;
  const version = Math.min(Number(query.get("version")) || newest, newest);
  const against = Math.min(Number(query.get("against")) || Math.max(version - 1, 0), newest);
  const lastListed = Math.min(newest, Math.max(version + listed / 2, listed));
  const events = useData(async (signal) => (newest === 0 ? { events: [] } : client.readStream(name, { from: lastListed, direction: "backward", count: listed, signal })), [name, lastListed]);
  const show = (version: number) => goQuery({ version }, { replace: true });
  const category = name.split("-")[0]!;
  return (
    <>
      <Title text={name} about={<>A stream of <Link to={href(["streams"], { prefix: `${category}-` })}>{category}</Link></>}
        actions={<><Link class="button" to={href(["events"], { stream: name })}>Browse events</Link><Button onPress={() => copy(curl(`/v1/streams/${encodeURIComponent(name)}/state?version=${version}`), "Copied the command")}>Copy as curl</Button></>} />
      <Await of={about} what="the stream">
        {(metadata) => (
          <>
            <Facts of={[
              ["Version", count(metadata.version)],
              ["Events", count(metadata.events)],
              ["Size", bytes(metadata.bytes)],
              metadata.firstAt !== undefined && ["First recorded", <Time at={metadata.firstAt} />],
              metadata.lastAt !== undefined && ["Last recorded", <Time at={metadata.lastAt} />],
            ]} />
            <Panel title="Version" class="version">
              <div class="slider">
                <Button aria-label="One version back" disabled={version <= 1} onPress={() => show(version - 1)}>‹</Button>
                <input type="range" min={1} max={newest} value={version} aria-label="Version" onInput={(event) => show(Number(event.currentTarget.value))} />
                <Button aria-label="One version forward" disabled={version >= newest} onPress={() => show(version + 1)}>›</Button>
                <output>{count(version)} of {count(newest)}</output>
              </div>
            </Panel>
            <div class="columns">
              <Versions name={name} version={version} against={against} newest={newest} />
              <Panel title="Events">
                <Await of={events} what="events">{({ events: list }) => <StreamEvents list={list} version={version} show={show} />}</Await>
              </Panel>
            </div>
            {may("commands:send") && <CommandForm stream={name} sent={about.reload} />}
            <Snapshots name={name} />
          </>
        )}
      </Await>
    </>
  );
}

function StreamEvents({ list, version, show }: { list: LogEvent[]; version: number; show: (version: number) => void }) {
  const chosen = list.find((event) => event.version === version);
  const frame = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const button = frame.current?.querySelector<HTMLElement>("[aria-pressed=true]");
    if (button) frame.current!.scrollTop = button.offsetTop - frame.current!.offsetTop - frame.current!.clientHeight / 2;
  }, [version, list]);
  return (
    <>
      <ol class="versions" ref={frame}>
        {list.map((event) => (
          <li key={event.version}>
            <button type="button" aria-pressed={event.version === version} onClick={() => show(event.version)}>
              <span class="position">{count(event.version)}</span> <span class="type" title={event.type}>{event.type}</span> <Time at={event.occurredAt ?? event.recordedAt} />
            </button>
          </li>
        ))}
      </ol>
      {chosen && (
        <>
          <div class="panel-head"><h3>Data of version {count(version)}</h3><Link to={href(["events"], { stream: chosen.stream, event: chosen.id })}>All of the event</Link></div>
          <Json value={chosen.data} label="Data" tools={false} />
        </>
      )}
    </>
  );
}

function Versions({ name, version, against, newest }: { name: string; version: number; against: number; newest: number }) {
  const { client } = useSession();
  const states = useData(async (signal) => {
    const at = (version: number): Promise<State | undefined> => (version < 1 ? Promise.resolve(undefined) : client.getState(name, { version, acceptLoss: true, signal }));
    const [after, before] = await Promise.all([at(version), at(against)]);
    return { after, before };
  }, [name, version, against]);
  const category = name.split("-")[0]!;
  if (states.error instanceof ProblemError && states.error.code === "not-found") {
    return (
      <Panel title="State">
        <Empty command={curl(`/v1/aggregates/${encodeURIComponent(category)}`, { method: "PUT", body: { on: { "*": "merge(state, event.data)" } } })}>
          No definition folds the streams of {category} into states yet.
        </Empty>
      </Panel>
    );
  }
  if (states.error !== undefined) return <Panel title="State"><Problem error={states.error} retry={states.reload} /></Panel>;
  return (
    <div>
      <Panel title={`Difference to version ${count(against)}`}
        actions={<input class="short" type="number" min={0} max={newest} value={against} aria-label="Compare with version" onChange={(event) => goQuery({ against: event.currentTarget.value }, { replace: true })} />}>
        <Await of={states} what="the difference">{({ after, before }) => <Changes before={before?.state} after={after?.state} />}</Await>
      </Panel>
      <Panel title={`State at version ${count(version)}`}>
        <Await of={states} what="the state">
          {({ after }) => (
            <>
              {after?.loss && <p class="problem">Retention has removed events up to version {count(after.loss.removedTo)}. The state lacks them.</p>}
              <Json value={after?.state} label="State" />
              {after && <p class="muted small">{after.snapshotVersion > 0 ? `From the snapshot of version ${count(after.snapshotVersion)} and ` : "From "}{plural(after.eventsRead, "event")}</p>}
            </>
          )}
        </Await>
      </Panel>
    </div>
  );
}

/** The places in which two values differ. */
export function Changes({ before, after }: { before: unknown; after: unknown }) {
  const changes = diff(before, after);
  if (changes.length === 0) return <p class="muted">No difference.</p>;
  return (
    <Table label="Differences" heads={["Place", "Before", "After"]} rows={changes} keyOf={({ path }) => path}
      row={({ path, before: old, after: now }) => [
        <code>{path || "whole state"}</code>,
        old === undefined ? <Badge>absent</Badge> : <del>{JSON.stringify(old)}</del>,
        now === undefined ? <Badge>absent</Badge> : <ins>{JSON.stringify(now)}</ins>,
      ]} />
  );
}

function Snapshots({ name }: { name: string }) {
  const { client } = useSession();
  const snapshots = useData((signal) => client.listSnapshots(name, { signal }), [name]);
  if (!snapshots.data || snapshots.data.snapshots.length === 0) return null;
  return (
    <Panel title="Snapshots">
      <Table label="Snapshots" heads={["Version", "Tag", "Taken"]} rows={snapshots.data.snapshots} keyOf={({ version, tag }) => `${version} ${tag}`}
        row={({ version, tag, takenAt }) => [<Link to={href(["streams", name], { version })}>{count(version)}</Link>, tag || "–", <Time at={takenAt} />]} />
    </Panel>
  );
}
