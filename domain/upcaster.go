package domain

import "time"

// Upcaster turns the data of old events into the form that expressions are written for: an event of Type whose schema
// version is Version gets what Expression gives as its data, and is of version Version+1 from then on. So upcasters form
// chains, one step each. Events in the log stay as they are.
//
// An event's schema version is the whole number in its metadata's field "schemaVersion"; 1 where there is none.
type Upcaster struct {
	Owner      TenantID // whose events; Everyone: all tenants', where the tenant has none of its own for the same Type and Version
	Type       string
	Version    int64  // from 1
	Expression string // event -> data
	Revision   int64  // grows with each change
	By         string
	UpdatedAt  time.Time
}
