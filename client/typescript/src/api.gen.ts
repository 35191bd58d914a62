// Code generated from openapi.yaml by tools/clientgen. DO NOT EDIT.

import type { CallOptions, Operation } from "./operation.js";

/** 36 characters, with hyphens. */
export type UUID = string;

/** Any JSON value. */
export type JSONValue = unknown;

/** Any JSON object. */
export type JSONObject = Record<string, any>;

/** What happened, such as OrderPlaced: letters, digits and `_.:/+-`. */
export type EventType = string;

/** At most 1 MiB of data and metadata together. U+0000 cannot be kept. A number has at most 309 digits before the decimal point and 340 after it, written without an exponent; written so, data and metadata have at most 2 MiB each. */
export interface NewEvent {
  /** Names the event permanently; repeating it appends nothing. */
  id?: UUID;
  type: EventType;
  data: JSONValue;
  metadata?: JSONValue;
  tags?: Tags;
  /** The client's word; RFC 3339, kept to the microsecond. */
  occurredAt?: string;
}

/** Printable ASCII without space, `"` and `\`, such as course:c1. The form `name:value` is usual. */
export type Tag = string;

/** What the event concerns. A set; answers have it sorted. */
export type Tags = Tag[];

/** Matches the events that are of any of its types and have all of its tags. Without types, events of all types; without tags, whatever their tags are. */
export interface QueryItem {
  types?: EventType[];
  tags?: Tag[];
}

/** Matches the events that any of its items matches. */
export interface Query {
  items: QueryItem[];
}

/** The append fails if the log has an event after the position that the query matches. */
export interface Condition {
  failIfEventsMatch: Query;
  /** The position up to which the client knows the log; default 0, the beginning. */
  after?: number;
}

/** A condition, or several, which must all hold. Together they have at most 100 items. */
export type Conditions = Condition | Condition[];

export interface QueryRequest {
  query: Query;
  /** Only events after this position. */
  after?: number;
  /** Only events before this position. */
  before?: number;
  /** Only events recorded at or after this time. */
  since?: string;
  /** Only events recorded before this time. */
  until?: string;
  /** Default forward. */
  direction?: "forward" | "backward";
  /** At most so many events; of a page, default 100, at most 1,000; of lines, all by default. */
  count?: number;
}

export interface QueryAnswer {
  events: Event[];
  /** The answer has every event that matches up to this position. Give it as the `after` of a condition. */
  position: number;
  /** There may be more, even if the page is empty: a rare match takes long to find. Continue with `next`. */
  more: boolean;
  /** With `more`: the `after`, or backward the `before`, that continues. */
  next?: number;
}

export interface ConflictingEvent {
  id: UUID;
  stream: string;
  version: number;
  position: number;
  type: string;
  tags?: Tags;
}

/** Why the conditions of an append failed. */
export interface FailedCondition {
  /** Every event up to here was considered: read the log up to here, and decide again. */
  position: number;
  /** The indexes of the failed conditions, from 0. */
  conditions: number[];
  /** The newest events that match, by position, without data. */
  events: ConflictingEvent[];
}

export type NewEvents = NewEvent[];

/** At most 1 MiB of payload and metadata together. */
export interface Message {
  /** A category: no hyphen. */
  topic: string;
  /** With the topic, the stream: `topic-key`, of at most 256 characters. */
  key?: string;
  /** The event's data. */
  payload: JSONValue;
  /** Names the event permanently; repeating it publishes nothing. */
  id?: UUID;
  /** Default the topic. */
  type?: EventType;
  /** Kept in the metadata. */
  headers?: Record<string, string>;
  /** The event's tags. Kept in the metadata as well. */
  tags?: Tags;
  /** The id of the event that this one follows from, or several. Kept in the metadata. Each adds the tag `cause:<id>`. */
  caused_by?: UUID | UUID[];
  /** The session that it belongs to; at most 200 bytes. Kept in the metadata. */
  sid?: string;
  /** When it happened, by the client's word; RFC 3339, kept to the microsecond. */
  ts?: string;
}

/** A message, or several. */
export type Publication = Message | Message[];

export interface PublishedEvent {
  id: UUID;
  stream: string;
  version: number;
  position: number;
}

export interface Published {
  /** The highest position of the events. */
  position: number;
  /** In the order of the messages. */
  events: PublishedEvent[];
}

/** `any`, `none`, `exists`, or a version as a number. */
export type Expectation = string | number;

export interface StreamAppend {
  stream: string;
  expectedVersion?: Expectation;
  events: NewEvents;
}

export interface AppendRequest {
  streams: StreamAppend[];
  condition?: Conditions;
}

export interface AppendedEvent {
  id: UUID;
  version: number;
  position: number;
}

export interface AppendedStream {
  stream: string;
  /** Of the request's last event. */
  version: number;
  /** The highest position of the request's events. */
  position: number;
  events: AppendedEvent[];
}

export interface Appended {
  /** The highest position of the request's events. */
  position: number;
  streams: Array<{
    stream: string;
    version: number;
    events: AppendedEvent[];
  }>;
}

export interface Event {
  id: UUID;
  stream: string;
  /** In its stream: 1, 2, 3 ... */
  version: number;
  /** In its tenant's log: 1, 2, 3 ... */
  position: number;
  type: string;
  data: JSONValue;
  metadata?: JSONValue;
  /** Missing where the event has none. */
  tags?: Tags;
  occurredAt?: string;
  recordedAt: string;
  gap?: EventGap;
  erased?: EventErasure;
}

export interface Redaction {
  /** Shown to everybody who reads the event. */
  reason: string;
}

/**
 * Why an event in its place in the log has no data: `data` is null, and `metadata` is not there. Projections step over it.
 * `unreadable`: an earlier release took numbers in it that are too long to be printed. `redacted`: the operator has removed what could not be read.
 * `erased`: it was erased with the data of a person.
 */
export interface EventGap {
  /** `unreadable`, `redacted` or `erased`; there may be more in a later release. */
  reason: string;
  /** For people. */
  message: string;
  /** Since when. */
  at: string;
}

export type CloudEvents = CloudEvent[];

/**
 * A CloudEvent 1.0. What stands beside these fields is an extension: a string, `true` or `false`, or a whole number of 32 bits. The
 * service gives each event `manifoldid`, `manifoldstream`, `manifoldversion`, `manifoldposition` and `manifoldrecordedat`, and
 * `manifoldmetadata`, `manifoldtags` (its tags, separated by spaces) and `traceparent` where it has such. `manifoldgap` says in a word why an event has no data, as the reason of an event's gap does, and `manifolderased` is the id of the erasure that has set personal fields to null.
 */
export interface CloudEvent {
  specversion: "1.0";
  /** With the source, names the event. The event's id in the log, where it is a UUID. */
  id: string;
  /** A URI reference. */
  source: string;
  /** The event's type. */
  type: EventType;
  subject?: string;
  time?: string;
  /** A media type; default application/json. */
  datacontenttype?: string;
  /** A URI. */
  dataschema?: string;
  /** JSON, or the data's text where its type is not JSON. */
  data?: JSONValue;
  /** The data's bytes as base64. Not together with data. */
  data_base64?: string;
  [name: string]: unknown;
}

export interface EventList {
  events: Event[];
}

export interface StreamList {
  streams: string[];
}

export interface StreamMetadata {
  stream: string;
  /** Of the newest event, also where that was removed. */
  version: number;
  /** How many there are; fewer than the version where retention removed some. */
  events: number;
  /** Of data and metadata as JSON text. */
  bytes: number;
  /** The version of the oldest remaining event; missing if none is left. */
  firstVersion?: number;
  /** Missing where no event is left. */
  firstAt?: string;
  /** Missing where no event is left. */
  lastAt?: string;
}

export interface State {
  stream: string;
  /** Of the last event folded. */
  version: number;
  state: JSONValue;
  /** Of the snapshot that it began at; 0 without one. */
  snapshotVersion: number;
  /** The number of events read after the snapshot. */
  eventsRead: number;
  loss?: StateLoss;
}

/** With `acceptLoss`, where events are missing in the state. */
export interface StateLoss {
  /** The highest version that is missing. */
  removedTo: number;
}

export interface Aggregate {
  /** The one in the path; need not be given. */
  category?: string;
  initial?: JSONValue;
  /** Event type, or `*`, to an expression `(state, event) -> state`. */
  on: Record<string, string>;
  /** Events between two snapshots; default 100. */
  snapshotEvery?: number;
  /** Commands by name. Expressions have `state` (of the stream), `command` (the data), `metadata`, `now`, `id` (of the stream, without its category), `uuid` (of the request) and `boundary` (the states of the command's boundary). */
  commands?: Record<string, CommandDefinition>;
}

export interface CommandDefinition {
  description?: string;
  /** A JSON Schema of the data; without it any object is accepted. */
  input?: JSONValue;
  /** The command depends on these as well. If one changes before its events are appended, it is decided again. */
  boundary?: Record<string, CommandBoundary>;
  /** The first condition that does not hold rejects the command. */
  require?: Array<{
    /** An expression that gives true or false. */
    if: string;
    /** The code of the rejection. */
    reject: string;
    /** An expression that gives the message. */
    message?: string;
  }>;
  /** The events, in this order. Each entry has one event type with an expression that gives the event's data, or null for no event. It may also have the expressions `if` (true or false), `each` (a list: one event for each `item`), `stream` (the name of another stream; at least one event must be for the command's own, unless the command has a `boundary` and does not read `state`), `metadata` (an object, added to the command's) and `tags` (a list of strings). */
  emit: Array<Record<string, string>>;
}

/** Events of any streams that a command depends on, and their fold, which its expressions see as `boundary.NAME`. */
export interface CommandBoundary {
  /** An event matters if any item matches it. */
  query: Array<{
    /** The event is of one of these types; without them, of one in `on`. */
    types?: EventType[];
    /** An expression of `command`, `metadata`, `id`, `now`, `uuid` and `state` that gives a list of 1 to 10 tags. The event has all of them. */
    tags: string;
  }>;
  /** Before the first event. */
  initial?: JSONObject;
  /** Expressions of `state` and `event` by event type, as of the aggregate. */
  on: Record<string, string>;
}

export interface Command {
  /** What the command's expressions see as `command`. */
  data: JSONObject;
  /** For the metadata of each event. */
  metadata?: JSONObject;
}

export interface Commands {
  commands: Array<{
    stream: string;
    command: string;
    data: JSONObject;
    /** For the metadata of each event. */
    metadata?: JSONObject;
    expectedVersion?: Expectation;
    idempotencyKey?: string;
    /** Decide on a log that has at least this position. */
    minPosition?: number;
  }>;
}

export interface CommandOutcomes {
  /** In the order of the commands. */
  outcomes: Array<{
    outcome?: "accepted" | "nothing";
    stream?: string;
    version?: number;
    position?: number;
    events?: DecidedEvent[];
    state?: JSONValue;
    duplicate?: boolean;
    problem?: Problem;
  }>;
}

export interface DecidedEvent {
  stream: string;
  type: string;
  /** Missing in a dry run. */
  id?: string;
  version?: number;
  position?: number;
  tags?: Tags;
  /** In a dry run. */
  data?: JSONValue;
  /** In a dry run. */
  metadata?: JSONValue;
}

export interface CommandOutcome {
  /** nothing: no rule failed, and there was nothing to append. rejected: only in a dry run. */
  outcome: "accepted" | "nothing" | "rejected";
  stream: string;
  /** Of the stream after the command; 0 if a command that depends on its boundary alone appended to other streams only, without reading its own. */
  version: number;
  /** Of the last event; missing if nothing was appended. */
  position?: number;
  events: DecidedEvent[];
  /** Of the stream after the command. */
  state?: JSONValue;
  /** An earlier command with the same key had this outcome. */
  duplicate?: boolean;
  /** In a dry run, why the command would be rejected. */
  rejected?: {
    /** Its number in `require`, from 0. */
    rule: number;
    code: string;
    message: string;
  };
  /** With `explain`: the rules in their order, up to the first that does not hold. */
  rules?: CommandRule[];
}

export interface CommandRule {
  /** Its number in `require`, from 0. */
  rule: number;
  /** The condition. */
  if: string;
  holds: boolean;
  /** Of the rejection if it does not hold. */
  code: string;
  /** Of the rejection. */
  message?: string;
  /** What the condition reads of `state`, `command` and the other variables, by path, such as `state.total`: its first 50 paths. */
  values: Record<string, JSONValue>;
  /** Paths that the data does not have. */
  missing?: string[];
  /** Paths whose value is longer than 1000 bytes as JSON. In `values` they have a string with its beginning. */
  clipped?: string[];
}

export interface AggregatePreview {
  definition: Aggregate;
  /** A stream of the category. With `events`, the default is the category and `-1`. */
  stream?: string;
  /** Events of the stream, from version 1, and of others for the command's boundary, which need not be in the log. Without them: the first 1,000 events of `stream`. */
  events?: GivenEvent[];
  /** Without `events`: the last version to be read. */
  version?: number;
  /** Decided on the state after the events, unless one of them cannot be folded. */
  command?: {
    name: string;
    data?: JSONObject;
    /** For the metadata of each event. */
    metadata?: JSONObject;
  };
}

export interface AggregatePreviewResult {
  steps: AggregatePreviewStep[];
  /** After all events; with a fault, before it. */
  state: JSONValue;
  /** Of the command, with its rules. */
  outcome?: CommandOutcome;
  /** Instead of an outcome: why the command cannot be decided. */
  problem?: Problem;
}

/** What one event did. There is no step after a fault. */
export interface AggregatePreviewStep {
  event: UUID;
  stream: string;
  version: number;
  /** In the log; of given events their number, from 1. */
  position: number;
  type: string;
  /** As expressions see it, upcasters applied. */
  data: JSONValue;
  /** After the event; missing for events of other streams. */
  state?: JSONValue;
  fault?: StateFault;
}

/** Why an event cannot be folded. */
export interface StateFault {
  /** The part of the definition, such as `on.ItemAdded`, or an upcaster. */
  where: string;
  message: string;
}

export interface AggregateList {
  aggregates: Aggregate[];
}

export interface NewSnapshot {
  state: JSONValue;
  /** Of the last event in the state; the stream must have it. */
  version: number;
  /** The client's word for what made the state, such as its release. */
  tag: string;
}

export interface SnapshotList {
  snapshots: ListedSnapshot[];
}

export interface ListedSnapshot {
  version: number;
  /** What produced the state: a definition (`def:...`), or the client's own tag. */
  tag: string;
  takenAt: string;
  /** The highest version that the state lacks, because retention has removed its event. */
  removedTo?: number;
}

export interface Snapshot {
  stream: string;
  version: number;
  tag: string;
  state: JSONValue;
  takenAt: string;
  /** The highest version that is missing in the state; missing where none is. */
  removedTo?: number;
}

export interface Definition {
  /** Needed where a projection is created by `POST`. Where the path names the projection, it need not be given. */
  name?: string;
  /** A database named in the configuration; `default`. */
  database?: string;
  /** Of a tenant's own projection, instead of source, key, initial, on, map and handler: the category of an aggregate. The documents are the states of its streams, by the stream's name. The projection has the aggregate's rules as they are when its definition is put; when these change later, put it again. A rebuild may begin documents from snapshots. */
  aggregate?: string;
  source?: {
    query?: Query;
    categories?: string[];
  };
  /** An expression: the event's document id, null for none, or a list of up to 100 ids. An element of the list may also be `{"id": id, "item": value}`. The event is folded into each of these documents by itself; its `key` and `item` are variables of `on` and `map`. Default: `event.stream`. */
  key?: string;
  initial?: JSONObject;
  /** Event type, or `*`, to an expression `(doc, event) -> doc`; null removes the document. `key` is the document's id, and `item` what the definition's key gives for it, or null. */
  on?: Record<string, string>;
  /** Instead of `initial` and `on`: event type, or `*`, to an expression `event -> record`; null for none. Each event makes a record by itself, or one for each element of a `key` that is a list; its id is the event's unless `key` says otherwise. */
  map?: Record<string, string>;
  /** A handler written in Go that the program registers by this name; instead of key, initial, on and map. */
  handler?: string;
  /** The path in the document by which every list of documents is narrowed: a list whose filter does not compare it by `==` is refused, and declared indexes begin with it. */
  partitionBy?: string;
  /** Paths in the document. */
  indexes?: string[];
  /** async: folded behind the append. inline: in the append's own transaction, in the log's own database; an event that cannot be folded refuses its append. live: nothing is stored, folded when asked for. */
  mode?: "async" | "inline" | "live";
  /** stop: the projection stands still before an event that it cannot fold, for the tenant whose event it is. park: the document is set aside with its events; all others continue, also those of the same event. */
  onError?: "stop" | "park";
  /** Each change of a document becomes an event of the category and type `<name>.changed`: its data is `{document, version, data}`, with `data: null` where the document was removed. The name has no hyphen then, and the source names its categories. */
  publishChanges?: boolean;
  /** Of a shared projection: what of each tenant's documents is summed for the operator (`GET /v1/admin/totals/{name}`). `{}` counts documents. A change needs no rebuild. */
  totals?: {
    /** Paths of numbers in the document. */
    sum?: string[];
    /** The path of a text, number or boolean, such as a day, that is the document's key: there are sums for each key. At most 4,000 keys of a tenant. Operators of every role see the keys, so an operator needs the role `admin` to put it. */
    by?: string;
  };
  /** Expressions `(doc) -> bool` that every document of a rebuild must pass. */
  assert?: string[];
}

export interface Projection {
  name: string;
  /** It runs for every tenant; each sees its own documents. */
  shared: boolean;
  definition: Definition;
  /** The definition's, from 1. */
  version: number;
  /** The live build's number. */
  build: number;
  /** Grows with each change. */
  revision: number;
  createdAt: string;
  updatedAt: string;
}

export interface ProjectionList {
  projections: Projection[];
}

export interface ProjectionState {
  name: string;
  /** held: a rebuild is about to swap its build in; unavailable: its database does not answer, and it continues by itself when that is back; lost: the table of its documents no longer exists, and a rebuild creates it again. */
  state: "running" | "caught-up" | "faulted" | "held" | "unavailable" | "lost";
  build: number;
  /** The position up to which nothing is left to fold; in `/v1/lag` it is `position`. This and lag are missing while its database does not tell. */
  checkpoint?: number;
  /** The log's newest position. */
  head: number;
  /** Positions between checkpoint and head, whosever events they hold; the same in `/v1/lag`. */
  lagPositions?: number;
  /** Events of the projection's source among them: what it has to fold. */
  lagEvents?: number;
  /** The age of the oldest of these events; in `/v1/lag` it is `seconds`. */
  lagSeconds?: number;
  fault?: Fault;
  /** Why the last rebuild of a shared projection left the tenant on its old documents, by the definition that they were made by; missing where it did not. */
  leftBehind?: TenantFault;
  /** Documents that are parked, with `onError: park`; missing where there are none. */
  parked?: number;
  /** With unavailable and lost, and with running where it cannot continue at the moment: why. */
  error?: string;
  /** With error: since when, where the process that answers knows it. */
  since?: string;
  /** With error: when it is tried again, where the process that answers knows it. */
  nextTry?: string;
  /** What retention had removed when the documents were made; missing where they have all. */
  loss?: Loss[];
}

export interface Loss {
  category: string;
  /** Up to this position events of the category may be missing. */
  removedTo: number;
}

export interface Fault {
  position: number;
  eventId: UUID;
  /** The event's. */
  stream?: string;
  /** The event's. */
  type?: string;
  /** The document that it could not be folded into; missing where the key could not be worked out. */
  documentId?: string;
  /** The part of the definition, such as `on.ItemAdded`. */
  where?: string;
  expression?: string;
  /** With the line and column in the expression, where there is one. */
  message: string;
  /** The document before the event, where there was one and it is not too large to be kept here. */
  before?: JSONValue;
  /** When it was met first. */
  at: string;
  /** Automatic attempts since then that met it again. */
  retries?: number;
  /** The next automatic attempt. */
  nextRetryAt?: string;
}

/** A document that is set aside, as it was before the event that it could not be folded by. */
export interface ParkedDocument {
  /** The document's; where the key of an event could not be worked out: a blank and the event's id. */
  id: string;
  /** How many wait for it. */
  events: number;
  fault: Fault;
}

export interface ParkedDocumentList {
  parked: ParkedDocument[];
}

export interface Replayed {
  /** Documents that are no longer parked. */
  documents: number;
  /** That took effect. */
  events: number;
  /** Documents that could not be folded again. */
  stillParked: number;
}

export interface Skip {
  /** Of the fault, as the projection's state shows it. */
  position: number;
  /** For people; it is kept. */
  reason?: string;
}

export interface SkippedEvent {
  position: number;
  eventId: UUID;
  /** Of the definition, when it was skipped. */
  version: number;
  /** The only documents that skip it; missing where all of the event's documents do. */
  documents?: string[];
  /** It holds for later versions too, until it is withdrawn. False: it was recorded by an earlier release, and holds for that version alone. */
  lasting: boolean;
  /** Of the fault. */
  message: string;
  reason: string;
  by: string;
  at: string;
}

export interface SkippedEventList {
  skipped: SkippedEvent[];
}

export interface ProjectionVersion {
  version: number;
  cause: "created" | "changed" | "rolled-back" | "removed";
  /** A key's id and name, `operator`, or `configuration`. */
  by: string;
  at: string;
  rebuild?: string;
  definition: Definition;
  /** Against the version before. */
  changes: FieldChange[];
}

