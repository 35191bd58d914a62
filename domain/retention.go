package domain

// HoldKind is the kind of reader that holds events.
type HoldKind string

// The kinds of holds.
const (
	HoldGroup      HoldKind = "group"
	HoldProjection HoldKind = "projection"
	HoldRebuild    HoldKind = "rebuild"
)

// RetentionHold is a reader that still has to read events of a category after a position. The reader belongs to the
// tenant, or is a shared projection on the tenant's behalf. Retention removes nothing after that position.
type RetentionHold struct {
	Kind     HoldKind `json:"kind"`
	Name     string   `json:"name"`              // of the group or the projection
	Position int64    `json:"position"`          // events up to here are not held
	Problem  string   `json:"problem,omitempty"` // for people: why the reader's progress is unknown; everything is held then
}

// RetentionFloor says how much of a category retention has removed.
type RetentionFloor struct {
	Category string
	// AnnouncedTo is the highest position that may be removed already or at any moment; it is at least RemovedTo. A
	// reader that registers its holds and then finds nothing announced loses no event.
	AnnouncedTo int64
	RemovedTo   int64 // the highest removed position; events before it may still exist
	Removed     int64 // the number of removed events
}
