package projection

import (
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// problem is one thing that is wrong with a definition.
type problem struct {
	code    domain.Code
	where   string // such as "on.ItemAdded"
	message string
}

// problems gathers everything that is wrong, so that a client can mend all of it at once.
type problems []problem

func (p *problems) add(where, format string, args ...any) {
	*p = append(*p, problem{domain.CodeInvalidDefinition, where, fmt.Sprintf(format, args...)})
}

// unsupported adds what is well-formed but cannot be done.
func (p *problems) unsupported(where, format string, args ...any) {
	*p = append(*p, problem{domain.CodeUnsupported, where, fmt.Sprintf(format, args...)})
}

// adopt adds what a check of package domain found: its sentence, at its place.
func (p *problems) adopt(err error) {
	if e, ok := err.(*domain.Error); ok {
		p.add(e.Where, "%s", e.Message)
	}
}

// maxNamed is how many problems are written out in one error.
const maxNamed = 20

// err returns all problems as one error, whose Parts they are where there are several; nil where there are none. Something
// that is wrong outweighs something that is unsupported.
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
	lines := make([]string, min(len(p), maxNamed))
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