export interface ProjectionVersionList {
  versions: ProjectionVersion[];
}

export interface FieldChange {
  /** Such as `on.ItemAdded`. */
  field: string;
  /** Missing where the field is new. */
  before?: JSONValue;
  /** Missing where the field is gone. */
  after?: JSONValue;
}

export interface Preview {
  definition: Definition;
  source: PreviewSource;
}

/** Which events; one of the three. */
export interface PreviewSource {
  /** The first 1,000 events of a stream. */
  stream?: string;
  /** The last so many events of the definition's source. */
  last?: number;
  /** Events that need not be in the log. */
  events?: GivenEvent[];
}

export interface GivenEvent {
  stream?: string;
  id?: string;
  type: EventType;
  data: JSONValue;
  metadata?: JSONValue;
  tags?: Tags;
  occurredAt?: string;
}

export interface PreviewResult {
  steps: PreviewStep[];
  /** As they are in the end. */
  documents: Document[];
}

/**
 * The effect of one event on one document. An event with several documents has one step for each, in the order of its keys;
 * an event without a document has one step. With `onError: stop`, an event that cannot be folded into all of its documents
 * has one step, with the fault, and none follows.
 */
export interface PreviewStep {
  event: UUID;
  /** In the log; of given events their number, from 1. */
  position: number;
  stream?: string;
  type: string;
  /** As expressions see it, upcasters applied. */
  data?: JSONValue;
  /** Missing where the event is not for the projection. */
  documentId?: string;
  /** What the key gives for the document; missing if it gives none. */
  item?: JSONValue;
  /** After the event; null where it was removed. */
  document?: JSONValue;
  fault?: Fault;
  /** The event is not folded: an earlier one could not be, and has set its document aside. */
  parked?: boolean;
}

export interface Plan {
  /** All that there is to be. */
  definitions: Definition[];
  /** Each with its category: definitions of aggregates that are put before. Projections that name them are compared by these, not by the stored ones. */
  aggregates?: Aggregate[];
  /** Projections that are not among them are to go. */
  remove?: boolean;
}

export interface PlanResult {
  changes: PlannedChange[];
}

export interface PlannedChange {
  name: string;
  /** change: at once, since documents stay as they are; rebuild: by a rebuild. */
  action: "create" | "change" | "rebuild" | "remove" | "none";
  changes: FieldChange[];
  /** With create and rebuild: how many events will be folded, of a shared projection over all tenants; missing where counting them would take too long. */
  events?: number;
  /** Why the definition cannot work, or cannot be put in. */
  errors?: DefinitionError[];
}

export interface DefinitionError {
  /** The part of the definition, such as `on.ItemAdded`. */
  field?: string;
  /** With the line and column in the expression, where there is one. */
  message: string;
}

export interface TenantDocument {
  tenant: UUID;
  id: string;
  position: number;
  document: JSONObject;
}

export interface TenantDocumentList {
  documents: TenantDocument[];
  /** As of a tenant's own list: fields that no document of these tenants can have. */
  warnings?: string[];
}

export interface NewSchema {
  /** A JSON Schema 2020-12 of at most 64 KiB. Without it no version is added; the type must have one. */
  schema?: JSONValue;
  /** Without it, that of the type stays; a new type has `backward`. */
  compatibility?: SchemaCompatibility;
  /** An expression of `event`, in its newest form, that gives a tag, a list of tags, or null. It may read `data`, `metadata`, `stream`, `category`, `key` and `type`. An empty one removes it. Without it, that of the type stays. */
  tags?: string;
  /** JSON Pointers to the personal data in an event of the newest version, or of `version`: what erasing a person sets to null. An empty one means all data. None: everything is erased, with the metadata. Without it, those of the version before stay. */
  personal?: string[];
  /** An older version that gets `personal`, which is then required, and the only other field. The fields of one version do not apply to events of another. Without it, the newest one. */
  version?: number;
  /** The upcaster from the version before this one. The version is then a breaking one, and need not be compatible. */
  upcaster?: NewUpcaster;
}

/**
 * backward: a new version accepts all data of the old one. forward: the old version accepts all data of the new one. full:
 * both. The transitive ones compare with all versions since the last breaking one, the others with the newest.
 */
export type SchemaCompatibility = "backward" | "backward-transitive" | "forward" | "forward-transitive" | "full" | "full-transitive" | "none";

export interface SchemaVersion {
  version: number;
  /** An upcaster converts from the version before, with which it need not be compatible. */
  breaking: boolean;
  /** JSON Pointers to the personal data. Missing: all of it is. */
  personal?: string[];
  by: string;
  createdAt: string;
}

export interface EventSchema {
  type: string;
  /** The newest version. */
  version: number;
  compatibility: SchemaCompatibility;
  /** The version for events that name no `schemaVersion`: the newest before the first breaking one. */
  default: number;
  schema: JSONValue;
  /** The oldest first. */
  versions: SchemaVersion[];
  /** The expression that derives tags for events of the type. Missing: none. */
  tags?: string;
  retagging?: Retagging;
  /** What was folded from the type and needs a rebuild, for a schema that was put with an upcaster. */
  touches?: UpcasterTouches;
  tagReaders?: TagReaders;
}

/**
 * How far stored events have the tags that the expression derives. It is missing if no expression was ever put. Conditions
 * and queries see the derived tags of older events only when it is `done`, and boundaries of commands a minute later.
 */
export interface Retagging {
  /** `waiting`: until no append derives tags by the expression before, about 90 seconds. */
  state: "waiting" | "running" | "done";
  /** Events up to here are done. */
  position: number;
  /** The last position to look at. Later events had the tags from the start. Missing while it is waiting. */
  until?: number;
  /** Events of the type, up to `position`. */
  events: number;
  /** How many of them got other tags. */
  changed: number;
  /** How many of them have no derived tags because the expression failed. */
  failed: number;
  /** The first failures, at most ten. */
  failures: RetaggingFailure[];
  updatedAt: string;
}

export interface RetaggingFailure {
  /** Of the event. */
  position: number;
  message: string;
}

/**
 * Readers that select events by tags and may concern the type, for a changed `tags`. What they have read stays as it is: rebuild
 * the projections, and seek the groups back if they need the events that match now.
 */
export interface TagReaders {
  /** The tenant's own, and shared ones. */
  projections: string[];
  /** Missing where the key may not see groups. */
  groups: string[];
}

export interface SchemaSummary {
  type: string;
  /** The newest version. */
  version: number;
  compatibility: SchemaCompatibility;
  by: string;
  createdAt: string;
  /** The expression that derives tags for events of the type. Missing: none. */
  tags?: string;
  retagging?: Retagging;
  /** With `texts`: the versions, the oldest first. */
  texts?: SchemaText[];
}

export interface SchemaText {
  version: number;
  schema: JSONValue;
}

export interface SchemaList {
  schemas: SchemaSummary[];
  rules: SchemaRule[];
}

export interface NewSchemaRule {
  mode: "off" | "warn" | "enforce";
  /** Whether events whose type has no schema violate the rule. */
  unknownTypes?: "allow" | "refuse";
}

export interface SchemaRule {
  category: string;
  mode: "off" | "warn" | "enforce";
  unknownTypes: "allow" | "refuse";
  by: string;
  updatedAt: string;
}

export interface SchemaCheck {
  /** The schema to try. */
  schema?: JSONValue;
  /** Check against this stored version. By default, each event is checked as in an append. */
  version?: number;
  /** An expression for tags to try on the events, as for a schema. An event for which it fails is invalid. */
  tags?: string;
  source?: SchemaCheckSource;
}

/** One of these; without any, no events are checked. */
export interface SchemaCheckSource {
  /** This number of the last events of the type. */
  last?: number;
  /** The events of the type from this position on. */
  from?: number;
  /** The data of made-up events. */
  events?: JSONValue[];
}

export interface SchemaCheckResult {
  /** The newest stored version that a given schema was compared with. */
  against?: number;
  /** Why the given schema is not compatible; `pointer` is a place in a schema. */
  violations?: Violation[];
  /** It may be put although it is not compatible: an upcaster converts events of the newest version. */
  breaking?: boolean;
  /** How many events were checked. */
  events: number;
  /** How many of them violate the schema. */
  invalid: number;
  /** Invalid events, at most ten. */
  examples?: SchemaCheckExample[];
  /** With `tags`: what the first ten events get that have any. */
  derived?: DerivedTags[];
  /** With `from`: where to continue; missing at the end of the log. */
  next?: number;
}

export interface DerivedTags {
  /** In the log. */
  position?: number;
  /** Of a made-up event. */
  index?: number;
  stream?: string;
  tags: string[];
}

export interface SchemaCheckExample {
  /** In the log. */
  position?: number;
  /** Of a made-up event. */
  index?: number;
  stream?: string;
  /** Of the stored schema. */
  version?: number;
  violations: Violation[];
}

/** A rule of a schema that a value does not satisfy. */
export interface Violation {
  /** The place in the request, such as `events[3].data`. */
  where?: string;
  /** The place in the data as a JSON Pointer; empty: the whole. */
  pointer: string;
  /** The keyword of the schema. */
  rule: string;
  /** What is wrong. */
  message: string;
  /** What to do about it. */
  fix: string;
}

export interface NewUpcaster {
  /** `event -> data`: the data as the next schema version has it. */
  expression: string;
  /** Rebuild the projections that it touches, and take their aggregates' snapshots again. */
  rebuild?: boolean;
}

export interface Upcaster {
  type: string;
  /** The schema version that it takes; it gives the next one. */
  version: number;
  expression: string;
  /** The operator's; for the events of every tenant that has none of its own for the same type and version. */
  shared: boolean;
  revision: number;
  by: string;
  updatedAt: string;
}

export interface UpcasterList {
  upcasters: Upcaster[];
}

export interface UpcasterChange {
  upcaster?: Upcaster;
  touches: UpcasterTouches;
}

/**
 * The projections and aggregates whose definitions fold events of the type: the tenant's own, and the shared projections,
 * which the operator rebuilds. Whether there are such events in their categories is not looked up. With the operator's
 * key it is the shared projections: what tenants have of their own is theirs to rebuild.
 */
export interface UpcasterTouches {
  projections: TouchedProjection[];
  /** Categories; their snapshots fall away by themselves. */
  aggregates: string[];
}

export interface TouchedProjection {
  name: string;
  shared: boolean;
  /** The rebuild that was started. Missing where none was asked for, for a shared projection that only the operator rebuilds, and for a live one. */
  rebuild?: string;
  /** Why none could be started. */
  error?: string;
}

export interface UpcasterPreview {
  /** With `version` and `expression` - an upcaster to be tried in the place of the one that is there. */
  type?: EventType;
  version?: number;
  expression?: string;
  source: PreviewSource;
}

export interface UpcasterPreviewResult {
  steps: UpcastStep[];
}

export interface UpcastStep {
  event: UUID;
  type: string;
  /** The schema version that it has; 0 where its metadata has something else there, and it stays as it is. */
  versionBefore: number;
  /** The schema version that it reached; with an error, the one before the upcaster that failed. */
  versionAfter: number;
  before: JSONValue;
  /** The data as expressions see it. */
  after?: JSONValue;
  /** Which upcaster it does not go through, and why. */
  error?: string;
}

export interface Member {
  id: UUID;
  /** The host's name and where the process listens. */
  name: string;
  version: string;
  startedAt: string;
  aliveAt: string;
  /** How many tenants' projections it works on. */
  tenants: number;
}

export interface MemberList {
  members: Member[];
}

/** The settings come from the process that started last. Without a live process they are missing, and the groups still hold their events. */
export interface Egress {
  name: string;
  /** The configuration has `remove`, and groups may be left. */
  removing?: boolean;
  /** All live workers have `remove` in their configuration, and have removed the groups. The entry can be deleted. */
  removed?: boolean;
  kind?: "nats" | "kafka";
  /** Hosts and ports of the broker. */
  addresses?: string[];
  /** The topic, or the subject of NATS, with its placeholders. */
  topic?: string;
  /** How many tenants the configuration names; missing for all. */
  tenants?: number;
  /** Missing for all. */
  categories?: string[];
  /** Missing for all. */
  types?: string[];
  query?: Query;
  filter?: string;
  /** The live processes that have it in their configuration, by start time. Each publishes the events of its share of the tenants. */
  processes: EgressProcess[];
}

export interface EgressProcess {
  id: UUID;
  /** The host's name and where the process listens. */
  name: string;
  /** The broker answered the last request, or no event is known to wait for it. */
  up: boolean;
  /** Why events wait: the broker's error or, if it answers, the error of the tenant that has failed for the longest time. */
  error?: string;
  errorSince?: string;
  /** The tenant whose error it is; missing if the broker does not answer. */
  errorTenant?: string;
  /** How many tenants' last attempts failed, although the broker answers. */
  failing: number;
  /** Since when the oldest event has waited, if that is 5 seconds or more. */
  waitingSince?: string;
}

export interface EgressList {
  egresses: Egress[];
}

export interface Document {
  id: string;
  /** Of the last event applied to it. */
  position: number;
  document: JSONObject;
}

export interface DocumentList {
  /** None with `explain`. */
  documents: Document[];
  /** With `count=exact`: how many there are on all pages. */
  count?: number;
  /** Fields that the filter, the order or `fields` names although no document can have them by the definition: a misspelt one, most likely. Missing where there are none, and where the definition does not show its fields. */
  warnings?: string[];
  explanation?: Explanation;
}

/** With `explain=true`: how the database would answer. */
export interface Explanation {
  /** By its name in the configuration. */
  database: string;
  /** In the database's own language, with the values where they can be shown. */
  statement: string;
  /** As the database describes it, where it can. */
  plan?: JSONValue;
}

export interface NewRebuild {
  definition?: Definition;
  /** A database named in the configuration: the documents move there. Short for a definition that names it. */
  database?: string;
  /** These alone, of a shared projection. With a definition, they have that one until a rebuild for all; it must have the mode and the database that the projection has. */
  tenants?: UUID[];
  /** Of a shared projection: with more tenants than that whose events cannot be folded or were removed, or whose documents do not pass, it fails. */
  maxFaultedTenants?: number;
  /** It folds no faster than that. */
  maxEventsPerSecond?: number;
  /** manual: it waits before the swap until somebody approves. */
  approve?: "auto" | "manual";
  /** How long the old documents stay, so that the rebuild can be rolled back, such as `1h` or `90m`; as configured. */
  keep?: string;
  /** Expressions `(doc) -> bool` that every document must pass, besides those of the definition. */
  assertions?: string[];
  /** It builds, validates, reports, and drops what it made. */
  dryRun?: boolean;
  /** Fold every event: begin no document from a snapshot. Of interest for projections with `aggregate`; all others are always made from the log. */
  fromLog?: boolean;
  /** Allow a rebuild although retention has removed events: documents are made from the remaining events. Without it, a rebuild of a shared projection leaves the affected tenants on their old documents, and any other rebuild is refused with `events-removed`. An operator needs the role `admin` for it. */
  acceptLoss?: boolean;
}

export interface Rebuild {
  id: UUID;
  projection: string;
  /** The new build's number. */
  build: number;
  /** reported is the end of a dry run; swapped can still be rolled back, while the old documents are kept. */
  state: "queued" | "building" | "catching-up" | "validating" | "awaiting-approval" | "swapped" | "reported" | "rolled-back" | "cancelled" | "failed";
  /** Somebody asked for it to be cancelled. */
  cancelling?: boolean;
  /** It rests until it is resumed. */
  paused?: boolean;
  approve: "auto" | "manual";
  /** Somebody approved of the swap. */
  approved?: boolean;
  dryRun?: boolean;
  /** It begins no document from a snapshot. */
  fromLog?: boolean;
  /** It may do without events that retention has removed. */
  acceptLoss?: boolean;
  /** Missing where it is for all. */
  tenants?: UUID[];
  maxEventsPerSecond?: number;
  /** The rebuild that this one undoes. */
  rollbackOf?: string;
  /** Who started it. */
  by?: string;
  definition?: Definition;
  /** Of a shared projection, a tenant's key gets 0 for this and for every other count, since they are about all tenants. */
  eventsDone: number;
  eventsTotal: number;
  /** While it is under way, over the last half minute; missing while it folds none. Of one that has ended, on average. */
  eventsPerSecond?: number;
  /** At that rate. */
  secondsLeft?: number;
  /** Documents that began from snapshots; `eventsDone` counts the events before these. Missing where none did. */
  seeded?: number;
  /** Counted when it is validated. */
  documents: number;
  /** What the live build had then. */
  liveDocuments: number;
  difference?: Difference;
  /** With acceptLoss: what was missing, over all tenants; for the projection's owner alone. */
  loss?: Loss[];
  /** Of a shared projection, for the operator alone: as it was asked for. */
  maxFaultedTenants?: number;
  faultedTenants?: FaultedTenants;
  /** With swapped: until when the old documents are kept. */
  rollbackUntil?: string;
  /** Why it failed, or what it waits for. Tenants are not told why a rebuild of a shared projection failed, nor of its differences. */
  error?: string;
  createdAt: string;
  startedAt?: string;
  updatedAt: string;
  endedAt?: string;
}

/**
 * The tenants of a shared projection whose events cannot be folded or were removed, or whose documents do not pass: the rebuild
 * leaves them on their old documents. For the operator alone; missing where there are none. The list of the rebuild's tenants
 * with `faulted=true` has all of them once it is swapped.
 */
export interface FaultedTenants {
  count: number;
  /** Up to 20 of them. */
  first: TenantFault[];
}

export interface TenantFault {
  tenant?: string;
  reason: string;
  /** Of the event that it is about, which can be skipped; missing where it is not about one. */
  position?: number;
}

/** How the new documents differ from the live ones. Documents that events changed while they were compared are left out. */
export interface Difference {
  new: number;
  gone: number;
  changed: number;
  same: number;
  examples: DifferenceExample[];
}

export interface DifferenceExample {
  tenant: UUID;
  id: string;
  kind: "new" | "gone" | "changed";
  /** Paths that differ. */
  fields?: string[];
  /** The live document; of a changed one those fields. */
  live?: JSONValue;
  /** The new document likewise. */
  built?: JSONValue;
}

/** A document that a rebuild would change. */
export interface DifferentDocument {
  tenant: string;
  id: string;
  /** `unsettled`: events have changed the document so recently that the builds may differ only in how far they are. The counts of a rebuild's difference leave such documents out. */
  kind: "new" | "gone" | "changed" | "unsettled";
  /** The first paths that differ, at most 20, if both documents exist. */
  fields?: string[];
  /** The live document, missing if there is none. */
  live?: JSONValue;
  /** The new document, missing if there is none. */
  built?: JSONValue;
}

export interface TenantProgress {
  tenant: UUID;
  /** Up to where its log is folded into the new build. */
  position: number;
  /** The log's newest position. */
  head: number;
  /** Its readers see the new build. */
  swapped: boolean;
  fault?: TenantFault;
}

export interface TenantProgressList {
  tenants: TenantProgress[];
}

export interface RebuildList {
  rebuilds: Rebuild[];
}

/** A line of an import. What export adds (`version`, `position`, `recordedAt`) is taken and not used. A line with a `gap` is refused: its event has no data. */
export interface ImportLine {
  stream: string;
  id?: UUID;
  type: EventType;
  /** When it occurred. */
  time?: string;
  data: JSONValue;
  metadata?: JSONValue;
  tags?: Tags;
  version?: number;
  position?: number;
  recordedAt?: string;
  /** Not taken. */
  gap?: Record<string, any>;
}

export interface ImportProgress {
  /** Appended lines that violate the schemas of their types, in categories that only warn. */
  violations?: number;
  /** Read so far; empty lines too. */
  lines: number;
  appended: number;
  /** Lines that were there already. */
  duplicates: number;
  badLines: number;
  /** Bad lines since the last frame. */
  bad?: BadLine[];
  /** The highest position of a line so far. */
  position?: number;
  /** The last frame: the import came to its end. */
  done?: boolean;
  error?: Problem;
}

export interface BadLine {
  /** From 1. */
  line: number;
  reason: string;
}

export interface NewTenant {
  /** For people; unique among tenants. */
  name: string;
}

export interface TenantChange {
  state?: "active" | "suspended";
  /** How many turns its projections get while those of a tenant of weight 1 get one. */
  weight?: number;
  /** At most so many of its projections are worked on at a time, in each process; 0: as configured. */
  ceiling?: number;
}

export interface Tenant {
  id: UUID;
  name: string;
  state: "active" | "suspended" | "deleting" | "deleted";
  /** Missing where it is 1. */
  weight?: number;
  /** Missing where it is as configured. */
  ceiling?: number;
  createdAt: string;
  deletedAt?: string;
  /** Of the deletion: a signed note (golang.org/x/mod/sumdb/note) whose text is JSON. */
  receipt?: string;
}

export interface TenantList {
  tenants: Tenant[];
}

export type PlanName = string;

export interface Rate {
  /** On average. */
  perSecond: number;
  /** At once after a pause: as many as perSecond (the default) to 3600 times as many. */
  burst?: number;
}

/**
 * Over all processes. What is missing is not limited. `requests` are HTTP requests and messages over WebSockets, `events`
 * those of appends, and `bytes` the types, data and metadata of these events as they were sent.
 */
export interface Limits {
  requests?: Rate;
  events?: Rate;
  bytes?: Rate;
  /** Open at a time: WebSockets, streams of events, and requests that receive from a group. */
  connections?: number;
  /** Other requests under way at a time. */
  requestsInFlight?: number;
}

