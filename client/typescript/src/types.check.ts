// What callers may rely on, as the compiler sees it. Nothing runs this; it is no part of the package.
import { type Client, type CommandOutcome, type Event, ProblemError, type Projection, type Rebuild } from "./index.js";

// As `manifold types` generates them.
interface Events {
  OrderPlaced: { customer: string };
  ItemAdded: { sku: string; qty: number };
}
type EventOf = { [T in keyof Events]: { type: T; data: Events[T] } }[keyof Events];

interface OrderPlaced {
  customer: string;
}

export async function check(client: Client, signal: AbortSignal): Promise<CommandOutcome | Projection | Rebuild> {
  for await (const event of client.follow<Event & EventOf>({ category: "order", signal })) {
    if (event.type === "OrderPlaced") event.data.customer.length satisfies number;
    else event.data.qty satisfies number;
    event.position satisfies number;
  }
  client.consume<Event & EventOf>("mail", (event) => (event.type === "ItemAdded" ? { action: "park", reason: event.data.sku } : undefined));
  client.consume("mail", async () => {}, { concurrency: 2, signal });
  for await (const { document } of client.documents<OrderPlaced>("orders", { filter: "true", pageSize: 10 })) document.customer satisfies string;
  for await (const page of client.pages(client.listStreams())) page.streams satisfies string[];
  const { events } = await client.query<Event & EventOf>({ items: [{ types: ["ItemAdded"] }] });
  events[0]?.type satisfies "OrderPlaced" | "ItemAdded" | undefined;

  const data: OrderPlaced = { customer: "Ada" };
  await client.appendToStream("order-1", [{ type: "OrderPlaced", data }], { expectedVersion: 1, signal });
  // @ts-expect-error: events have a type
  await client.appendToStream("order-1", [{ data }]);
  // @ts-expect-error: a required option is missing
  await client.readLatest("order");
  try {
    return await client.command("order-1", "Place", data, { metadata: { user: "u-1" }, retry: false });
  } catch (error) {
    if (error instanceof ProblemError && error.code === "rejected") return await client.putProjection("orders", {});
    // @ts-expect-error: codes are a closed set
    if (error instanceof ProblemError && error.code === "no-such-code") throw error;
    throw error;
  }
}
