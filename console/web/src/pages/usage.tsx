import type { Client, CurrentLimits, Limits, Rate, Tenant, Usage } from "../../../../client/typescript/src/index.js";
import { Chart } from "../chart";
import { collect, useData } from "../data";
import { bytes, count } from "../format";
import { goQuery, href, Link, usePlace } from "../router";
import { useMay, useSession } from "../session";
import { Await, Badge, Empty, Facts, Panel, Progress, Select, Table, Title } from "../ui";

/** The counted figures, with their names. */
const figures = {
  events: "Events", bytes: "Bytes", documents: "Documents", deliveries: "Deliveries", expressionSteps: "Expression steps",
} as const;

type FigureName = keyof typeof figures;

const explained: Record<FigureName, string> = {
  events: "appended", bytes: "of these events, as they were sent", documents: "written or removed by projections",
  deliveries: "events handed to consumers", expressionSteps: "a million take 25 to 200 ms",
};

const write = (figure: FigureName, value: number): string => (figure === "bytes" ? bytes(value) : count(value));

/** A short form for an axis: 1.5M. */
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const dayLength = 86_400_000;

const dayOf = (time: number): string => new Date(time).toISOString().slice(0, 10);

/** The usage of the caller's tenant; with an operator's credential, of all tenants, or of the one that the address names. */
export function UsagePage() {
  const { caller } = useSession();
  const may = useMay();
  const { query } = usePlace();
  const tenant = query.get("tenant");
  if (!may("operator:read")) return <OfTenant title={caller.tenant?.name ?? ""} days={ownUsage} limits={(client, signal) => client.getLimits({ signal })} />;
  return tenant === null ? <OfAll /> : <OfOne key={tenant} id={tenant} />;
}

const ownUsage = async (client: Client, from: string, signal: AbortSignal): Promise<Usage[]> => (await client.getUsage({ from, signal })).days;

interface TenantDay extends Usage {
  tenant: string;
}

async function allUsage(client: Client, from: string, signal: AbortSignal): Promise<TenantDay[]> {
  const response = await client.exportUsage({ from, signal });
  return (await response.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line) as TenantDay);
}

function OfOne({ id }: { id: string }) {
  const { client } = useSession();
  const tenant = useData((signal) => client.getTenant(id, { signal }), [id]);
  return (
    <Await of={tenant} what="the tenant">
      {({ name }) => (
        <OfTenant title={name} all
          days={async (client, from, signal) => (await allUsage(client, from, signal)).filter(({ tenant }) => tenant === id)}
          limits={async (client, signal) => (await client.getTenantLimits(id, { signal })).current} />
      )}
    </Await>
  );
}

/** What the address says: how many days, and which figure is drawn. */
function useChoice() {
  const { query } = usePlace();
  const periods = useMay()("operator:read") ? [7, 30, 90] : [7, 30, 90, 400]; // an operator reads the days of all tenants
  const days = Math.min(Math.max(Math.floor(Number(query.get("days"))) || 30, 1), periods.at(-1)!);
  const asked = query.get("figure") as FigureName | null;
  const figure: FigureName = asked !== null && Object.hasOwn(figures, asked) ? asked : "events";
  return { days, periods, figure, from: dayOf(Date.now() - (days - 1) * dayLength) };
}

function Choice() {
  const { days, periods, figure } = useChoice();
  return (
    <div class="filters">
      <Select label="Days" value={String(days)} options={[...new Set([...periods, days])].map((n) => [String(n), `the last ${n}`])}
        onChange={(event) => goQuery({ days: event.currentTarget.value }, { replace: true })} />
      <Select label="Figure" value={figure} options={Object.entries(figures)} onChange={(event) => goQuery({ figure: event.currentTarget.value }, { replace: true })} />
    </div>
  );
}

interface OfTenantProps {
  title: string;
  /** The operator sees other tenants, too. */
  all?: boolean;
  days: (client: Client, from: string, signal: AbortSignal) => Promise<Usage[]>;
  limits: (client: Client, signal: AbortSignal) => Promise<CurrentLimits>;
}