/** What a tenant may have. What is missing is not limited, except by the service's own limits. */
export interface Quotas {
  /** Stored events. */
  events?: number;
  /** Of stored events, as the database stores them. */
  bytes?: number;
  projections?: number;
  groups?: number;
  webhooks?: number;
  /** Keys that are neither revoked nor expired. */
  keys?: number;
}

export interface QuotaUse {
  quota: "events" | "bytes" | "projections" | "groups" | "webhooks" | "keys";
  /** Missing if it is not known: stored events are counted for tenants with a quota for them. */
  used?: number;
  /** Missing if there is none. */
  limit?: number;
}

export interface LimitPlanDefinition {
  limits?: Limits;
  quotas?: Quotas;
}

export interface InclusionProof {
  position: number;
  size: number;
  /** The hash of the position's leaf. */
  leaf: string;
  /** In base64, the one beside the leaf first. */
  hashes: string[];
}

export interface ConsistencyProof {
  from: number;
  to: number;
  /** In base64. */
  hashes: string[];
}

export interface LeafBlock {
  block: number;
  /** The leaf hashes, one after the other, in base64. */
  leaves: string;
  /** The salted hashes of the events' contents, likewise; zero where there was no event. */
  contents: string;
  /** The salts, of 16 bytes each, likewise; zero where one was erased, and where there was no event. */
  salts: string;
  /** The root hashes of the block's complete subtrees of 256 leaves, likewise. */
  tiles: string;
  /** Signed notes. */
  receipts: string[];
}

export interface SigningKey {
  /** The public key, as golang.org/x/mod/sumdb/note writes it: a name, a hash, and an Ed25519 key. */
  verifier: string;
  signs: boolean;
  createdAt: string;
}

export interface SigningKeyList {
  keys: SigningKey[];
}

export interface LimitPlan {
  name: PlanName;
  limits: Limits;
  quotas: Quotas;
}

export interface LimitPlanList {
  plans: LimitPlan[];
}

export interface TenantLimits {
  /** Without it, the plan named `default` if there is one. */
  plan?: string;
  limits?: Limits;
  quotas?: Quotas;
}

export interface CurrentLimits {
  /** Missing if the tenant has none. */
  plan?: string;
  limits: Limits;
  quotas: QuotaUse[];
}

export interface AssignedLimits {
  assigned: TenantLimits;
  current: CurrentLimits;
}

export interface Usage {
  day: string;
  /** Appended, by clients and by the service. */
  events: number;
  /** Of these events: their types, data and metadata as they were sent. */
  bytes: number;
  /** Written or removed by live builds of projections with the mode async. */
  documents: number;
  /** Events handed to consumers of groups, webhooks, reactors and egresses; each attempt counts. */
  deliveries: number;
  /** Of expressions; a million take 25 to 200 ms. They do not depend on the machine or its load. */
  expressionSteps: number;
}

export interface UsageList {
  days: Usage[];
}

export type TenantUsage = {
  tenant: UUID;
} & Usage;

/**
 * What a key may do: `events:append`, `events:read`, `events:consume`, `documents:read`, `projections:write`,
 * `subscriptions:write`, `tenant:admin`, `audit:read`, `subjects:erase` or `subjects:read`. Those of events and subscriptions can be for some categories only:
 * `events:append:heartbeat.*`, where segments are what stands between dots, `*` is one of them and `**` any number, none as
 * well. `!events:read:billing.**` excludes categories from the scopes that follow it.
 */
export type Scope = string;

/** `limits` are of this key alone, within those of its tenant. A key that replaces it begins with them. */
export interface NewKey {
  /** For people. */
  name: string;
  /** In order: for each category the first that is about it decides, and where none is, it is denied. */
  scopes: Scope[];
  networks?: Networks;
  /** When the key stops working: in the future, at most 10 years from now. Without it, never. */
  expiresAt?: string;
  limits?: Limits;
}

/**
 * The client addresses from which the key works, in CIDR notation. Without any, it works from all. The service must know
 * its clients' addresses: behind a proxy it needs the setting `proxies.trusted`.
 */
export type Networks = string[];

export interface KeyRotation {
  /** Seconds for which the rotated key still works; 0: it is revoked at once. */
  overlap?: number;
}

export interface Key {
  id: UUID;
  name: string;
  scopes: Scope[];
  networks?: Networks;
  createdAt: string;
  /** Accurate to about ten minutes. Missing if the key was not used. */
  lastUsedAt?: string;
  /** Missing if the key does not expire. */
  expiresAt?: string;
  revokedAt?: string;
  /** The id of the key that replaces it. */
  rotatedTo?: string;
  limits?: Limits;
}

export interface Caller {
  tenant?: Named;
  key?: CallersKey;
  token?: CallersToken;
  /** Of an operator. */
  role?: "read" | "operate" | "admin";
  /** Those of the key or token. An operator's are `operator`, `operator:operate` and `operator:read`, as far as the role has them. */
  scopes: Scope[];
}

export interface Named {
  id: UUID;
  name: string;
}

export interface CallersKey {
  id: UUID;
  name: string;
  networks?: Networks;
  /** Missing if the key does not expire. */
  expiresAt?: string;
}

export interface CallersToken {
  /** Its name in the service's configuration. */
  issuer: string;
  /** Its claim sub. */
  subject: string;
  /** What people call its holder: its claim preferred_username, email, name or sub. */
  name: string;
  /** When it stops working. */
  expiresAt: string;
}

export interface SignIn {
  issuers: SignInIssuer[];
}

export interface SignInIssuer {
  name: string;
  /** For people. */
  title: string;
  issuer: string;
  /** The id of the console's client. Missing: people do not sign in to the console with it. */
  consoleClient?: string;
  /** The id of the client of `manifold login`. */
  cliClient?: string;
  /** Of OAuth; to ask for. */
  scopes: string[];
  /** To add to requests for a sign-in. */
  parameters?: Record<string, string>;
  authorizationEndpoint?: string;
  tokenEndpoint?: string;
  deviceAuthorizationEndpoint?: string;
}

export interface CreatedKey {
  id: UUID;
  name: string;
  scopes: Scope[];
  networks?: Networks;
  createdAt: string;
  /** Missing if the key does not expire. */
  expiresAt?: string;
  /** The secret. It is shown this once. */
  key: string;
}

export interface KeyList {
  keys: Key[];
}

export interface Readiness {
  ready: boolean;
  checks: ReadinessCheck[];
}

export interface ReadinessCheck {
  name: string;
  ok: boolean;
  message?: string;
}

/** An error by RFC 9457. */
export interface Problem {
  /** A page about the code. */
  type: string;
  title: string;
  status: number;
  code: "invalid-request" | "invalid-json" | "invalid-definition" | "unsupported" | "too-large" | "too-costly" | "unauthenticated" | "forbidden" | "tenant-suspended" | "not-found" | "already-exists" | "version-conflict" | "condition-failed" | "precondition-failed" | "duplicate-id" | "event-id-conflict" | "partial-duplicate" | "rebuild-running" | "conflict" | "events-removed" | "gone" | "not-caught-up" | "faulted" | "schema-violation" | "refused" | "rejected" | "quota-exceeded" | "too-many-requests" | "overloaded" | "outcome-unknown" | "unavailable" | "issuer-unavailable" | "method-not-allowed" | "unsupported-media-type" | "internal";
  /** What was wrong and what to do about it. */
  detail?: string;
  /** The place in the request, such as `events[3].data`. */
  where?: string;
  /** The stream's version. */
  currentVersion?: number;
  failedCondition?: FailedCondition;
  /** The stream meant. */
  stream?: string;
  /** With `rejected`: the code of the command's rule. */
  reason?: string;
  /** Names the request in the service's log. */
  requestId?: string;
  /** As the request gave it, or of the request's span if the service records its trace. */
  traceparent?: string;
  /** Of a schema, at most ten. */
  violations?: Violation[];
  quota?: QuotaUse;
}

/** One of: an event; that everything up to the head has been sent; that events were passed over up to a position, or that nothing has come; that retention has removed events. */
export interface Frame {
  event?: Event;
  caughtUp?: Place;
  checkpoint?: Place;
  gap?: Gap;
}

/**
 * Retention has removed events of the categories within this stretch of the log, perhaps such as would have been given here. Those that are left in it
 * are given as usual. Reads cannot continue from it.
 */
export interface Gap {
  /** The first position that may be missing. */
  from: number;
  /** The last one. */
  to: number;
  /** At most 100 of them, those of which the most recent events are gone. */
  categories: string[];
}

export interface Place {
  position: number;
}

export interface Ticket {
  ticket: string;
  expiresAt: string;
}

/** One stream, or categories; the whole log where neither is named. */
export interface SubscriptionSource {
  stream?: string;
  categories?: string[];
}

/** Seconds before the second attempt, doubled with each further one up to max, and changed by chance by up to a fifth. */
export interface Backoff {
  min?: number;
  max?: number;
}

export interface NewSubscription {
  source?: SubscriptionSource;
  types?: string[];
  query?: Query;
  /** An expression of the event (CEL), true for those that are wanted. */
  filter?: string;
  /** Where a new group begins: start, end, a position such as "17", a time, or an event's id. */
  from?: string;
  /** Events of a receive that names no number. */
  batchSize?: number;
  /** Delivered and not answered yet, in each partition. */
  maxInFlight?: number;
  /** Seconds. */
  ackTimeout?: number;
  maxAttempts?: number;
  backoff?: Backoff;
  /** stream: at most one event of a stream in flight. */
  ordering?: "none" | "stream";
  /** For consumers that keep state: streams are spread over so many partitions, each of which one member receives. */
  partitions?: number;
}

export interface Subscription {
  name: string;
  source: SubscriptionSource;
  types?: string[];
  query?: Query;
  filter?: string;
  from: string;
  batchSize: number;
  maxInFlight: number;
  ackTimeout: number;
  maxAttempts: number;
  backoff: Backoff;
  ordering: string;
  /** Missing where there are none. */
  partitions?: number;
  paused: boolean;
  createdAt: string;
  updatedAt: string;
  /** The log's head. */
  head: number;
  /** The highest position of the group's categories that retention has removed; missing where nothing was. */
  removedTo?: number;
  /** Of each partition; of the one, numbered 0, where there are none. */
  progress: SubscriptionProgress[];
}

export interface SubscriptionProgress {
  partition: number;
  /** Everything up to here is settled, or set aside for a retry, behind a stream that is held, or as a dead letter. */
  checkpoint: number;
  /** Everything up to here was looked at. */
  readTo: number;
  /** The oldest event that is still to be settled, dead letters apart; missing where there is none. */
  oldest?: number;
  inFlight: number;
  retrying: number;
  deadLetters: number;
  /** The member that receives from it. */
  memberId?: string;
}

export interface SubscriptionList {
  subscriptions: Subscription[];
}

export interface Receive {
  /** Default the group's batchSize. */
  batch?: number;
  /** Seconds to wait for an event where none is due. */
  wait?: number;
  /** For a group with partitions, and needed there. */
  memberId?: string;
  /** Events to acknowledge first. */
  ack?: Attempt[];
}

export interface Delivery {
  event: Event;
  /** Counts the deliveries of the event. After a seek it continues from the highest number that the group has given. */
  attempt: number;
  ackDeadline: string;
  /** The deliveries that count, with this one: since the last seek or replay, without those that reached nobody or were interrupted together with others. */
  attempts: number;
  /** Of the group. An event with as many `attempts` becomes a dead letter if it is not acknowledged. */
  maxAttempts: number;
  /** The group's name. */
  group: string;
  /** Of the group, or of the partition, after this delivery: no event up to this position is in flight. See `GET /v1/cursors`. */
  cursor: number;
  /** Missing where the group has none. */
  partition?: number;
  /** How often the event has come back from the dead letters; missing where it has not. */
  replays?: number;
  gap?: Gap;
}

export interface Deliveries {
  deliveries: Delivery[];
  /** Nothing was found so far, and the search is not finished: ask again. Missing otherwise. */
  searching?: boolean;
  /** The events of `ack` whose outcome is not `done`. Missing where there are none. */
  unacknowledged?: Answer[];
}

export interface PeekedEvent {
  event: Event;
  /** The attempt that a receive would make, that is in flight, or that was made last. */
  attempt: number;
  /** Of what is in flight. It may be over where no consumer has asked since. */
  ackDeadline?: string;
  /** Of what waits for a retry. */
  dueAt?: string;
  /** The last consumer's word, of what waits for a retry. */
  reason?: string;
  /** Missing where the group has none. */
  partition?: number;
  /** How often the event has come back from the dead letters; missing where it has not. */
  replays?: number;
}

export interface SubscriptionPeek {
  /** What a receive would deliver now, also where the group is paused. */
  next: PeekedEvent[];
  /** The oldest first. */
  inFlight: PeekedEvent[];
  /** Those first that are due first. */
  retrying: PeekedEvent[];
  /** There may be more in `next`: the search was not finished. Missing otherwise. */
  searching?: boolean;
}

export interface Attempt {
  id: UUID;
  attempt: number;
}

export interface Attempts {
  ids: Attempt[];
}

export interface Nack {
  ids: Attempt[];
  action?: "retry" | "park" | "skip";
  /** Seconds before the next attempt, with retry alone. */
  delay?: number;
  /** For people; kept with a retry and a dead letter. */
  reason?: string;
}

export interface Extend {
  ids: Attempt[];
  /** Seconds; default the group's ackTimeout. */
  by?: number;
}

export interface Answer {
  id: UUID;
  attempt: number;
  outcome: "done" | "stale" | "not-in-flight";
}

export interface Answers {
  results: Answer[];
}

/** One of the two. */
export interface Seek {
  /** The first position that may be delivered; beyond the head: what is appended from there on. */
  position?: number;
  timestamp?: string;
}

export interface DeadLetter {
  event: Event;
  /** The deliveries that count since the event was first read or was last replayed. */
  attempts: number;
  replays: number;
  /** The last consumer's word, or that there was none in time. */
  reason: string;
  /** Missing where the group has none. */
  partition?: number;
  firstParkedAt: string;
  parkedAt: string;
  /** When its replay was asked for. */
  replayAt?: string;
}

export interface DeadLetterList {
  deadLetters: DeadLetter[];
}

export interface Discarded {
  discarded: number;
}

export interface ReplayedDeadLetters {
  replayed: number;
}

export interface JoinSubscription {
  /** For people: the host's name, say. */
  label?: string;
}

export interface SubscriptionMember {
  memberId: UUID;
  label: string;
  joinedAt: string;
  aliveAt: string;
  /** That it is to have; it receives from each once nobody else has events of it in flight. */
  partitions: number[];
}

export interface SubscriptionMemberList {
  members: SubscriptionMember[];
}

/** At least one of maxAge, maxCount and compact. */
export interface RetentionRules {
  /** Seconds: what was recorded longer ago goes. */
  maxAge?: number;
  /** So many of the category's newest events stay. */
  maxCount?: number;
  /** Of each stream only the newest event stays. */
  compact?: boolean;
  force?: RetentionForce;
}

/**
 * Those that retention does not wait for. They may miss events; the documentation says how they learn of it. A name of
 * which there is neither a group nor a projection is refused, unless the policy had it before.
 */
export interface RetentionForce {
  /** By name: with their dead letters. */
  groups?: string[];
  /** By name: with their parked documents, but not with their rebuilds. */
  projections?: string[];
  /** By the names of their projections. */
  rebuilds?: string[];
}

export interface RetentionPolicy {
  category: string;
  /** Seconds. */
  maxAge?: number;
  maxCount?: number;
  compact: boolean;
  force?: RetentionForce;
  /** The highest position of the category that was removed, by whichever policy; 0: none. */
  removedTo: number;
  /** How many events were. */
  removed: number;
  /** Events that should be gone, and stay since a dead letter or a parked document names them. */
  spared: number;
  /** What kept the last run from removing more, the lowest position first; at most 20 of them. */
  heldBy: RetentionHold[];
  createdAt: string;
  updatedAt: string;
  /** Somebody has asked for a run that has not come to its end. */
  askedAt?: string;
  lastRunAt?: string;
  /** Why the last run did not get through. */
  error?: string;
}

export interface RetentionHold {
  kind: "group" | "projection" | "rebuild";
  /** The group's, or the projection's. */
  name: string;
  /** What is above it is held. */
  position: number;
  /** Why its progress is unknown; everything is held meanwhile. */
  problem?: string;
}

export interface Reports {
  enabled: boolean;
  /** When they were enabled; missing if they are not. */
  since?: string;
  /** In seconds; missing if no lag is reported. */
  maxLag?: number;
}

export interface ReportsRequest {
  enabled: boolean;
  /** In seconds: the age of a projection's or group's next event from which on its lag is reported. Without it, no lag is reported. */
  maxLag?: number;
}

export interface NewErasure {
  /** Of the erasure. A repeated request with it returns the erasure. */
  id?: UUID;
  /** It is kept, so it must not contain personal data. */
  reason: string;
  /** personal: the fields that the schema of an event's type names in `personal`, and all data and metadata if it names none. data: all data and metadata. */
  what?: "personal" | "data";
  /** Only return what would be touched. */
  dryRun?: boolean;
  /** Another actor must approve it. The setting `erasure.approval` requires that of all. */
  approval?: boolean;
  /** Rebuild documents even if retention has removed events that they need. A repeated request can set it until another actor approves the erasure. */
  acceptLoss?: boolean;
}

export interface ErasurePreview {
  /** How many events of each type. */
  events: Record<string, number>;
  streams: number;
  /** That would be rebuilt for the tenant. */
  projections: string[];
  /** The last position that would be covered. Of a person with more than 100,000 events, only these are counted, up to this position. */
  until: number;
}

export interface ErasureCounts {
  /** Erased events of each type. */
  events: Record<string, number>;
  /** Erased changes of documents and reports. */
  derivedEvents: number;
  streams: number;
  /** How many of the streams have the id in their name; it stays there. */
  namedStreams: number;
  /** Other rows that were removed or changed, by what they are. */
  rows?: Record<string, number>;
  /** That were rebuilt for the tenant. */
  projections: string[];
}

export interface Erasure {
  id: UUID;
  /** Hexadecimal SHA-256 of the erasure's id, a line feed and the subject's id. */
  subjectHash: string;
  what: string;
  reason: string;
  requestedBy: string;
  approvedBy?: string;
  /** `awaiting-approval`, `running`, `done` or `cancelled`. */
  state: string;
  /** What it does now: `events`, `derived`, `rows`, `settle`, `documents` or `receipt`. */
  step: string;
  /** The last position that it covers. */
  until: number;
  counts: ErasureCounts;
  /** Why it does not proceed. */
  problem?: string;
  createdAt: string;
  approvedAt?: string;
  finishedAt?: string;
  /** A signed note (golang.org/x/mod/sumdb/note) whose text is JSON. */
  receipt?: string;
}

export interface ErasureList {
  erasures: Erasure[];
}

/** Personal fields of the event's data are null because they were erased. */
export interface EventErasure {
  /** The last erasure that has changed the event. */
  erasure: UUID;
  at: string;
}

export interface RetentionList {
  policies: RetentionPolicy[];
}

export interface RetentionRun {
  /** Remove nothing. */
  dryRun?: boolean;
  /** With dryRun: to be tried in place of the category's own. */
  policy?: RetentionRules;
}

export interface RetentionPreview {
  /** How many would go now. */
  events: number;
  /** All were counted; false where that would have taken too long. */
  complete: boolean;
  /** What keeps more from going, the lowest position first; at most 20. */
  heldBy: RetentionHold[];
}

/** One stream, or categories, or a projection: then an event is sent once its documents are stored, with these. The whole log where none is named. */
export interface WebhookSource {
  stream?: string;
  categories?: string[];
  projection?: string;
}

/** Of the events with one id that were recorded within a window the first is sent. */
export interface WebhookDedupe {
  /** An expression of the event (CEL) that gives a text; null: the event is sent in any case. */
  id: string;
  /** Seconds. */
  window: number;
}

export interface NewWebhook {
  source?: WebhookSource;
  types?: string[];
  query?: Query;
  /** An expression of the event (CEL), true for those that are sent. */
  filter?: string;
  /** https, with a name or an address that is public. User, password and fragment are refused. */
  url: string;
  /** Seconds between an event's recording and its sending. */
  delay?: number;
  dedupe?: WebhookDedupe;
  /** Where a new webhook begins: start, end, a position such as "17", a time, or an event's id. */
  from?: string;
  /** standard: {type, timestamp, data: {event, document}}; cloudevents: one structured CloudEvent. */
  format?: "standard" | "cloudevents";
  /** stream: an event of a stream is sent when the one before it was taken, or given up. */
  ordering?: "none" | "stream";
  /** Seconds from looking up the name to the answer. */
  timeout?: number;
}

export interface Webhook {
  name: string;
  source: WebhookSource;
  types?: string[];
  query?: Query;
  filter?: string;
  url: string;
  delay: number;
  dedupe?: WebhookDedupe;
  from: string;
  format: string;
  ordering: string;
  timeout: number;
  paused: boolean;
  disabled?: WebhookDisabled;
  failing?: WebhookFailing;
  /** Those that sign, oldest first. */
  secrets: WebhookSecret[];
  createdAt: string;
  updatedAt: string;
  /** The log's head. */
  head: number;
  progress: WebhookProgress;
}

/** The service has stopped it. `resume` or a PUT restarts it. */
export interface WebhookDisabled {
  at: string;
  reason: string;
}

