package selection

import (
	"errors"
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Limits of a selection's names.
const (
	MaxCategories = 100
	MaxTypes      = 100
)

const maxFilterBytes = 8000

// cheapComparisons is how many comparisons of names, at 5 to 10 ns, matching a query may take without a turn.
const cheapComparisons = 1000

// Selection is a checked domain.Selection, ready to match events. It is immutable, so any number of goroutines may use
// it.
type Selection struct {
	domain.Selection
	Condition *expr.Condition // nil: no filter
	// Costly says that matching the query may take longer than a few microseconds, so that readers take turns as for a
	// filter; see FilterTurn.
	Costly bool
	types  []string // of all events that can be selected; none: not known
	// IndexedFrom is the distance to the log's end from which readers use the index of tags: indexedFrom, except in
	// tests.
	IndexedFrom int64
}

// New checks a selection. Its error is a *domain.Error with the place: source.stream, source.categories[0],
// types[0], query.items[0].tags[0] or filter. For filter, the code is domain.CodeInvalidDefinition.
func New(wanted domain.Selection) (*Selection, error) {
	s := &Selection{Selection: wanted, IndexedFrom: indexedFrom}
	s.Categories, s.Types, s.Query = slices.Clone(wanted.Categories), slices.Clone(wanted.Types), wanted.Query.Clone()
	if s.Stream != "" {
		if len(s.Categories) > 0 {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "source", "name a stream or categories, not both")
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
	if len(s.Query) > 0 {
		if err := s.Query.Check("query.items"); err != nil {
			return nil, err
		}
		comparisons := 0
		for _, item := range s.Query {
			comparisons += len(item.Types) + len(item.Tags)*domain.MaxTags
		}
		s.Costly = comparisons > cheapComparisons
	}
	if s.types = s.Types; len(s.types) == 0 {
		s.types = typesOf(s.Query)
	}
	if s.Filter == "" {
		return s, nil
	}
	if len(s.Filter) > maxFilterBytes {
		return nil, domain.Errorf(domain.CodeInvalidDefinition, "filter", "it has %d bytes; at most %d are allowed", len(s.Filter), maxFilterBytes)
	}
	var err error
	if s.Condition, err = expr.CompileCondition(s.Filter); err != nil {
		if failure, ok := errors.AsType[*expr.CompileError](err); ok {
			return nil, domain.Errorf(domain.CodeInvalidDefinition, "filter", "%s", failure)
		}
		return nil, err
	}
	return s, nil
}

// typesOf returns the types of all events that a query can match, sorted. It returns nil if they can have any type, or
// more than MaxTypes.
func typesOf(query domain.Query) []string {
	var types []string
	for _, item := range query {
		if len(item.Types) == 0 {
			return nil
		}
		types = append(types, item.Types...)
	}
	slices.Sort(types)
	if types = slices.Compact(types); len(types) > MaxTypes {
		return nil
	}
	return types
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

// Matches reports whether an event is selected. If the filter fails for an event, for example because a field is
// missing, the event is not selected. An event without data is selected, because the filter's result is unknown.
func (s *Selection) Matches(event *domain.Event) bool {
	return s.Names(event) && (s.Condition == nil || event.Gap != nil || Holds(s.Condition, expr.NewEvent(event)))
}

// TakesTurns reports whether matching may take long, so that readers should wait for a FilterTurn before they call
// Matches.
func (s *Selection) TakesTurns() bool { return s.Condition != nil || s.Costly }

// SeesTags reports whether the tags of an event may decide whether it is selected.
func (s *Selection) SeesTags() bool { return len(s.Query) > 0 || s.Condition != nil }

// Names reports whether an event's stream, category, type and tags are selected. It ignores the filter.
func (s *Selection) Names(event *domain.Event) bool {
	if s.Stream != "" {
		if event.Stream != s.Stream {
			return false
		}
	} else if len(s.Categories) > 0 && !slices.Contains(s.Categories, domain.Category(event.Stream)) {
		return false
	}
	return (len(s.Types) == 0 || slices.Contains(s.Types, event.Type)) && (len(s.Query) == 0 || s.Query.Matches(event.Type, event.Tags))
}

// Holds reports whether a filter holds for an event. A filter that fails does not hold.
func Holds(filter *expr.Condition, event *expr.Event) bool {
	holds, err := filter.Eval(event)
	return err == nil && holds
}

// Narrow limits a query to the categories and types that may be selected. The results must still be checked with
// Matches. For a single stream, Narrow selects the stream's whole category, so a reader of one stream should read it by
// versions if possible.
func (s *Selection) Narrow(q *domain.LogQuery) { q.Categories, q.Types = s.InCategories(), s.types }

// MatchQuery returns a query that finds in an index the events after a position, up to another, that may be selected.
// The results must still be checked with Matches. ok is false if an index cannot find them.
func (s *Selection) MatchQuery(after, upTo int64) (_ domain.MatchQuery, ok bool) {
	return domain.MatchQuery{Query: s.Query, After: after, Before: upTo + 1}, s.Query.Tagged() && upTo-after >= s.IndexedFrom
}

// indexedFrom is such that shorter reads, which need one statement less without the index, do not use it.
const indexedFrom = 2000

// InCategories returns the categories of all events that can be selected. None means all.
func (s *Selection) InCategories() []string {
	if s.Stream != "" {
		return []string{domain.Category(s.Stream)}
	}
	return s.Categories
}
