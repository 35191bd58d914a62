package domain

import (
	"strconv"
	"time"
)

// Upcaster turns the data of old events into the form that expressions are written for: an event of Type whose schema
// version is Version gets what Expression gives as its data, and is of version Version+1 from then on. So upcasters form
// chains, one step each. Events in the log stay as they are.
//
// An event's schema version is the whole number in its metadata's field "schemaVersion"; 1 where there is no such field, or
// null in it. Anything else there is somebody else's word, and such an event stays as it is.
type Upcaster struct {
	Owner      TenantID // whose events; Everyone: all tenants', where the tenant has none of its own for the same Type and Version
	Type       string
	Version    int64  // from 1
	Expression string // event -> data
	Revision   int64  // that of the owner's upcasters when it was changed last; no two changes have the same
	By         string
	UpdatedAt  time.Time
}

// Name is what a fault calls the upcaster: "upcaster OrderPlaced/1".
func (u *Upcaster) Name() string {
	return "upcaster " + u.Type + "/" + strconv.FormatInt(u.Version, 10)
}

// Limits of upcasters.
const (
	MaxUpcasterVersion  = 1_000_000
	MaxUpcasters        = 1000    // of one owner
	MaxUpcasterBytes    = 1 << 20 // of all expressions of one owner
	MaxUpcastersPerType = 30      // of one owner and event type: an event's chain may take as many steps, and as many shared ones
)

// CheckUpcasterVersion reports a version that no upcaster can have. where names the place in the request.
func CheckUpcasterVersion(where string, version int64) error {
	if version < 1 || version > MaxUpcasterVersion {
		return Errorf(CodeInvalidRequest, where, "%d is not a schema version that an upcaster can take; the first is 1, the last %d", version, MaxUpcasterVersion)
	}
	return nil
}

// UpcasterRevision tells which upcasters are in force for a tenant: as long as it is the same, they are. Both numbers
// grow with each change, also when one is removed; 0: there never was one.
type UpcasterRevision struct {
	Own    int64 // of the tenant's own
	Shared int64
}

// Behind reports whether there was a change that other knows and r does not.
func (r UpcasterRevision) Behind(other UpcasterRevision) bool {
	return r.Own < other.Own || r.Shared < other.Shared
}