/** The URL has not taken the newest attempts, as far as the log of attempts has them. From five in a row on it is only probed. In the answer to GET of one webhook; missing where it has taken the last, or nothing was sent to it. */
export interface WebhookFailing {
  /** When the first of them began. */
  since: string;
  /** In a row, test messages among them. */
  attempts: number;
  /** When the last of them began. */
  lastAt: string;
  /** Of the last of them. */
  outcome: "failed" | "timeout" | "blocked" | "gone";
  /** Of the last one's answer; missing where there was none. */
  status?: number;
  /** Why there was none. */
  error?: string;
}

export interface WebhookProgress {
  /** Everything up to here was sent, or set aside for a retry or as a dead letter. */
  checkpoint: number;
  /** Everything up to here was looked at. */
  readTo: number;
  /** The oldest event that is still to be sent, dead letters apart; missing where there is none. */
  oldest?: number;
  inFlight: number;
  retrying: number;
  /** Of the group webhook.NAME, or replay.NAME: `/v1/subscriptions/webhook.NAME/dead-letters`. */
  deadLetters: number;
}

export interface WebhookList {
  webhooks: Webhook[];
}

export interface NewWebhookSecret {
  /** Seconds for which the existing secrets keep signing; left out, until they are removed. */
  expireOldAfter?: number;
}

export interface WebhookSecret {
  id: UUID;
  /** In the answer that has made it, and nowhere else: whsec_ and 32 bytes in base64. */
  secret?: string;
  createdAt: string;
  /** It signs no more from then on. */
  expiresAt?: string;
}

export interface NewWebhookReplay {
  /** The first position. */
  from: number;
  /** The last position, included; the log's head where it is left out. */
  to?: number;
}

export interface WebhookReplay {
  from: number;
  to: number;
  startedAt: string;
  /** When all of them had been sent or given up; missing: it is under way. */
  doneAt?: string;
  progress: WebhookProgress;
}

export interface WebhookAttempt {
  id: UUID;
  eventId: UUID;
  /** The event's. */
  type: string;
  /** The event's; 0: a test message. */
  position: number;
  /** Of the event, from 1; 0: a test message. */
  attempt: number;
  replay: boolean;
  /** Where to, as the webhook had it then; missing of a duplicate. */
  url?: string;
  /** ok: answered with 2xx; failed: with another status, or no connection; timeout: no answer in time; blocked: not sent, the address is not public; gone: answered with 410, and the webhook is disabled; duplicate: not sent, another event had the same id. */
  outcome: "ok" | "failed" | "timeout" | "blocked" | "gone" | "duplicate";
  /** Of the answer; missing where there was none. */
  status?: number;
  /** Milliseconds. */
  took: number;
  /** Why there was no answer. */
  error?: string;
  /** Of an answer that was no 2xx. */
  excerpt?: string;
  at: string;
  /** When it is tried again. */
  nextAt?: string;
}

export interface WebhookAttemptList {
  attempts: WebhookAttempt[];
}

export interface Cursor {
  kind: "group" | "projection";
  name: string;
  /** Of a group that has some. */
  partition?: number;
  /** Everything up to here is behind it. Missing where error is there. */
  position?: number;
  /** Why the position is unknown, for example because the projection's database does not answer. */
  error?: string;
}

export interface CursorList {
  cursors: Cursor[];
}

export interface Lag {
  kind: "group" | "projection";
  name: string;
  /** Of a group that has some. */
  partition?: number;
  /** Everything up to here is behind it; a projection has nothing left to fold up to here. Position, lagPositions, events and seconds are missing where error is there. */
  position?: number;
  /** Positions between it and the head, whosever events they hold; a projection's state has the same. */
  lagPositions?: number;
  /** The same as lagPositions, by its earlier name. How many events of its source a projection has to fold is `lagEvents` of its state. */
  events?: number;
  /** How long ago the first of these was recorded; 0 where there are none. In a projection's state it is `lagSeconds`. */
  seconds?: number;
  /** Why the position is unknown, for example because the projection's database does not answer. */
  error?: string;
  inFlight?: number;
  retrying?: number;
  deadLetters?: number;
  /** A projection that stands still at an event that it cannot fold. */
  faulted?: boolean;
}

export interface LagList {
  head: number;
  consumers: Lag[];
}

export interface TenantLagList {
  tenants: Array<{
    tenant: UUID;
    name: string;
    head: number;
    consumers: Lag[];
    /** Why head and consumers could not be read. */
    error?: string;
  }>;
}

export interface TotalsPage {
  /** The fields that are summed. */
  sum: string[];
  /** The field of the keys; missing where there are none. */
  by?: string;
  /** How many tenants have totals. Those without documents may have none. */
  tenants: number;
  /** How many tenants have newer documents than their totals, or none yet. Missing if a database of documents does not answer. */
  pending?: number;
  /** How many tenants have `keysDropped`, whatever `keyPrefix`: sums by key lack documents of theirs. */
  keysDropped: number;
  all: Total;
  totals: Total[];
}

export interface Total {
  /** Missing where the sums are over all tenants. */
  tenant?: string;
  tenantName?: string;
  /** Missing where the sums are over all keys, and for documents without a key: whose value at `by` is no text, number or boolean, or longer than 100 bytes. */
  key?: string;
  documents: number;
  /** By field: an exact decimal number without an exponent. Each number counts as its shortest decimal form. */
  sums: Record<string, string>;
  /** By field: how many documents have no number there. Fields without such documents are left out. */
  skipped?: Record<string, number>;
  /** The build whose documents were summed. */
  build?: number;
  /** Events up to here are in the tenant's totals; later ones may be. */
  position?: number;
  /** When the first of the tenant's documents was read. */
  computedAt?: string;
  /** Documents of the tenant with a key are counted without it: all if there are more than 4,000 keys, or those whose key is longer than 100 bytes. */
  keysDropped?: boolean;
}

/** The operations of the contract, as the client sends them. */
export const operations = {
  appendToStream: { method: "POST", path: "/v1/streams/{streamId}/events", headers: { expectedVersion: "Expected-Version", ifMatch: "If-Match", ifNoneMatch: "If-None-Match", idempotencyKey: "Idempotency-Key", traceparent: "traceparent" }, repeatable: true },
  append: { method: "POST", path: "/v1/append", headers: { idempotencyKey: "Idempotency-Key", traceparent: "traceparent" }, repeatable: true },
  publish: { method: "POST", path: "/v1/publish", query: ["topic", "key"], headers: { idempotencyKey: "Idempotency-Key", traceparent: "traceparent" }, repeatable: true },
  readByQuery: { method: "POST", path: "/v1/query", repeatable: true },
  listStreams: { method: "GET", path: "/v1/streams", query: ["category", "prefix", "pageSize", "pageToken"], repeatable: true },
  readStream: { method: "GET", path: "/v1/streams/{streamId}", query: ["from", "count", "direction", "since", "until"], repeatable: true },
  readAll: { method: "GET", path: "/v1/streams/$all", query: ["from", "count", "direction", "since", "until", "categories", "types"], repeatable: true },
  readCategory: { method: "GET", path: "/v1/categories/{category}/events", query: ["from", "count", "direction", "since", "until", "types"], repeatable: true },
  readLatest: { method: "GET", path: "/v1/categories/{category}/latest", query: ["keys"], repeatable: true },
  readEvent: { method: "GET", path: "/v1/events/{eventId}", repeatable: true },
  getStreamMetadata: { method: "GET", path: "/v1/streams/{streamId}/metadata", repeatable: true },
  getState: { method: "GET", path: "/v1/streams/{streamId}/state", query: ["version", "at", "occurredAt", "acceptLoss"], repeatable: true },
  listAggregates: { method: "GET", path: "/v1/aggregates", repeatable: true },
  previewAggregate: { method: "POST", path: "/v1/aggregates/preview", repeatable: true },
  putAggregate: { method: "PUT", path: "/v1/aggregates/{category}", repeatable: true },
  getAggregate: { method: "GET", path: "/v1/aggregates/{category}", repeatable: true },
  deleteAggregate: { method: "DELETE", path: "/v1/aggregates/{category}", repeatable: true },
  sendCommand: { method: "POST", path: "/v1/aggregates/{category}/{id}/commands/{command}", query: ["dryRun", "explain", "minPosition"], headers: { expectedVersion: "Expected-Version", ifMatch: "If-Match", ifNoneMatch: "If-None-Match", idempotencyKey: "Idempotency-Key", traceparent: "traceparent" }, repeatable: true },
  sendCommands: { method: "POST", path: "/v1/commands", headers: { traceparent: "traceparent" } },
  listSnapshots: { method: "GET", path: "/v1/snapshots/{streamId}", query: ["pageSize", "pageToken"], repeatable: true },
  takeSnapshot: { method: "POST", path: "/v1/snapshots/{streamId}", query: ["acceptLoss"] },
  getLatestSnapshot: { method: "GET", path: "/v1/snapshots/{streamId}/latest", query: ["version", "tag"], repeatable: true },
  listProjections: { method: "GET", path: "/v1/projections", repeatable: true },
  createProjection: { method: "POST", path: "/v1/projections" },
  previewProjection: { method: "POST", path: "/v1/projections/preview", repeatable: true },
  planProjections: { method: "POST", path: "/v1/projections/plan", repeatable: true },
  getProjection: { method: "GET", path: "/v1/projections/{name}", repeatable: true },
  putProjection: { method: "PUT", path: "/v1/projections/{name}", query: ["acceptLoss"], headers: { ifMatch: "If-Match", ifNoneMatch: "If-None-Match" }, repeatable: true },
  deleteProjection: { method: "DELETE", path: "/v1/projections/{name}", repeatable: true },
  getProjectionState: { method: "GET", path: "/v1/projections/{name}/state", query: ["tenant"], repeatable: true },
  resetProjection: { method: "POST", path: "/v1/projections/{name}/reset", query: ["acceptLoss"] },
  listProjectionVersions: { method: "GET", path: "/v1/projections/{name}/versions", repeatable: true },
  catchUpProjection: { method: "POST", path: "/v1/projections/{name}/catch-up", query: ["timeout"], repeatable: true },
  retryProjection: { method: "POST", path: "/v1/projections/{name}/retry", query: ["tenant"], repeatable: true },
  skipEvent: { method: "POST", path: "/v1/projections/{name}/skip", query: ["tenant"] },
  listSkippedEvents: { method: "GET", path: "/v1/projections/{name}/skipped", query: ["tenant"], repeatable: true },
  withdrawSkip: { method: "DELETE", path: "/v1/projections/{name}/skipped/{position}", query: ["tenant"], repeatable: true },
  listParkedDocuments: { method: "GET", path: "/v1/projections/{name}/parked", query: ["tenant", "pageSize", "pageToken"], repeatable: true },
  replayParkedDocuments: { method: "POST", path: "/v1/projections/{name}/parked/replay", query: ["tenant"] },
  replayParkedDocument: { method: "POST", path: "/v1/projections/{name}/parked/{documentId}/replay", query: ["tenant"] },
  discardParkedDocument: { method: "DELETE", path: "/v1/projections/{name}/parked/{documentId}", query: ["tenant"], repeatable: true },
  listDocuments: { method: "GET", path: "/v1/projections/{name}/documents", query: ["filter", "orderBy", "fields", "pageSize", "pageToken", "count", "minPosition", "timeout", "explain", "tenant"], repeatable: true },
  getDocument: { method: "GET", path: "/v1/projections/{name}/documents/{documentId}", query: ["fields", "minPosition", "timeout"], repeatable: true },
  snapDocument: { method: "GET", path: "/v1/snap/{projection}/{key}", query: ["minPosition", "timeout"], headers: { ifNoneMatch: "If-None-Match" }, repeatable: true },
  startRebuild: { method: "POST", path: "/v1/projections/{name}/rebuilds" },
  listRebuilds: { method: "GET", path: "/v1/projections/{name}/rebuilds", repeatable: true },
  getRebuild: { method: "GET", path: "/v1/projections/{name}/rebuilds/{rebuildId}", repeatable: true },
  cancelRebuild: { method: "POST", path: "/v1/projections/{name}/rebuilds/{rebuildId}/cancel", repeatable: true },
  approveRebuild: { method: "POST", path: "/v1/projections/{name}/rebuilds/{rebuildId}/approve", repeatable: true },
  pauseRebuild: { method: "POST", path: "/v1/projections/{name}/rebuilds/{rebuildId}/pause", repeatable: true },
  resumeRebuild: { method: "POST", path: "/v1/projections/{name}/rebuilds/{rebuildId}/resume", repeatable: true },
  rollbackRebuild: { method: "POST", path: "/v1/projections/{name}/rebuilds/{rebuildId}/rollback", query: ["acceptLoss"] },
  listRebuildTenants: { method: "GET", path: "/v1/projections/{name}/rebuilds/{rebuildId}/tenants", query: ["faulted", "pageSize", "pageToken"], repeatable: true },
  exportDifference: { method: "GET", path: "/v1/projections/{name}/rebuilds/{rebuildId}/difference", query: ["tenant", "after"], repeatable: true, raw: true },
  watchRebuild: { method: "GET", path: "/v1/projections/{name}/rebuilds/{rebuildId}/progress", repeatable: true, raw: true },
  listSchemas: { method: "GET", path: "/v1/schemas", query: ["texts"], repeatable: true },
  eventContract: { method: "GET", path: "/v1/asyncapi.json", headers: { ifNoneMatch: "If-None-Match" }, repeatable: true },
  putSchemaRule: { method: "PUT", path: "/v1/schema-rules/{category}", repeatable: true },
  getSchema: { method: "GET", path: "/v1/schemas/{type}", repeatable: true },
  putSchema: { method: "PUT", path: "/v1/schemas/{type}", repeatable: true },
  deleteSchema: { method: "DELETE", path: "/v1/schemas/{type}", repeatable: true },
  getSchemaVersion: { method: "GET", path: "/v1/schemas/{type}/versions/{version}", repeatable: true },
  checkSchema: { method: "POST", path: "/v1/schemas/{type}/check", repeatable: true },
  listUpcasters: { method: "GET", path: "/v1/upcasters", repeatable: true },
  previewUpcaster: { method: "POST", path: "/v1/upcasters/preview", repeatable: true },
  getUpcaster: { method: "GET", path: "/v1/upcasters/{type}/{version}", repeatable: true },
  putUpcaster: { method: "PUT", path: "/v1/upcasters/{type}/{version}", repeatable: true },
  deleteUpcaster: { method: "DELETE", path: "/v1/upcasters/{type}/{version}", query: ["rebuild"], repeatable: true },
  listAllDocuments: { method: "GET", path: "/v1/admin/projections/{name}/documents", query: ["filter", "tenant", "fields", "pageSize", "pageToken"], repeatable: true },
  getTotals: { method: "GET", path: "/v1/admin/totals/{name}", query: ["per", "tenant", "keyPrefix", "pageSize", "pageToken"], repeatable: true },
  listMembers: { method: "GET", path: "/v1/admin/members", repeatable: true },
  listEgresses: { method: "GET", path: "/v1/admin/egresses", repeatable: true },
  followAll: { method: "GET", path: "/v1/subscribe/$all", query: ["from", "types", "query", "filter", "ticket"], headers: { lastEventId: "Last-Event-ID" }, repeatable: true, raw: true },
  followStream: { method: "GET", path: "/v1/subscribe/streams/{streamId}", query: ["from", "types", "query", "filter", "ticket"], headers: { lastEventId: "Last-Event-ID" }, repeatable: true, raw: true },
  followCategory: { method: "GET", path: "/v1/subscribe/categories/{category}", query: ["from", "types", "query", "filter", "ticket"], headers: { lastEventId: "Last-Event-ID" }, repeatable: true, raw: true },
  createTicket: { method: "POST", path: "/v1/tickets", repeatable: true },
  listSubscriptions: { method: "GET", path: "/v1/subscriptions", query: ["pageSize", "pageToken"], repeatable: true },
  putSubscription: { method: "PUT", path: "/v1/subscriptions/{name}", repeatable: true },
  getSubscription: { method: "GET", path: "/v1/subscriptions/{name}", repeatable: true },
  deleteSubscription: { method: "DELETE", path: "/v1/subscriptions/{name}", repeatable: true },
  receive: { method: "POST", path: "/v1/subscriptions/{name}/receive", repeatable: true },
  peekSubscription: { method: "GET", path: "/v1/subscriptions/{name}/peek", query: ["limit", "partition"], repeatable: true },
  ackEvents: { method: "POST", path: "/v1/subscriptions/{name}/ack", repeatable: true },
  ackEvent: { method: "POST", path: "/v1/subscriptions/{name}/ack/{eventId}", query: ["attempt"], repeatable: true },
  nackEvents: { method: "POST", path: "/v1/subscriptions/{name}/nack", repeatable: true },
  extendEvents: { method: "POST", path: "/v1/subscriptions/{name}/extend", repeatable: true },
  seekSubscription: { method: "POST", path: "/v1/subscriptions/{name}/seek", repeatable: true },
  pauseSubscription: { method: "POST", path: "/v1/subscriptions/{name}/pause", repeatable: true },
  resumeSubscription: { method: "POST", path: "/v1/subscriptions/{name}/resume", repeatable: true },
  listDeadLetters: { method: "GET", path: "/v1/subscriptions/{name}/dead-letters", query: ["pageSize", "pageToken"], repeatable: true },
  discardDeadLetters: { method: "DELETE", path: "/v1/subscriptions/{name}/dead-letters", repeatable: true },
  replayDeadLetters: { method: "POST", path: "/v1/subscriptions/{name}/dead-letters/replay" },
  replayDeadLetter: { method: "POST", path: "/v1/subscriptions/{name}/dead-letters/{eventId}/replay" },
  discardDeadLetter: { method: "DELETE", path: "/v1/subscriptions/{name}/dead-letters/{eventId}", repeatable: true },
  listSubscriptionMembers: { method: "GET", path: "/v1/subscriptions/{name}/members", repeatable: true },
  joinSubscription: { method: "POST", path: "/v1/subscriptions/{name}/members" },
  heartbeatSubscription: { method: "PUT", path: "/v1/subscriptions/{name}/members/{memberId}", repeatable: true },
  leaveSubscription: { method: "DELETE", path: "/v1/subscriptions/{name}/members/{memberId}", repeatable: true },
  getReports: { method: "GET", path: "/v1/reports", repeatable: true },
  putReports: { method: "PUT", path: "/v1/reports", repeatable: true },
  eraseSubject: { method: "POST", path: "/v1/subjects/{subjectId}/erase", repeatable: true },
  exportSubject: { method: "GET", path: "/v1/subjects/{subjectId}/export", repeatable: true, raw: true },
  listErasures: { method: "GET", path: "/v1/erasures", query: ["pageSize", "pageToken"], repeatable: true },
  getErasure: { method: "GET", path: "/v1/erasures/{erasureId}", repeatable: true },
  approveErasure: { method: "POST", path: "/v1/erasures/{erasureId}/approve", repeatable: true },
  cancelErasure: { method: "POST", path: "/v1/erasures/{erasureId}/cancel", repeatable: true },
  listRetention: { method: "GET", path: "/v1/retention", repeatable: true },
  getRetention: { method: "GET", path: "/v1/retention/{category}", repeatable: true },
  putRetention: { method: "PUT", path: "/v1/retention/{category}", repeatable: true },
  deleteRetention: { method: "DELETE", path: "/v1/retention/{category}", repeatable: true },
  runRetention: { method: "POST", path: "/v1/retention/{category}/run" },
  listWebhooks: { method: "GET", path: "/v1/webhooks", query: ["pageSize", "pageToken"], repeatable: true },
  putWebhook: { method: "PUT", path: "/v1/webhooks/{name}", repeatable: true },
  getWebhook: { method: "GET", path: "/v1/webhooks/{name}", repeatable: true },
  deleteWebhook: { method: "DELETE", path: "/v1/webhooks/{name}", repeatable: true },
  pauseWebhook: { method: "POST", path: "/v1/webhooks/{name}/pause", repeatable: true },
  resumeWebhook: { method: "POST", path: "/v1/webhooks/{name}/resume", repeatable: true },
  addWebhookSecret: { method: "POST", path: "/v1/webhooks/{name}/secrets" },
  removeWebhookSecret: { method: "DELETE", path: "/v1/webhooks/{name}/secrets/{secretId}", repeatable: true },
  listWebhookAttempts: { method: "GET", path: "/v1/webhooks/{name}/attempts", query: ["eventId", "outcome", "pageSize", "pageToken"], repeatable: true },
  startWebhookReplay: { method: "POST", path: "/v1/webhooks/{name}/replay" },
  getWebhookReplay: { method: "GET", path: "/v1/webhooks/{name}/replay", repeatable: true },
  cancelWebhookReplay: { method: "DELETE", path: "/v1/webhooks/{name}/replay", repeatable: true },
  testWebhook: { method: "POST", path: "/v1/webhooks/{name}/test" },
  listCursors: { method: "GET", path: "/v1/cursors", query: ["tenant"], repeatable: true },
  getLag: { method: "GET", path: "/v1/lag", query: ["tenant"], repeatable: true },
  getAllLag: { method: "GET", path: "/v1/admin/lag", query: ["behind", "pageSize", "pageToken"], repeatable: true },
  importEvents: { method: "POST", path: "/v1/import", query: ["name", "strict", "check"], raw: true, lines: true },
  exportEvents: { method: "GET", path: "/v1/export", query: ["from", "to", "categories", "types", "since", "until"], repeatable: true, raw: true },
  listTenants: { method: "GET", path: "/v1/tenants", query: ["pageSize", "pageToken"], repeatable: true },
  createTenant: { method: "POST", path: "/v1/tenants" },
  redactEvent: { method: "POST", path: "/v1/tenants/{tenantId}/events/{position}/redact" },
  getTenant: { method: "GET", path: "/v1/tenants/{tenantId}", repeatable: true },
  changeTenant: { method: "PATCH", path: "/v1/tenants/{tenantId}", repeatable: true },
  deleteTenant: { method: "DELETE", path: "/v1/tenants/{tenantId}", query: ["confirm"], repeatable: true },
  getCheckpoint: { method: "GET", path: "/v1/log/checkpoint", repeatable: true, raw: true },
  getInclusionProof: { method: "GET", path: "/v1/log/proof", query: ["position", "size"], repeatable: true },
  getConsistencyProof: { method: "GET", path: "/v1/log/consistency", query: ["from", "to"], repeatable: true },
  getLeaves: { method: "GET", path: "/v1/log/leaves", query: ["block"], repeatable: true },
  listSigningKeys: { method: "GET", path: "/v1/signing-keys", repeatable: true },
  rotateSigningKeys: { method: "POST", path: "/v1/signing-keys" },
  listPlans: { method: "GET", path: "/v1/plans", query: ["pageSize", "pageToken"], repeatable: true },
  getPlan: { method: "GET", path: "/v1/plans/{plan}", repeatable: true },
  putPlan: { method: "PUT", path: "/v1/plans/{plan}", repeatable: true },
  deletePlan: { method: "DELETE", path: "/v1/plans/{plan}", repeatable: true },
  getTenantLimits: { method: "GET", path: "/v1/tenants/{tenantId}/limits", repeatable: true },
  putTenantLimits: { method: "PUT", path: "/v1/tenants/{tenantId}/limits", repeatable: true },
  getLimits: { method: "GET", path: "/v1/limits", repeatable: true },
  getUsage: { method: "GET", path: "/v1/usage", query: ["from", "to"], repeatable: true },
  exportUsage: { method: "GET", path: "/v1/admin/usage", query: ["from", "to"], repeatable: true, raw: true },
  listTenantKeys: { method: "GET", path: "/v1/tenants/{tenantId}/keys", query: ["pageSize", "pageToken"], repeatable: true },
  createTenantKey: { method: "POST", path: "/v1/tenants/{tenantId}/keys" },
  revokeTenantKey: { method: "DELETE", path: "/v1/tenants/{tenantId}/keys/{keyId}", repeatable: true },
  limitTenantKey: { method: "PUT", path: "/v1/tenants/{tenantId}/keys/{keyId}/limits", repeatable: true },
  rotateTenantKey: { method: "POST", path: "/v1/tenants/{tenantId}/keys/{keyId}/rotate" },
  listKeys: { method: "GET", path: "/v1/keys", query: ["pageSize", "pageToken"], repeatable: true },
  createKey: { method: "POST", path: "/v1/keys" },
  revokeKey: { method: "DELETE", path: "/v1/keys/{keyId}", repeatable: true },
  limitKey: { method: "PUT", path: "/v1/keys/{keyId}/limits", repeatable: true },
  rotateKey: { method: "POST", path: "/v1/keys/{keyId}/rotate" },
  getSignIn: { method: "GET", path: "/v1/sign-in", repeatable: true },
  whoami: { method: "GET", path: "/v1/whoami", repeatable: true },
  livez: { method: "GET", path: "/livez", repeatable: true, raw: true },
  readyz: { method: "GET", path: "/readyz", repeatable: true },
  metrics: { method: "GET", path: "/metrics", repeatable: true, raw: true },
  contract: { method: "GET", path: "/openapi.yaml", repeatable: true, raw: true },
  asyncContract: { method: "GET", path: "/asyncapi.yaml", repeatable: true, raw: true },
  docs: { method: "GET", path: "/docs", repeatable: true, raw: true },
  docsErrors: { method: "GET", path: "/docs/errors", repeatable: true, raw: true },
} satisfies Record<string, Operation>;

