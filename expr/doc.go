// Package expr is Manifold's expression language: CEL, with numbers that behave as one kind.
//
// Start with Program, Value and Event. A definition contains expressions as text. Compile compiles a text to a Program
// once. The program is then evaluated for each event, by any number of goroutines at once. Fold, Key, Map, Condition
// and Upcaster are programs for one purpose, with a Go type as their result. cel-go parses the text, expands its macros
// and checks its types. Evaluation is this package's own, because almost every rule that makes an expression suitable
// for folding differs from cel-go's:
//
//   - Numbers are one kind. A whole number that fits into 64 bits is an int, however it was computed (3, 3.0, 6/2); any
//     other number is a double. Operators work across both, comparisons are exact, and overflow is a fault. So the
//     behavior of a value never depends on how a database wrote it.
//   - Evaluation depends on its inputs alone: no clock, no random numbers, no I/O, and objects are walked in the order
//     of their keys. Folding the same events again gives the same bytes.
//   - Each evaluation has a budget of steps and one of memory, charged before work is done or memory taken.
//   - A fault says where in the text it happened, what was wrong, and what to write instead.
//
// A file's prefix names its layer. Each layer calls only those below it:
//
//   - program, fold, key, target, map, condition, upcaster: what callers compile and evaluate. event_use and shape say
//     what an expression reads and returns.
//   - compile: from text to syntax tree, and from tree to nodes. compile_explain turns cel-go's errors into ours.
//   - language, scope: the variables, operators and functions that are declared to cel-go.
//   - function: the functions, one file for each kind of value.
//   - evaluate: the nodes, and the budget that each evaluation spends.
//   - value, event, fault, meter: values with their numbers, sizes and JSON; the event as a value; what stops an
//     evaluation.
//
// Package filter compiles expressions of a document to predicates for databases. Package scan finds names in a text,
// for the positions in errors.
//
// docs/reference/expressions.md describes the language for authors of definitions, docs/reference/filters.md for
// clients that query documents; their examples are tests.
package expr

import "github.com/manifold-es/manifold/domain"

// Version is the version of the language's semantics. It is part of the hash in each snapshot. Raise it when any
// expression could give another result than before, so that states folded with the older semantics are no longer used.
const Version = "2"

// Limits of the language. They are part of its semantics: what passes on one server passes on all.
const (
	// MaxSourceBytes is the longest text of an expression.
	MaxSourceBytes = 16 << 10
	// MaxNesting is how deep an expression may be nested, including parentheses, calls and chains of operators.
	MaxNesting = 64
	// MaxNodes is how many parts an expression may have after its macros are expanded. Together with MaxNesting it
	// keeps compiling fast: type checking takes time at least proportional to the product of the two.
	MaxNodes = 2_000
	// MaxCost is what one evaluation may cost. One unit is about one operator, field or call, one element of a list or
	// object, or 64 bytes of a string.
	MaxCost = 1_000_000
	// MaxConditionCost is what one evaluation of a Condition may cost. It is evaluated for each followed event, once
	// per follower.
	MaxConditionCost = 100_000
	// MaxMemory is how many bytes one evaluation may allocate for the values that it creates.
	MaxMemory = 64 << 20
	// MaxDocumentBytes is the longest document, as JSON.
	MaxDocumentBytes = domain.MaxDocumentBytes
	// MaxDepth is how deep lists and objects may be nested in a value that is read from or written as JSON.
	MaxDepth = 512
	// MaxKeyBytes is the longest id of a document.
	MaxKeyBytes = domain.MaxDocumentIDBytes
	// MaxPatternInstructions is the largest size of a compiled regular expression.
	MaxPatternInstructions = 2_000
)