function OfTenant({ title, all, days, limits }: OfTenantProps) {
  const { client } = useSession();
  const { from } = useChoice();
  const usage = useData((signal) => days(client, from, signal), [from], all ? {} : { every: 30_000 });
  const current = useData((signal) => limits(client, signal), [], { every: 30_000 });
  return (
    <>
      <Title text="Usage" about={<><Link to={href(["admin"])}>Administration</Link>{all && <> · <Link to={href(["admin", "usage"])}>all tenants</Link></>} · {title}</>} />
      <Choice />
      <Await of={usage} what="the usage">
        {(list) => list.length === 0 ? (
          <Panel><Empty command={`curl -s '${location.origin}/v1/streams/order-1/events' -H "Authorization: Bearer $MANIFOLD_KEY" -H 'Content-Type: application/json' -d '[{"type": "OrderPlaced", "data": {}}]'`}>
            There is no usage in these days. Append an event:</Empty></Panel>
        ) : (
          <>
            <Totals of={list} />
            <Days of={list} />
          </>
        )}
      </Await>
      <Await of={current} what="the limits">{(of) => <><Quotas of={of} /><RateLimits of={of} /></>}</Await>
    </>
  );
}

const total = (days: Usage[], figure: FigureName): number => days.reduce((sum, day) => sum + day[figure], 0);

function Totals({ of: days }: { of: Usage[] }) {
  return (
    <div class="figures">
      {(Object.keys(figures) as FigureName[]).map((figure) => (
        <div class="figure" key={figure}>
          <p class="muted">{figures[figure]}</p>
          <p class="value">{figure === "expressionSteps" ? short.format(total(days, figure)) : write(figure, total(days, figure))}</p>
          <p class="muted small">{explained[figure]}</p>
        </div>
      ))}
    </div>
  );
}

/** The chosen figure by day, as a chart and as text. Days without usage are zero. */
function Days({ of: given }: { of: Usage[] }) {
  const { figure, days, from } = useChoice();
  const known = new Map(given.map((day) => [day.day, day[figure]]));
  const begin = Date.parse(from);
  const times = Array.from({ length: days }, (_, i) => begin + i * dayLength);
  const unit = figures[figure].toLowerCase();
  return (
    <Panel title={`${figures[figure]} by day`}>
      <Chart key={figure} label={`${figures[figure]} by day, as in the table below`} kind="bars" times={times.map((time) => time / 1000)} values={times.map((time) => known.get(dayOf(time)) ?? 0)}
        height={220} format={(value) => (figure === "bytes" ? bytes(value) : short.format(value))} formatTime={(seconds) => `${unit} on ${dayOf(seconds * 1000)}`} />
      <details>
        <summary>Show all figures of each day</summary>
        <Table label="Usage by day" heads={["Day (UTC)", ...Object.values(figures)]} rows={given.toReversed()} keyOf={({ day }) => day}
          row={(day) => [day.day, ...(Object.keys(figures) as FigureName[]).map((name) => write(name, day[name]))]} />
      </details>
    </Panel>
  );
}

const quotaNames: Record<string, string> = { events: "Stored events", bytes: "Stored bytes", projections: "Projections", groups: "Groups", webhooks: "Webhooks", keys: "Keys" };

function Quotas({ of: { plan, quotas } }: { of: CurrentLimits }) {
  const writeQuota = (quota: string, value: number | undefined, missing: string) => (value === undefined ? missing : write(quota === "bytes" ? "bytes" : "events", value));
  return (
    <Panel title="Quotas" actions={<Badge>{plan ? `Plan ${plan}` : "No plan"}</Badge>}>
      <Table label="Quotas" heads={["Quota", "Used", "Limit", "Share"]} rows={quotas} keyOf={({ quota }) => quota}
        row={({ quota, used, limit }) => [
          quotaNames[quota] ?? quota, writeQuota(quota, used, "not counted"), writeQuota(quota, limit, "none"),
          used === undefined || limit === undefined ? "–" : <Share of={quotaNames[quota] ?? quota} used={used} limit={limit} />,
        ]} />
    </Panel>
  );
}

