package domain

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Pattern is a regular expression for filters. Its syntax is RE2 as package regexp parses it, without the parts that
// differ between the dialects of the databases: \b and \B, ^ and $ at the ends of lines, and counts above
// MaxPatternCount. A pattern asks whether any part of a string matches. So it does not matter which part another
// dialect would find first.
//
// A Pattern is made by ParsePattern. It is immutable and safe for concurrent use.
type Pattern struct {
	text     string
	compiled func() *regexp.Regexp // compiled at first use: database drivers never use it, and it may be large
	tree     *syntax.Regexp
}

// Limits of patterns.
const (
	MaxPatternBytes  = 1000   // the text of a pattern
	MaxPatternCount  = 255    // the largest n and m of x{n,m}
	MaxPatternParts  = 10_000 // characters and classes, times the counts around them: (?:xy{10}){5} has 55
	MaxPortableBytes = 32_000 // the portable form, with classes such as \pL written out; fits every database
)

// ParsePattern parses a pattern. The error says what is not allowed.
func ParsePattern(text string) (Pattern, error) {
	if len(text) > MaxPatternBytes {
		return Pattern{}, fmt.Errorf("the pattern has %d bytes; at most %d are allowed", len(text), MaxPatternBytes)
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return Pattern{}, fmt.Errorf("not a regular expression (RE2 syntax): %w", err)
	}
	if err := portable(tree); err != nil {
		return Pattern{}, err
	}
	if n := patternParts(tree); n > MaxPatternParts {
		return Pattern{}, fmt.Errorf("with its repetitions written out, the pattern has %d parts; at most %d are allowed: lower the counts", n, MaxPatternParts)
	}
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) }) // it was parsed by the same rules
	pattern := Pattern{text: text, compiled: compiled, tree: tree}
	if n := len(pattern.Portable(`\A`, `\z`)); n > MaxPortableBytes {
		return Pattern{}, fmt.Errorf("written out, the pattern has %d bytes; at most %d are allowed: classes of Unicode such as \\pL take thousands each", n, MaxPortableBytes)
	}
	return pattern, nil
}

// portable returns an error about the parts of a pattern that other dialects lack or interpret differently.
func portable(tree *syntax.Regexp) error {
	switch tree.Op {
	case syntax.OpNoMatch:
		return errors.New("the pattern cannot match anything")
	case syntax.OpBeginLine, syntax.OpEndLine:
		return errors.New("^ and $ at the ends of lines, (?m), do not mean the same in every database")
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return errors.New(`\b and \B do not mean the same in every database; write the allowed characters instead, as in (^|[^A-Za-z0-9_])`)
	case syntax.OpRepeat:
		if max(tree.Min, tree.Max) > MaxPatternCount {
			return fmt.Errorf("a count may be at most %d", MaxPatternCount)
		}
	case syntax.OpCharClass:
		if len(tree.Rune) == 0 {
			return errors.New("the pattern cannot match anything")
		}
	case syntax.OpLiteral:
		if slices.ContainsFunc(tree.Rune, func(char rune) bool { return char == 0 || !utf8.ValidRune(char) }) {
			return errors.New("no string contains U+0000 or half of a surrogate pair")
		}
	}
	for _, part := range tree.Sub {
		if err := portable(part); err != nil {
			return err
		}
	}
	return nil
}

