package subscription

import (
	"errors"
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// The most names that a selection can have.
const (
	MaxCategories = 100
	MaxTypes      = 100
)

const maxFilterBytes = 8000

// selection is a domain.Selection that was checked, ready to be asked. It is immutable: any number of goroutines may use it.
type selection struct {
	domain.Selection
	filter *expr.Condition // nil: no filter
}

// newSelection checks a selection. What is wrong with it is a *domain.Error with the place: source.stream,
// source.categories[0], types[0], or filter, with domain.CodeInvalidDefinition for the last.
func newSelection(wanted domain.Selection) (*selection, error) {
	s := &selection{Selection: wanted}
	s.Categories, s.Types = slices.Clone(wanted.Categories), slices.Clone(wanted.Types)
	if s.Stream != "" {
		if len(s.Categories) > 0 {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "source", "it names a stream and categories; name one or the other")
		}
		if err := domain.CheckStream("source.stream", s.Stream); err != nil {
			return nil, err
		}
	}
	if err := checkNames("source.categories", "categories", s.Categories, MaxCategories, domain.CheckCategory); err != nil {
		return nil, err
	}
	if err := checkNames("types", "types", s.Types, MaxTypes, domain.CheckType); err != nil {
		return nil, err
	}
	if s.Filter == "" {
		return s, nil
	}
	if len(s.Filter) > maxFilterBytes {
		return nil, domain.Errorf(domain.CodeInvalidDefinition, "filter", "it has %d bytes; at most %d are allowed", len(s.Filter), maxFilterBytes)
	}
	var err error
	if s.filter, err = expr.CompileCondition(s.Filter); err != nil {
		if failure, ok := errors.AsType[*expr.CompileError](err); ok {
			return nil, domain.Errorf(domain.CodeInvalidDefinition, "filter", "%s", failure)
		}
		return nil, err
	}
	return s, nil
}

func checkNames(where, what string, names []string, most int, check func(where, name string) error) error {
	if len(names) > most {
		return domain.Errorf(domain.CodeInvalidRequest, where, "there are %d %s; at most %d are allowed", len(names), what, most)
	}
	for i, name := range names {
		if err := check(fmt.Sprintf("%s[%d]", where, i), name); err != nil {
			return err
		}
	}
	return nil
}

// matches reports whether an event is selected. An event for which the filter faults is not: a field that is not there, for
// one, makes it neither true nor false. An event without data is, since nobody knows what the filter would say.
func (s *selection) matches(event *domain.Event) bool {
	return s.names(event) && (s.filter == nil || event.Gap != nil || holds(s.filter, expr.NewEvent(*event)))
}

// names reports whether an event is selected by its names, the filter left out.
func (s *selection) names(event *domain.Event) bool {
	if s.Stream != "" {
		if event.Stream != s.Stream {
			return false
		}
	} else if len(s.Categories) > 0 && !slices.Contains(s.Categories, domain.Category(event.Stream)) {
		return false
	}
	return len(s.Types) == 0 || slices.Contains(s.Types, event.Type)
}

// everything reports whether all events of the log are selected.
func (s *selection) everything() bool {
	return s.Stream == "" && len(s.Categories) == 0 && len(s.Types) == 0 && s.filter == nil
}

func holds(filter *expr.Condition, event *expr.Event) bool {
	holds, err := filter.Eval(event)
	return err == nil && holds
}

// narrow has a query leave out what is not selected, as far as it can; what it gives is still to be asked for matches.
// Whoever follows one stream reads that by its versions where it can: here it is the stream's category.
func (s *selection) narrow(q *domain.LogQuery) { q.Categories, q.Types = s.categories(), s.Types }

// categories are those of all that can be selected; none: all.
func (s *selection) categories() []string {
	if s.Stream != "" {
		return []string{domain.Category(s.Stream)}
	}
	return s.Categories
}
