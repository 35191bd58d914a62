// Package folding turns a projection's definition into a fold: the pure function (document, event) -> document.
//
//   - ParseDefinition and ReadDefinitions read definitions from YAML or JSON. Rules.Check reports what is wrong with one.
//     Changes compares two.
//   - Compile turns a definition into a Fold. A Handler is the fold's logic: the definition's expressions, or Go code
//     (HandlerOf, MapOf). An event that cannot be folded is an EventError.
//   - Fold.Try folds events in memory, for previews and for the examples beside a definition (ReadExamples).
//
// Nothing here reads a log or a database. Package projection folds tenants' logs into stored documents.
package folding
