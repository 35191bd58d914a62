/**
 * The client of Manifold. {@link Client} calls a service; `follow` iterates over events as they are appended, and `consume`
 * handles those of a group.
 *
 * @packageDocumentation
 */
export * from "./api.gen.js";
export { Client, responseOf } from "./client.js";
export type { ClientOptions, Credential, EventsOptions, QueryOptions, QueryResult } from "./client.js";
export { Consumer } from "./consume.js";
export type { ConsumeOptions, DeliveryInfo, Handler, Settlement } from "./consume.js";
export { ConnectionError, ProblemError } from "./errors.js";
export type { ProblemCode } from "./errors.js";
export { Follower } from "./follow.js";
export type { FollowOptions } from "./follow.js";
export type { CallOptions, Operation } from "./operation.js";
export type { RetryOptions } from "./retry.js";
