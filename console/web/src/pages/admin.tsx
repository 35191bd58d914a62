import { useState } from "preact/hooks";
import type { Client, CreatedKey, Key, NewKey, Tenant } from "../../../../client/typescript/src/index.js";
import { collect, useData } from "../data";
import { capital, count, duration, plural } from "../format";
import { href, Link, usePlace } from "../router";
import { type Scope, useMay, useSession } from "../session";
import { Actor, ask, Await, Badge, Button, Code, Dialog, Empty, Facts, Field, Json, Loading, Panel, Table, Time, Title, toast } from "../ui";
import { latest } from "./home";
import { UsagePage } from "./usage";

export function Admin() {
  const { path } = usePlace();
  const may = useMay();
  if (path[1] === "tenants" && path[2] !== undefined && may("operator:read")) return <TenantPage key={path[2]} id={path[2]} />;
  if (path[1] === "usage" && may("tenant:admin", "operator:read")) return <UsagePage />;
  if (path[1] === "schemas" && path[2] !== undefined) return <SchemaPage key={path[2]} type={path[2]} />;
  return (
    <>
      <Title text="Administration" actions={may("tenant:admin", "operator:read") && <Link class="button" to={href(["admin", "usage"])}>Usage and limits</Link>} />
      {may("operator:read") && <><Tenants /><Members /></>}
      {may("tenant:admin") && <><Keys of={ownKeys} change /><Retention /></>}
      {may("events:append", "events:read", "documents:read", "projections:write") && <Schemas />}
      {may("documents:read", "projections:write", "operator:read") && <Upcasters />}
    </>
  );
}

function Tenants() {
  const { client } = useSession();
  const may = useMay();
  const tenants = useData((signal) => collect(client.pages(client.listTenants({ signal }), { signal }), (page) => page.tenants), []);
  const create = () => ask({
    title: "Create a tenant", text: "A tenant has a log of its own, and keys.", action: "Create", input: { label: "Name" },
    run: async (name) => {
      await client.createTenant({ name });
      toast(`Tenant ${name} is created`);
      tenants.reload();
    },
  });
  return (
    <Panel title="Tenants" actions={may("operator") && <Button tone="primary" onPress={create}>Create …</Button>}>
      <Await of={tenants} what="tenants">
        {({ items, more }) => items.length === 0 ? <Empty command="manifold tenant create acme">There is no tenant yet.</Empty> : (
          <>
            <Table label="Tenants" heads={["Name", "State", "Created", "Id"]} rows={items} keyOf={({ id }) => id}
              row={(t) => [<Link to={href(["admin", "tenants", t.id])}>{t.name}</Link>, <TenantBadge of={t} />, <Time at={t.createdAt} />, <code>{t.id}</code>]} />
            {more && <p class="muted">The first {count(items.length)} tenants.</p>}
          </>
        )}
      </Await>
    </Panel>
  );
}

function TenantBadge({ of: { state } }: { of: Tenant }) {
  return <Badge tone={state === "active" ? "ok" : state === "suspended" ? "warn" : "plain"}>{capital(state)}</Badge>;
}

function TenantPage({ id }: { id: string }) {
  const { client } = useSession();
  const may = useMay();
  const tenant = useData((signal) => client.getTenant(id, { signal }), [id]);
  const lag = useData((signal) => client.getLag({ tenant: id, signal }), [id], { every: 5000 });
  return (
    <Await of={tenant} what="the tenant">
      {(t) => (
        <>
          <Title text={t.name} about={<><Link to={href(["admin"])}>Administration</Link> · tenant</>} actions={<><Link class="button" to={href(["admin", "usage"], { tenant: t.id })}>Usage and limits</Link><TenantActions of={t} reload={tenant.reload} /></>} />
          <Facts of={[
            ["State", <TenantBadge of={t} />], ["Created", <Time at={t.createdAt} />], ["Id", <code>{t.id}</code>],
            lag.data && ["Log head", count(lag.data.head)], lag.data && ["Projections and groups", count(latest(lag.data.consumers).length)],
            t.weight !== undefined && ["Weight", count(t.weight)], t.ceiling !== undefined && ["Ceiling", count(t.ceiling)],
          ]} />
          <Keys of={keysOfTenant(id)} change={may("operator")} />
        </>
      )}
    </Await>
  );
}

