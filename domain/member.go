package domain

import "time"

// MemberID names a process that works for tenants. It is fresh with each start.
type MemberID uuid

// NewMemberID returns a fresh id. Its version is 8, where that of earlier releases is 7: by that processes know whether all of
// them share the tenants out evenly, see Evenly.
func NewMemberID() MemberID { return MemberID(newUUID().marked(8)) }

// Evenly reports whether the process shares the tenants out evenly. Processes of earlier releases do not.
func (id MemberID) Evenly() bool { return id[6]>>4 == 8 }

// ParseMemberID reads the canonical form of a UUID.
func ParseMemberID(text string) (MemberID, error) {
	id, err := parseUUID(text)
	return MemberID(id), err
}

// String returns the canonical form of 36 characters.
func (id MemberID) String() string { return uuid(id).String() }

// Member is a process that works for tenants (on projections, service groups and retention), as it has announced itself.
type Member struct {
	ID        MemberID
	Name      string // for people: the host's name and where it listens
	Version   string // of the program
	StartedAt time.Time
	AliveAt   time.Time // the last sign of life, by the database's clock

	// Connected says that the database holds a connection of the process, where that is known; see store.Config.Member.
	Connected bool
}
