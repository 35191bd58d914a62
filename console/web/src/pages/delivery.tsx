import { useState } from "preact/hooks";
import type { Client, Egress, Subscription, SubscriptionProgress, Webhook, WebhookAttempt } from "../../../../client/typescript/src/index.js";
import { collect, useData } from "../data";
import { capital, count, duration, plural } from "../format";
import { goQuery, href, Link, usePlace } from "../router";
import { useMay, useSession } from "../session";
import { ask, Await, Badge, Button, Code, Dialog, Empty, Facts, Json, messageOf, Panel, Select, Table, Tabs, Time, Title, toast } from "../ui";

export function Delivery() {
  const { path } = usePlace();
  const may = useMay();
  if (path[1] === "groups" && path[2] !== undefined) return <Group key={path[2]} name={path[2]} />;
  if (path[1] === "webhooks" && path[2] !== undefined) return <WebhookPage key={path[2]} name={path[2]} />;
  if (path[1] === "egresses" && path[2] !== undefined && may("operator:read")) return <EgressPage key={path[2]} name={path[2]} />;
  if (may("operator:read")) return <><Title text="Delivery" about="Egresses, which publish events to message brokers" /><Egresses /></>;
  return <Overview />;
}

/** Loads all webhooks. The list does not say which ones fail, so those that retry are asked for one by one. */
export async function loadWebhooks(client: Client, signal: AbortSignal): Promise<Webhook[]> {
  const { items } = await collect(client.pages(client.listWebhooks({ signal }), { signal }), (page) => page.webhooks);
  return Promise.all(items.map((w) => (w.progress.retrying + w.progress.inFlight > 0 ? client.getWebhook(w.name, { signal }) : w)));
}

const sourceOf = ({ source, types }: { source: { stream?: string; categories?: string[] }; types?: string[] }): string =>
  (source.stream ?? (source.categories?.length ? source.categories.join(", ") : "the whole log")) + (types?.length ? `: ${types.join(", ")}` : "");

function totals(progress: SubscriptionProgress[], head: number) {
  const sum = (of: (p: SubscriptionProgress) => number) => progress.reduce((total, p) => total + of(p), 0);
  return {
    lag: progress.reduce((most, p) => Math.max(most, head - p.checkpoint), 0),
    inFlight: sum((p) => p.inFlight), retrying: sum((p) => p.retrying), deadLetters: sum((p) => p.deadLetters),
  };
}

function Overview() {
  const { client } = useSession();
  const groups = useData(async (signal) => {
    const { items } = await collect(client.pages(client.listSubscriptions({ signal }), { signal }), (page) => page.subscriptions);
    return items.filter(({ name }) => !name.startsWith("webhook."));
  }, [], { every: 3000 });
  const own = { ...groups, data: groups.data?.filter(({ name }) => !name.startsWith(egressPrefix)) };
  const published = groups.data?.filter(({ name }) => name.startsWith(egressPrefix)) ?? [];
  const webhooks = useData((signal) => loadWebhooks(client, signal), [], { every: 3000 });
  return (
    <>
      <Title text="Delivery" about="Groups of consumers, webhooks, and egress to message brokers" />
      <Panel title="Groups">
        <Await of={own} what="groups">
          {(list) => list.length === 0 ? <Empty command="manifold group put send-mail --category order">There is no group yet. Create one, and receive its events:</Empty> : (
            <Table label="Groups" heads={["Name", "State", "Events", "Done up to", "In flight", "Retrying", "Dead letters"]} rows={list} keyOf={({ name }) => name}
              row={(g) => {
                const t = totals(g.progress, g.head);
                return [
                  <Link to={href(["delivery", "groups", g.name])}>{g.name}</Link>, <GroupBadge of={g} />, sourceOf(g), `${count(g.head - t.lag)} of ${count(g.head)}`, count(t.inFlight), count(t.retrying),
                  t.deadLetters > 0 ? <Badge tone="warn">{count(t.deadLetters)}</Badge> : "0",
                ];
              }} />
          )}
        </Await>
      </Panel>
      <Panel title="Webhooks">
        <Await of={webhooks} what="webhooks">
          {(items) => items.length === 0 ? <Empty command="manifold webhook put orders --to https://example.com/hook --category order">There is no webhook yet. Create one:</Empty> : (
            <Table label="Webhooks" heads={["Name", "State", "URL", "Events", "Retrying", "Dead letters"]} rows={items} keyOf={({ name }) => name}
              row={(w) => [
                <Link to={href(["delivery", "webhooks", w.name])}>{w.name}</Link>, <WebhookBadge of={w} />, <span class="url">{w.url}</span>, sourceOf(w), count(w.progress.retrying),
                w.progress.deadLetters > 0 ? <Badge tone="warn">{count(w.progress.deadLetters)}</Badge> : "0",
              ]} />
          )}
        </Await>
      </Panel>
      {published.length > 0 && (
        <Panel title="Egress">
          <Table label="Egress" heads={["Name", "State", "Events", "Done up to", "Dead letters"]} rows={published} keyOf={({ name }) => name}
            row={(g) => {
              const t = totals(g.progress, g.head);
              return [
                <Link to={href(["delivery", "groups", g.name])}>{g.name.slice(egressPrefix.length)}</Link>, <GroupBadge of={g} />, sourceOf(g), `${count(g.head - t.lag)} of ${count(g.head)}`,
                t.deadLetters > 0 ? <Badge tone="warn">{count(t.deadLetters)}</Badge> : "0",
              ];
            }} />
        </Panel>
      )}
    </>
  );
}