function TenantActions({ of: t, reload }: { of: Tenant; reload: () => void }) {
  const { client } = useSession();
  const may = useMay();
  if (t.state === "deleting" || t.state === "deleted") return null;
  const suspended = t.state === "suspended";
  const toggle = () => ask({
    title: suspended ? "Reactivate the tenant?" : "Suspend the tenant?", text: suspended ? "Its keys work again." : "Its keys are refused. Its data is kept.",
    action: suspended ? "Reactivate" : "Suspend", name: suspended ? undefined : t.name,
    run: async () => {
      await client.changeTenant(t.id, { state: suspended ? "active" : "suspended" });
      reload();
    },
  });
  const remove = () => ask({
    title: "Delete the tenant?", text: "All its events, documents and keys are removed. This cannot be undone.", action: "Delete", name: t.name,
    run: async () => {
      await client.deleteTenant(t.id, { confirm: t.name });
      toast(`Tenant ${t.name} is being deleted`);
      reload();
    },
  });
  return (
    <>
      {may("operator:operate") && <Button onPress={toggle}>{suspended ? "Reactivate" : "Suspend …"}</Button>}
      {may("operator") && <Button tone="danger" onPress={remove}>Delete …</Button>}
    </>
  );
}

function Members() {
  const { client } = useSession();
  const members = useData((signal) => client.listMembers({ signal }), [], { every: 5000 });
  return (
    <Panel title="Cluster members">
      <Await of={members} what="members">
        {({ members: list }) => (
          <Table label="Cluster members" heads={["Name", "Release", "Started", "Alive", "Tenants"]} rows={list} keyOf={({ id }) => id}
            row={(m) => [m.name, m.version, <Time at={m.startedAt} />, <Time at={m.aliveAt} />, count(m.tenants)]} />
        )}
      </Await>
    </Panel>
  );
}

/** Where keys are kept: of the caller's tenant, or of one that the operator names. */
interface KeyRing {
  list: (client: Client, signal: AbortSignal) => Promise<{ keys: Key[] }>;
  create: (client: Client, key: NewKey) => Promise<CreatedKey>;
  revoke: (client: Client, id: string) => Promise<void>;
}

const ownKeys: KeyRing = {
  list: (client, signal) => client.listKeys({ signal }),
  create: (client, key) => client.createKey(key),
  revoke: (client, id) => client.revokeKey(id),
};

const keysOfTenant = (tenant: string): KeyRing => ({
  list: (client, signal) => client.listTenantKeys(tenant, { signal }),
  create: (client, key) => client.createTenantKey(tenant, key),
  revoke: (client, id) => client.revokeTenantKey(tenant, id),
});

function Keys({ of: ring, change }: { of: KeyRing; change?: boolean }) {
  const { client, caller } = useSession();
  const [creating, setCreating] = useState(false);
  const [made, setMade] = useState<CreatedKey>();
  const keys = useData((signal) => collect(client.pages(ring.list(client, signal), { signal }), (page) => page.keys), []);
  const revoke = (key: Key) => () => ask({
    title: "Revoke the key?", text: key.id === caller.key?.id ? "It is the key that you are signed in with: you will be signed out." : "Programs that use it are refused within moments.",
    action: "Revoke", name: key.name,
    run: async () => {
      await ring.revoke(client, key.id);
      toast(`Key ${key.name} is revoked`);
      keys.reload();
    },
  });
  const create = async (key: NewKey) => {
    setMade(await ring.create(client, key));
    setCreating(false);
    keys.reload();
  };
  return (
    <Panel title="Keys" actions={change && <Button tone="primary" onPress={() => setCreating(true)}>Create …</Button>}>
      <Await of={keys} what="keys">
        {({ items }) => items.length === 0 ? <p class="muted">There is no key yet.</p> : (
          <Table label="Keys" heads={["Name", "State", "Scopes", "Created", ""]} rows={items} keyOf={({ id }) => id}
            row={(key) => [
              key.name, key.revokedAt ? <Badge>Revoked</Badge> : <Badge tone="ok">Valid</Badge>, <span class="scopes">{key.scopes.map((scope) => <code key={scope}>{scope}</code>)}</span>, <Time at={key.createdAt} />,
              change && !key.revokedAt && <Button onPress={revoke(key)}>Revoke</Button>,
            ]} />
        )}
      </Await>
      {creating && <NewKeyDialog create={create} close={() => setCreating(false)} />}
      {made && (
        <Dialog title={`Key ${made.name}`} close={() => setMade(undefined)}>
          <p>The key is shown only this once.</p>
          <Code text={made.key} />
          <div class="actions end"><Button tone="primary" onPress={() => setMade(undefined)}>Close</Button></div>
        </Dialog>
      )}
    </Panel>
  );
}

const grantable: Scope[] = ["events:append", "events:read", "events:consume", "commands:send", "documents:read", "projections:write", "subscriptions:write", "tenant:admin", "audit:read", "subjects:erase", "subjects:read"];

