import { useEffect, useRef, useState } from "preact/hooks";
import type { Client, NewRebuild, Rebuild } from "../../../../client/typescript/src/index.js";
import { useData } from "../data";
import { bytes, capital, count, duration, plural } from "../format";
import { go, href, Link, usePlace } from "../router";
import { readLines, save, savedBytes } from "../save";
import { useMay, useSession } from "../session";
import { Actor, ask, Await, Badge, Button, Empty, Facts, Panel, Progress, Table, Time, Title, toast } from "../ui";
import { Changes } from "./streams";

/** The states of a rebuild that has not ended. */
export const activeStates: Array<Rebuild["state"]> = ["queued", "building", "catching-up", "validating", "awaiting-approval"];

/** Loads the rebuilds of all projections, the newest first. */
export async function loadRebuilds(client: Client, signal: AbortSignal): Promise<Rebuild[]> {
  const { projections } = await client.listProjections({ signal });
  const lists = await Promise.all(projections.map(({ name }) => client.listRebuilds(name, { signal })));
  return lists.flatMap(({ rebuilds }) => rebuilds).toSorted((a, b) => b.createdAt.localeCompare(a.createdAt));
}

/** What a rebuild does, in words. */
export function phase({ state, paused, cancelling, dryRun }: Rebuild): string {
  if (cancelling) return "Cancelling";
  if (paused) return "Paused";
  const words = { queued: "Queued", building: "Building", "catching-up": "Catching up", validating: "Comparing", "awaiting-approval": "Awaits approval", swapped: "Live", reported: "Reported", "rolled-back": "Rolled back", cancelled: "Cancelled", failed: "Failed" };
  return words[state] + (dryRun ? " (dry run)" : "");
}

export function timeLeft({ state, secondsLeft }: Rebuild): string {
  return secondsLeft === undefined || (state !== "building" && state !== "catching-up") ? "–" : duration(secondsLeft);
}

function Phase({ of: r }: { of: Rebuild }) {
  const tone = r.state === "failed" ? "bad" : r.state === "swapped" || r.state === "reported" ? "ok" : r.paused || r.state === "awaiting-approval" ? "warn" : activeStates.includes(r.state) ? "info" : "plain";
  return <Badge tone={tone}>{phase(r)}</Badge>;
}

export function Rebuilds() {
  const { path } = usePlace();
  return path[1] !== undefined && path[2] !== undefined ? <Details key={path[2]} projection={path[1]} id={path[2]} /> : <List />;
}

function List() {
  const { client, caller } = useSession();
  const may = useMay();
  const { query } = usePlace();
  const only = query.get("projection");
  const rebuilds = useData((signal) => loadRebuilds(client, signal), [], { every: 3000 });
  const projections = useData(async (signal) => (await client.listProjections({ signal })).projections.filter(({ shared }) => !caller.tenant || !shared), []);
  const start = (projection: string, options: NewRebuild) => async () => {
    const { id } = await client.startRebuild(projection, options);
    go(href(["rebuilds", projection, id]));
  };
  return (
    <>
      <Title text="Rebuilds" about={only ? <>Of {only}. <Link to={href(["rebuilds"])}>Show all</Link></> : "Documents made anew beside the live ones, and swapped in"} />
      {may("projections:write", "operator:operate") && (
        <Panel title="Start">
          <Await of={projections} what="projections">
            {(list) => {
              const shown = list.filter(({ name }) => !only || name === only);
              return shown.length === 0 ? <p class="muted">There is no projection of yours to rebuild.</p> : (
                <Table label="Projections to rebuild" heads={["Projection", "Build", "Changed", ""]} rows={shown} keyOf={({ name }) => name}
                  row={({ name, build, updatedAt }) => [
                    <Link to={href(["projections", name])}>{name}</Link>, count(build), <Time at={updatedAt} />,
                    <div class="actions">
                      <Button onPress={start(name, { dryRun: true })}>Dry run</Button>
                      <Button onPress={start(name, { approve: "manual" })}>Rebuild</Button>
                    </div>,
                  ]} />
              );
            }}
          </Await>
          <p class="muted small">A dry run reports the difference to the live documents and changes nothing. A rebuild waits for your approval before the swap.</p>
        </Panel>
      )}
      <Panel title="Rebuilds">
        <Await of={rebuilds} what="rebuilds">
          {(all) => {
            const shown = all.filter(({ projection }) => !only || projection === only);
            return shown.length === 0 ? <Empty command={`manifold rebuild ${only ?? "orders"} --dry-run`}>There was no rebuild yet.</Empty> : (
              <Table label="Rebuilds" heads={["Started", "Projection", "Phase", "Progress", "Documents", "By"]} rows={shown} keyOf={({ id }) => id}
                row={(r) => [
                  <Link to={href(["rebuilds", r.projection, r.id])}><Time at={r.createdAt} /></Link>, r.projection, <Phase of={r} />,
                  `${count(r.eventsDone)} of ${plural(r.eventsTotal, "event")}`, count(r.documents), r.by ? <Actor name={r.by} /> : "–",
                ]} />
            );
          }}
        </Await>
      </Panel>
    </>
  );
}

