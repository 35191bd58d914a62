package domain

// Statement is a statement in a database's own language that runs in another component's transaction. If the conditions
// for the statement are not met, it makes that transaction fail.
type Statement struct {
	Name   string   // identifies the SQL, one to one, since it may be prepared under this name; at most 50 bytes
	SQL    string   // takes Params as $1, $2, ...
	Params [][]byte // in the database's binary form; nil: null
}
