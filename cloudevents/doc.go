// Package cloudevents converts between events of the log and CloudEvents 1.0 (cloudevents.io). Incoming CloudEvents
// become events that can be appended: Parse, ParseBatch and ParseBinary return an Event. Outgoing events become
// CloudEvents in the structured, batch or binary form: see Encoder. The conversion loses nothing. The metadata member
// "cloudevents" keeps what an event of the log has no field for, and the event goes out with it unchanged.
// docs/reference/cloudevents.md says which attribute becomes what.
//
// The package knows no protocol, except the names of HTTP headers. Its functions are safe for concurrent use; an
// Encoder is for one goroutine.
package cloudevents

// The media types of the forms.
const (
	StructuredType = "application/cloudevents+json"       // one CloudEvent as a JSON object
	BatchType      = "application/cloudevents-batch+json" // CloudEvents as a JSON array
	// BinaryType asks for the binary form in an Accept header. The name is Manifold's, since the specification defines
	// no media type for that form. It is never the type of a body.
	BinaryType = "application/cloudevents-binary"
	// Subprotocol is the subprotocol of WebSockets whose messages are structured CloudEvents.
	Subprotocol = "cloudevents.json"
)

// SpecVersion is the only supported version of the specification.
const SpecVersion = "1.0"

// The extensions that Manifold adds to each event: its place in the log. On an incoming event they come from another
// log, whose places mean nothing here. They are ignored, except for ExtensionMetadata and ExtensionTags. Event.Original
// takes over the stream and the id.
const (
	ExtensionID         = "manifoldid"         // the event's id in the log, which may differ from the CloudEvent's own
	ExtensionStream     = "manifoldstream"     // the stream's name
	ExtensionVersion    = "manifoldversion"    // the stream's version, as decimal digits
	ExtensionPosition   = "manifoldposition"   // the position in the log, as decimal digits
	ExtensionRecordedAt = "manifoldrecordedat" // when the log recorded it, as RFC 3339
	// ExtensionMetadata is the event's metadata as JSON text, without the parts that have their own attribute. An
	// incoming event with this extension gets that metadata back.
	ExtensionMetadata = "manifoldmetadata"
	// ExtensionTags is the event's tags, joined by spaces. An incoming event with this extension gets these tags.
	ExtensionTags = "manifoldtags"
	// ExtensionGap says in one word why the event has no data: unreadable, redacted or erased.
	ExtensionGap = "manifoldgap"
	// ExtensionErased is the id of the erasure that has set personal fields of the data to null. An incoming event
	// loses it.
	ExtensionErased = "manifolderased"
	// ExtensionTrace is the traceparent of W3C Trace Context, from the metadata member of that name.
	ExtensionTrace = "traceparent"
)

// The extensions of an event that a group has delivered.
const (
	ExtensionAttempt     = "manifoldattempt"     // the number of the delivery, which every answer must contain
	ExtensionGroup       = "manifoldgroup"       // the group's name
	ExtensionMaxAttempts = "manifoldmaxattempts" // of the group, to compare with ExtensionAttempts
	ExtensionCursor      = "manifoldcursor"      // of the group or partition, as decimal digits
	ExtensionAckDeadline = "manifoldackdeadline" // the deadline of the answer, as RFC 3339
	ExtensionPartition   = "manifoldpartition"   // in a group with partitions
	ExtensionRemovedTo   = "manifoldremovedto"   // retention removed events up to here before the group's cursor; optional
	ExtensionReplays     = "manifoldreplays"     // how often it was replayed from the dead letters; optional
)

// The extensions of a dead letter, in addition to ExtensionPartition and ExtensionReplays. Deliveries also have
// ExtensionAttempts.
const (
	ExtensionAttempts    = "manifoldattempts"    // the deliveries that count, since its last replay
	ExtensionReason      = "manifoldreason"      // the last reason given, on one line; optional
	ExtensionFirstParked = "manifoldfirstparked" // when it first became a dead letter, as RFC 3339
	ExtensionParkedAt    = "manifoldparkedat"    // when it became a dead letter, as RFC 3339
	ExtensionReplayAt    = "manifoldreplayat"    // when a requested replay delivers it again; optional
)
