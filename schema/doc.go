// Package schema keeps JSON Schemas of event types, and checks events against them before an append.
//
// Schemas is the registry: Put adds a version of a type's schema, if it is compatible with the versions before, and
// SetRule says what happens to the events of a category. Validate checks the events of an append. It needs no query:
// the rules and the compiled schemas of a tenant are in memory (cache.go). Check tries a schema on stored events.
//
// Compile turns a schema's text into a Schema, within limits of size (compile.go). Schema.evaluate checks a value
// against it (evaluate.go). It counts its steps, because a small schema can make a small event very expensive.
// compareSchemas says why one schema does not accept all values of another (compatibility.go).
package schema
