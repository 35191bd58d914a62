package sqlserver

// ViewName is a shared projection's public name as it stands in a statement.
var ViewName = viewName
