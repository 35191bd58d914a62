// Package expr is Manifold's expression language: CEL, with numbers that behave as one kind.
//
// A definition holds expressions as text. Compile, CompileFold, CompileKey, CompileMap, CompileCondition and
// CompileUpcaster turn a text into a program once; the program is then evaluated for each event, by any number of
// goroutines at once. cel-go parses the text, expands its macros and checks its types; evaluation is this package's own,
// because almost every rule that makes an expression fit for folding differs from cel-go's:
//
//   - Numbers are one kind. A whole number that fits into 64 bits is an int, whatever way it came about (3, 3.0, 6/2),
//     any other number a double; operators work across both, comparisons are exact, overflow is a fault. So what a
//     value does never depends on how a database wrote it down.
//   - Evaluation is a function of its inputs alone: no clock, no random numbers, no I/O, and objects are walked in the
//     order of their keys. Folding the same events again gives the same bytes.
//   - Each evaluation has a budget of steps and one of memory, charged before work is done or memory taken.
//   - A fault says where in the text it happened, what was wrong, and what to write instead.
//
// CompileFilter makes a domain.Predicate of an expression of a document, in that part of the language which every database
// can answer; CompileOrder and CompileFields read the paths that go with it.
//
// docs/reference/expressions.md describes the language for those who write definitions, docs/reference/filters.md for those who query
// documents; their examples are tests.
package expr

import "github.com/manifold-es/manifold/domain"

// Version is the version of the language's meaning. It is part of the hash that a snapshot carries: raise it when any
// expression could give another result than before, and states folded by the older meaning are no longer used.
const Version = "2"

// Limits of the language. They are part of its meaning: what passes on one server passes on all.
const (
	// MaxSourceBytes is the length that an expression's text may have.
	MaxSourceBytes = 16 << 10
	// MaxNesting is how deep an expression may be nested, parentheses, calls and chains of operators included.
	MaxNesting = 64
	// MaxNodes is how many parts an expression may have after its macros are expanded. With MaxNesting it keeps
	// compiling short: checking types takes time in proportion to the product of the two and more.
	MaxNodes = 2_000
	// MaxCost is what one evaluation may cost. One unit is about one operator, field or call, one element of a list
	// or object handled, or 64 bytes of text.
	MaxCost = 1_000_000
	// MaxConditionCost is what one evaluation of a Condition may cost: it is asked of each event that somebody follows, and
	// again by each who comes to follow.
	MaxConditionCost = 100_000
	// MaxMemory is how many bytes one evaluation may take for the values that it makes.
	MaxMemory = 64 << 20
	// MaxDocumentBytes is the length that a document may have as JSON.
	MaxDocumentBytes = domain.MaxDocumentBytes
	// MaxDepth is how deep lists and objects may be nested in a value that is read from or written as JSON.
	MaxDepth = 512
	// MaxKeyBytes is the length that a document's id may have.
	MaxKeyBytes = domain.MaxDocumentIDBytes
	// MaxPatternInstructions is the size that a regular expression may have when compiled.
	MaxPatternInstructions = 2_000
)
