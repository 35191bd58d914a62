package sqlserver

// ViewName returns a shared projection's public name as it is written in statements.
var ViewName = dialect.ViewName
