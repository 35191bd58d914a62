// Package cloudevents is CloudEvents 1.0 (cloudevents.io) for events of the log: what comes in becomes an event that can be
// appended, and events go out as CloudEvents, in the structured, batch and binary forms. Nothing is lost on the way through:
// what an event of the log cannot hold itself is kept in its metadata, as the member "cloudevents", and given back as it
// came. docs/reference/cloudevents.md says which attribute becomes what.
//
// The package knows no protocol but the names of HTTP's headers. Its functions may be called from any goroutine; an Encoder
// is for one.
package cloudevents

// The media types of the forms.
const (
	StructuredType = "application/cloudevents+json"       // one CloudEvent as a JSON object
	BatchType      = "application/cloudevents-batch+json" // CloudEvents as a JSON array
	// BinaryType asks for the binary form, where a client can choose: a name of Manifold's, since that form has no media type of
	// its own. It is never the type of a body.
	BinaryType = "application/cloudevents-binary"
	// Subprotocol is the name of WebSockets whose messages are structured CloudEvents.
	Subprotocol = "cloudevents.json"
)

// SpecVersion is the only version of the specification that is taken and given.
const SpecVersion = "1.0"

// The extensions that Manifold gives to each event: where it is in the log. What comes in with them came from another log,
// whose places mean nothing here: they are passed over, but for ExtensionMetadata. Event.Original takes stream and id over.
const (
	ExtensionID         = "manifoldid"         // the event's id in the log, which is the CloudEvent's own only where that is a UUID
	ExtensionStream     = "manifoldstream"     // the stream's name
	ExtensionVersion    = "manifoldversion"    // the version in it, as decimal digits
	ExtensionPosition   = "manifoldposition"   // the position in the log, as decimal digits
	ExtensionRecordedAt = "manifoldrecordedat" // when the log took it, as RFC 3339
	// ExtensionMetadata is the event's metadata as JSON text, without the parts that have an attribute of their own. What comes
	// in with it gets that metadata back.
	ExtensionMetadata = "manifoldmetadata"
	// ExtensionGap is why the event has no data, in a word: unreadable or redacted.
	ExtensionGap = "manifoldgap"
	// ExtensionTrace is the W3C Trace Context's traceparent, the metadata's member of that name.
	ExtensionTrace = "traceparent"
)

// The extensions of an event that a group has delivered.
const (
	ExtensionAttempt     = "manifoldattempt"     // the number of the delivery, which goes with every answer
	ExtensionAckDeadline = "manifoldackdeadline" // until when it is to be answered, as RFC 3339
	ExtensionPartition   = "manifoldpartition"   // in a group with partitions
	ExtensionRemovedTo   = "manifoldremovedto"   // up to this position retention had removed events where the group has come to, if it has
	ExtensionReplays     = "manifoldreplays"     // how often it has come back from the dead letters, where it has
)

// The extensions of a dead letter, beside ExtensionPartition and ExtensionReplays.
const (
	ExtensionAttempts    = "manifoldattempts"    // how often it was delivered since it last came back
	ExtensionReason      = "manifoldreason"      // the last word about it, if there was one, on one line
	ExtensionFirstParked = "manifoldfirstparked" // when it first became one, as RFC 3339
	ExtensionParkedAt    = "manifoldparkedat"    // when it became one, as RFC 3339
	ExtensionReplayAt    = "manifoldreplayat"    // when it is delivered again, if somebody has asked for that
)