/** Options of {@link Operations.appendToStream}. */
export interface AppendToStreamOptions extends CallOptions {
  /** `any`, `none`, `exists`, or the version that the stream must have. */
  expectedVersion?: number | string;
  /** A stream's ETag, or `*` for any stream that exists. 412 when it does not hold. */
  ifMatch?: string;
  /** `*`: the stream must not exist. 412 when it does. */
  ifNoneMatch?: string;
  /** Derives ids for events without one, from this key and their place in the request. */
  idempotencyKey?: string;
  /**
   * W3C's trace context. It is kept as `traceparent` in the metadata of events whose metadata is an object without one,
   * or missing. If the service records the request's trace, the span of the request replaces the given one, or is kept
   * if none was given. What is no traceparent is passed over.
   */
  traceparent?: string;
}

/** Options of {@link Operations.append}. */
export interface AppendOptions extends CallOptions {
  /** Derives ids for events without one, from this key and their place in the request. */
  idempotencyKey?: string;
  /**
   * W3C's trace context. It is kept as `traceparent` in the metadata of events whose metadata is an object without one,
   * or missing. If the service records the request's trace, the span of the request replaces the given one, or is kept
   * if none was given. What is no traceparent is passed over.
   */
  traceparent?: string;
}

/** Options of {@link Operations.publish}. */
export interface PublishOptions extends CallOptions {
  /** For CloudEvents only. The topic of all of them; default the type of each. */
  topic?: string;
  /** For CloudEvents only. The key of all of them, or none where it is empty; default the subject of each. */
  key?: string;
  /** Derives ids for events without one, from this key and their place in the request. */
  idempotencyKey?: string;
  /**
   * W3C's trace context. It is kept as `traceparent` in the metadata of events whose metadata is an object without one,
   * or missing. If the service records the request's trace, the span of the request replaces the given one, or is kept
   * if none was given. What is no traceparent is passed over.
   */
  traceparent?: string;
}

/** Options of {@link Operations.listStreams}. */
export interface ListStreamsOptions extends CallOptions {
  /** Only streams of this category. A key for some categories needs it, or a prefix with a `-`. */
  category?: string;
  /** Only streams whose name begins with this. */
  prefix?: string;
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.readStream}. */
export interface ReadStreamOptions extends CallOptions {
  /** The first version to read, included. Default, the first of the direction. */
  from?: number;
  /** At most this many events. JSON: 1 to 1,000, default 100. NDJSON: any number, default all. */
  count?: number;
  direction?: "forward" | "backward";
  /** Only events recorded at or after this time. */
  since?: string;
  /** Only events recorded before this time. */
  until?: string;
}

/** Options of {@link Operations.readAll}. */
export interface ReadAllOptions extends CallOptions {
  /** The first position to read, included. Default, the first of the direction. */
  from?: number;
  /** At most this many events. JSON: 1 to 1,000, default 100. NDJSON: any number, default all. */
  count?: number;
  direction?: "forward" | "backward";
  /** Only events recorded at or after this time. */
  since?: string;
  /** Only events recorded before this time. */
  until?: string;
  /** Only events of these categories, separated by commas. */
  categories?: string[];
  /** Only events of these types, separated by commas. */
  types?: string[];
}

/** Options of {@link Operations.readCategory}. */
export interface ReadCategoryOptions extends CallOptions {
  /** The first position to read, included. Default, the first of the direction. */
  from?: number;
  /** At most this many events. JSON: 1 to 1,000, default 100. NDJSON: any number, default all. */
  count?: number;
  direction?: "forward" | "backward";
  /** Only events recorded at or after this time. */
  since?: string;
  /** Only events recorded before this time. */
  until?: string;
  /** Only events of these types, separated by commas. */
  types?: string[];
}

/** Options of {@link Operations.readLatest}. */
export interface ReadLatestOptions extends CallOptions {
  /** Up to 1,000 keys, separated by commas. Escape a comma within a key with a backslash: `a\,b`. */
  keys: string;
}

/** Options of {@link Operations.getState}. */
export interface GetStateOptions extends CallOptions {
  /** The state after this version. */
  version?: number;
  /** The state as recorded at this time. Not together with `version` or `occurredAt`. */
  at?: string;
  /** The state of the events that had happened at this time. Not together with `version` or `at`. */
  occurredAt?: string;
  /** Continue where events that it needs were removed by retention, and say so; without it that is refused with `events-removed`. An operator needs the role `admin` for it. */
  acceptLoss?: boolean;
}

/** Options of {@link Operations.sendCommand}. */
export interface SendCommandOptions extends CallOptions {
  /** Decide, and append nothing. A rejection is an outcome then, not an error. The outcome of an earlier command with the same `Idempotency-Key` does not matter. */
  dryRun?: boolean;
  /** With `dryRun=true`: answer also the `rules` with the values that they read. Needs `events:read`, too. */
  explain?: boolean;
  /** Decide on a log that has at least this position; 503 if it has not. */
  minPosition?: number;
  /** `any`, `none`, `exists`, or the version that the stream must have. */
  expectedVersion?: number | string;
  /** A stream's ETag, or `*` for any stream that exists. 412 when it does not hold. */
  ifMatch?: string;
  /** `*`: the stream must not exist. 412 when it does. */
  ifNoneMatch?: string;
  /** Derives ids for events without one, from this key and their place in the request. */
  idempotencyKey?: string;
  /**
   * W3C's trace context. It is kept as `traceparent` in the metadata of events whose metadata is an object without one,
   * or missing. If the service records the request's trace, the span of the request replaces the given one, or is kept
   * if none was given. What is no traceparent is passed over.
   */
  traceparent?: string;
}

/** Options of {@link Operations.sendCommands}. */
export interface SendCommandsOptions extends CallOptions {
  /**
   * W3C's trace context. It is kept as `traceparent` in the metadata of events whose metadata is an object without one,
   * or missing. If the service records the request's trace, the span of the request replaces the given one, or is kept
   * if none was given. What is no traceparent is passed over.
   */
  traceparent?: string;
}

/** Options of {@link Operations.listSnapshots}. */
export interface ListSnapshotsOptions extends CallOptions {
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.takeSnapshot}. */
export interface TakeSnapshotOptions extends CallOptions {
  /** Continue where events that it needs were removed by retention, and say so; without it that is refused with `events-removed`. An operator needs the role `admin` for it. */
  acceptLoss?: boolean;
}

/** Options of {@link Operations.getLatestSnapshot}. */
export interface GetLatestSnapshotOptions extends CallOptions {
  /** The newest snapshot at or before this version. */
  version?: number;
  /** Only snapshots with this tag. */
  tag?: string;
}

/** Options of {@link Operations.putProjection}. */
export interface PutProjectionOptions extends CallOptions {
  /** Continue where events that it needs were removed by retention, and say so; without it that is refused with `events-removed`. An operator needs the role `admin` for it. */
  acceptLoss?: boolean;
  /** The revision that the definition was made from, as the projection's ETag. 412 if it has another one. */
  ifMatch?: string;
  /** `*`: there must be no projection of this name. 412 if there is one with another definition. */
  ifNoneMatch?: string;
}

/** Options of {@link Operations.getProjectionState}. */
export interface GetProjectionStateOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.resetProjection}. */
export interface ResetProjectionOptions extends CallOptions {
  /** Continue where events that it needs were removed by retention, and say so; without it that is refused with `events-removed`. An operator needs the role `admin` for it. */
  acceptLoss?: boolean;
}

/** Options of {@link Operations.catchUpProjection}. */
export interface CatchUpProjectionOptions extends CallOptions {
  /** How many seconds `minPosition` may wait. */
  timeout?: number;
}

/** Options of {@link Operations.retryProjection}. */
export interface RetryProjectionOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.skipEvent}. */
export interface SkipEventOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.listSkippedEvents}. */
export interface ListSkippedEventsOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.withdrawSkip}. */
export interface WithdrawSkipOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.listParkedDocuments}. */
export interface ListParkedDocumentsOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.replayParkedDocuments}. */
export interface ReplayParkedDocumentsOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.replayParkedDocument}. */
export interface ReplayParkedDocumentOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.discardParkedDocument}. */
export interface DiscardParkedDocumentOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.listDocuments}. */
export interface ListDocumentsOptions extends CallOptions {
  /**
   * An expression of `doc` that returns true or false. Documents for which it returns true match. Documents for which it
   * would fail, such as for a missing field, do not match.
   */
  filter?: string;
  /**
   * Up to 3 paths, separated by commas, each followed by `desc` for descending order. By default, and among equal
   * documents, the order is by id, in byte order.
   */
  orderBy?: string;
  /** The parts of the document to return, as paths separated by commas. Default, the whole document. */
  fields?: string;
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
  /** `exact`: with `count` in the answer, how many documents there are on all pages. It may cost far more than a page. */
  count?: "exact";
  /** Wait until the projection has seen the log up to this position. */
  minPosition?: number;
  /** How many seconds `minPosition` may wait. */
  timeout?: number;
  /** With the operator's key: how the database would answer, in the place of documents. */
  explain?: boolean;
  /** With `explain`: the id of the tenant whose documents are meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.getDocument}. */
export interface GetDocumentOptions extends CallOptions {
  /** The parts of the document to return, as paths separated by commas. Default, the whole document. */
  fields?: string;
  /** Wait until the projection has seen the log up to this position. */
  minPosition?: number;
  /** How many seconds `minPosition` may wait. */
  timeout?: number;
}

/** Options of {@link Operations.snapDocument}. */
export interface SnapDocumentOptions extends CallOptions {
  /** Wait until the projection has seen the log up to this position. */
  minPosition?: number;
  /** How many seconds `minPosition` may wait. */
  timeout?: number;
  /** ETags that the client has, or `*`. */
  ifNoneMatch?: string;
}

/** Options of {@link Operations.rollbackRebuild}. */
export interface RollbackRebuildOptions extends CallOptions {
  /** Continue where events that it needs were removed by retention, and say so; without it that is refused with `events-removed`. An operator needs the role `admin` for it. */
  acceptLoss?: boolean;
}

/** Options of {@link Operations.listRebuildTenants}. */
export interface ListRebuildTenantsOptions extends CallOptions {
  /** Only tenants that keep their old documents, with the reason. */
  faulted?: boolean;
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.exportDifference}. */
export interface ExportDifferenceOptions extends CallOptions {
  /** Of a shared projection, only the documents of this tenant. */
  tenant?: UUID;
  /** Continues after this document: `tenant` and `id` of the last line that was received, with a slash between them. */
  after?: string;
}

/** Options of {@link Operations.listSchemas}. */
export interface ListSchemasOptions extends CallOptions {
  /** Include the schemas: `newest` or `all` versions of each type, together at most 2 MiB. */
  texts?: "newest" | "all";
}

/** Options of {@link Operations.eventContract}. */
export interface EventContractOptions extends CallOptions {
  /** ETags that the client has, or `*`. */
  ifNoneMatch?: string;
}

/** Options of {@link Operations.deleteUpcaster}. */
export interface DeleteUpcasterOptions extends CallOptions {
  /** Rebuild the affected projections. */
  rebuild?: boolean;
}

/** Options of {@link Operations.listAllDocuments}. */
export interface ListAllDocumentsOptions extends CallOptions {
  filter?: string;
  /** Only the documents of this tenant. */
  tenant?: UUID;
  /** The parts of the document to return, as paths separated by commas. Default, the whole document. */
  fields?: string;
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.getTotals}. */
export interface GetTotalsOptions extends CallOptions {
  /** What there is a row for: each tenant, each key over all tenants, or each key of each tenant. */
  per?: "tenant" | "key" | "both";
  /** Only the documents of this tenant. */
  tenant?: UUID;
  /** Only documents whose key begins with it, such as `2026-03`. */
  keyPrefix?: string;
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.followAll}. */
export interface FollowAllOptions extends CallOptions {
  /**
   * Where to begin: `start`, `end` (what is appended from now on), a position or an event's id, included, or a time: the first event
   * recorded then or later.
   */
  from?: string;
  /** Only events of these types, separated by commas. */
  types?: string[];
  /** Only events that this query matches, as JSON: the `query` of `POST /v1/query`. */
  query?: string;
  /** An expression of the `event` (CEL), true for those that are wanted: docs/guides/subscriptions.md. */
  filter?: string;
  /** The last position received. It takes precedence over `from`, so that an EventSource resumes. */
  lastEventId?: string;
  /** A ticket instead of a key, for browsers. */
  ticket?: string;
}

/** Options of {@link Operations.followStream}. */
export interface FollowStreamOptions extends CallOptions {
  /**
   * Where to begin: `start`, `end` (what is appended from now on), a position or an event's id, included, or a time: the first event
   * recorded then or later.
   */
  from?: string;
  /** Only events of these types, separated by commas. */
  types?: string[];
  /** Only events that this query matches, as JSON: the `query` of `POST /v1/query`. */
  query?: string;
  /** An expression of the `event` (CEL), true for those that are wanted: docs/guides/subscriptions.md. */
  filter?: string;
  /** The last position received. It takes precedence over `from`, so that an EventSource resumes. */
  lastEventId?: string;
  /** A ticket instead of a key, for browsers. */
  ticket?: string;
}

/** Options of {@link Operations.followCategory}. */
export interface FollowCategoryOptions extends CallOptions {
  /**
   * Where to begin: `start`, `end` (what is appended from now on), a position or an event's id, included, or a time: the first event
   * recorded then or later.
   */
  from?: string;
  /** Only events of these types, separated by commas. */
  types?: string[];
  /** Only events that this query matches, as JSON: the `query` of `POST /v1/query`. */
  query?: string;
  /** An expression of the `event` (CEL), true for those that are wanted: docs/guides/subscriptions.md. */
  filter?: string;
  /** The last position received. It takes precedence over `from`, so that an EventSource resumes. */
  lastEventId?: string;
  /** A ticket instead of a key, for browsers. */
  ticket?: string;
}

/** Options of {@link Operations.listSubscriptions}. */
export interface ListSubscriptionsOptions extends CallOptions {
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.peekSubscription}. */
export interface PeekSubscriptionOptions extends CallOptions {
  /** The maximum number of events of each kind. */
  limit?: number;
  /** Show only this partition. */
  partition?: number;
}

/** Options of {@link Operations.ackEvent}. */
export interface AckEventOptions extends CallOptions {
  /** The attempt number from the delivery. */
  attempt: number;
}

/** Options of {@link Operations.listDeadLetters}. */
export interface ListDeadLettersOptions extends CallOptions {
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.listErasures}. */
export interface ListErasuresOptions extends CallOptions {
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.listWebhooks}. */
export interface ListWebhooksOptions extends CallOptions {
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.listWebhookAttempts}. */
export interface ListWebhookAttemptsOptions extends CallOptions {
  /** Only attempts for this event. */
  eventId?: UUID;
  /** Only attempts with this outcome. */
  outcome?: "ok" | "failed" | "timeout" | "blocked" | "gone" | "duplicate";
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.listCursors}. */
export interface ListCursorsOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.getLag}. */
export interface GetLagOptions extends CallOptions {
  /** With the operator's key, and needed there: the id of the tenant that is meant. */
  tenant?: UUID;
}

/** Options of {@link Operations.getAllLag}. */
export interface GetAllLagOptions extends CallOptions {
  /**
   * Only consumers that lag by so many seconds or more, that have dead letters or a fault, or whose position is unknown;
   * only tenants that have some.
   */
  behind?: number;
  /** The number of tenants to read for a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.importEvents}. */
export interface ImportEventsOptions extends CallOptions {
  /** Names the import; repeat it under the same name. Needed where lines have no id. */
  name?: string;
  /** Stop at the first bad line. Otherwise, skipped events that are imported later are out of order in their streams. */
  strict?: boolean;
  /** Check all lines and append nothing. */
  check?: boolean;
}

/** Options of {@link Operations.exportEvents}. */
export interface ExportEventsOptions extends CallOptions {
  /** The first position, included; to continue after an export that was cut off. */
  from?: number;
  /** The last position, included. Default, the head. */
  to?: number;
  /** Only events of these categories, separated by commas. */
  categories?: string[];
  /** Only events of these types, separated by commas. */
  types?: string[];
  /** Only events recorded at or after this time. */
  since?: string;
  /** Only events recorded before this time. */
  until?: string;
}

/** Options of {@link Operations.listTenants}. */
export interface ListTenantsOptions extends CallOptions {
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.deleteTenant}. */
export interface DeleteTenantOptions extends CallOptions {
  /** The tenant's name. */
  confirm: string;
}

/** Options of {@link Operations.getInclusionProof}. */
export interface GetInclusionProofOptions extends CallOptions {
  position: number;
  /** The size of a checkpoint, the newest one or an earlier one. */
  size: number;
}

/** Options of {@link Operations.getConsistencyProof}. */
export interface GetConsistencyProofOptions extends CallOptions {
  /** The size of the earlier checkpoint. */
  from: number;
  /** The size of the later checkpoint. */
  to: number;
}

/** Options of {@link Operations.getLeaves}. */
export interface GetLeavesOptions extends CallOptions {
  block: number;
}

/** Options of {@link Operations.listPlans}. */
export interface ListPlansOptions extends CallOptions {
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.getUsage}. */
export interface GetUsageOptions extends CallOptions {
  /** The first day; by default, 30 days before `to`. */
  from?: string;
  /** The last day; by default, today. */
  to?: string;
}

/** Options of {@link Operations.exportUsage}. */
export interface ExportUsageOptions extends CallOptions {
  /** The first day; by default, 30 days before `to`. */
  from?: string;
  /** The last day; by default, today. */
  to?: string;
}

/** Options of {@link Operations.listTenantKeys}. */
export interface ListTenantKeysOptions extends CallOptions {
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Options of {@link Operations.listKeys}. */
export interface ListKeysOptions extends CallOptions {
  /** The maximum number of items on a page. */
  pageSize?: number;
  /** A token from a `Link` header. Clients must not build tokens. */
  pageToken?: string;
}

/** Has a method for each operation of the contract. {@link Client} extends it with what sends them. */
export abstract class Operations {
  /** Sends a request, and returns the decoded answer, or the Response if that is not JSON. */
  protected abstract send(operation: Operation, path: Array<string | number>, options: object, body?: unknown): Promise<any>;