function Share({ of, used, limit }: { of: string; used: number; limit: number }) {
  const share = limit === 0 ? (used > 0 ? 1 : 0) : used / limit;
  const percent = `${Math.floor(share * 100)} %`;
  return (
    <span class="share">
      <Progress done={used} total={limit} label={`${of}: ${percent}`} />
      {share >= 1 ? <Badge tone="bad">{percent}</Badge> : share >= 0.9 ? <Badge tone="warn">{percent}</Badge> : percent}
    </span>
  );
}

function RateLimits({ of: { limits } }: { of: { limits: Limits } }) {
  const rate = (name: string, of: Rate | undefined, text: (n: number) => string = count): [string, string] | undefined =>
    of && [name, `${text(of.perSecond)} per second${of.burst ? `, ${text(of.burst)} at once` : ""}`];
  const shown = [
    rate("Requests", limits.requests), rate("Events", limits.events), rate("Bytes", limits.bytes, bytes),
    limits.connections !== undefined && (["Open connections", count(limits.connections)] as [string, string]),
    limits.requestsInFlight !== undefined && (["Requests in flight", count(limits.requestsInFlight)] as [string, string]),
  ];
  return (
    <Panel title="Limits">
      {shown.some(Boolean) ? <Facts of={shown} /> : <p class="muted">Nothing limits how much is done at a time, except the service's own limits.</p>}
    </Panel>
  );
}

/** How many tenants the table has. */
const listed = 200;

function OfAll() {
  const { client } = useSession();
  const { from, figure } = useChoice();
  const usage = useData((signal) => allUsage(client, from, signal), [from]);
  const tenants = useData((signal) => collect(client.pages(client.listTenants({ signal }), { signal }), (page) => page.tenants, 2000), []);
  return (
    <>
      <Title text="Usage" about={<><Link to={href(["admin"])}>Administration</Link> · all tenants</>} />
      <Choice />
      <Await of={usage} what="the usage">
        {(list) => list.length === 0 ? <Panel><Empty>There is no usage in these days.</Empty></Panel> : (
          <>
            <Totals of={list} />
            <Days of={sumByDay(list)} />
            <ByTenant of={list} figure={figure} tenants={tenants.data?.items ?? []} />
          </>
        )}
      </Await>
    </>
  );
}

function sumByDay(list: TenantDay[]): Usage[] {
  const days = [...Map.groupBy(list, ({ day }) => day)].map(([day, of]) => ({ day, ...sums(of) }));
  return days.sort((a, b) => a.day.localeCompare(b.day));
}

const sums = (of: Usage[]) => Object.fromEntries((Object.keys(figures) as FigureName[]).map((figure) => [figure, total(of, figure)])) as Record<FigureName, number>;

function ByTenant({ of: list, figure, tenants }: { of: TenantDay[]; figure: FigureName; tenants: Tenant[] }) {
  const { query } = usePlace();
  const names = new Map(tenants.map(({ id, name }) => [id, name]));
  const rows = [...Map.groupBy(list, ({ tenant }) => tenant)].map(([tenant, of]) => ({ tenant, ...sums(of) })).sort((a, b) => b[figure] - a[figure]);
  return (
    <Panel title="By tenant">
      <Table label="Usage by tenant" heads={["Tenant", ...Object.values(figures)]} rows={rows.slice(0, listed)} keyOf={({ tenant }) => tenant}
        row={(row) => [
          <Link to={href(["admin", "usage"], { ...Object.fromEntries(query), tenant: row.tenant })}>{names.get(row.tenant) ?? row.tenant}</Link>,
          ...(Object.keys(figures) as FigureName[]).map((name) => write(name, row[name])),
        ]} />
      {rows.length > listed && <p class="muted">The {count(listed)} tenants with the most {figures[figure].toLowerCase()} of {count(rows.length)}.</p>}
    </Panel>
  );
}
