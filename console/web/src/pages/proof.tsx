import type { Client } from "../../../../client/typescript/src/index.js";
import { ProblemError } from "../../../../client/typescript/src/index.js";
import { useData } from "../data";
import { plural } from "../format";
import { save } from "../save";
import { useMay, useMayForAll, useSession } from "../session";
import { Await, Badge, Button, Code, Facts, Panel, Table, Time, Title } from "../ui";

export function Proof() {
  const { client, audit } = useSession();
  const may = useMay();
  const mayForAll = useMayForAll();
  return (
    <>
      <Title text="Proof" about="Each log is sealed: a signed checkpoint covers every event up to its position" />
      {mayForAll("events:read") && <Checkpoint title="Log" client={client} command="manifold verify --checkpoint log.checkpoint" file="log.checkpoint" />}
      {may("audit:read", "operator:read") && <Checkpoint title="Audit log" client={audit} command="manifold verify --audit --checkpoint audit.checkpoint" file="audit.checkpoint" />}
      <Keys />
    </>
  );
}

interface Seal {
  note: string;
  origin: string;
  size: number;
  root: string;
  /** The names of the keys that signed it. */
  signers: string[];
  /** When the last sealed event was recorded, unless it was removed. */
  sealedUntil?: string;
  /** The position of the log's newest event. */
  head: number;
}

/** Reads the newest checkpoint, in C2SP's tlog-checkpoint format; none if nothing was sealed yet. */
async function loadSeal(client: Client, signal: AbortSignal): Promise<Seal | null> {
  let note: string;
  try {
    note = await (await client.getCheckpoint({ signal })).text();
  } catch (error) {
    if (error instanceof ProblemError && error.status === 404) return null;
    throw error;
  }
  const [origin = "", size = "", root = ""] = note.split("\n");
  const signers = note.split("\n").filter((line) => line.startsWith("— ")).map((line) => line.split(" ")[1]!);
  const newest = (await client.readAll({ direction: "backward", count: 1, signal })).events[0];
  const last = (await client.readAll({ direction: "backward", from: Number(size), count: 1, signal })).events[0];
  return {
    note, origin, size: Number(size), root, signers, head: Math.max(newest?.position ?? 0, Number(size)),
    ...(last?.position === Number(size) ? { sealedUntil: last.recordedAt } : {}),
  };
}

function Checkpoint({ title, client, command, file }: { title: string; client: Client; command: string; file: string }) {
  const seal = useData((signal) => loadSeal(client, signal), [], { every: 5000 });
  const s = seal.data;
  return (
    <Panel title={title} actions={s && <Button onPress={() => save(new Blob([s.note], { type: "text/plain" }), file)}>Save the checkpoint</Button>}>
      <Await of={seal} what="the checkpoint">
        {(s) => s === null ? <p class="muted">Nothing is sealed yet. Events are sealed within seconds after their append.</p> : (
          <>
            <Facts of={[
              ["State", s.head > s.size ? <Badge tone="info">{plural(s.head - s.size, "position")} to seal</Badge> : <Badge tone="ok">Sealed</Badge>], ["Size", plural(s.size, "position")],
              s.sealedUntil !== undefined && ["Last sealed event", <Time at={s.sealedUntil} />], ["Signed by", s.signers.join(", ")], ["Origin", <code>{s.origin}</code>], ["Root", <code>{s.root}</code>],
            ]} />
            <p class="muted">Verify the log against a checkpoint that you keep outside the database. The first run saves one; later runs compare with it.</p>
            <Code text={command} />
          </>
        )}
      </Await>
    </Panel>
  );
}

function Keys() {
  const { client } = useSession();
  const keys = useData((signal) => client.listSigningKeys({ signal }), []);
  return (
    <Panel title="Signing keys">
      <Await of={keys} what="keys">
        {({ keys: list }) => list.length === 0 ? <p class="muted">Nothing was signed yet.</p> : (
          <>
            <Table label="Signing keys" heads={["Name", "State", "Since", "Verifier"]} rows={list} keyOf={({ verifier }) => verifier}
              row={(key) => [key.verifier.split("+")[0], key.signs ? <Badge tone="ok">Signs</Badge> : <Badge>Verifies</Badge>, <Time at={key.createdAt} />, <code>{key.verifier}</code>]} />
            <p class="muted">Someone who controls the service could show other keys: compare them with those that you got another way.</p>
          </>
        )}
      </Await>
    </Panel>
  );
}
