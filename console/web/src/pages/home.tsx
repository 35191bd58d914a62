import type { ComponentChildren } from "preact";
import type { Lag, LagList, Webhook } from "../../../../client/typescript/src/index.js";
import { Chart } from "../chart";
import { collect, useData } from "../data";
import { count, duration, plural } from "../format";
import { href, Link } from "../router";
import { useMay, useSession } from "../session";
import { Await, Badge, Button, Empty, Loading, Panel, Table, Time, Title, toast, Trend } from "../ui";
import { record, useSamples } from "../samples";
import { loadWebhooks } from "./delivery";
import { activeStates, loadRebuilds, phase, timeLeft } from "./rebuilds";

/** How often figures are read, in milliseconds. */
const pace = 2000;

export function Home() {
  const may = useMay();
  const { caller } = useSession();
  if (!caller.tenant) return <OperatorHome />;
  return (
    <>
      <Title text="Home" about={`What ${caller.tenant.name} does now`} />
      <Overview withWebhooks={may("events:read", "events:consume", "subscriptions:write")} withRebuilds={may("documents:read", "projections:write")} />
    </>
  );
}

function Overview({ withWebhooks, withRebuilds }: { withWebhooks: boolean; withRebuilds: boolean }) {
  const { client } = useSession();
  const lag = useData(async (signal) => {
    const answer = await client.getLag({ signal });
    record("head", answer.head);
    record("lag", largestLag(answer));
    for (const consumer of answer.consumers) record(`lag ${idOf(consumer)}`, consumer.lagPositions ?? 0);
    return answer;
  }, [], { every: pace });
  const webhooks = useData(
    async (signal) => (withWebhooks ? loadWebhooks(client, signal) : []),
    [withWebhooks], { every: 5000 });
  const rebuilds = useData(async (signal) => (withRebuilds ? loadRebuilds(client, signal) : []), [withRebuilds], { every: 5000 });
  const running = (rebuilds.data ?? []).filter(({ state }) => activeStates.includes(state));
  return (
    <Await of={lag} what="figures">
      {(figures) => (
        <>
          <Attention figures={figures} webhooks={webhooks.data ?? []} waiting={running.filter(({ state, approved }) => state === "awaiting-approval" && !approved)} reload={webhooks.reload} />
          <Figures figures={figures} />
          {running.length > 0 && (
            <Panel title="Running rebuilds">
              <Table label="Running rebuilds" heads={["Projection", "Phase", "Progress", "Time left"]} rows={running} keyOf={({ id }) => id}
                row={(r) => [
                  <Link to={href(["rebuilds", r.projection, r.id])}>{r.projection}</Link>, phase(r),
                  `${count(r.eventsDone)} of ${plural(r.eventsTotal, "event")}`, timeLeft(r),
                ]} />
            </Panel>
          )}
          <Consumers figures={figures} />
        </>
      )}
    </Await>
  );
}

export const idOf = ({ kind, name, partition }: Lag): string => `${kind} ${name}${partition === undefined ? "" : ` ${partition}`}`;

/** The page of a projection, group or webhook. Groups of webhooks are named webhook.<name>. */
export function consumerPage({ kind, name }: { kind: string; name: string }): string {
  if (kind === "projection") return href(["projections", name]);
  return name.startsWith("webhook.") ? href(["delivery", "webhooks", name.slice(8)]) : href(["delivery", "groups", name]);
}

/** What a consumer is, and its name. Groups of webhooks and egresses are named webhook.<name> and egress.<name>. */
function titleOf({ kind, name }: Lag): { noun: keyof typeof actions; name: string } {
  if (kind === "projection") return { noun: "Projection", name };
  const [, service, own] = /^(webhook|egress)\.(.+)$/.exec(name) ?? [];
  return own === undefined ? { noun: "Group", name } : { noun: service === "webhook" ? "Webhook" : "Egress", name: own };
}

interface Matter {
  id: string;
  tone: "bad" | "warn";
  what: ComponentChildren;
  action: ComponentChildren;
}

/** The consumers with the partition of each group that is furthest behind, and all dead letters of the group. */
export function latest(consumers: Lag[]): Lag[] {
  const byName = Map.groupBy(consumers, ({ kind, name }) => `${kind} ${name}`);
  return [...byName.values()].map((parts) => ({
    ...parts.reduce((most, part) => ((part.seconds ?? 0) > (most.seconds ?? 0) ? part : most)),
    deadLetters: parts.reduce((sum, { deadLetters }) => sum + (deadLetters ?? 0), 0),
  }));
}