/** Before the name of an egress in the name of its group. */
const egressPrefix = "egress.";

const firstEgress = `egress:
  orders:
    kind: nats
    urls: [nats://nats-1.example:4222]
    subject: manifold.{tenant}.{category}.{key}
    categories: [order]`;

function Egresses() {
  const { client } = useSession();
  const egresses = useData((signal) => client.listEgresses({ signal }), [], { every: 3000 });
  return (
    <Panel title="Egress">
      <Await of={egresses} what="egresses">
        {({ egresses: list }) => list.length === 0 ? <Empty command={firstEgress}>No egress publishes events to a message broker. Add one to the configuration of all workers:</Empty> : (
          <Table label="Egresses" heads={["Name", "State", "Broker", "Topic", "Waiting since", "Processes"]} rows={list} keyOf={({ name }) => name}
            row={(e) => [
              <Link to={href(["delivery", "egresses", e.name])}>{e.name}</Link>, <EgressBadge of={e} />, <span class="url">{[e.kind, e.addresses?.join(", ")].filter(Boolean).join(" ") || "–"}</span>,
              e.topic ? <code>{e.topic}</code> : "–", <Waiting of={e} />, count(e.processes.length),
            ]} />
        )}
      </Await>
    </Panel>
  );
}

const failingTenants = ({ processes }: Egress): number => processes.reduce((sum, { failing }) => sum + failing, 0);

function EgressBadge({ of: e }: { of: Egress }) {
  if (e.processes.length === 0) return <Badge tone="warn">No process runs it</Badge>;
  if (e.removing) return <Badge tone="info">Removing</Badge>;
  if (e.removed) return <Badge tone="info">Removed</Badge>;
  if (e.processes.some(({ up }) => !up)) return <Badge tone="bad">Broker does not answer</Badge>;
  return failingTenants(e) > 0 ? <Badge tone="bad">Failing for {plural(failingTenants(e), "tenant")}</Badge> : <Badge tone="ok">Healthy</Badge>;
}

/** Since when the oldest event waits. */
function Waiting({ of: e }: { of: Egress }) {
  const oldest = e.processes.flatMap(({ waitingSince }) => waitingSince ?? []).sort()[0];
  return oldest === undefined ? <>–</> : <Time at={oldest} />;
}

/** The most tenants that an egress's page reads. */
const mostTenants = 1000;

