package projection

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr/filter"
)

// Larger filters are compiled each time, which limits the memory that kept filters take.
const (
	longFilter          = 250 // bytes of text; a shorter one compiles in less than a millisecond
	maxKeptFilters      = 500
	maxKeptFilterBytes  = 1000 // of a filter's text
	maxKeptFilterWeight = 1000 // a short text such as doc.n in lists.range(1000), repeated, can contain many constants
)

// filterCache keeps the most recently used filters as compiled predicates, since the same filters recur from page to
// page and from user to user. Compiling a filter is a quarter of the service's own cost of a query. Each tenant has
// separate entries, so that the duration of a query does not reveal what another tenant asks for. It is safe for
// concurrent use.
type filterCache struct {
	kept *lru.Cache[filterKey, domain.Predicate]
}

type filterKey struct {
	tenant domain.TenantID
	source string
}

func newFilterCache() filterCache {
	kept, err := lru.New[filterKey, domain.Predicate](maxKeptFilters)
	if err != nil {
		panic(err) // impossible: the size is positive
	}
	return filterCache{kept}
}

// compile is filter.Compile with a cache. A long filter takes milliseconds to compile, so it waits for its turn as
// folds do.
func (c filterCache) compile(ctx context.Context, requests *budget.Requests, tenant domain.TenantID, source string) (predicate domain.Predicate, err error) {
	key := filterKey{tenant, source}
	if predicate, ok := c.kept.Get(key); ok {
		return predicate, nil
	}
	compile := func() (err error) {
		predicate, err = filter.Compile(source)
		return err
	}
	if len(source) > longFilter {
		err = requests.Turn(ctx, tenant, compile)
	} else {
		err = compile()
	}
	if err == nil && len(source) <= maxKeptFilterBytes && weight(predicate) <= maxKeptFilterWeight {
		c.kept.Add(key, predicate)
	}
	return predicate, err
}

// weight returns how many leaves and constants a predicate has.
func weight(predicate domain.Predicate) int {
	sum := 0
	switch predicate := predicate.(type) {
	case domain.And:
		for _, part := range predicate {
			sum += weight(part)
		}
	case domain.Or:
		for _, part := range predicate {
			sum += weight(part)
		}
	case domain.OneOf:
		sum = len(predicate.Values)
	default:
		sum = 1
	}
	return sum
}
