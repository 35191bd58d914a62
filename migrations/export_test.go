package migrations

// ScramVerifier is scramVerifier, for the tests.
var ScramVerifier = scramVerifier
