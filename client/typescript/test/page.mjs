// What a page does with the client. Its own origin passes requests on to the service; `service` is another origin.
import { Client, ProblemError } from "@manifold-es/client";

export async function run({ key, service }) {
  const client = new Client({ key });
  await client.appendToStream("page-1", [1, 2, 3].map((n) => ({ type: "Counted", data: { n } })), { expectedVersion: "none" });
  const refused = await client.appendToStream("page-1", [{ type: "Counted", data: {} }], { expectedVersion: 1 }).catch((error) => error);
  const seen = { code: refused instanceof ProblemError ? refused.code : String(refused) };

  const ticket = async () => (await client.createTicket()).ticket;
  const other = new Client({ url: service, ticket });
  const follow = async (from, transport, options = {}) => {
    const versions = [];
    for await (const event of from.follow({ stream: "page-1", transport, ...options })) {
      if (versions.push(event.version) === 3) break;
    }
    return versions.join();
  };
  for (const transport of ["sse", "websocket"]) {
    seen[transport] = await follow(client, transport);
    seen[`${transport} of another origin`] = await follow(other, transport);
    seen[`${transport} refused`] = await follow(other, transport, { filter: "event.dat" }).catch((error) => error.code ?? String(error));
  }
  seen.events = 0;
  for await (const _ of client.events({ stream: "page-1" })) seen.events++;

  await client.putSubscription("page", { source: { categories: ["page"] } });
  seen.handled = 0;
  await new Promise((resolve, reject) => {
    const consumer = client.consume("page", () => {
      if (++seen.handled === 3) consumer.stop().then(resolve, reject);
    });
    consumer.done.catch(reject);
  });
  seen.inFlight = (await client.getSubscription("page")).progress[0].inFlight;
  return seen;
}