  /**
   * Append events to a stream.
   *
   * Appends all events or none. The answer is 201 if they were appended, and 200 if all of them exist already, with their
   * original positions. State the expected version in one of `Expected-Version`, `If-Match` (`"4"`, or `*` for a stream that
   * exists) and `If-None-Match: *` (for a stream that does not exist); the default is `any`. Give events ids, or give the
   * request an `Idempotency-Key`, and a repeated request never appends twice. The body may be compressed (`Content-Encoding:
   * gzip` or `zstd`).
   *
   * CloudEvents are accepted in each of their forms: one as JSON, a batch, or one in the binary form, with `ce-` headers and
   * its data as the body.
   */
  appendToStream(streamId: string, body: NewEvents, options: AppendToStreamOptions = {}): Promise<AppendedStream> {
    return this.send(operations.appendToStream, [streamId], options, body);
  }

  /**
   * Append to several streams.
   *
   * Appends to all streams or to none. Each stream has its own expected version (default `any`), and may occur only once in a
   * request. A request has at most 1,000 events.
   *
   * With `condition`, the append fails if the log has events after a position that a query matches: 409 `condition-failed`,
   * with these events. The check is part of the append, so nobody can append such an event in between. Several conditions
   * must all hold. An item of a condition looks at up to 5,000 events after the position (fewer if there are many items);
   * if that does not decide, the answer is 422 `too-costly`. Conditions require `events:read` for all categories, in
   * addition to `events:append`.
   */
  append(body: AppendRequest, options: AppendOptions = {}): Promise<Appended> {
    return this.send(operations.append, [], options, body);
  }

  /**
   * Publish messages.
   *
   * Appends a message, or an array of up to 1,000: all of them or none, in order, whatever the versions of their streams. The
   * topic is a category. With a `key` the event goes to the stream `topic-key`; without one it goes to a separate stream,
   * `topic-<event id>`. `headers`, `tags`, `caused_by` and `sid` become the event's metadata. Its tags are `tags`, and
   * `cause:<id>` for each id in `caused_by`. The answer is 201 if the messages were published, and 200 if all of them exist
   * already, with their original positions. Give messages ids, or give the request an `Idempotency-Key`, and a repeated
   * request never publishes twice. The body may be compressed (`Content-Encoding: gzip` or `zstd`).
   *
   * CloudEvents are accepted in each of their forms: one as JSON, a batch, or one in the binary form, with `ce-` headers and
   * its data as the body. Their topic is `topic`, or else their type; their key is `key`, or else their subject.
   */
  publish(body: Publication, options: PublishOptions = {}): Promise<Published> {
    return this.send(operations.publish, [], options, body);
  }

  /**
   * Read by query.
   *
   * Events of all streams that a query matches, in the order of their positions, and the position up to which the answer is
   * complete: as `position`, and in the header `Manifold-Position`. To decide by these events, append with a `condition` of the
   * same query and this position as `after`. Lines end at the log's head at the time of the request. With `count` they may end
   * before it, so lines forward with `count` have no `Manifold-Position`. The key needs `events:read` for all categories.
   */
  readByQuery(body: QueryRequest, options: CallOptions = {}): Promise<QueryAnswer> {
    return this.send(operations.readByQuery, [], options, body);
  }

  /**
   * List streams.
   *
   * Names, in byte order.
   */
  listStreams(options: ListStreamsOptions = {}): Promise<StreamList> {
    return this.send(operations.listStreams, [], options);
  }

  /**
   * Read a stream.
   *
   * Events of one stream in the order of their versions. The answer is 404 if the stream never had an event, or if its only
   * event was published without a key and has been removed by retention. If retention has removed all events of another
   * stream, the list is empty, and `ETag` has the version.
   */
  readStream(streamId: string, options: ReadStreamOptions = {}): Promise<EventList> {
    return this.send(operations.readStream, [streamId], options);
  }

  /**
   * Read the whole log.
   *
   * Events of all streams in the order of their positions. NDJSON ends at the log's head at the time of the request.
   */
  readAll(options: ReadAllOptions = {}): Promise<EventList> {
    return this.send(operations.readAll, [], options);
  }

  /**
   * Read a category.
   *
   * Events of all streams of a category in the order of their positions; empty where there are none.
   */
  readCategory(category: string, options: ReadCategoryOptions = {}): Promise<EventList> {
    return this.send(operations.readCategory, [category], options);
  }

  /**
   * Read the newest event of each key.
   *
   * Returns the newest event of each of the streams `category-key`, in the order of the keys, and leaves out keys without
   * events. A page with large events ends early; follow `Link` for the remaining keys.
   */
  readLatest(category: string, options: ReadLatestOptions): Promise<EventList> {
    return this.send(operations.readLatest, [category], options);
  }

  /**
   * Get an event.
   *
   * Returns an event by its id. With `Accept: application/cloudevents+json` it is a CloudEvent; with `Accept:
   * application/cloudevents-binary` it has the binary form, with the data as the body. The answer is 404 for a key that may
   * not read the event's category.
   */
  readEvent(eventId: UUID, options: CallOptions = {}): Promise<Event> {
    return this.send(operations.readEvent, [eventId], options);
  }

  /** Get a stream's version, times and size. */
  getStreamMetadata(streamId: string, options: CallOptions = {}): Promise<StreamMetadata> {
    return this.send(operations.getStreamMetadata, [streamId], options);
  }

  /**
   * Get an aggregate's state.
   *
   * Folds the stream's events with its category's aggregate definition, from the newest usable snapshot. `version`, `at` or
   * `occurredAt` asks for an earlier state; give at most one of them.
   *
   * With `occurredAt` the state is that of business time: it includes all events that had happened by then, in the order of
   * the stream, whenever they were recorded. So imported history can be visited, and an event that was recorded late counts
   * from when it happened. An event without `occurredAt` happened when it was recorded. `version` in the answer is that of the
   * last of these events. Snapshots may include events that happened later, so the whole stream is read.
   */
  getState(streamId: string, options: GetStateOptions = {}): Promise<State> {
    return this.send(operations.getState, [streamId], options);
  }

  /** List aggregate definitions. */
  listAggregates(options: CallOptions = {}): Promise<AggregateList> {
    return this.send(operations.listAggregates, [], options);
  }

  /**
   * Preview an aggregate's definition.
   *
   * Folds events with a definition that need not be stored, decides a command on the state, and stores nothing. The answer has
   * the state after each event, and the command's outcome with its rules, as a dry run with `explain` does. If the command
   * cannot be decided, because an expression fails or a limit is exceeded, the answer has that problem instead of an
   * outcome. Events of the log need `events:read` for their category, too, and for all categories if the command has a
   * boundary; removed ones are missing. The answer is 413 if events and states exceed 8 MiB, or if the command's stream has
   * more than 1,000 events and no `version` is given.
   */
  previewAggregate(body: AggregatePreview, options: CallOptions = {}): Promise<AggregatePreviewResult> {
    return this.send(operations.previewAggregate, [], options, body);
  }

  /**
   * Define a category's aggregate.
   *
   * Has an expression `(state, event) -> state` for each event type; `*` matches all other types. Snapshots of an older
   * fold are no longer used. New ones are taken in the background, also for existing streams. `commands` say what may
   * happen to a stream. A change of a definition is in force for all commands within a second. Projections that name the
   * aggregate keep its previous rules until they are put again.
   */
  putAggregate(category: string, body: Aggregate, options: CallOptions = {}): Promise<Aggregate> {
    return this.send(operations.putAggregate, [category], options, body);
  }

  /** Get a category's aggregate definition. */
  getAggregate(category: string, options: CallOptions = {}): Promise<Aggregate> {
    return this.send(operations.getAggregate, [category], options);
  }

  /**
   * Remove a category's aggregate definition.
   *
   * Projections that name the aggregate keep its rules.
   */
  deleteAggregate(category: string, options: CallOptions = {}): Promise<void> {
    return this.send(operations.deleteAggregate, [category], options);
  }

  /**
   * Send a command.
   *
   * Decides a command of the category's definition on the newest state of the stream, and appends the events atomically. If
   * others append to the stream meanwhile, the service decides again, unless the request expects a version: by
   * `Expected-Version`, `If-Match` or `If-None-Match`, as in an append.
   *
   * A rule that does not hold answers 422 with the code `rejected`, the rule's own code in `reason`, and its message in
   * `detail`. A repetition with the same `Idempotency-Key` has the same outcome, whatever has happened since: accepted for
   * as long as the events exist, without events or rejected for a day.
   *
   * A command that appends to other categories needs `commands:send` for them, too. For a key without `events:read`,
   * `state` is missing in the answer, and `explain` is forbidden.
   */
  sendCommand(category: string, id: string, command: string, body: Command, options: SendCommandOptions = {}): Promise<CommandOutcome> {
    return this.send(operations.sendCommand, [category, id, command], options, body);
  }

  /**
   * Send several commands.
   *
   * Sends up to 100 commands, each as if it was sent alone: some may be accepted and others rejected. Those of one stream are
   * decided in the order of the request, those of different streams at the same time. The answer has an outcome or a problem
   * for each.
   */
  sendCommands(body: Commands, options: SendCommandsOptions = {}): Promise<CommandOutcomes> {
    return this.send(operations.sendCommands, [], options, body);
  }

  /**
   * List a stream's snapshots.
   *
   * The newest first, without states. Manifold keeps the newest three of each tag. Of older ones that it has folded, it keeps
   * one in 400 versions, or fewer if states are larger than 64 KiB.
   */
  listSnapshots(streamId: string, options: ListSnapshotsOptions = {}): Promise<SnapshotList> {
    return this.send(operations.listSnapshots, [streamId], options);
  }

  /**
   * Take or store a snapshot.
   *
   * Without a body, the service folds the stream with its aggregate definition and stores the state. With a body, it stores
   * the given state under the given tag, for teams that fold in their own language.
   *
   * For a key without `events:read`, `state` in the answer is `null`, and a fault does not name the event.
   */
  takeSnapshot(streamId: string, body: NewSnapshot | undefined = undefined, options: TakeSnapshotOptions = {}): Promise<Snapshot> {
    return this.send(operations.takeSnapshot, [streamId], options, body);
  }

  /**
   * Get a stream's newest snapshot.
   *
   * The newest snapshot, of any origin unless `tag` names one.
   */
  getLatestSnapshot(streamId: string, options: GetLatestSnapshotOptions = {}): Promise<Snapshot> {
    return this.send(operations.getLatestSnapshot, [streamId], options);
  }

  /**
   * List projections.
   *
   * The tenant's own, then the shared ones. With the operator's key, the shared ones.
   */
  listProjections(options: CallOptions = {}): Promise<ProjectionList> {
    return this.send(operations.listProjections, [], options);
  }

  /**
   * Create a projection.
   *
   * It begins at the log's first event. With the operator's key, a shared one.
   */
  createProjection(body: Definition, options: CallOptions = {}): Promise<Projection> {
    return this.send(operations.createProjection, [], options, body);
  }

  /**
   * Preview a definition.
   *
   * Folds events from an empty state without storing anything, and reports the effect of each event on each of its documents.
   * With the operator's key, events must be given in the request; for events of a tenant's log, the key also needs `events:read`. The answer is 413 if
   * the events and their documents exceed 8 MiB, and 422 `too-costly` if folding takes more steps than a request may take.
   */
  previewProjection(body: Preview, options: CallOptions = {}): Promise<PreviewResult> {
    return this.send(operations.previewProjection, [], options, body);
  }

  /**
   * Plan a deployment.
   *
   * Compares definitions with the existing ones and changes nothing. `manifold diff` and `manifold apply` use it.
   */
  planProjections(body: Plan, options: CallOptions = {}): Promise<PlanResult> {
    return this.send(operations.planProjections, [], options, body);
  }

  /** Get a projection. */
  getProjection(name: string, options: CallOptions = {}): Promise<Projection> {
    return this.send(operations.getProjection, [name], options);
  }

  /**
   * Create or change a projection.
   *
   * The answer is 201 if the projection was created, and 200 if it is unchanged. With 202, a rebuild makes the documents with
   * the changed definition while the current one serves reads; the definition changes together with the documents. The path
   * has the name, so the body may leave it out.
   *
   * With `If-Match`, a change that somebody else has made since is not overwritten: the answer is then 412. A repeated
   * request whose definition is in place already succeeds.
   */
  putProjection(name: string, body: Definition, options: PutProjectionOptions = {}): Promise<Projection | Rebuild> {
    return this.send(operations.putProjection, [name], options, body);
  }

  /**
   * Remove a projection.
   *
   * Its documents are dropped in the background; a running rebuild is cancelled.
   */
  deleteProjection(name: string, options: CallOptions = {}): Promise<void> {
    return this.send(operations.deleteProjection, [name], options);
  }

  /**
   * Get a projection's state.
   *
   * For the key's tenant, also of a shared projection. For the operator, of the tenant that is named.
   */
  getProjectionState(name: string, options: GetProjectionStateOptions = {}): Promise<ProjectionState> {
    return this.send(operations.getProjectionState, [name], options);
  }

  /**
   * Reset a projection.
   *
   * For development: readers see the documents grow from nothing. Start a rebuild to renew the documents while readers see the
   * current ones.
   */
  resetProjection(name: string, options: ResetProjectionOptions = {}): Promise<Projection> {
    return this.send(operations.resetProjection, [name], options);
  }

  /**
   * List a projection's versions.
   *
   * Lists who changed what, and when. The versions are kept when the projection is removed.
   */
  listProjectionVersions(name: string, options: CallOptions = {}): Promise<ProjectionVersionList> {
    return this.send(operations.listProjectionVersions, [name], options);
  }

  /**
   * Wait until a projection has caught up.
   *
   * Waits for the log's head at the time of the request. The answer is 503 `not-caught-up` if this takes longer than
   * `timeout`, and 409 `faulted` if an event stops the projection.
   */
  catchUpProjection(name: string, options: CatchUpProjectionOptions = {}): Promise<ProjectionState> {
    return this.send(operations.catchUpProjection, [name], options);
  }

  /**
   * Retry the event that stopped a projection.
   *
   * A projection that has stopped retries its event by itself, with growing pauses. Call this to retry at once, after you have
   * fixed the cause of the fault. The projection's state shows the result. A running projection is not affected.
   */
  retryProjection(name: string, options: RetryProjectionOptions = {}): Promise<ProjectionState> {
    return this.send(operations.retryProjection, [name], options);
  }

  /**
   * Skip the event that stopped a projection.
   *
   * The skip is recorded and applies to every build until it is withdrawn, with this version of the definition and with later
   * ones, and for all documents of the event. The answer is 409 if the projection has not stopped at this position, unless a rebuild has left the tenant on its
   * old documents because of it.
   */
  skipEvent(name: string, body: Skip, options: SkipEventOptions = {}): Promise<SkippedEvent> {
    return this.send(operations.skipEvent, [name], options, body);
  }

  /** List skipped events. */
  listSkippedEvents(name: string, options: ListSkippedEventsOptions = {}): Promise<SkippedEventList> {
    return this.send(operations.listSkippedEvents, [name], options);
  }

  /**
   * Withdraw a skip.
   *
   * Later builds fold the event again, and so does the live build if it has not reached the event yet. A build that has
   * already skipped the event stays as it is until the next rebuild.
   */
  withdrawSkip(name: string, position: number, options: WithdrawSkipOptions = {}): Promise<void> {
    return this.send(operations.withdrawSkip, [name, position], options);
  }

  /** List parked documents. */
  listParkedDocuments(name: string, options: ListParkedDocumentsOptions = {}): Promise<ParkedDocumentList> {
    return this.send(operations.listParkedDocuments, [name], options);
  }

  /**
   * Replay all parked documents.
   *
   * Replays all parked documents in order. A document whose events still cannot be folded stays parked.
   */
  replayParkedDocuments(name: string, options: ReplayParkedDocumentsOptions = {}): Promise<Replayed> {
    return this.send(operations.replayParkedDocuments, [name], options);
  }

  /** Replay a parked document. */
  replayParkedDocument(name: string, documentId: string, options: ReplayParkedDocumentOptions = {}): Promise<Replayed> {
    return this.send(operations.replayParkedDocument, [name, documentId], options);
  }

  /**
   * Discard a parked document.
   *
   * Each waiting event is recorded as skipped until that is withdrawn, only for this document if the event belongs to others,
   * too. The document stays as it was and continues with the next event.
   */
  discardParkedDocument(name: string, documentId: string, options: DiscardParkedDocumentOptions = {}): Promise<void> {
    return this.send(operations.discardParkedDocument, [name, documentId], options);
  }

  /**
   * List a projection's documents.
   *
   * Returns the documents that match `filter`, in the order of `orderBy`, page by page. The database does all filtering and
   * sorting; a query that it cannot answer is refused with 422 `unsupported`.
   *
   * A document whose place in the order does not change is on exactly one page, whatever else changes meanwhile. A page token
   * is valid only for its query. If the build of a token is gone, the answer is 410; start again with the first page.
   *
   * The operator cannot read documents, but `explain=true` shows how a tenant's query would be answered.
   */
  listDocuments(name: string, options: ListDocumentsOptions = {}): Promise<DocumentList> {
    return this.send(operations.listDocuments, [name], options);
  }

  /**
   * Get a document.
   *
   * `minPosition` waits until the event at that position is in the document: reading one's own write.
   */
  getDocument(name: string, documentId: string, options: GetDocumentOptions = {}): Promise<Document> {
    return this.send(operations.getDocument, [name, documentId], options);
  }

  /**
   * Get a document without an envelope.
   *
   * Returns the document itself as the body, without an envelope. The `ETag` changes whenever the document does, also by a
   * rebuild: with `If-None-Match`, the answer for an unchanged document is 304. `HEAD` checks whether the document exists, and
   * its position.
   */
  snapDocument(projection: string, key: string, options: SnapDocumentOptions = {}): Promise<JSONValue | undefined> {
    return this.send(operations.snapDocument, [projection, key], options);
  }

  /**
   * Start a rebuild.
   *
   * Builds the documents in a temporary table, with the current definition or the one in the body, and swaps them in. A
   * projection has at most one rebuild at a time. If an event cannot be folded, or an assertion does not hold, the rebuild
   * fails and leaves the live documents unchanged. In a rebuild of a shared projection, this affects only the tenant
   * concerned: the others get the new documents, and that tenant stays on its old documents and their definition until a
   * rebuild with `tenants`, or the next one for all, succeeds for it. The same holds for a tenant whose events retention has
   * removed, unless `acceptLoss` is true. `faultedTenants` lists such tenants. The rebuild fails if there are more of them
   * than `maxFaultedTenants`, or if no tenant with events to fold is left.
   */
  startRebuild(name: string, body: NewRebuild | undefined = undefined, options: CallOptions = {}): Promise<Rebuild> {
    return this.send(operations.startRebuild, [name], options, body);
  }

  /** List a projection's rebuilds. */
  listRebuilds(name: string, options: CallOptions = {}): Promise<RebuildList> {
    return this.send(operations.listRebuilds, [name], options);
  }

  /** Get a rebuild. */
  getRebuild(name: string, rebuildId: UUID, options: CallOptions = {}): Promise<Rebuild> {
    return this.send(operations.getRebuild, [name, rebuildId], options);
  }

  /**
   * Cancel a rebuild.
   *
   * The live documents stay as they are. 409 when it has ended already.
   */
  cancelRebuild(name: string, rebuildId: UUID, options: CallOptions = {}): Promise<Rebuild> {
    return this.send(operations.cancelRebuild, [name, rebuildId], options);
  }

  /**
   * Approve a rebuild.
   *
   * Approves a rebuild that waits for approval, or will. The answer is 409 if it has ended or needs no approval.
   */
  approveRebuild(name: string, rebuildId: UUID, options: CallOptions = {}): Promise<Rebuild> {
    return this.send(operations.approveRebuild, [name, rebuildId], options);
  }

  /**
   * Pause a rebuild.
   *
   * Its work so far is kept. The answer is 409 if it has ended.
   */
  pauseRebuild(name: string, rebuildId: UUID, options: CallOptions = {}): Promise<Rebuild> {
    return this.send(operations.pauseRebuild, [name, rebuildId], options);
  }

  /**
   * Resume a rebuild.
   *
   * The answer is 409 if the rebuild has ended.
   */
  resumeRebuild(name: string, rebuildId: UUID, options: CallOptions = {}): Promise<Rebuild> {
    return this.send(operations.resumeRebuild, [name, rebuildId], options);
  }

