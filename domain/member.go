package domain

// MemberID identifies a process that works for tenants. A process gets a new one at each start.
type MemberID UUID

// NewMemberID returns a new id. Its UUID version is 10; earlier releases used 7 to 9. From the versions, processes know
// whether all of them distribute the tenants in the same way; see Evenly.
func NewMemberID() MemberID { return MemberID(NewUUID().marked(10)) }

// Evenly reports whether the process distributes the tenants as this release does. Processes of earlier releases
// distribute them unevenly, or list them in another way.
func (id MemberID) Evenly() bool { return id[6]>>4 == 10 }

// ParseMemberID parses the canonical form of a UUID.
func ParseMemberID(text string) (MemberID, error) {
	id, err := ParseUUID(text)
	return MemberID(id), err
}

// String returns the canonical form of 36 characters.
func (id MemberID) String() string { return UUID(id).String() }