// patternParts returns the size of a pattern in engines that expand repetitions, as most do.
func patternParts(tree *syntax.Regexp) int {
	switch tree.Op {
	case syntax.OpLiteral:
		return len(tree.Rune)
	case syntax.OpRepeat:
		return max(tree.Min, tree.Max, 1) * patternParts(tree.Sub[0])
	}
	parts := 0
	for _, part := range tree.Sub {
		parts += patternParts(part)
	}
	return max(parts, 1)
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Parts returns the size of the pattern with its repetitions written out, at most MaxPatternParts. Matching takes time
// in proportion to it and to the text.
func (p Pattern) Parts() int { return patternParts(p.tree) }

// MatchString reports whether any part of the text matches.
func (p Pattern) MatchString(text string) bool { return p.compiled().MatchString(text) }

// Portable writes the pattern in the syntax that RE2, PCRE and PostgreSQL share. The arguments begin and end are the
// dialect's forms for the beginning and the end of the whole text, such as `\A` and `\z`.
func (p Pattern) Portable(begin, end string) string {
	var text strings.Builder
	writePattern(&text, p.tree, begin, end)
	return text.String()
}

func writePattern(text *strings.Builder, tree *syntax.Regexp, begin, end string) {
	group := func(part *syntax.Regexp) {
		text.WriteString("(?:")
		writePattern(text, part, begin, end)
		text.WriteString(")")
	}
	switch tree.Op {
	case syntax.OpEmptyMatch:
		text.WriteString("()") // PostgreSQL accepts no other form
	case syntax.OpLiteral:
		for _, char := range tree.Rune {
			if tree.Flags&syntax.FoldCase == 0 {
				writeCharacter(text, char)
				continue
			}
			class := []rune{char, char}
			for other := unicode.SimpleFold(char); other != char; other = unicode.SimpleFold(other) {
				class = append(class, other, other)
			}
			writeClass(text, class)
		}
	case syntax.OpCharClass:
		writeClass(text, tree.Rune)
	case syntax.OpAnyCharNotNL:
		text.WriteString("[^\n]")
	case syntax.OpAnyChar:
		text.WriteString("(?:[^\n]|\n)") // dialects differ in whether . matches a line break
	case syntax.OpBeginText:
		text.WriteString(begin)
	case syntax.OpEndText:
		text.WriteString(end)
	case syntax.OpCapture:
		group(tree.Sub[0])
	case syntax.OpStar:
		group(tree.Sub[0])
		text.WriteString("*")
	case syntax.OpPlus:
		group(tree.Sub[0])
		text.WriteString("+")
	case syntax.OpQuest:
		group(tree.Sub[0])
		text.WriteString("?")
	case syntax.OpRepeat:
		group(tree.Sub[0])
		text.WriteString("{" + strconv.Itoa(tree.Min) + ",")
		if tree.Max >= 0 {
			text.WriteString(strconv.Itoa(tree.Max))
		}
		text.WriteString("}")
	case syntax.OpConcat:
		for _, part := range tree.Sub {
			if part.Op == syntax.OpAlternate {
				group(part)
			} else {
				writePattern(text, part, begin, end)
			}
		}
	case syntax.OpAlternate:
		for i, part := range tree.Sub {
			if i > 0 {
				text.WriteString("|")
			}
			group(part)
		}
	}
}

// writeCharacter writes a literal character, inside a class or outside.
func writeCharacter(text *strings.Builder, char rune) {
	if strings.ContainsRune(`\.+*?()|[]{}^$-`, char) {
		text.WriteByte('\\')
	}
	text.WriteRune(char)
}

// writeClass writes the ranges of a class. A class that contains U+0000 is written as the negation of what it lacks,
// because no string has that character and no pattern can be sent with it.
func writeClass(text *strings.Builder, ranges []rune) {
	negated := len(ranges) > 0 && ranges[0] == 0
	if negated {
		var lacks []rune
		for i := 1; i < len(ranges); i += 2 {
			next := rune(utf8.MaxRune)
			if i+1 < len(ranges) {
				next = ranges[i+1] - 1
			}
			if ranges[i] < next {
				lacks = append(lacks, ranges[i]+1, next)
			}
		}
		ranges = lacks
	}
	var class strings.Builder
	for i := 0; i < len(ranges); i += 2 {
		low, high := ranges[i], ranges[i+1]
		// Half of a surrogate pair is not a character and has no form in UTF-8.
		if low >= 0xd800 && low <= 0xdfff {
			low = 0xe000
		}
		if high >= 0xd800 && high <= 0xdfff {
			high = 0xd7ff
		}
		if low > high {
			continue
		}
		writeCharacter(&class, low)
		if low < high {
			class.WriteByte('-')
			writeCharacter(&class, high)
		}
	}
	switch {
	case class.Len() > 0 && negated:
		text.WriteString("[^" + class.String() + "]")
	case class.Len() > 0:
		text.WriteString("[" + class.String() + "]")
	case negated:
		text.WriteString("(?:[^\n]|\n)")
	default:
		text.WriteString("[^\x01-\U0010ffff]") // matches nothing
	}
}
