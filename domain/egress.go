package domain

import "time"

// EgressReport is what a process reports about an egress that its configuration has.
type EgressReport struct {
	Name       string   `json:"name"`
	Remove     bool     `json:"remove,omitempty"`      // its groups are being removed, and the other settings are missing
	Removed    bool     `json:"removed,omitempty"`     // with Remove: those of all tenants of the process are removed
	Kind       string   `json:"kind,omitempty"`        // of broker: nats or kafka
	Addresses  []string `json:"addresses,omitempty"`   // of the broker, without credentials
	Topic      string   `json:"topic,omitempty"`       // or subject, with placeholders
	Tenants    int      `json:"tenantCount,omitempty"` // how many the setting names; 0: all
	Categories []string `json:"categories,omitempty"`
	Types      []string `json:"types,omitempty"`
	Query      Query    `json:"query,omitempty"`
	Filter     string   `json:"filter,omitempty"`
	EgressState
}

// EgressState is the state of an egress in one process.
type EgressState struct {
	Up bool `json:"up"` // the broker answered the last request, or no event is known to wait for it
	// Error is why events wait, and ErrorSince since when. It is the broker's, or that of the tenant that has failed
	// for the longest time.
	Error      string    `json:"error,omitempty"`
	ErrorSince time.Time `json:"errorSince,omitzero"`
	// ErrorTenant is the id of the tenant whose error it is. Empty: the broker does not answer.
	ErrorTenant string `json:"errorTenant,omitempty"`
	Failing     int    `json:"failing,omitempty"` // tenants whose last attempt failed, although the broker answers
	// WaitingSince is since when the oldest event has waited that the process knows of. Zero: none.
	WaitingSince time.Time `json:"waitingSince,omitzero"`
}

// ProcessEgresses are the egresses that a process has reported.
type ProcessEgresses struct {
	Member  MemberID
	Name    string // for people: the host's name and the listen address
	Reports []EgressReport
}
