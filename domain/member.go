package domain

import "time"

// MemberID identifies a process that works for tenants. A process gets a new one at each start.
type MemberID uuid

// NewMemberID returns a new id. Its UUID version is 8; earlier releases used 7. From the versions, processes know
// whether all of them distribute the tenants evenly; see Evenly.
func NewMemberID() MemberID { return MemberID(newUUID().marked(8)) }

// Evenly reports whether the process distributes the tenants evenly. Processes of earlier releases do not.
func (id MemberID) Evenly() bool { return id[6]>>4 == 8 }

// ParseMemberID parses the canonical form of a UUID.
func ParseMemberID(text string) (MemberID, error) {
	id, err := parseUUID(text)
	return MemberID(id), err
}

// String returns the canonical form of 36 characters.
func (id MemberID) String() string { return uuid(id).String() }

// Member is a process that works for tenants (on projections, service groups and retention), as announced by itself.
type Member struct {
	ID        MemberID
	Name      string // for people: the host's name and the listen address
	Version   string // of the program
	StartedAt time.Time
	AliveAt   time.Time // the last sign of life, by the database's clock

	// Connected reports whether the database holds a connection of the process, if that is known; see
	// store.Config.Member.
	Connected bool
}
