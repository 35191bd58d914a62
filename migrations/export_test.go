package migrations

// ScramVerifier is scramVerifier, for the tests.
var ScramVerifier = scramVerifier

// Statements is statements, for the tests.
var Statements = statements

// Apply is apply, for the tests.
var Apply = apply

// AllowsPlugin is allowsPlugin, for the tests.
var AllowsPlugin = allowsPlugin

// Files has the migrations, for the tests.
var Files = files
