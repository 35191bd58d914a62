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

// Pattern is a regular expression that a filter may use: RE2 syntax as package regexp reads it, less what does not mean
// the same in every database's dialect: \b and \B, ^ and $ at the ends of lines, and counts above MaxPatternCount. A
// pattern asks whether some part of a text fits, so that it does not matter which part another dialect would find first.
//
// A Pattern is made by ParsePattern, is immutable, and may be used by many goroutines at once.
type Pattern struct {
	text     string
	compiled func() *regexp.Regexp // when it is first needed: drivers of databases never do, and it may take much
	tree     *syntax.Regexp
}

// Limits of patterns.
const (
	MaxPatternBytes  = 1000   // the text of a pattern
	MaxPatternCount  = 255    // n and m of x{n,m}
	MaxPatternParts  = 10_000 // characters and classes, each as often as the counts around it say: x{20} has 20, (?:xy{10}){5} has 55
	MaxPortableBytes = 32_000 // the portable form, with the ranges of classes such as \pL written out: what every database takes
)

// ParsePattern reads a pattern. The error says what in it is not allowed.
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
		return Pattern{}, fmt.Errorf("with all that its counts repeat, the pattern has %d parts; at most %d are allowed: lower the counts", n, MaxPatternParts)
	}
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) }) // it was parsed by the same rules
	pattern := Pattern{text: text, compiled: compiled, tree: tree}
	if n := len(pattern.Portable(`\A`, `\z`)); n > MaxPortableBytes {
		return Pattern{}, fmt.Errorf("written out, the pattern has %d bytes; at most %d are allowed: classes of Unicode such as \\pL take thousands each", n, MaxPortableBytes)
	}
	return pattern, nil
}

// portable reports what in a pattern other dialects do not have, or read otherwise.
func portable(tree *syntax.Regexp) error {
	switch tree.Op {
	case syntax.OpNoMatch:
		return errors.New("nothing can fit this pattern")
	case syntax.OpBeginLine, syntax.OpEndLine:
		return errors.New("^ and $ at the ends of lines, (?m), do not mean the same in every database")
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return errors.New(`\b and \B do not mean the same in every database; write out what may stand there, as in (^|[^A-Za-z0-9_])`)
	case syntax.OpRepeat:
		if max(tree.Min, tree.Max) > MaxPatternCount {
			return fmt.Errorf("a count may be at most %d", MaxPatternCount)
		}
	case syntax.OpCharClass:
		if len(tree.Rune) == 0 {
			return errors.New("nothing can fit this pattern")
		}
	case syntax.OpLiteral:
		if slices.ContainsFunc(tree.Rune, func(char rune) bool { return char == 0 || !utf8.ValidRune(char) }) {
			return errors.New("no text has U+0000 or half of a surrogate pair in it")
		}
	}
	for _, part := range tree.Sub {
		if err := portable(part); err != nil {
			return err
		}
	}
	return nil
}

// patternParts is how large a pattern becomes for those who write out what is to be repeated, as most do.
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

// String is the pattern as it was written.
func (p Pattern) String() string { return p.text }

// MatchString reports whether some part of the text fits.
func (p Pattern) MatchString(text string) bool { return p.compiled().MatchString(text) }

// Portable writes the pattern in what the regular expressions of RE2, PCRE and PostgreSQL have in common and read alike.
// begin and end are the dialect's own for the beginning and the end of the whole text, as `\A` and `\z`.
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
		text.WriteString("()") // PostgreSQL takes no other form
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
		text.WriteString("(?:[^\n]|\n)") // whether . takes a line's end is not the same everywhere
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

// writeCharacter writes a character that stands for itself, within a class or outside.
func writeCharacter(text *strings.Builder, char rune) {
	if strings.ContainsRune(`\.+*?()|[]{}^$-`, char) {
		text.WriteByte('\\')
	}
	text.WriteRune(char)
}

// writeClass writes the ranges of a class. One that has U+0000, which no text has and no pattern can be sent with, is
// written as what it lacks.
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
		// Half of a surrogate pair is no character of a text and has no form in UTF-8.
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
		text.WriteString("[^\x01-\U0010ffff]") // nothing
	}
}