function Details({ projection, id }: { projection: string; id: string }) {
  const { client } = useSession();
  const rebuild = useData((signal) => client.getRebuild(projection, id, { signal }), [projection, id], { every: 1000 });
  return (
    <>
      <Title text={`Rebuild of ${projection}`} about={<><Link to={href(["rebuilds"])}>All rebuilds</Link> · <Link to={href(["projections", projection])}>the projection</Link></>}
        actions={rebuild.data && <Actions of={rebuild.data} reload={rebuild.reload} />} />
      <Await of={rebuild} what="the rebuild">
        {(r) => (
          <>
            <Facts of={[
              ["Phase", <Phase of={r} />],
              ["Build", count(r.build)],
              ["Events", `${count(r.eventsDone)} of ${count(r.eventsTotal)}`],
              r.eventsPerSecond !== undefined && ["Speed", `${count(Math.round(r.eventsPerSecond))} events/s`],
              timeLeft(r) !== "–" && ["Time left", timeLeft(r)],
              ["Documents", `${count(r.documents)}, live ${count(r.liveDocuments)}`],
              ["Started", <Time at={r.startedAt ?? r.createdAt} />],
              r.endedAt !== undefined && ["Ended", <Time at={r.endedAt} />],
              r.rollbackUntil !== undefined && ["Can be rolled back until", <Time at={r.rollbackUntil} />],
            ]} />
            {activeStates.includes(r.state) && <Progress done={r.eventsDone} total={r.eventsTotal} label="Events read" />}
            {r.error && <p class="problem">{r.error}</p>}
            <Comparison of={r} />
          </>
        )}
      </Await>
    </>
  );
}

function Actions({ of: r, reload }: { of: Rebuild; reload: () => void }) {
  const { client } = useSession();
  const may = useMay();
  if (!may("projections:write", "operator:operate")) return null;
  const act = (call: () => Promise<unknown>, done: string) => async () => {
    await call();
    toast(done);
    reload();
  };
  const { projection, id, state, paused } = r;
  const active = activeStates.includes(state) && !r.cancelling;
  const rollBack = () => ask({
    title: "Roll back?", text: `The documents of the build before become live again. The build ${count(r.build)} is removed.`, action: "Roll back", name: projection,
    run: act(async () => {
      const { id: back } = await client.rollbackRebuild(projection, id);
      go(href(["rebuilds", projection, back]));
    }, "Rolling back"),
  });
  return (
    <>
      {state === "awaiting-approval" && !r.approved && <Button tone="primary" onPress={act(() => client.approveRebuild(projection, id), "Approved: the build is swapped in")}>Approve</Button>}
      {active && state !== "awaiting-approval" && (paused ? (
        <Button onPress={act(() => client.resumeRebuild(projection, id), "The rebuild continues")}>Resume</Button>
      ) : (
        <Button onPress={act(() => client.pauseRebuild(projection, id), "The rebuild pauses")}>Pause</Button>
      ))}
      {active && <Button onPress={act(() => client.cancelRebuild(projection, id), "The rebuild is being cancelled")}>Cancel</Button>}
      {state === "swapped" && r.rollbackUntil !== undefined && Date.parse(r.rollbackUntil) > Date.now() && <Button onPress={rollBack}>Roll back</Button>}
    </>
  );
}

function SaveDifference({ of: r }: { of: Rebuild }) {
  const { client } = useSession();
  const [read, setRead] = useState<number>();
  const controller = useRef(new AbortController());
  useEffect(() => () => controller.current.abort(new DOMException("the page was left", "AbortError")), []);
  const run = async () => {
    setRead(0);
    try {
      const { file, more } = await readLines(await client.exportDifference(r.projection, r.id, { signal: controller.current.signal }), setRead);
      save(file, `${r.projection}-difference.ndjson`);
      toast(more ? `Saved the first ${bytes(savedBytes)}. For all: manifold rebuild diff ${r.projection} -o ndjson` : "Saved all differences");
    } catch (error) {
      if (!controller.current.signal.aborted) throw error;
    } finally {
      setRead(undefined);
    }
  };
  return <>{read !== undefined && <span role="status" class="muted">{bytes(read)} read …</span>}<Button onPress={run}>Save all differences</Button></>;
}

/**
 * One side of an example. Of a changed document, the service sends the fields that differ, and leaves out a side that has
 * none.
 */
const sideOf = (kind: string, fields: unknown): unknown => (kind === "changed" ? (fields ?? {}) : fields);

function Comparison({ of: r }: { of: Rebuild }) {
  const { caller } = useSession();
  const may = useMay();
  const { difference } = r;
  if (!difference) return null;
  const kinds = { new: "ok", gone: "bad", changed: "warn" } as const;
  return (
    <>
      <Panel title="Difference to the live documents" actions={r.state === "awaiting-approval" && (caller.tenant ? may("documents:read") : may("operator")) && <SaveDifference of={r} />}>
        <div class="figures">
          {([["New", difference.new], ["Gone", difference.gone], ["Changed", difference.changed], ["Same", difference.same]] as const).map(([name, n]) => (
            <div class="figure" key={name}><p class="muted">{name}</p><p class="value">{count(n)}</p></div>
          ))}
        </div>
      </Panel>
      {difference.examples.map((example) => (
        <Panel key={example.tenant + example.id} title={example.id} actions={<Badge tone={kinds[example.kind]}>{capital(example.kind)}</Badge>}>
          <Changes before={sideOf(example.kind, example.live)} after={sideOf(example.kind, example.built)} />
        </Panel>
      ))}
    </>
  );
}