  /**
   * Roll a rebuild back.
   *
   * Possible while the old documents are kept: a rebuild continues them from where they stopped, and swaps them in again, with
   * their definition. The answer is 409 if the rebuild was not swapped, if another one was swapped in since, or if the old
   * documents are gone.
   */
  rollbackRebuild(name: string, rebuildId: UUID, options: RollbackRebuildOptions = {}): Promise<Rebuild> {
    return this.send(operations.rollbackRebuild, [name, rebuildId], options);
  }

  /** List a rebuild's tenants. */
  listRebuildTenants(name: string, rebuildId: UUID, options: ListRebuildTenantsOptions = {}): Promise<TenantProgressList> {
    return this.send(operations.listRebuildTenants, [name, rebuildId], options);
  }

  /**
   * Export all documents that a rebuild would change.
   *
   * Compares the documents of a rebuild that awaits approval with the live ones, as they are now, and streams those that
   * differ as lines of JSON, by tenant and then by id. An empty line is sent now and then while none differs. The answer is 409
   * unless the rebuild awaits approval, and is cut off if that ends meanwhile. A tenant has one such stream at a time.
   *
   * A tenant's key exports differences of the tenant's own projections, the operator's those of shared ones.
   */
  exportDifference(name: string, rebuildId: UUID, options: ExportDifferenceOptions = {}): Promise<Response> {
    return this.send(operations.exportDifference, [name, rebuildId], options);
  }

  /**
   * Follow a rebuild's progress.
   *
   * Sends server-sent events: `progress`, with the rebuild as data, when it has changed, at most about once a second, and
   * finally `ended`. While nothing changes, a comment is sent every 15 s.
   */
  watchRebuild(name: string, rebuildId: UUID, options: CallOptions = {}): Promise<Response> {
    return this.send(operations.watchRebuild, [name, rebuildId], options);
  }

  /** List event types with schemas, and the rules of categories. */
  listSchemas(options: ListSchemasOptions = {}): Promise<SchemaList> {
    return this.send(operations.listSchemas, [], options);
  }

  /**
   * Describe the tenant's events in AsyncAPI.
   *
   * `/asyncapi.yaml` with a message for each event type that has a schema. Its data is any version of the schema. The `ETag`
   * changes with each change of schemas and rules: with `If-None-Match`, the answer for an unchanged document is 304.
   */
  eventContract(options: EventContractOptions = {}): Promise<Record<string, any> | undefined> {
    return this.send(operations.eventContract, [], options);
  }

  /**
   * Say how the events of a category are checked.
   *
   * With `enforce`, a request with an event that violates the schema of its type is refused as a whole, with `schema-violation`.
   * With `warn` it is accepted, and the answer has the header `Schema-Violations`. With `off`, the default, nothing is checked.
   * Every process follows the new rule within about a second.
   */
  putSchemaRule(category: string, body: NewSchemaRule, options: CallOptions = {}): Promise<SchemaRule> {
    return this.send(operations.putSchemaRule, [category], options, body);
  }

  /** Get an event type's newest schema. */
  getSchema(type: string, options: CallOptions = {}): Promise<EventSchema> {
    return this.send(operations.getSchema, [type], options);
  }

  /**
   * Add a version of an event type's schema.
   *
   * The schema is a JSON Schema 2020-12. References lead to places in the same schema only, and patterns have the syntax of RE2.
   * If it is the same as the newest version, no version is added. A schema that is not compatible with the versions before is
   * refused with `conflict` and `violations`, unless an upcaster converts events of the newest version.
   * An `upcaster` in the request is stored in the same transaction, also if no version is added.
   * With `tags`, events of the type get further tags when they are appended, whatever the rule of their category. If the expression
   * fails for an event, or gives too many or invalid tags, the append is refused with `schema-violation`. When `tags` change, a job
   * retags the stored events in the background, and `retagging` shows its progress.
   */
  putSchema(type: string, body: NewSchema, options: CallOptions = {}): Promise<EventSchema> {
    return this.send(operations.putSchema, [type], options, body);
  }

  /** Remove an event type's schema with all its versions. */
  deleteSchema(type: string, options: CallOptions = {}): Promise<void> {
    return this.send(operations.deleteSchema, [type], options);
  }

  /**
   * Get a version of an event type's schema.
   *
   * The answer is the schema itself, as it was sent.
   */
  getSchemaVersion(type: string, version: number, options: CallOptions = {}): Promise<JSONValue> {
    return this.send(operations.getSchemaVersion, [type, version], options);
  }

  /**
   * Try a schema on events, and compare it with the stored ones.
   *
   * Nothing is stored. Without `schema`, the events are checked against the stored schemas. Events of the log need the scope
   * `events:read` as well. `last` means the last events of the type among the newest 20,000 of the log. With `from`, one request
   * looks at some 20,000 events; continue from `next`.
   */
  checkSchema(type: string, body: SchemaCheck, options: CallOptions = {}): Promise<SchemaCheckResult> {
    return this.send(operations.checkSchema, [type], options, body);
  }

  /**
   * List upcasters.
   *
   * The tenant's own upcasters and the shared ones. With the operator's key, the shared ones.
   */
  listUpcasters(options: CallOptions = {}): Promise<UpcasterList> {
    return this.send(operations.listUpcasters, [], options);
  }

  /**
   * Preview upcasters.
   *
   * Nothing is stored. With the operator's key only given events can be upcast. Events of the log need the scope `events:read`
   * as well; `last` means events of the types that have upcasters, among the newest 20,000 of the log. The answer ends after
   * some 8 MiB of data.
   */
  previewUpcaster(body: UpcasterPreview, options: CallOptions = {}): Promise<UpcasterPreviewResult> {
    return this.send(operations.previewUpcaster, [], options, body);
  }

  /** Get an upcaster. */
  getUpcaster(type: string, version: number, options: CallOptions = {}): Promise<Upcaster> {
    return this.send(operations.getUpcaster, [type, version], options);
  }

  /**
   * Create or change an upcaster.
   *
   * The upcaster applies whenever events of the type are folded from now on. `touches` lists what was folded without it.
   * Existing documents change only by a rebuild; with `rebuild`, one is started for each affected projection.
   */
  putUpcaster(type: string, version: number, body: NewUpcaster, options: CallOptions = {}): Promise<UpcasterChange> {
    return this.send(operations.putUpcaster, [type, version], options, body);
  }

  /**
   * Remove an upcaster.
   *
   * Documents and states folded with it stay as they are until they are rebuilt. If the tenant's own upcaster is removed, a
   * shared one for the same type and version applies again; without one, events that reach the gap stay at its version.
   */
  deleteUpcaster(type: string, version: number, options: DeleteUpcasterOptions = {}): Promise<UpcasterChange> {
    return this.send(operations.deleteUpcaster, [type, version], options);
  }

  /**
   * List the documents of all tenants.
   *
   * Of a shared projection, such as `usage`: by tenant, then by id. `filter` and `fields` are as in a tenant's own list.
   * The tenants are read one after the other, so a page may be short, or empty, while its `Link` leads to more.
   */
  listAllDocuments(name: string, options: ListAllDocumentsOptions = {}): Promise<TenantDocumentList> {
    return this.send(operations.listAllDocuments, [name], options);
  }

  /**
   * Get the totals of all tenants' documents.
   *
   * Of a shared projection whose definition has `totals`. A worker computes each tenant's totals from its live documents
   * some seconds after they have changed, and later if there are many of them. `all` and `totals` are of the documents that
   * `tenant` and `keyPrefix` select. Sums are exact decimal numbers, as texts. They leave out tenants that are being deleted, which the
   * counts of tenants may include.
   */
  getTotals(name: string, options: GetTotalsOptions = {}): Promise<TotalsPage> {
    return this.send(operations.getTotals, [name], options);
  }

  /** List the processes that work on projections. */
  listMembers(options: CallOptions = {}): Promise<MemberList> {
    return this.send(operations.listMembers, [], options);
  }

  /**
   * List the egresses, which publish events to message brokers.
   *
   * The egresses of the live processes' configurations, and those that a process has had and that were not removed. How far
   * each tenant's group of an egress has come is in `GET /v1/admin/lag`: the consumer `egress.NAME`. Processes report changes
   * every second. A process of an earlier release reports nothing.
   */
  listEgresses(options: CallOptions = {}): Promise<EgressList> {
    return this.send(operations.listEgresses, [], options);
  }

  /**
   * Follow the whole log.
   *
   * Events of all streams in the order of their positions. The answer never ends by itself: what is there already comes first, then what is appended, without
   * a gap and without a repeat. As server-sent events with `Accept: text/event-stream`, as lines with
   * `Accept: application/x-ndjson` (the default), or as a WebSocket, one message for each frame. With `application/cloudevents+json`
   * in `Accept` beside those, or the WebSocket's subprotocol `cloudevents.json`, each frame is a CloudEvent.
   *
   * A frame is `event`; `caught-up`, when everything up to the head has been sent; `checkpoint`, when events were passed
   * over, and every 15 s while nothing comes; or `gap`, where retention has removed some. To continue later, begin at the position after the last one seen; an EventSource
   * does that by itself (`Last-Event-ID`). A follower that is slow is sent what it has missed from the log.
   */
  followAll(options: FollowAllOptions = {}): Promise<Response> {
    return this.send(operations.followAll, [], options);
  }

  /**
   * Follow a stream.
   *
   * Events of one stream, which need not be there yet. The answer never ends by itself: what is there already comes first, then what is appended, without
   * a gap and without a repeat. As server-sent events with `Accept: text/event-stream`, as lines with
   * `Accept: application/x-ndjson` (the default), or as a WebSocket, one message for each frame. With `application/cloudevents+json`
   * in `Accept` beside those, or the WebSocket's subprotocol `cloudevents.json`, each frame is a CloudEvent.
   *
   * A frame is `event`; `caught-up`, when everything up to the head has been sent; `checkpoint`, when events were passed
   * over, and every 15 s while nothing comes; or `gap`, where retention has removed some. To continue later, begin at the position after the last one seen; an EventSource
   * does that by itself (`Last-Event-ID`). A follower that is slow is sent what it has missed from the log.
   */
  followStream(streamId: string, options: FollowStreamOptions = {}): Promise<Response> {
    return this.send(operations.followStream, [streamId], options);
  }

  /**
   * Follow a category.
   *
   * Events of all streams of a category in the order of their positions. The answer never ends by itself: what is there already comes first, then what is appended, without
   * a gap and without a repeat. As server-sent events with `Accept: text/event-stream`, as lines with
   * `Accept: application/x-ndjson` (the default), or as a WebSocket, one message for each frame. With `application/cloudevents+json`
   * in `Accept` beside those, or the WebSocket's subprotocol `cloudevents.json`, each frame is a CloudEvent.
   *
   * A frame is `event`; `caught-up`, when everything up to the head has been sent; `checkpoint`, when events were passed
   * over, and every 15 s while nothing comes; or `gap`, where retention has removed some. To continue later, begin at the position after the last one seen; an EventSource
   * does that by itself (`Last-Event-ID`). A follower that is slow is sent what it has missed from the log.
   */
  followCategory(category: string, options: FollowCategoryOptions = {}): Promise<Response> {
    return this.send(operations.followCategory, [category], options);
  }

  /**
   * Create a ticket, which replaces a key for a short time.
   *
   * For browsers, whose EventSource and WebSocket cannot send a header. The page asks its own server for a ticket, the server
   * requests it here, and the page opens `/v1/subscribe/...?ticket=` or `/v1/ws?ticket=` with it. A ticket allows what its key
   * allows. It can be used until it expires; a connection continues after that, until the key is revoked.
   */
  createTicket(options: CallOptions = {}): Promise<Ticket> {
    return this.send(operations.createTicket, [], options);
  }

  /** List groups. */
  listSubscriptions(options: ListSubscriptionsOptions = {}): Promise<SubscriptionList> {
    return this.send(operations.listSubscriptions, [], options);
  }

  /**
   * Create or change a group.
   *
   * Repeating it changes nothing. The body is the whole definition: what is left out gets its default. `from` says where a new
   * group begins, and may be left out for one that is there, which is moved by `seek`. `from`, `ordering` and `partitions` stay as
   * they were made: others are refused with 409. Other changes hold from the next delivery on. The key must have the scope for
   * all categories of the source, and of the group as it is.
   */
  putSubscription(name: string, body: NewSubscription, options: CallOptions = {}): Promise<Subscription> {
    return this.send(operations.putSubscription, [name], options, body);
  }

  /** Get a group and its progress. */
  getSubscription(name: string, options: CallOptions = {}): Promise<Subscription> {
    return this.send(operations.getSubscription, [name], options);
  }

  /**
   * Remove a group.
   *
   * Also deletes its checkpoint, leases, retries and dead letters.
   */
  deleteSubscription(name: string, options: CallOptions = {}): Promise<void> {
    return this.send(operations.deleteSubscription, [name], options);
  }

  /**
   * Receive events.
   *
   * At most `batch` events and about 8 MiB, fewer where no more are due or allowed. Where none is due, it waits for one for `wait` seconds.
   * An empty list means that nothing is due, unless the answer says `searching` (and has `Manifold-Searching: true`): then the group must pass over so many
   * other events that the search was not finished within `wait` and two seconds. Ask again; the search continues from there. Each event is
   * leased until its `ackDeadline`: answer before with `ack`, `nack` or `extend`, or it is redelivered, alone, with the next attempt. The
   * next receive may acknowledge the events of this one in its `ack`, which saves a request. That takes effect at once, however long the
   * receive waits. After an error, repeat it with the same `ack`; what took effect before is `not-in-flight` then. With
   * `Accept: application/cloudevents-batch+json` the events are CloudEvents; answers name the extensions `manifoldid` and `manifoldattempt`, and
   * `ack` is not allowed.
   */
  receive(name: string, body: Receive | undefined = undefined, options: CallOptions = {}): Promise<Deliveries> {
    return this.send(operations.receive, [name], options, body);
  }

  /**
   * Peek at a group's events.
   *
   * Shows the events that a receive would deliver now, those in flight, and those that wait for a retry. It leases nothing and
   * counts no attempt. For a group with partitions, it shows all of them, each with an equal share of `limit`, or the one
   * given by `partition`. It shows at most 8 MiB of events.
   */
  peekSubscription(name: string, options: PeekSubscriptionOptions = {}): Promise<SubscriptionPeek> {
    return this.send(operations.peekSubscription, [name], options);
  }

  /**
   * Acknowledge events.
   *
   * Give the events in any order, each with its attempt. `outcome` is the result: `done`; `stale`, if a later attempt was made
   * or is due; `not-in-flight`, if the event is not leased. Only `done` has changed something.
   */
  ackEvents(name: string, body: Attempts, options: CallOptions = {}): Promise<Answers> {
    return this.send(operations.ackEvents, [name], options, body);
  }

  /** Acknowledge one event. */
  ackEvent(name: string, eventId: UUID, options: AckEventOptions): Promise<Answer> {
    return this.send(operations.ackEvent, [name, eventId], options);
  }

  /**
   * Reject events.
   *
   * `retry` redelivers the events after `delay` seconds (default: the group's back-off), or parks those without attempts left.
   * `park` moves them to the dead letters. `skip` settles them without processing.
   */
  nackEvents(name: string, body: Nack, options: CallOptions = {}): Promise<Answers> {
    return this.send(operations.nackEvents, [name], options, body);
  }

  /**
   * Extend the deadline of events.
   *
   * The new deadlines are `by` seconds from now; the default is the group's `ackTimeout`.
   */
  extendEvents(name: string, body: Extend, options: CallOptions = {}): Promise<Answers> {
    return this.send(operations.extendEvents, [name], options, body);
  }

  /**
   * Move a group to another position.
   *
   * The group continues at this position, or at the first event recorded at or after this time. Events in flight and retries
   * are given up: answers to them are stale. Dead letters stay, and requested replays of later ones still happen.
   */
  seekSubscription(name: string, body: Seek, options: CallOptions = {}): Promise<Subscription> {
    return this.send(operations.seekSubscription, [name], options, body);
  }

  /**
   * Pause a group.
   *
   * Events in flight can still be answered.
   */
  pauseSubscription(name: string, options: CallOptions = {}): Promise<Subscription> {
    return this.send(operations.pauseSubscription, [name], options);
  }

  /** Resume a group. */
  resumeSubscription(name: string, options: CallOptions = {}): Promise<Subscription> {
    return this.send(operations.resumeSubscription, [name], options);
  }

  /**
   * List dead letters.
   *
   * With `Accept: application/cloudevents-batch+json` they are CloudEvents, with `manifoldattempts`, `manifoldreplays`, `manifoldreason`,
   * `manifoldfirstparked`, `manifoldparkedat`, `manifoldreplayat` and `manifoldpartition` for what is known of each.
   */
  listDeadLetters(name: string, options: ListDeadLettersOptions = {}): Promise<DeadLetterList> {
    return this.send(operations.listDeadLetters, [name], options);
  }

  /**
   * Discard all dead letters.
   *
   * The events stay in the log; the group never delivers them again.
   */
  discardDeadLetters(name: string, options: CallOptions = {}): Promise<Discarded> {
    return this.send(operations.discardDeadLetters, [name], options);
  }

  /**
   * Replay all dead letters.
   *
   * The events are delivered together with new ones, with attempts counted from one; `replays` counts the replays of an event.
   * An event that fails again becomes a dead letter again, and keeps the time at which it first became one.
   */
  replayDeadLetters(name: string, options: CallOptions = {}): Promise<ReplayedDeadLetters> {
    return this.send(operations.replayDeadLetters, [name], options);
  }

  /** Replay a dead letter. */
  replayDeadLetter(name: string, eventId: UUID, options: CallOptions = {}): Promise<ReplayedDeadLetters> {
    return this.send(operations.replayDeadLetter, [name, eventId], options);
  }

  /** Discard a dead letter. */
  discardDeadLetter(name: string, eventId: UUID, options: CallOptions = {}): Promise<void> {
    return this.send(operations.discardDeadLetter, [name, eventId], options);
  }

  /** List a group's members. */
  listSubscriptionMembers(name: string, options: CallOptions = {}): Promise<SubscriptionMemberList> {
    return this.send(operations.listSubscriptionMembers, [name], options);
  }

  /**
   * Join a group with partitions.
   *
   * Send the answer's `memberId` with each `receive`. A member must send a `receive` or a heartbeat at least every 15 s, and
   * is removed after 45 s without one. Partitions are spread evenly over the live members. A partition moves to another member
   * only after its events in flight are settled.
   */
  joinSubscription(name: string, body: JoinSubscription | undefined = undefined, options: CallOptions = {}): Promise<SubscriptionMember> {
    return this.send(operations.joinSubscription, [name], options, body);
  }

  /**
   * Send a member's heartbeat.
   *
   * The answer is 404 if the member was removed; join again.
   */
  heartbeatSubscription(name: string, memberId: UUID, options: CallOptions = {}): Promise<SubscriptionMember> {
    return this.send(operations.heartbeatSubscription, [name, memberId], options);
  }

  /**
   * Leave a group.
   *
   * Its events in flight are redelivered to other members at once.
   */
  leaveSubscription(name: string, memberId: UUID, options: CallOptions = {}): Promise<void> {
    return this.send(operations.leaveSubscription, [name, memberId], options);
  }

  /** Show whether reports are enabled. */
  getReports(options: CallOptions = {}): Promise<Reports> {
    return this.send(operations.getReports, [], options);
  }

  /**
   * Enable or disable reports.
   *
   * A report is an event that the service appends to the tenant's log. While reports are enabled, it appends:
   *
   * | type | category | reports |
   * |---|---|---|
   * | `EventDeadLettered` | `dlq.<group>`, with `_` for each `-` | a dead letter of a group, webhook, reactor or egress |
   * | `DocumentParked` | `dlq.projection.<name>` | a document that was parked |
   * | `ProjectionStopped`, `ProjectionResumed` | `manifold.alerts` | a projection that stops before an event, and that continues |
   * | `WebhookFailing`, `WebhookRecovered` | `manifold.alerts` | a webhook that no attempt has reached for 5 minutes, and one that succeeds |
   * | `ProjectionBehind`, `ProjectionCaughtUp`, `GroupBehind`, `GroupCaughtUp` | `manifold.alerts` | a lag of more than `maxLag`, and less than half of it |
   *
   * Dead letters and parked documents from before are not reported. Nothing about a report is reported, such as its own dead
   * letter. Categories that begin with `dlq.` or `manifold.` are reserved, so clients cannot append to them.
   */
  putReports(body: ReportsRequest, options: CallOptions = {}): Promise<Reports> {
    return this.send(operations.putReports, [], options, body);
  }

  /**
   * Erase a person's data.
   *
   * Erases the data of all events up to the head of the log that have the tag `subject:` and the id, and everything that was made from it. Each event
   * keeps its id, place, type and times, and loses the tag. Later events are new data. Erasing cannot be undone; try it with `dryRun`. To repeat a request
   * safely, give it an `id`.
   */
  eraseSubject(subjectId: string, body: NewErasure, options: CallOptions = {}): Promise<ErasurePreview | Erasure> {
    return this.send(operations.eraseSubject, [subjectId], options, body);
  }

  /**
   * Export a person's data.
   *
   * Returns the events that have the tag `subject:` and the id, as other exports do.
   */
  exportSubject(subjectId: string, options: CallOptions = {}): Promise<Response> {
    return this.send(operations.exportSubject, [subjectId], options);
  }

  /** List erasures. */
  listErasures(options: ListErasuresOptions = {}): Promise<ErasureList> {
    return this.send(operations.listErasures, [], options);
  }