function EgressPage({ name }: { name: string }) {
  const { client } = useSession();
  const egress = useData(async (signal) => {
    const found = (await client.listEgresses({ signal })).egresses.find((e) => e.name === name);
    if (!found) throw new Error(`There is no egress named ${name}.`);
    return found;
  }, [name], { every: 3000 });
  return (
    <>
      <Title text={name} about={<><Link to={href(["delivery"])}>Delivery</Link> · egress</>} />
      <Await of={egress} what="the egress">
        {(e) => (
          <>
            {e.processes.length === 0 && <p class="problem">No live process runs it. Its groups still hold their events. Check that workers run with it in their configuration.</p>}
            <Facts of={[
              ["State", <EgressBadge of={e} />], e.kind !== undefined && ["Broker", <span class="url">{e.kind} {e.addresses?.join(", ")}</span>], e.topic !== undefined && [e.kind === "nats" ? "Subject" : "Topic", <code>{e.topic}</code>],
              ["Events", (e.categories?.join(", ") ?? "the whole log") + (e.types ? `: ${e.types.join(", ")}` : "")], e.filter !== undefined && ["Filter", <code>{e.filter}</code>],
              e.query !== undefined && ["Query", <code>{JSON.stringify(e.query)}</code>], ["Tenants", e.tenants ? count(e.tenants) : "all"], ["Waiting since", <Waiting of={e} />],
            ]} />
            <Panel title="Processes">
              {e.processes.length === 0 ? <p class="muted">None.</p> : (
                <Table label="Processes" heads={["Process", "Broker", "Failing tenants", "Waiting since", "Error", "Since"]} rows={e.processes} keyOf={({ id }) => id}
                  row={(p) => [
                    p.name, p.up ? <Badge tone="ok">Answers</Badge> : <Badge tone="bad">Does not answer</Badge>, count(p.failing), p.waitingSince ? <Time at={p.waitingSince} /> : "–",
                    p.error ? <p>{p.errorTenant && <><Link to={href(["admin", "tenants", p.errorTenant])}>A tenant</Link>: </>}{p.error}</p> : "–", p.errorSince ? <Time at={p.errorSince} /> : "–",
                  ]} />
              )}
            </Panel>
          </>
        )}
      </Await>
      <EgressTenants name={name} />
    </>
  );
}

