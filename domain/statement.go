package domain

// Statement is a statement in a database's own language, for a transaction that is somebody else's. Where something is not
// as it must be for the statement to be right, it makes that transaction fail.
type Statement struct {
	Name   string   // the same for the same SQL, and for no other: it may be prepared under it; at most 50 bytes
	SQL    string   // takes Params as $1, $2, ...
	Params [][]byte // in the database's binary form; nil: null
}
