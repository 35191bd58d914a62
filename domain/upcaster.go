package domain

import (
	"strconv"
	"time"
)

// Upcaster converts the data of old events into the form that expressions are written for. An event of Type with schema
// version Version gets the result of Expression as its data and then has version Version+1. So upcasters form chains of
// single steps. Events in the log stay unchanged.
//
// An event's schema version is the whole number in its metadata's field "schemaVersion", or 1 if the field is missing
// or null. Any other value belongs to another system, and such an event stays unchanged.
type Upcaster struct {
	Owner      TenantID // whose events; Everyone: those of every tenant without an upcaster for the same Type and Version
	Type       string
	Version    int64  // from 1
	Expression string // event -> data
	Revision   int64  // the owner's revision at its last change; no two changes have the same
	By         string
	UpdatedAt  time.Time
}

// Name returns the upcaster's name in faults: "upcaster OrderPlaced/1".
func (u *Upcaster) Name() string {
	return "upcaster " + u.Type + "/" + strconv.FormatInt(u.Version, 10)
}

// UpcasterRevision identifies the set of upcasters in force for a tenant: while it is unchanged, so is the set. Both
// numbers increase with each change, including removals; 0: there never was an upcaster.
type UpcasterRevision struct {
	Own    int64 // of the tenant's own upcasters
	Shared int64
}

// Behind reports whether other includes a change that r does not.
func (r UpcasterRevision) Behind(other UpcasterRevision) bool {
	return r.Own < other.Own || r.Shared < other.Shared
}