/** What to look at if a consumer lags. */
const actions = { Projection: "See its state", Group: "See its progress", Webhook: "See its attempts", Egress: "See its progress" };

/** Seconds of lag from which a consumer needs attention. */
const lateAfter = 60;

function Attention({ figures, webhooks, waiting, reload }: { figures: LagList; webhooks: Webhook[]; waiting: Array<{ id: string; projection: string }>; reload: () => void }) {
  const may = useMay();
  const { client } = useSession();
  const matters: Matter[] = [];
  const failing = new Set(webhooks.filter((w) => w.failing || w.disabled).map((w) => w.name));
  for (const c of latest(figures.consumers)) {
    const page = consumerPage(c);
    const { noun, name } = titleOf(c);
    if (c.faulted) {
      matters.push({ id: `fault ${idOf(c)}`, tone: "bad", what: <>Projection <strong>{c.name}</strong> has stopped at an event that it cannot fold.</>,
        action: <Link class="button primary" to={page}>See the fault</Link> });
    } else if (c.error) {
      matters.push({ id: `error ${idOf(c)}`, tone: "bad", what: <>The position of <strong>{c.name}</strong> is unknown: {c.error}</>, action: <Link class="button" to={page}>Open</Link> });
    } else if ((c.seconds ?? 0) > lateAfter && (c.lagPositions ?? 0) > 0 && !(noun === "Webhook" && failing.has(name))) {
      matters.push({ id: `late ${idOf(c)}`, tone: "warn", what: <>{noun} <strong>{name}</strong> lags by {duration(c.seconds!)}.</>,
        action: <Link class="button" to={page}>{actions[noun]}</Link> });
    }
    if (c.deadLetters) {
      matters.push({ id: `dead ${idOf(c)}`, tone: "warn", what: <>{noun} <strong>{name}</strong> has {plural(c.deadLetters, "dead letter")}.</>,
        action: <Link class="button" to={href(["delivery", "groups", c.name], { tab: "dead-letters" })}>Review and replay</Link> });
    }
  }
  for (const w of webhooks) {
    if (!w.disabled && !w.failing) continue;
    const resume = async () => {
      await client.resumeWebhook(w.name);
      toast(`Webhook ${w.name} sends again`);
      reload();
    };
    matters.unshift({
      id: `webhook ${w.name}`, tone: "bad",
      what: w.disabled ? <>Webhook <strong>{w.name}</strong> was disabled: {w.disabled.reason}</> : <>Webhook <strong>{w.name}</strong> began to fail <Time at={w.failing!.since} />: {w.failing!.error ?? `status ${w.failing!.status}`}</>,
      action: w.disabled && may("subscriptions:write") ? <Button tone="primary" onPress={resume}>Resume</Button> : <Link class="button" to={href(["delivery", "webhooks", w.name])}>See its attempts</Link>,
    });
  }
  for (const { id, projection } of waiting) {
    matters.push({ id, tone: "warn", what: <>The rebuild of <strong>{projection}</strong> awaits approval.</>, action: <Link class="button primary" to={href(["rebuilds", projection, id])}>Compare and approve</Link> });
  }
  return (
    <Panel title="Needs attention">
      {matters.length === 0 ? (
        <p class="calm"><Badge tone="ok">All well</Badge> Nothing is late, stopped or failing.</p>
      ) : (
        <ul class="matters">
          {matters.map(({ id, tone, what, action }) => (
            <li key={id} class={tone}>
              <p>{what}</p>
              {action}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

const largestLag = ({ consumers }: LagList): number => consumers.reduce((most, c) => Math.max(most, c.lagPositions ?? 0), 0);

function Figures({ figures }: { figures: LagList }) {
  const heads = useSamples("head");
  const rates = heads.slice(1).map((sample, i) => Math.max(0, ((sample.value - heads[i]!.value) * 1000) / (sample.at - heads[i]!.at)));
  const recent = rates.slice(-5);
  const rate = recent.length === 0 ? undefined : recent.reduce((sum, value) => sum + value, 0) / recent.length;
  return (
    <>
      <div class="figures">
        <Figure name="Events per second" value={rate === undefined ? "–" : decimal(rate)} />
        <Figure name="Log head" value={count(figures.head)}><Link to={href(["events"])}>See the newest events</Link></Figure>
        <Figure name="Largest lag" value={plural(largestLag(figures), "position")} />
        <Figure name="Projections and groups" value={count(latest(figures.consumers).length)} />
      </div>
      <div class="charts">
        <Panel title="Events per second"><Chart label="Events per second since the console was opened" kind="line" height={120} times={heads.slice(1).map(({ at }) => at / 1000)} values={rates} format={decimal} formatTime={clockTime} /></Panel>
        <Panel title="Largest lag"><LagChart /></Panel>
      </div>
    </>
  );
}

function LagChart() {
  const samples = useSamples("lag");
  return <Chart label="The largest lag since the console was opened, in positions" kind="line" height={120} times={samples.map(({ at }) => at / 1000)} values={samples.map(({ value }) => value)} format={(value) => count(Math.round(value))} formatTime={(seconds) => `positions at ${clockTime(seconds)}`} />;
}

const decimal = (rate: number): string => (rate >= 10 || Number.isInteger(rate) ? count(Math.round(rate)) : rate.toFixed(1));

const clockTime = (seconds: number): string => new Date(seconds * 1000).toLocaleTimeString("en-GB");

function Figure({ name, value, children }: { name: string; value: string; children?: ComponentChildren }) {
  return (
    <div class="figure">
      <p class="muted">{name}</p>
      <p class="value">{value}</p>
      {children}
    </div>
  );
}

function Consumers({ figures }: { figures: LagList }) {
  return (
    <Panel title="Lag">
      {figures.consumers.length === 0 ? (
        <Empty command={"manifold projection apply projections.yaml"}>There is no projection and no group yet.</Empty>
      ) : (
        <Table label="Lag of projections and groups" heads={["Name", "Kind", "State", "Lag", "Trend", "Position"]}
          rows={figures.consumers.toSorted((a, b) => (b.lagPositions ?? 0) - (a.lagPositions ?? 0))} keyOf={idOf}
          row={(c) => [
            <Link to={consumerPage(c)}>{c.name}{c.partition === undefined ? "" : ` / ${c.partition}`}</Link>,
            c.kind,
            <LagBadge of={c} />,
            c.lagPositions === undefined ? "–" : c.lagPositions === 0 ? "0" : `${count(c.lagPositions)}${c.seconds === undefined ? "" : ` · ${duration(c.seconds)}`}`,
            <LagTrend id={idOf(c)} />,
            c.position === undefined ? "–" : count(c.position),
          ]} />
      )}
    </Panel>
  );
}

function LagBadge({ of: c }: { of: Lag }) {
  if (c.faulted) return <Badge tone="bad">Stopped</Badge>;
  if (c.error) return <Badge tone="bad">Unknown</Badge>;
  if ((c.lagPositions ?? 0) === 0) return <Badge tone="ok">Caught up</Badge>;
  return (c.seconds ?? 0) > lateAfter ? <Badge tone="warn">Late</Badge> : <Badge tone="info">Catching up</Badge>;
}

export function LagTrend({ id }: { id: string }) {
  return <Trend values={useSamples(`lag ${id}`).map(({ value }) => value)} label="Lag since the page was opened" />;
}

function OperatorHome() {
  const { client } = useSession();
  const lag = useData((signal) => collect(client.pages(client.getAllLag({ behind: lateAfter, signal }), { signal }), (page) => page.tenants), [], { every: 10_000 });
  return (
    <>
      <Title text="Home" about="All tenants" />
      <Panel title="Needs attention">
        {lag.data === undefined && lag.error === undefined ? <Loading what="the tenants' lag" /> : (
          <Await of={lag} what="the tenants' lag">
            {({ items }) => items.length === 0 ? <p class="calm"><Badge tone="ok">All well</Badge> No tenant has a consumer that is late, stopped or failing.</p> : (
              <Table label="Tenants that need attention" heads={["Tenant", "Consumer", "State", "Lag", "Dead letters"]}
                rows={items.flatMap((tenant) => latest(tenant.consumers).map((consumer) => ({ tenant, consumer, title: titleOf(consumer) })))} keyOf={({ tenant, consumer }) => tenant.tenant + idOf(consumer)}
                row={({ tenant, consumer: c, title }) => [
                  <Link to={href(["admin", "tenants", tenant.tenant])}>{tenant.name}</Link>, `${title.noun} ${title.name}`, <LagBadge of={c} />,
                  c.seconds === undefined ? "–" : duration(c.seconds), count(c.deadLetters ?? 0),
                ]} />
            )}
          </Await>
        )}
      </Panel>
    </>
  );
}