  /**
   * Get an erasure.
   *
   * A finished erasure has its receipt: a note that the service has signed.
   */
  getErasure(erasureId: UUID, options: CallOptions = {}): Promise<Erasure> {
    return this.send(operations.getErasure, [erasureId], options);
  }

  /**
   * Approve an erasure.
   *
   * The erasure begins. The actor that requested it cannot approve it.
   */
  approveErasure(erasureId: UUID, options: CallOptions = {}): Promise<Erasure> {
    return this.send(operations.approveErasure, [erasureId], options);
  }

  /**
   * Cancel an erasure.
   *
   * Only one that awaits approval can be cancelled. Otherwise the answer is 409.
   */
  cancelErasure(erasureId: UUID, options: CallOptions = {}): Promise<Erasure> {
    return this.send(operations.cancelErasure, [erasureId], options);
  }

  /** List retention policies. */
  listRetention(options: CallOptions = {}): Promise<RetentionList> {
    return this.send(operations.listRetention, [], options);
  }

  /**
   * Get a category's retention policy.
   *
   * The policy, how much of the category it has removed, and what held the last run.
   */
  getRetention(category: string, options: CallOptions = {}): Promise<RetentionPolicy> {
    return this.send(operations.getRetention, [category], options);
  }

  /**
   * Set a category's retention policy.
   *
   * An event is removed permanently if `maxAge`, `maxCount` or `compact` says so, but not before every group, projection and
   * running rebuild that needs it has read it, unless `force` names that reader. Events of dead letters and parked documents
   * stay until these are resolved. Positions and versions keep their numbers. Preview a policy with POST
   * `/v1/retention/{category}/run`, `dryRun` and the policy.
   */
  putRetention(category: string, body: RetentionRules, options: CallOptions = {}): Promise<RetentionPolicy> {
    return this.send(operations.putRetention, [category], options, body);
  }

  /**
   * Delete a category's retention policy.
   *
   * Removed events are not restored.
   */
  deleteRetention(category: string, options: CallOptions = {}): Promise<void> {
    return this.send(operations.deleteRetention, [category], options);
  }

  /**
   * Run or preview a retention policy.
   *
   * A policy runs by itself about once a minute. Without `dryRun`, it runs as soon as a worker is free; `askedAt` disappears
   * when it has run. With `dryRun`, nothing is removed, and the answer has the number of events that would be removed now, and
   * what holds more of them. A `policy` in the body is previewed without being stored.
   */
  runRetention(category: string, body: RetentionRun | undefined = undefined, options: CallOptions = {}): Promise<RetentionPreview | RetentionPolicy> {
    return this.send(operations.runRetention, [category], options, body);
  }

  /** List webhooks. */
  listWebhooks(options: ListWebhooksOptions = {}): Promise<WebhookList> {
    return this.send(operations.listWebhooks, [], options);
  }

  /**
   * Create or change a webhook.
   *
   * From then on the events of its source are sent to the URL. The first answer has its secret, which no other answer shows.
   * Repeating it changes nothing, but restarts a webhook that the service has disabled. The body is the whole definition: what is left
   * out gets its default. `from` and `ordering` stay as they were made, and may be left out later: others are refused with 409.
   *
   * The key must be allowed to read or consume what is sent, besides: `events:read` or `events:consume` for all categories of
   * the source, and `documents:read` where that is a projection.
   */
  putWebhook(name: string, body: NewWebhook, options: CallOptions = {}): Promise<Webhook> {
    return this.send(operations.putWebhook, [name], options, body);
  }

  /** Get a webhook and its progress. */
  getWebhook(name: string, options: CallOptions = {}): Promise<Webhook> {
    return this.send(operations.getWebhook, [name], options);
  }

  /**
   * Remove a webhook.
   *
   * Also deletes its secrets, attempts, retries, dead letters and replay. Requests in progress may still arrive.
   */
  deleteWebhook(name: string, options: CallOptions = {}): Promise<void> {
    return this.send(operations.deleteWebhook, [name], options);
  }

  /**
   * Pause a webhook.
   *
   * Also pauses its replay. Requests in progress may still arrive, and due events wait.
   */
  pauseWebhook(name: string, options: CallOptions = {}): Promise<Webhook> {
    return this.send(operations.pauseWebhook, [name], options);
  }

  /**
   * Resume a webhook.
   *
   * Also resumes a webhook that the service has disabled.
   */
  resumeWebhook(name: string, options: CallOptions = {}): Promise<Webhook> {
    return this.send(operations.resumeWebhook, [name], options);
  }

  /**
   * Add a secret.
   *
   * Every message is signed with each secret, so that its receiver can go from one to the next. The older ones keep signing until
   * they are removed, or for `expireOldAfter` seconds. There are up to five at a time.
   */
  addWebhookSecret(name: string, body: NewWebhookSecret, options: CallOptions = {}): Promise<WebhookSecret> {
    return this.send(operations.addWebhookSecret, [name], options, body);
  }

  /**
   * Remove a secret.
   *
   * The secret signs no more messages. The last secret that does not expire cannot be removed; add another one first.
   */
  removeWebhookSecret(name: string, secretId: UUID, options: CallOptions = {}): Promise<void> {
    return this.send(operations.removeWebhookSecret, [name, secretId], options);
  }

  /**
   * List a webhook's attempts.
   *
   * Lists the newest attempts first. They are kept for 7 days, up to about 10,000.
   */
  listWebhookAttempts(name: string, options: ListWebhookAttemptsOptions = {}): Promise<WebhookAttemptList> {
    return this.send(operations.listWebhookAttempts, [name], options);
  }

  /**
   * Replay a range of events.
   *
   * Sends the events of the webhook's source between two positions again, with their original ids, in parallel to new events.
   * A webhook has at most one replay at a time. Undeliverable events go to the dead letters of the group `replay.` followed by
   * the webhook's name.
   */
  startWebhookReplay(name: string, body: NewWebhookReplay, options: CallOptions = {}): Promise<WebhookReplay> {
    return this.send(operations.startWebhookReplay, [name], options, body);
  }

  /** Get the last replay and its progress. */
  getWebhookReplay(name: string, options: CallOptions = {}): Promise<WebhookReplay> {
    return this.send(operations.getWebhookReplay, [name], options);
  }

  /**
   * Cancel a replay.
   *
   * Also deletes its retries and dead letters.
   */
  cancelWebhookReplay(name: string, options: CallOptions = {}): Promise<void> {
    return this.send(operations.cancelWebhookReplay, [name], options);
  }

  /**
   * Send a test message.
   *
   * The message is signed like any other, has the type `webhook.test`, and appears among the attempts with position 0. It is
   * sent once, even if the webhook is paused or disabled. The answer is always 200; `outcome` has the result.
   */
  testWebhook(name: string, options: CallOptions = {}): Promise<WebhookAttempt> {
    return this.send(operations.testWebhook, [name], options);
  }

  /** List the cursors of groups and projections. */
  listCursors(options: ListCursorsOptions = {}): Promise<CursorList> {
    return this.send(operations.listCursors, [], options);
  }

  /**
   * Get the lag of groups and projections.
   *
   * `lagPositions` is the number of positions between the cursor and the log's head, including events that the consumer does
   * not select. `seconds` is the age of the first of these events. A projection's cursor is before the first event that it has
   * to fold.
   */
  getLag(options: GetLagOptions = {}): Promise<LagList> {
    return this.send(operations.getLag, [], options);
  }

  /**
   * Get the lag of all tenants' groups and projections.
   *
   * By tenant, as `GET /v1/lag` has them. The tenants are read one after the other, so a page may be short, or empty, while its
   * `Link` leads to more. Tenants that are being deleted are left out. Audit logs are not listed: each of their groups has its
   * progress at `/audit/v1/subscriptions/{name}`.
   */
  getAllLag(options: GetAllLagOptions = {}): Promise<TenantLagList> {
    return this.send(operations.getAllLag, [], options);
  }

  /**
   * Import events.
   *
   * One JSON object a line, an `ImportLine`. They are appended in order, many lines in one go; a line that is there already counts
   * as a duplicate, so an import can be repeated after it was cut off. Lines without id get one from `name` and the
   * line's number; a line that had other content when an import of that name came before is a bad line. Nothing after
   * the first bad line is appended, unless `strict` is false: then bad lines are reported and skipped. With `check`
   * nothing is appended at all, and every bad line is reported. The answer is a stream of progress frames, a line each;
   * the last has `done` or `error`. The body may be compressed (`Content-Encoding: gzip` or `zstd`): its checksum comes
   * at its end, when most of it has been appended, so check it first.
   *
   * A line may be a CloudEvent in the structured form. It goes to the stream that its `manifoldstream` names, under the id in `manifoldid`:
   * where it was in the log that it was exported from. Without these, type and subject are topic and key, as when publishing.
   */
  importEvents(body: BodyInit, options: ImportEventsOptions = {}): Promise<Response> {
    return this.send(operations.importEvents, [], options, body);
  }

  /**
   * Export the log, or a part of it.
   *
   * Returns events in the order of positions, one JSON object per line, in the form that import accepts, with `version`,
   * `position` and `recordedAt`: the whole log, or some categories, types, positions, or a period. It ends at the log's head at
   * the time of the request. With `Accept: application/cloudevents+json` each line is a CloudEvent, which import also accepts.
   */
  exportEvents(options: ExportEventsOptions = {}): Promise<Response> {
    return this.send(operations.exportEvents, [], options);
  }

  /** List tenants. */
  listTenants(options: ListTenantsOptions = {}): Promise<TenantList> {
    return this.send(operations.listTenants, [], options);
  }

  /** Create a tenant. */
  createTenant(body: NewTenant, options: CallOptions = {}): Promise<Tenant> {
    return this.send(operations.createTenant, [], options, body);
  }

  /**
   * Redact an unreadable event.
   *
   * Removes data and metadata permanently. The event keeps its id, stream, version, position, type and times, and `gap` says
   * that it was redacted, and why. Only unreadable events can be redacted, such as those that `manifold doctor --events`
   * lists; for others the answer is 409. Repeating the request changes nothing.
   */
  redactEvent(tenantId: UUID, position: number, body: Redaction, options: CallOptions = {}): Promise<Event> {
    return this.send(operations.redactEvent, [tenantId, position], options, body);
  }

  /** Get a tenant. */
  getTenant(tenantId: UUID, options: CallOptions = {}): Promise<Tenant> {
    return this.send(operations.getTenant, [tenantId], options);
  }

  /**
   * Suspend or reactivate a tenant, or change its share.
   *
   * A suspended tenant's keys are refused, and its data is kept. `weight` and `ceiling` set its share of the work on
   * projections.
   */
  changeTenant(tenantId: UUID, body: TenantChange, options: CallOptions = {}): Promise<Tenant> {
    return this.send(operations.changeTenant, [tenantId], options, body);
  }

  /**
   * Delete a tenant and all its data.
   *
   * This cannot be undone, so `confirm` must repeat the tenant's name. Its keys stop working at once, and all its data is
   * removed in the background. A record with the state `deleted` remains, with a signed `receipt`.
   */
  deleteTenant(tenantId: UUID, options: DeleteTenantOptions): Promise<Tenant> {
    return this.send(operations.deleteTenant, [tenantId], options);
  }

  /**
   * Get the log's signed checkpoint.
   *
   * The newest one, as a signed note in C2SP's tlog-checkpoint format: the origin (the name of the signing keys, and the tenant's
   * id), the number of sealed positions, the root hash of the log's Merkle tree, and a signature. Events are sealed within
   * seconds after their append. 404 if none is yet.
   */
  getCheckpoint(options: CallOptions = {}): Promise<Response> {
    return this.send(operations.getCheckpoint, [], options);
  }

  /**
   * Prove that a position is part of a checkpoint.
   *
   * The leaf hash of a position, and the hashes that lead from it to the root of the tree with `size` leaves (RFC 9162, section 2.1.3). Position p is leaf p-1.
   */
  getInclusionProof(options: GetInclusionProofOptions): Promise<InclusionProof> {
    return this.send(operations.getInclusionProof, [], options);
  }

  /**
   * Prove that a checkpoint continues an earlier one.
   *
   * The hashes that show that the tree with `to` leaves begins with the one that has `from` leaves (RFC 9162, section 2.1.4).
   */
  getConsistencyProof(options: GetConsistencyProofOptions): Promise<ConsistencyProof> {
    return this.send(operations.getConsistencyProof, [], options);
  }

  /**
   * Get a block of the log's leaves.
   *
   * The hashes and salts that the tree is computed from, for 4,096 positions at a time, as far as they are sealed, and the
   * receipts for events that retention removed or an erasure emptied. Block n begins at position 4096 n + 1. The guide says how
   * leaves are computed.
   */
  getLeaves(options: GetLeavesOptions): Promise<LeafBlock> {
    return this.send(operations.getLeaves, [], options);
  }

  /**
   * List the keys that verify the service's signatures.
   *
   * The newest first, which signs. Earlier keys verify what they signed before they were replaced.
   */
  listSigningKeys(options: CallOptions = {}): Promise<SigningKeyList> {
    return this.send(operations.listSigningKeys, [], options);
  }

  /**
   * Make a new signing key.
   *
   * It signs from now on, and the private part of the key before is erased. Processes sign with that for up to half a minute more.
   * Whoever verifies signatures needs the new key; `manifold verify` asks for it. 409 if another rotation comes first.
   */
  rotateSigningKeys(options: CallOptions = {}): Promise<SigningKey> {
    return this.send(operations.rotateSigningKeys, [], options);
  }

  /** List plans. */
  listPlans(options: ListPlansOptions = {}): Promise<LimitPlanList> {
    return this.send(operations.listPlans, [], options);
  }

  /** Get a plan. */
  getPlan(plan: PlanName, options: CallOptions = {}): Promise<LimitPlan> {
    return this.send(operations.getPlan, [plan], options);
  }

  /**
   * Create or replace a plan.
   *
   * A plan is a set of limits and quotas for the tenants that it is assigned to. What it leaves out is not limited. The plan
   * named `default`, if there is one, is that of all tenants without a plan. A change takes effect in all processes within
   * seconds.
   */
  putPlan(plan: PlanName, body: LimitPlanDefinition, options: CallOptions = {}): Promise<LimitPlan> {
    return this.send(operations.putPlan, [plan], options, body);
  }

  /**
   * Delete a plan.
   *
   * A plan that is assigned to a tenant cannot be deleted.
   */
  deletePlan(plan: PlanName, options: CallOptions = {}): Promise<void> {
    return this.send(operations.deletePlan, [plan], options);
  }

  /** Get a tenant's limits and quotas. */
  getTenantLimits(tenantId: UUID, options: CallOptions = {}): Promise<AssignedLimits> {
    return this.send(operations.getTenantLimits, [tenantId], options);
  }

  /**
   * Assign a plan to a tenant.
   *
   * `limits` and `quotas` replace those of the plan for this tenant. `{}` takes the plan away. A change takes effect in all
   * processes within seconds.
   */
  putTenantLimits(tenantId: UUID, body: TenantLimits, options: CallOptions = {}): Promise<AssignedLimits> {
    return this.send(operations.putTenantLimits, [tenantId], options, body);
  }

  /** Get the limits and quotas of the caller's tenant. */
  getLimits(options: CallOptions = {}): Promise<CurrentLimits> {
    return this.send(operations.getLimits, [], options);
  }

  /**
   * Get the daily usage of the caller's tenant.
   *
   * By UTC days. Processes save what they have counted every two seconds; one that is killed loses what it has counted since.
   * Days are kept for 400 days.
   */
  getUsage(options: GetUsageOptions = {}): Promise<UsageList> {
    return this.send(operations.getUsage, [], options);
  }

  /**
   * Export the daily usage of all tenants.
   *
   * As lines of JSON, by tenant and day, for billing. Deleted tenants are missing.
   */
  exportUsage(options: ExportUsageOptions = {}): Promise<Response> {
    return this.send(operations.exportUsage, [], options);
  }

  /** List a tenant's keys. */
  listTenantKeys(tenantId: UUID, options: ListTenantKeysOptions = {}): Promise<KeyList> {
    return this.send(operations.listTenantKeys, [tenantId], options);
  }

  /**
   * Create a key for a tenant.
   *
   * Only this answer contains the secret; the service keeps its hash.
   */
  createTenantKey(tenantId: UUID, body: NewKey, options: CallOptions = {}): Promise<CreatedKey> {
    return this.send(operations.createTenantKey, [tenantId], options, body);
  }

  /** Revoke a tenant's key. */
  revokeTenantKey(tenantId: UUID, keyId: UUID, options: CallOptions = {}): Promise<void> {
    return this.send(operations.revokeTenantKey, [tenantId, keyId], options);
  }

  /**
   * Set the limits of a tenant's key.
   *
   * Replaces the key's limits; `{}` removes them. Every process applies the new ones to requests and new connections within
   * moments. An open connection follows with the key's next request. If the key had no limits before or has none now, an
   * open connection keeps what it began with until it ends. A key that was rotated has its own limits, and so does the key
   * that replaced it.
   */
  limitTenantKey(tenantId: UUID, keyId: UUID, body: Limits, options: CallOptions = {}): Promise<Key> {
    return this.send(operations.limitTenantKey, [tenantId, keyId], options, body);
  }

  /**
   * Rotate a tenant's key.
   *
   * Creates a key with the name, scopes, networks and limits of this key and, if this key expires, an expiry that gives it the same
   * lifetime. This key expires after `overlap`, or at its own expiry if that is earlier. Only this answer contains the new
   * secret. A key is rotated once: repeating the request answers 409 with the id of the new key, which can be rotated if its
   * secret was lost. A revoked or expired key cannot be rotated.
   */
  rotateTenantKey(tenantId: UUID, keyId: UUID, body: KeyRotation | undefined = undefined, options: CallOptions = {}): Promise<CreatedKey> {
    return this.send(operations.rotateTenantKey, [tenantId, keyId], options, body);
  }

  /** List the keys of the caller's tenant. */
  listKeys(options: ListKeysOptions = {}): Promise<KeyList> {
    return this.send(operations.listKeys, [], options);
  }

  /**
   * Create a key for the caller's tenant.
   *
   * Only this answer contains the secret; the service keeps its hash.
   */
  createKey(body: NewKey, options: CallOptions = {}): Promise<CreatedKey> {
    return this.send(operations.createKey, [], options, body);
  }

  /** Revoke a key of the caller's tenant. */
  revokeKey(keyId: UUID, options: CallOptions = {}): Promise<void> {
    return this.send(operations.revokeKey, [keyId], options);
  }

  /**
   * Set the limits of a key of the caller's tenant.
   *
   * Replaces the key's limits; `{}` removes them. Every process applies the new ones to requests and new connections within
   * moments. An open connection follows with the key's next request. If the key had no limits before or has none now, an
   * open connection keeps what it began with until it ends. A key that was rotated has its own limits, and so does the key
   * that replaced it.
   */
  limitKey(keyId: UUID, body: Limits, options: CallOptions = {}): Promise<Key> {
    return this.send(operations.limitKey, [keyId], options, body);
  }

  /**
   * Rotate a key of the caller's tenant.
   *
   * Creates a key with the name, scopes, networks and limits of this key and, if this key expires, an expiry that gives it the same
   * lifetime. This key expires after `overlap`, or at its own expiry if that is earlier. Only this answer contains the new
   * secret. A key is rotated once: repeating the request answers 409 with the id of the new key, which can be rotated if its
   * secret was lost. A revoked or expired key cannot be rotated.
   */
  rotateKey(keyId: UUID, body: KeyRotation | undefined = undefined, options: CallOptions = {}): Promise<CreatedKey> {
    return this.send(operations.rotateKey, [keyId], options, body);
  }

  /**
   * Get how people sign in.
   *
   * The OpenID Connect issuers with which the console and `manifold login` get a token, as far as they have answered. Nothing
   * in it is secret.
   */
  getSignIn(options: CallOptions = {}): Promise<SignIn> {
    return this.send(operations.getSignIn, [], options);
  }

  /**
   * Get the caller's tenant and scopes.
   *
   * With any valid key or token, so that a client can offer what it may do. An operator has no tenant, and an operator's key no id.
   */
  whoami(options: CallOptions = {}): Promise<Caller> {
    return this.send(operations.whoami, [], options);
  }

  /** Check liveness. */
  livez(options: CallOptions = {}): Promise<Response> {
    return this.send(operations.livez, [], options);
  }

  /** Check readiness. */
  readyz(options: CallOptions = {}): Promise<Readiness> {
    return this.send(operations.readyz, [], options);
  }

  /**
   * Get Prometheus metrics.
   *
   * Served only at the admin listener, if there is one; elsewhere 404.
   */
  metrics(options: CallOptions = {}): Promise<Response> {
    return this.send(operations.metrics, [], options);
  }

  /** Get this contract. */
  contract(options: CallOptions = {}): Promise<Response> {
    return this.send(operations.contract, [], options);
  }

  /** Get the contract of WebSocket messages. */
  asyncContract(options: CallOptions = {}): Promise<Response> {
    return this.send(operations.asyncContract, [], options);
  }

  /**
   * Show the documentation.
   *
   * The start page. The other pages are below it, such as `/docs/tutorial`, and `/docs/api` for this contract.
   */
  docs(options: CallOptions = {}): Promise<Response> {
    return this.send(operations.docs, [], options);
  }

  /** Show the error codes, with advice for each. */
  docsErrors(options: CallOptions = {}): Promise<Response> {
    return this.send(operations.docsErrors, [], options);
  }
}
