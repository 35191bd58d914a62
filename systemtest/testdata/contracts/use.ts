import type { EventOf, Events, EventVersions, OrderPlaced } from "./events.js";

export function read(event: EventOf): string {
  switch (event.type) {
    case "OrderPlaced":
      return event.data.payment.kind === "card" ? event.data.payment.last4 : event.data.customer.name;
    case "com.example.order-noted":
      return event.data ?? "";
    case "Nested":
      return typeof event.data === "string" ? event.data : "";
  }
}

export const nested: Events["Nested"][] = ["a", [[[["b"]]]], ["c", ["d", [["e"]]]]];

const old: EventVersions["OrderPlaced"][1] = { customer: "c-1" };
export const placed: Events["OrderPlaced"] = {
  customer: { id: "c-1", name: old.customer },
  lines: [{ sku: "s-1", quantity: 1, price: 4.5, bundle: [{ sku: "s-2", quantity: 1, discount: 0 }] }],
  currency: "EUR",
  channel: null,
  placed_at: "2026-03-01T09:30:00Z",
  priority: 2,
  payment: { kind: "card", last4: "4242" },
  position: [1, 2],
  tags: ["a", null],
  gift: { to: "Eve", anything: "else" },
};

// @ts-expect-error: it is no currency
export const wrong: OrderPlaced["currency"] = "eur";
// @ts-expect-error: an invoice has no last4
export const invoice: OrderPlaced["payment"] = { kind: "invoice", last4: "4242" };
