package expr

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/manifold-es/manifold/expr/scan"
)

// compilePattern compiles an RE2 regular expression that is no larger than MaxPatternInstructions, and returns its
// size. The size limits the time of a match: at most the length of the string times the size.
func compilePattern(pattern string) (*regexp.Regexp, int, error) {
	const maxBytes = 4 << 10
	if len(pattern) > maxBytes {
		return nil, 0, fmt.Errorf("the pattern has more than %d bytes", maxBytes)
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, 0, fmt.Errorf("not a regular expression (RE2 syntax): %w", err)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, 0, fmt.Errorf("not a regular expression (RE2 syntax): %w", err)
	}
	size := len(program.Inst)
	if size > MaxPatternInstructions {
		return nil, 0, fmt.Errorf("the pattern is too large: %d instructions, where %d are allowed", size, MaxPatternInstructions)
	}
	compiled, err := regexp.Compile(pattern)
	return compiled, size, err
}

// matchString is matches with a pattern that is only known at evaluation.
func matchString(c *call, ev *evaluation, text, pattern String) (Value, *EvalError) {
	// Compiling costs more than most matches; a constant pattern is compiled with the expression.
	if fault := ev.spend(1000+len(pattern), c.at); fault != nil {
		return nil, fault
	}
	compiled, size, err := compilePattern(string(pattern))
	if err != nil {
		return c.fault(KindValue, "", "%s", scan.Clip(err.Error()))
	}
	return c.match(ev, compiled, size, string(text))
}

func (n *call) match(ev *evaluation, pattern *regexp.Regexp, size int, text string) (Value, *EvalError) {
	if fault := ev.spend(1+len(text)*size/16, n.at); fault != nil {
		return nil, fault
	}
	return Bool(pattern.MatchString(text)), nil
}

// patternMatch is string.matches('a constant pattern').
type patternMatch struct {
	text    node
	pattern *regexp.Regexp
	size    int
	call    *call // for its faults
}

func (n *patternMatch) eval(ev *evaluation) (Value, *EvalError) {
	v, fault := n.text.eval(ev)
	if fault != nil {
		return nil, fault
	}
	text, ok := v.(String)
	if !ok {
		return n.call.mismatch([]Value{v, String(n.pattern.String())})
	}
	return n.call.match(ev, n.pattern, n.size, string(text))
}