function NewKeyDialog({ create, close }: { create: (key: NewKey) => Promise<void>; close: () => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<string[]>([]);
  return (
    <Dialog title="Create a key" close={close}>
      <Field label="Name" value={name} placeholder="web-shop" onInput={(event) => setName(event.currentTarget.value)} />
      <fieldset>
        <legend>Scopes</legend>
        {grantable.map((scope) => (
          <label class="check" key={scope}>
            <input type="checkbox" checked={scopes.includes(scope)} onChange={(event) => setScopes(event.currentTarget.checked ? [...scopes, scope] : scopes.filter((s) => s !== scope))} /> {scope}
          </label>
        ))}
      </fieldset>
      <div class="actions end">
        <Button onPress={close}>Cancel</Button>
        <Button tone="primary" disabled={name.trim() === "" || scopes.length === 0} onPress={() => create({ name: name.trim(), scopes })}>Create</Button>
      </div>
    </Dialog>
  );
}

function Retention() {
  const { client } = useSession();
  const policies = useData((signal) => client.listRetention({ signal }), []);
  const [preview, setPreview] = useState<{ category: string; text: string }>();
  const dryRun = (category: string) => async () => {
    const answer = await client.runRetention(category, { dryRun: true });
    if (!("events" in answer)) return;
    const held = answer.heldBy.map(({ kind, name }) => `${kind} ${name}`).join(", ");
    setPreview({ category, text: `${answer.complete ? "" : "At least "}${plural(answer.events, "event")} would be removed.${held ? ` Held back by ${held}.` : ""}` });
  };
  return (
    <Panel title="Retention">
      <Await of={policies} what="policies">
        {({ policies: list }) => list.length === 0 ? <Empty command="manifold retention set heartbeat --max-age 720h">No policy removes events. Set one for a category:</Empty> : (
          <Table label="Retention policies" heads={["Category", "Keeps", "Removed", "Held by", "Last run", ""]} rows={list} keyOf={({ category }) => category}
            row={(p) => [
              p.category, [p.maxAge !== undefined && duration(p.maxAge), p.maxCount !== undefined && plural(p.maxCount, "event"), p.compact && "the newest of each key"].filter(Boolean).join(", "),
              count(p.removed), p.heldBy.map(({ name }) => name).join(", ") || "–", p.error ? <Badge tone="bad">{p.error}</Badge> : p.lastRunAt ? <Time at={p.lastRunAt} /> : "never",
              <Button onPress={dryRun(p.category)}>Preview</Button>,
            ]} />
        )}
      </Await>
      {preview && <p class="notice" role="status"><strong>{preview.category}:</strong> {preview.text}</p>}
    </Panel>
  );
}

function Schemas() {
  const { client } = useSession();
  const schemas = useData(async (signal) => {
    const { items } = await collect(client.pages(client.listSchemas({ signal }), { signal }), (page) => page.schemas);
    return items;
  }, []);
  return (
    <Panel title="Schemas">
      <Await of={schemas} what="schemas">
        {(list) => list.length === 0 ? <Empty command="manifold schema put OrderPlaced -f order-placed.json">No event type has a schema yet.</Empty> : (
          <Table label="Schemas" heads={["Type", "Version", "Compatibility", "By", "Created"]} rows={list} keyOf={({ type }) => type}
            row={(s) => [<Link to={href(["admin", "schemas", s.type])}>{s.type}</Link>, count(s.version), s.compatibility, <Actor name={s.by} />, <Time at={s.createdAt} />]} />
        )}
      </Await>
    </Panel>
  );
}

function SchemaPage({ type }: { type: string }) {
  const { client } = useSession();
  const schema = useData((signal) => client.getSchema(type, { signal }), [type]);
  return (
    <>
      <Title text={type} about={<><Link to={href(["admin"])}>Administration</Link> · schema</>} actions={<Link class="button" to={href(["events"], { types: type })}>See its events</Link>} />
      <Await of={schema} what="the schema">
        {(s) => (
          <>
            <Facts of={[
              ["Version", count(s.version)], ["Compatibility", s.compatibility], s.tags !== undefined && ["Derived tags", <code>{s.tags}</code>],
              ["Personal fields", s.versions.at(-1)?.personal?.join(", ") || "all"],
            ]} />
            <Panel title="Schema"><Json value={s.schema} label="Schema" /></Panel>
          </>
        )}
      </Await>
    </>
  );
}

function Upcasters() {
  const { client } = useSession();
  const upcasters = useData((signal) => client.listUpcasters({ signal }), []);
  if (upcasters.data === undefined && upcasters.error === undefined) return <Loading what="upcasters" />;
  return (
    <Panel title="Upcasters">
      <Await of={upcasters} what="upcasters">
        {({ upcasters: list }) => list.length === 0 ? <p class="muted">No upcaster converts old events.</p> : (
          <Table label="Upcasters" heads={["Type", "From version", "Expression", "By", "Changed"]} rows={list} keyOf={({ type, version }) => `${type} ${version}`}
            row={(u) => [u.type, count(u.version), <code>{u.expression}</code>, <Actor name={u.by} />, <Time at={u.updatedAt} />]} />
        )}
      </Await>
    </Panel>
  );
}
