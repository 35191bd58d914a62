package folding

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// problem is one error in a definition.
type problem struct {
	code    domain.Code
	where   string // such as "on.ItemAdded"
	message string
}

// problems collects all errors of a definition, so that a client can fix them all at once.
type problems []problem

func (p *problems) add(where, format string, args ...any) {
	*p = append(*p, problem{domain.CodeInvalidDefinition, where, fmt.Sprintf(format, args...)})
}

// unsupported adds an error about something well-formed that is not supported.
func (p *problems) unsupported(where, format string, args ...any) {
	*p = append(*p, problem{domain.CodeUnsupported, where, fmt.Sprintf(format, args...)})
}

// adopt adds the message and place of an error found by package domain.
func (p *problems) adopt(err error) {
	if e, ok := err.(*domain.Error); ok {
		p.add(e.Where, "%s", e.Message)
	}
}

// maxListedProblems is how many problems one error spells out.
const maxListedProblems = 20

// err returns all problems as one error, with its Parts if there are several; nil if there are none. An invalid part
// takes precedence over an unsupported one.
func (p problems) err() error {
	switch len(p) {
	case 0:
		return nil
	case 1:
		return domain.Errorf(p[0].code, p[0].where, "%s", p[0].message)
	}
	code := domain.CodeUnsupported
	if slices.ContainsFunc(p, func(one problem) bool { return one.code == domain.CodeInvalidDefinition }) {
		code = domain.CodeInvalidDefinition
	}
	lines := make([]string, min(len(p), maxListedProblems))
	parts := make([]*domain.Error, len(p))
	for i := range p {
		parts[i] = domain.Errorf(p[i].code, p[i].where, "%s", p[i].message)
		if i < len(lines) {
			lines[i] = parts[i].Error()
		}
	}
	if more := len(p) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	sum := domain.Errorf(code, "", "%d problems: %s", len(p), strings.Join(lines, "; "))
	sum.Parts = parts
	return sum
}

// ErrorsOf returns the separate errors of a combined error.
func ErrorsOf(err error) []*domain.Error {
	e, ok := errors.AsType[*domain.Error](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return []*domain.Error{domain.Errorf(domain.CodeInvalidDefinition, "", "%s", err)}
	case len(e.Parts) > 0:
		return e.Parts
	}
	return []*domain.Error{e}
}
