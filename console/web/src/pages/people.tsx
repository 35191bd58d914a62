import { useEffect, useRef, useState } from "preact/hooks";
import type { Caller, Erasure, ErasurePreview, NewErasure } from "../../../../client/typescript/src/index.js";
import { uuid } from "../../../../client/typescript/src/retry.js";
import { collect, useData } from "../data";
import { count, plural } from "../format";
import { go, href, Link, usePlace } from "../router";
import { readLines, save } from "../save";
import { useMay, useSession } from "../session";
import { Actor, ask, Await, Badge, Button, Code, Facts, Field, messageOf, Panel, Progress, Select, Table, Time, Title, toast } from "../ui";

/** The id of a person may be personal itself. It is never in an address of these pages, which proxies log and browsers keep. */
export function People() {
  const { path } = usePlace();
  if (path[1] === "erasures" && path[2] !== undefined) return <ErasurePage key={path[2]} id={path[2]} />;
  return (
    <>
      <Title text="People" about="Export or erase what the log says about a person" />
      <Person />
      <Erasures />
    </>
  );
}

function Person() {
  const { client } = useSession();
  const may = useMay();
  const [subject, setSubject] = useState("");
  const [reason, setReason] = useState("");
  const [what, setWhat] = useState("personal");
  const [approval, setApproval] = useState(false);
  const [acceptLoss, setAcceptLoss] = useState(false);
  const [preview, setPreview] = useState<{ of: string; shows: ErasurePreview }>();
  const [busy, setBusy] = useState(false);
  const controller = useRef(new AbortController());
  useEffect(() => () => controller.current.abort(new DOMException("the page was left", "AbortError")), []);
  const person = subject.trim();
  const request: NewErasure = { reason: reason.trim(), what: what as "personal" | "data", approval, acceptLoss };
  const of = JSON.stringify([person, what]);
  const dryRun = async (event: Event) => {
    event.preventDefault();
    if (busy || person === "" || !may("subjects:erase")) return;
    setBusy(true);
    try {
      const shows = (await client.eraseSubject(person, { ...request, reason: request.reason || "preview", dryRun: true })) as ErasurePreview;
      setPreview({ of, shows });
    } catch (error) {
      toast(messageOf(error), "bad");
    } finally {
      setBusy(false);
    }
  };
  const erase = () => {
    const id = uuid(); // so that a second attempt does not begin a second erasure
    ask({
      title: "Erase the person's data?", text: `${what === "data" ? "All data and metadata of" : "The personal fields in"} the person's events, and everything that was made from them, are removed for good. This cannot be undone.`,
      action: "Erase", name: person,
      run: async () => {
        const erasure = (await client.eraseSubject(person, { ...request, id })) as Erasure;
        go(href(["people", "erasures", erasure.id]));
      },
    });
  };
  const download = async () => {
    const { signal } = controller.current;
    try {
      const { file, more } = await readLines(await client.exportSubject(person, { signal }));
      if (more) throw new Error("The export is too large for the browser: use manifold subject export.");
      if (file.size > 0) save(file, "person.ndjson");
      toast(file.size === 0 ? "The log has no event of this person" : "The events are saved");
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  };
  const shown = preview?.of === of ? preview.shows : undefined;
  const found = shown ? Object.values(shown.events).reduce((sum, n) => sum + n, 0) : 0;
  return (
    <Panel title="A person">
      <form class="filters" aria-label="A person" onSubmit={(event) => void dryRun(event)}>
        <Field label="Id, as in the tag subject:ID" value={subject} required placeholder="c-17" data-search onInput={(event) => setSubject(event.currentTarget.value)} />
        {may("subjects:erase") && <Select label="Erase" value={what} options={[["personal", "personal fields"], ["data", "all data and metadata"]]} onChange={(event) => setWhat(event.currentTarget.value)} />}
        {may("subjects:erase") && <Button type="submit" tone="primary" disabled={busy || person === ""}>Show what would be erased</Button>}
        {may("subjects:read") && <Button disabled={person === ""} onPress={download}>Export events</Button>}
      </form>
      {shown && (found === 0 ? <p class="muted" role="status">The log has no event with the tag subject:{person}.</p> : (
        <section aria-label="What would be erased">
          <div role="status">
            <Facts of={[
              ["Events", Object.entries(shown.events).map(([type, n]) => `${count(n)} ${type}`).join(", ")], ["Streams", count(shown.streams)],
              ["Up to position", count(shown.until)], ["Projections to rebuild", shown.projections.join(", ") || "none"],
            ]} />
          </div>
          <div class="command">
            <Field label="Reason, without personal data: it is kept" value={reason} required placeholder="request 4711" onInput={(event) => setReason(event.currentTarget.value)} />
            <div>
              <label class="check"><input type="checkbox" checked={approval} onChange={(event) => setApproval(event.currentTarget.checked)} /> Begin only when somebody else has approved it</label>
              <label class="check"><input type="checkbox" checked={acceptLoss} onChange={(event) => setAcceptLoss(event.currentTarget.checked)} /> Rebuild documents even if retention has removed events that they need</label>
            </div>
            <div class="actions"><Button tone="danger" disabled={request.reason === ""} onPress={erase}>Erase …</Button></div>
          </div>
        </section>
      ))}
    </Panel>
  );
}

function StateBadge({ of: { state, problem } }: { of: Erasure }) {
  if (state === "done") return <Badge tone="ok">Done</Badge>;
  if (state === "cancelled") return <Badge>Cancelled</Badge>;
  if (state === "awaiting-approval") return <Badge tone="warn">Awaiting approval</Badge>;
  return problem ? <Badge tone="bad">Waiting</Badge> : <Badge tone="info">Running</Badge>;
}

const erasedEvents = ({ counts }: Erasure): number => Object.values(counts.events).reduce((sum, n) => sum + n, counts.derivedEvents);

function Erasures() {
  const { client } = useSession();
  const erasures = useData((signal) => collect(client.pages(client.listErasures({ signal }), { signal }), (page) => page.erasures), [], { every: 5000 });
  return (
    <Panel title="Erasures">
      <Await of={erasures} what="erasures">
        {({ items, more }) => items.length === 0 ? <p class="muted">No erasures yet.</p> : (
          <>
            <Table label="Erasures" heads={["Reason", "State", "Events", "Requested by", "Requested"]} rows={items} keyOf={({ id }) => id}
              row={(e) => [<Link to={href(["people", "erasures", e.id])}>{e.reason}</Link>, <StateBadge of={e} />, count(erasedEvents(e)), <Actor name={e.requestedBy} />, <Time at={e.createdAt} />]} />
            {more && <p class="muted">The newest {count(items.length)} erasures.</p>}
          </>
        )}
      </Await>
    </Panel>
  );
}

/** The steps of an erasure, in their order, with what they do. */
const steps: Array<[string, string]> = [
  ["events", "Erase the events"], ["derived", "Erase changes of documents and reports"], ["rows", "Remove snapshots, dead letters, attempts and other copies"],
  ["settle", "Wait until no process holds the data"], ["documents", "Rebuild the documents"], ["receipt", "Sign the receipt"],
];

/** Whether an actor, as erasures name it, is the caller. The service knows for certain. */
const isCaller = ({ key, token }: Caller, actor: string): boolean =>
  key ? actor.startsWith(`key ${key.id} (`) : token !== undefined && actor.startsWith("token ") && actor.endsWith(` (${JSON.stringify(token.subject)} of ${token.issuer})`);

function ErasurePage({ id }: { id: string }) {
  const { client, caller } = useSession();
  const may = useMay();
  const erasure = useData((signal) => client.getErasure(id, { signal }), [id], { every: 2000 });
  const approve = () => ask({
    title: "Approve the erasure?", text: "It begins at once, and cannot be undone.", action: "Approve",
    run: async () => {
      await client.approveErasure(id);
      erasure.reload();
    },
  });
  const cancel = async () => {
    await client.cancelErasure(id);
    toast("The erasure is cancelled");
    erasure.reload();
  };
  const waits = erasure.data?.state === "awaiting-approval" && may("subjects:erase");
  const own = erasure.data !== undefined && isCaller(caller, erasure.data.requestedBy);
  return (
    <>
      <Title text="Erasure" about={<><Link to={href(["people"])}>People</Link> · {erasure.data?.reason ?? id}</>} actions={waits && <>{!own && <Button tone="primary" onPress={approve}>Approve …</Button>}<Button onPress={cancel}>Cancel the erasure</Button></>} />
      <Await of={erasure} what="the erasure">
        {(e) => {
          const step = steps.findIndex(([name]) => name === e.step);
          return (
            <>
              {e.problem && <p class="problem">Waiting: {e.problem}</p>}
              <Facts of={[
                ["State", <StateBadge of={e} />], ["Erases", e.what === "data" ? "all data and metadata" : "personal fields"], ["Requested by", <Actor name={e.requestedBy} />], ["Requested", <Time at={e.createdAt} />],
                e.approvedBy !== undefined && ["Approved by", <Actor name={e.approvedBy} />], e.finishedAt !== undefined && ["Finished", <Time at={e.finishedAt} />],
                ["Covers", `up to position ${count(e.until)}`], ["Id", <code>{e.id}</code>],
              ]} />
              {e.state === "awaiting-approval" && <p class="notice">Nothing is erased until another person or key approves it{own ? ": you have requested it." : may("subjects:erase") ? "." : ", with the scope subjects:erase."}</p>}
              {e.state === "running" && (
                <Panel title="Progress">
                  <Progress done={step} total={steps.length} label="Steps that are done" />
                  <p role="status">Step {step + 1} of {steps.length}: {steps[step]?.[1] ?? e.step}. It takes at least a minute or two: it may wait for a rebuild.</p>
                </Panel>
              )}
              {(e.state === "running" || e.state === "done") && <Erased of={e} />}
              {e.receipt !== undefined && (
                <Panel title="Receipt" actions={<Button tone="primary" onPress={() => save(new Blob([e.receipt!], { type: "text/plain" }), `erasure-${e.id}.receipt`)}>Save the receipt</Button>}>
                  <p class="muted">It is signed, and has no id of the person. Keep it.</p>
                  <Code text={e.receipt} />
                </Panel>
              )}
            </>
          );
        }}
      </Await>
    </>
  );
}

function Erased({ of: { counts } }: { of: Erasure }) {
  const rows: Array<[string, number]> = [...Object.entries(counts.events).map(([type, n]): [string, number] => [`events of type ${type}`, n]), ["changes of documents and reports", counts.derivedEvents], ...Object.entries(counts.rows ?? {})];
  return (
    <Panel title="What was erased">
      <Table label="What was erased" heads={["What", "Number"]} rows={rows.filter(([, n]) => n > 0)} keyOf={([name]) => name} row={([name, n]) => [name, count(n)]} />
      <p class="muted">
        {plural(counts.streams, "stream")}{counts.namedStreams > 0 && `, of which ${count(counts.namedStreams)} ${counts.namedStreams === 1 ? "has the id in its name" : "have the id in their names"}, where it stays`}.
        {" "}Rebuilt projections: {counts.projections.join(", ") || "none"}.
      </p>
    </Panel>
  );
}
