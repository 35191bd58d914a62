import { useState } from "preact/hooks";
import { type CommandDefinition, type CommandOutcome, type JSONValue, ProblemError } from "../../../../client/typescript/src/index.js";
import { count, plural } from "../format";
import { href, Link } from "../router";
import { useSession } from "../session";
import { Area, Button, Field, Json, messageOf, Panel, Select, Table } from "../ui";
import { useData } from "../data";

/** What the form knows of a JSON Schema. */
interface Schema {
  type?: string | string[];
  enum?: JSONValue[];
  description?: string;
  required?: string[];
  properties?: Record<string, Schema>;
}

/** Sends the commands that a stream's aggregate declares. It shows nothing if there are none, or the key may not see them. */
export function CommandForm({ stream, sent }: { stream: string; sent: () => void }) {
  const { client } = useSession();
  const category = stream.split("-")[0]!;
  const aggregate = useData(async (signal) => {
    try {
      return await client.getAggregate(category, { signal });
    } catch (error) {
      if (error instanceof ProblemError && error.code === "not-found") return undefined;
      throw error;
    }
  }, [category]);
  const commands = aggregate.data?.commands ?? {};
  const names = Object.keys(commands).sort();
  const [chosen, setChosen] = useState("");
  const name = chosen || names[0];
  if (name === undefined) return null;
  return (
    <Panel title="Send a command">
      <div class="command">
        <Select label="Command" value={name} options={names.map((name) => [name, name])} onChange={(event) => setChosen(event.currentTarget.value)} />
      </div>
      <Fields key={name} stream={stream} name={name} command={commands[name]!} sent={sent} />
    </Panel>
  );
}

/** The command's fields, as its schema has them. Without properties, the data is typed as JSON. */
function Fields({ stream, name, command, sent }: { stream: string; name: string; command: CommandDefinition; sent: () => void }) {
  const { client } = useSession();
  const schema = (command.input ?? {}) as Schema;
  const isRequired = (property: string) => schema.required?.includes(property) ?? false;
  const properties = Object.entries(schema.properties ?? {}).sort(([a], [b]) => Number(isRequired(b)) - Number(isRequired(a)));
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [json, setJson] = useState("{}");
  const [outcome, setOutcome] = useState<{ of: CommandOutcome; dry: boolean }>();
  const [error, setError] = useState<unknown>();
  const [key, setKey] = useState(() => crypto.randomUUID());
  const renew = () => setKey(crypto.randomUUID()); // other data is another command
  const send = async (dry: boolean) => {
    setError(undefined);
    setOutcome(undefined);
    try {
      const data = properties.length === 0 ? JSON.parse(json) : dataOf(properties, texts);
      const [category, id] = [stream.split("-")[0]!, stream.slice(stream.indexOf("-") + 1)];
      const of = await client.sendCommand(category, id, name, { data }, dry ? { dryRun: true, explain: true } : { idempotencyKey: key });
      setOutcome({ of, dry });
      if (dry) return;
      renew();
      sent();
    } catch (problem) {
      setError(problem);
      // Without an answer, or with one that leaves the outcome open, the same command is sent again.
      if (!dry && problem instanceof ProblemError && problem.status < 500) renew();
    }
  };
  return (
    <form class="command" onSubmit={(event) => (event.preventDefault(), void send(false))}>
      {command.description && <p class="muted">{command.description}</p>}
      {properties.length === 0
        ? <Area label="Data, as JSON" value={json} rows={4} onInput={(event) => (renew(), setJson(event.currentTarget.value))} />
        : properties.map(([property, of]) => (
          <Input key={property} name={property} schema={of} required={isRequired(property)} value={texts[property] ?? ""} set={(text) => (renew(), setTexts((all) => ({ ...all, [property]: text })))} />
        ))}
      <div class="actions">
        <Button type="submit" tone="primary">Send</Button>
        <Button onPress={() => send(true)}>Try without appending</Button>
      </div>
      {error !== undefined && <p class="problem" role="alert">{error instanceof SyntaxError ? "The data is not JSON." : messageOf(error)}</p>}
      {outcome && <Outcome of={outcome.of} dry={outcome.dry} />}
    </form>
  );
}

const typeOf = (schema: Schema): string => [schema.type ?? "any"].flat().find((type) => type !== "null") ?? "any";

/** Converts what was typed. Empty fields are left out. Throws an Error that names the field. */
function dataOf(properties: Array<[string, Schema]>, texts: Record<string, string>): Record<string, JSONValue> {
  const data: Record<string, JSONValue> = {};
  for (const [name, schema] of properties) {
    const text = texts[name] ?? "";
    if (text === "") continue;
    if (schema.enum === undefined && typeOf(schema) === "string") {
      data[name] = text;
      continue;
    }
    try {
      data[name] = JSON.parse(text);
      if (/^-?\d+$/.test(text) && !Number.isSafeInteger(data[name])) throw new RangeError();
    } catch (problem) {
      if (problem instanceof RangeError) throw new Error(`${name}: this page cannot send a number of so many digits; use manifold command send.`);
      throw new Error(`${name}: expected ${typeOf(schema) === "any" ? "JSON; put a text in quotes" : `JSON of type ${typeOf(schema)}`}.`);
    }
  }
  return data;
}

function Input({ name, schema, required, value, set }: { name: string; schema: Schema; required: boolean; value: string; set: (text: string) => void }) {
  const label = required ? name : `${name} (optional)`;
  const type = typeOf(schema);
  if (schema.enum !== undefined || type === "boolean") {
    const values = schema.enum ?? [true, false];
    return <Select label={label} value={value} required={required} options={[["", "–"], ...values.map((one): [string, string] => [JSON.stringify(one), typeof one === "string" ? one : JSON.stringify(one)])]} onChange={(event) => set(event.currentTarget.value)} />;
  }
  if (type === "object" || type === "array") return <Area label={`${label}, as JSON`} value={value} required={required} rows={3} title={schema.description} onInput={(event) => set(event.currentTarget.value)} />;
  const numeric = type === "number" || type === "integer";
  return <Field label={label} value={value} required={required} title={schema.description} inputMode={numeric ? "decimal" : undefined} placeholder={schema.description ?? type} onInput={(event) => set(event.currentTarget.value)} />;
}

function Outcome({ of, dry }: { of: CommandOutcome; dry: boolean }) {
  const said = of.rejected
    ? `It would be rejected (${of.rejected.code})${of.rejected.message ? `: ${of.rejected.message}` : "."}`
    : of.outcome === "nothing" ? "No rule fails, and there is nothing to append." : dry ? `It would append ${plural(of.events.length, "event")}.` : `Accepted: ${of.stream} is at version ${count(of.version)}.`;
  return (
    <div role="status">
      <p class={of.rejected ? "problem" : "muted"}>{said}</p>
      {of.rules && of.rules.length > 0 && (
        <Table label="Rules" heads={["Rule", "Holds", "Values"]} rows={of.rules} keyOf={({ rule }) => String(rule)}
          row={(rule) => [<code>{rule.if}</code>, rule.holds ? "yes" : <strong>no</strong>, <code>{Object.entries(rule.values).map(([path, value]) => `${path} = ${JSON.stringify(value)}`).join("  ")}</code>]} />
      )}
      {of.events.map((event, i) => (
        <div key={i}>
          <p><Link to={href(["streams", event.stream])}>{event.stream}</Link> <strong>{event.type}</strong></p>
          {event.data !== undefined && <Json value={event.data} label={event.type} tools={false} />}
        </div>
      ))}
    </div>
  );
}