/** How far each tenant is. It is read on demand, since the service looks at all groups and projections of each tenant. */
function EgressTenants({ name }: { name: string }) {
  const [asked, setAsked] = useState(0);
  return (
    <Panel title="Tenants" actions={<Button onPress={() => setAsked(asked + 1)}>{asked === 0 ? "Show the tenants" : "Read again"}</Button>}>
      {asked === 0 ? <p class="muted">How far each tenant's group is. It takes a while with many tenants.</p> : <EgressLag key={asked} name={name} />}
    </Panel>
  );
}

function EgressLag({ name }: { name: string }) {
  const { client } = useSession();
  const read = useData((signal) => collect(client.pages(client.getAllLag({ pageSize: 100, signal }), { signal }), ({ tenants }) => tenants, mostTenants), [name]);
  return (
    <Await of={read} what="tenants">
      {({ items, more }) => {
        const rows = items.flatMap((tenant) => {
          const lag = tenant.consumers.find((c) => c.kind === "group" && c.name === egressPrefix + name);
          return lag || tenant.error ? [{ tenant, lag }] : [];
        });
        return (
          <>
            {rows.length === 0 ? <p class="muted">{more ? `None of the first ${count(items.length)} tenants has a group of it.` : "No tenant has a group of it yet."}</p> : (
              <Table label="Tenants" heads={["Tenant", "Done up to", "Lag", "Time behind", "Retrying", "Dead letters"]} rows={rows} keyOf={({ tenant }) => tenant.tenant}
                row={({ tenant, lag }) => {
                  const link = <Link to={href(["admin", "tenants", tenant.tenant])}>{tenant.name}</Link>;
                  if (!lag) return [link, <span class="wrong">{tenant.error}</span>, "–", "–", "–", "–"];
                  return [
                    link, lag.position === undefined ? "–" : `${count(lag.position)} of ${count(tenant.head)}`,
                    lag.lagPositions === undefined ? "–" : plural(lag.lagPositions, "position"), lag.seconds ? duration(lag.seconds) : "–", count(lag.retrying ?? 0),
                    lag.deadLetters ? <Badge tone="warn">{count(lag.deadLetters)}</Badge> : "0",
                  ];
                }} />
            )}
            {more && <p class="muted">The first {count(items.length)} tenants were read. See all with manifold lag --all-tenants.</p>}
          </>
        );
      }}
    </Await>
  );
}

function GroupBadge({ of: g }: { of: Subscription }) {
  const t = totals(g.progress, g.head);
  if (g.paused) return <Badge tone="warn">Paused</Badge>;
  if (t.lag === 0 && t.inFlight + t.retrying === 0) return <Badge tone="ok">Caught up</Badge>;
  return t.inFlight > 0 ? <Badge tone="info">Working</Badge> : <Badge tone="warn">Waiting</Badge>;
}

function WebhookBadge({ of: w }: { of: Webhook }) {
  if (w.disabled) return <Badge tone="bad">Disabled</Badge>;
  if (w.paused) return <Badge tone="warn">Paused</Badge>;
  return w.failing ? <Badge tone="bad">Failing</Badge> : <Badge tone="ok">Healthy</Badge>;
}

function Group({ name }: { name: string }) {
  const { client } = useSession();
  const may = useMay();
  const { query } = usePlace();
  const group = useData((signal) => client.getSubscription(name, { signal }), [name], { every: 2000 });
  const reads = may("events:read", "events:consume");
  const tabs: Array<[string, string]> = [["progress", "Progress"], ...(reads ? [["dead-letters", "Dead letters"], ["events", "In flight"]] as Array<[string, string]> : [])];
  const tab = tabs.find(([id]) => id === query.get("tab"))?.[0] ?? "progress";
  return (
    <>
      <Title text={name} about={<><Link to={href(["delivery"])}>Delivery</Link> · group</>} actions={group.data && may("subscriptions:write") && !name.includes(".") && <GroupActions of={group.data} reload={group.reload} />} />
      <Await of={group} what="the group">
        {(g) => {
          const t = totals(g.progress, g.head);
          return (
            <>
              <Facts of={[
                ["State", <GroupBadge of={g} />], ["Events", sourceOf(g)], ["Lag", plural(t.lag, "position")], ["In flight", count(t.inFlight)], ["Retrying", count(t.retrying)],
                ["Dead letters", t.deadLetters > 0 ? <Badge tone="warn">{count(t.deadLetters)}</Badge> : "0"], ["Order", g.ordering], ["Attempts at most", count(g.maxAttempts)],
              ]} />
              <Tabs label="Parts of the group" tabs={tabs} current={tab} choose={(id) => goQuery({ tab: id }, { replace: true })} />
              {tab === "progress" && <GroupProgress of={g} />}
              {tab === "dead-letters" && <DeadLetters name={name} changed={group.reload} />}
              {tab === "events" && <InFlight name={name} />}
            </>
          );
        }}
      </Await>
    </>
  );
}

function GroupActions({ of: g, reload }: { of: Subscription; reload: () => void }) {
  const { client } = useSession();
  const toggle = async () => {
    await (g.paused ? client.resumeSubscription(g.name) : client.pauseSubscription(g.name));
    toast(g.paused ? `${g.name} delivers again` : `${g.name} is paused`);
    reload();
  };
  const seek = () => ask({
    title: "Move the group?", text: "The group continues after the position that you give. Events in flight are forgotten; events after the position are delivered again.",
    action: "Move", name: g.name, input: { label: "Position" },
    run: async (position) => {
      await client.seekSubscription(g.name, { position: Number(position) });
      toast(`${g.name} continues after position ${position}`);
      reload();
    },
  });
  return <><Button onPress={toggle}>{g.paused ? "Resume" : "Pause"}</Button><Button onPress={seek}>Move …</Button></>;
}

function GroupProgress({ of: g }: { of: Subscription }) {
  const { client } = useSession();
  const members = useData((signal) => client.listSubscriptionMembers(g.name, { signal }), [g.name], { every: 3000 });
  const labels = new Map(members.data?.members.map(({ memberId, label }) => [memberId, label]));
  return (
    <>
      <Panel title="Progress">
        <Table label="Progress" heads={["Partition", "Done up to", "Read up to", "In flight", "Retrying", "Dead letters", "Member"]} rows={g.progress} keyOf={({ partition }) => String(partition)}
          row={(p) => [count(p.partition), count(p.checkpoint), count(p.readTo), count(p.inFlight), count(p.retrying), count(p.deadLetters), (p.memberId && (labels.get(p.memberId) ?? p.memberId)) || "–"]} />
      </Panel>
      <Panel title="Members">
        <Await of={members} what="members">
          {({ members: list }) => list.length === 0 ? <p class="muted">{g.partitions ? "No consumer has joined the group." : "The group has no partitions, so its consumers do not join it."}</p> : (
            <Table label="Members" heads={["Label", "Joined", "Alive", "Partitions"]} rows={list} keyOf={({ memberId }) => memberId}
              row={(m) => [m.label, <Time at={m.joinedAt} />, <Time at={m.aliveAt} />, m.partitions.join(", ") || "none"]} />
          )}
        </Await>
      </Panel>
    </>
  );
}

function DeadLetters({ name, changed }: { name: string; changed: () => void }) {
  const { client } = useSession();
  const may = useMay();
  const letters = useData((signal) => collect(client.pages(client.listDeadLetters(name, { signal }), { signal }), (page) => page.deadLetters), [name], { every: 5000 });
  const write = may("subscriptions:write");
  const done = (text: string) => {
    toast(text);
    letters.reload();
    changed();
  };
  const replay = (id: string) => async () => {
    await client.replayDeadLetter(name, id);
    done("The event is delivered again");
  };
  const replayAll = async () => done(`${plural((await client.replayDeadLetters(name)).replayed, "event")} delivered again`);
  const discard = (id: string, type: string) => () => ask({
    title: "Discard the dead letter?", text: "The group never receives the event again. The event stays in the log.", action: "Discard", name: type,
    run: async () => {
      await client.discardDeadLetter(name, id);
      done("The dead letter is discarded");
    },
  });
  const discardAll = () => ask({
    title: "Discard all dead letters?", text: `${name} never receives these events again. They stay in the log.`, action: "Discard all", name,
    run: async () => done(`${plural((await client.discardDeadLetters(name)).discarded, "dead letter")} discarded`),
  });
  return (
    <Panel title="Dead letters" actions={write && letters.data && letters.data.items.length > 0 && <><Button tone="primary" onPress={replayAll}>Replay all</Button><Button onPress={discardAll}>Discard all</Button></>}>
      <Await of={letters} what="dead letters">
        {({ items, more }) => items.length === 0 ? <p class="muted">No event was given up.</p> : (
          <>
            <Table label="Dead letters" heads={["Event", "Stream", "Reason", "Attempts", "Since", ""]} rows={items} keyOf={({ event }) => event.id}
              row={(d) => [
                <Link to={href(["events"], { event: d.event.id })}>{d.event.type}</Link>, d.event.stream, d.reason || "–", count(d.attempts),
                d.replayAt ? <Badge tone="info">Replaying</Badge> : <Time at={d.parkedAt} />,
                write && <div class="actions"><Button onPress={replay(d.event.id)}>Replay</Button><Button onPress={discard(d.event.id, d.event.type)}>Discard</Button></div>,
              ]} />
            {more && <p class="muted">The first {count(items.length)} dead letters.</p>}
          </>
        )}
      </Await>
    </Panel>
  );
}

function InFlight({ name }: { name: string }) {
  const { client } = useSession();
  const peek = useData((signal) => client.peekSubscription(name, { signal }), [name], { every: 2000 });
  return (
    <Panel title="In flight">
      <Await of={peek} what="events">
        {({ inFlight, retrying, next }) => {
          const rows = [...inFlight.map((e) => ({ ...e, state: "In flight" })), ...retrying.map((e) => ({ ...e, state: "Retrying" })), ...next.map((e) => ({ ...e, state: "Next" }))];
          return rows.length === 0 ? <p class="muted">No event is waiting or in flight.</p> : (
            <Table label="Events of the group" heads={["State", "Event", "Stream", "Attempt", "Due", "Reason"]} rows={rows} keyOf={({ event, state }) => state + event.id}
              row={(e) => {
                const due = e.ackDeadline ?? e.dueAt;
                return [e.state, <Link to={href(["events"], { event: e.event.id })}>{e.event.type}</Link>, e.event.stream, count(e.attempt), due ? <Time at={due} /> : "–", e.reason ?? "–"];
              }} />
          );
        }}
      </Await>
    </Panel>
  );
}

function WebhookPage({ name }: { name: string }) {
  const { client } = useSession();
  const may = useMay();
  const webhook = useData((signal) => client.getWebhook(name, { signal }), [name], { every: 2000 });
  return (
    <>
      <Title text={name} about={<><Link to={href(["delivery"])}>Delivery</Link> · webhook</>} actions={webhook.data && may("subscriptions:write") && <WebhookActions of={webhook.data} reload={webhook.reload} />} />
      <Await of={webhook} what="the webhook">
        {(w) => (
          <>
            {w.disabled && <p class="problem">It was disabled <Time at={w.disabled.at} />: {w.disabled.reason}. Fix the receiver, then resume.</p>}
            {!w.disabled && w.failing && <p class="problem">It began to fail <Time at={w.failing.since} /> ({plural(w.failing.attempts, "attempt")}): {w.failing.error ?? `status ${w.failing.status}`}</p>}
            <Facts of={[
              ["State", <WebhookBadge of={w} />], ["URL", <span class="url">{w.url}</span>], ["Events", sourceOf(w)], ["Done up to", `${count(w.progress.checkpoint)} of ${count(w.head)}`],
              ["In flight", count(w.progress.inFlight)], ["Retrying", count(w.progress.retrying)],
              ["Dead letters", w.progress.deadLetters > 0 ? <Link to={href(["delivery", "groups", `webhook.${name}`], { tab: "dead-letters" })}>{count(w.progress.deadLetters)}</Link> : "0"],
              ["Format", w.format], ["Order", w.ordering],
            ]} />
            <Secrets of={w} reload={webhook.reload} />
            <Attempts name={name} />
          </>
        )}
      </Await>
    </>
  );
}

function WebhookActions({ of: w, reload }: { of: Webhook; reload: () => void }) {
  const { client } = useSession();
  const stopped = w.paused || w.disabled !== undefined;
  const test = async () => {
    const { outcome, status, error } = await client.testWebhook(w.name);
    toast(outcome === "ok" ? `The receiver accepts, with status ${status}` : (error ?? `The receiver answers ${status}`), outcome === "ok" ? "ok" : "bad");
    reload();
  };
  const toggle = async () => {
    await (stopped ? client.resumeWebhook(w.name) : client.pauseWebhook(w.name));
    toast(stopped ? `${w.name} sends again` : `${w.name} is paused`);
    reload();
  };
  const resend = () => ask({
    title: "Resend events?", text: "All events from the position on that the webhook selects are sent again, besides new ones.", action: "Resend", input: { label: "From position", value: "1" },
    run: async (from) => {
      await client.startWebhookReplay(w.name, { from: Number(from) });
      toast("The events are sent again");
    },
  });
  return <><Button onPress={test}>Test</Button><Button onPress={toggle} tone={stopped ? "primary" : undefined}>{stopped ? "Resume" : "Pause"}</Button><Button onPress={resend}>Resend …</Button></>;
}

const outcomes: Array<[string, string]> = [["", "all"], ["ok", "accepted"], ["failed", "failed"], ["timeout", "timed out"], ["blocked", "blocked"], ["gone", "gone"], ["duplicate", "duplicate"]];

const outcomeName = ({ outcome }: WebhookAttempt): string => outcomes.find(([id]) => id === outcome)?.[1] ?? outcome;

const milliseconds = (took: number): string => `${took < 10 ? took.toFixed(1) : count(Math.round(took))} ms`;

function Attempts({ name }: { name: string }) {
  const { client } = useSession();
  const [outcome, setOutcome] = useState("");
  const [shown, setShown] = useState<WebhookAttempt>();
  const attempts = useData(
    (signal) => client.listWebhookAttempts(name, { pageSize: 50, signal, ...(outcome ? { outcome: outcome as WebhookAttempt["outcome"] } : {}) }), [name, outcome], { every: 3000 });
  return (
    <Panel title="Attempts" actions={<Select label="Outcome" value={outcome} options={outcomes} onChange={(event) => setOutcome(event.currentTarget.value)} />}>
      <Await of={attempts} what="attempts">
        {({ attempts: list }) => list.length === 0 ? <p class="muted">There is no such attempt yet.</p> : (
          <Table label="Attempts" heads={["Time", "Event", "Outcome", "Status", "Took", "Attempt", ""]} rows={list} keyOf={({ id }) => id}
            row={(a) => [
              <Time at={a.at} />, a.type, <Badge tone={a.outcome === "ok" || a.outcome === "duplicate" ? "ok" : "bad"}>{capital(outcomeName(a))}</Badge>,
              a.status ?? "–", milliseconds(a.took), count(a.attempt), <Button onPress={() => setShown(a)}>Details</Button>,
            ]} />
        )}
      </Await>
      {shown && (
        <Dialog title={`Attempt ${shown.attempt} of ${shown.type}`} close={() => setShown(undefined)}>
          <Facts of={[
            ["Time", <Time at={shown.at} />], ["URL", <span class="url">{shown.url ?? "–"}</span>], ["Outcome", capital(outcomeName(shown))], ["Status", shown.status ?? "–"], ["Took", milliseconds(shown.took)],
            ["Event", <Link to={href(["events"], { event: shown.eventId })}>at {count(shown.position)}</Link>], shown.nextAt !== undefined && ["Next attempt", <Time at={shown.nextAt} />],
          ]} />
          {shown.error && <p class="problem">{shown.error}</p>}
          <h3>Response</h3>
          {shown.excerpt ? <Json value={shown.excerpt} label="Response" tools={false} /> : <p class="muted">{shown.status === undefined ? "There was none." : "It had no body."}</p>}
          <div class="actions end"><Button tone="primary" onPress={() => setShown(undefined)}>Close</Button></div>
        </Dialog>
      )}
    </Panel>
  );
}

/** How long an old secret stays valid after a rotation, in seconds. */
const overlap = 24 * 3600;

function Secrets({ of: w, reload }: { of: Webhook; reload: () => void }) {
  const { client } = useSession();
  const may = useMay();
  const [made, setMade] = useState<string>();
  const rotate = () => ask({
    title: "Rotate the secret?", text: "A new secret is made. Requests are signed with both for a day, so that receivers can change over.", action: "Rotate",
    run: async () => {
      try {
        setMade((await client.addWebhookSecret(w.name, { expireOldAfter: overlap })).secret);
      } catch (error) {
        toast(messageOf(error), "bad");
      }
      reload();
    },
  });
  const remove = (id: string) => () => ask({
    title: "Remove the secret?", text: "Receivers that check with it refuse requests from now on.", action: "Remove", name: w.name,
    run: async () => {
      await client.removeWebhookSecret(w.name, id);
      toast("The secret is removed");
      reload();
    },
  });
  const write = may("subscriptions:write");
  return (
    <Panel title="Secrets" actions={write && <Button onPress={rotate}>Rotate</Button>}>
      <Table label="Secrets" heads={["Id", "Created", "Expires", ""]} rows={w.secrets} keyOf={({ id }) => id}
        row={(s) => [<code>{s.id}</code>, <Time at={s.createdAt} />, s.expiresAt ? <Time at={s.expiresAt} /> : "never", write && w.secrets.length > 1 && <Button onPress={remove(s.id)}>Remove</Button>]} />
      {made !== undefined && (
        <Dialog title="The new secret" close={() => setMade(undefined)}>
          <p>It is shown only this once. Give it to the receiver.</p>
          <Code text={made} />
          <div class="actions end"><Button tone="primary" onPress={() => setMade(undefined)}>Close</Button></div>
        </Dialog>
      )}
    </Panel>
  );
}
