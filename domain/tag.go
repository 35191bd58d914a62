package domain

import (
	"cmp"
	"slices"
	"strconv"
)

// CheckTags returns an event's tags in the form that the log keeps: sorted by bytes, each once; nil if there are none.
// It returns an error unless there are at most MaxTags, each valid by CheckTag. It may reorder its argument. where is
// the place of the list.
func CheckTags(where string, tags []string) ([]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	if len(tags) > MaxTags {
		return nil, Errorf(CodeTooLarge, where, "the event has %d tags; at most %d are allowed", len(tags), MaxTags)
	}
	if err := checkEach(where, tags, CheckTag); err != nil {
		return nil, err
	}
	slices.Sort(tags)
	return slices.Compact(tags), nil
}

// CheckTag returns an error unless tag is valid: 1 to MaxTagBytes of printable ASCII without space, quote and
// backslash.
func CheckTag(where, tag string) error {
	if tag == "" || len(tag) > MaxTagBytes {
		return Errorf(CodeInvalidRequest, where, "the tag has %d bytes; it needs 1 to %d", len(tag), MaxTagBytes)
	}
	for i := range len(tag) {
		if c := tag[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return Errorf(CodeInvalidRequest, where, "the tag has %q at byte %d; use printable ASCII without space, \" and \\", c, i+1)
		}
	}
	return nil
}

// CauseTag returns the tag of the events that an event has caused.
func CauseTag(cause EventID) string { return "cause:" + cause.String() }

// TagCauses adds the tags of an event's causes to its other tags, which CheckTags has returned. It returns an error if
// there are more than MaxTags then. where is the place of the causes.
func TagCauses(where string, tags []string, causes ...EventID) ([]string, error) {
	if len(causes) == 0 {
		return tags, nil
	}
	tags = slices.Clone(tags)
	for _, cause := range causes {
		tags = append(tags, CauseTag(cause))
	}
	slices.Sort(tags)
	if tags = slices.Compact(tags); len(tags) > MaxTags {
		return nil, Errorf(CodeTooLarge, where, "with a tag for each cause, the event has %d tags; at most %d are allowed", len(tags), MaxTags)
	}
	return tags, nil
}

// QueryItem matches the events that are of any of its types and have all of its tags. Without types it matches all
// types, and without tags whatever tags an event has.
type QueryItem struct {
	Types []string `json:"types,omitempty" yaml:"types"`
	Tags  []string `json:"tags,omitempty" yaml:"tags"`
}

// Query matches the events that any of its items matches.
type Query []QueryItem

// QueryForm is a Query in the form in which definitions contain it, as in the API. Without items it matches all events.
type QueryForm struct {
	Items Query `json:"items,omitempty" yaml:"items"`
}

// Clone returns a copy of the query, in which lists without elements are nil.
func (q Query) Clone() Query {
	var copied Query
	for _, item := range q {
		copied = append(copied, QueryItem{append([]string(nil), item.Types...), append([]string(nil), item.Tags...)})
	}
	return copied
}

// Sorted returns a query that matches the same events, with its items and their types and tags sorted, each once.
func (q Query) Sorted() Query {
	sorted := q.Clone()
	for i := range sorted {
		slices.Sort(sorted[i].Types)
		slices.Sort(sorted[i].Tags)
		sorted[i] = QueryItem{slices.Compact(sorted[i].Types), slices.Compact(sorted[i].Tags)}
	}
	slices.SortFunc(sorted, func(a, b QueryItem) int {
		return cmp.Or(slices.Compare(a.Types, b.Types), slices.Compare(a.Tags, b.Tags))
	})
	return slices.CompactFunc(sorted, QueryItem.equal)
}

// Equal reports whether two queries have the same items in the same order.
func (q Query) Equal(other Query) bool { return slices.EqualFunc(q, other, QueryItem.equal) }

func (i QueryItem) equal(other QueryItem) bool {
	return slices.Equal(i.Types, other.Types) && slices.Equal(i.Tags, other.Tags)
}

// Tagged reports whether each item has tags, so that an index finds the events that the query matches.
func (q Query) Tagged() bool {
	return len(q) > 0 && !slices.ContainsFunc(q, func(item QueryItem) bool { return len(item.Tags) == 0 })
}

// Matches reports whether the query matches an event with this type and these tags.
func (q Query) Matches(eventType string, tags []string) bool {
	return slices.ContainsFunc(q, func(item QueryItem) bool { return item.Matches(eventType, tags) })
}

// Matches reports whether the item matches an event with this type and these tags.
func (i QueryItem) Matches(eventType string, tags []string) bool {
	if len(i.Types) > 0 && !slices.Contains(i.Types, eventType) {
		return false
	}
	for _, tag := range i.Tags {
		if !slices.Contains(tags, tag) {
			return false
		}
	}
	return true
}

// Check returns an error unless the query has 1 to MaxQueryItems items, each with at most MaxItemTypes valid types and
// MaxItemTags valid tags. where is the place of the list of items.
func (q Query) Check(where string) error {
	if len(q) == 0 {
		return Errorf(CodeInvalidRequest, where, "give at least one item; an empty one matches every event")
	}
	if len(q) > MaxQueryItems {
		return Errorf(CodeTooLarge, where, "the query has %d items; at most %d are allowed", len(q), MaxQueryItems)
	}
	for i, item := range q {
		place := where + "[" + strconv.Itoa(i) + "]"
		if len(item.Types) > MaxItemTypes {
			return Errorf(CodeTooLarge, place+".types", "the item has %d types; at most %d are allowed", len(item.Types), MaxItemTypes)
		}
		if len(item.Tags) > MaxItemTags {
			return Errorf(CodeTooLarge, place+".tags", "the item has %d tags; at most %d are allowed", len(item.Tags), MaxItemTags)
		}
		if err := checkEach(place+".types", item.Types, CheckType); err != nil {
			return err
		}
		if err := checkEach(place+".tags", item.Tags, CheckTag); err != nil {
			return err
		}
	}
	return nil
}

// checkEach checks each element of a list; where is the place of the list, or empty.
func checkEach(where string, list []string, check func(where, text string) error) error {
	for i, text := range list {
		if err := check("", text); err != nil {
			if e, ok := err.(*Error); ok && where != "" {
				e.Where = where + "[" + strconv.Itoa(i) + "]"
			}
			return err
		}
	}
	return nil
}

// Condition makes an append fail if the log has an event after the position After that the query matches.
type Condition struct {
	FailIfEventsMatch Query
	After             int64 // 0: from the log's beginning
}

// CheckConditions returns an error unless there are at most MaxConditions conditions, whose queries are valid and have
// MaxQueryItems items together. where is the place of the list.
func CheckConditions(where string, conditions []Condition) error {
	if len(conditions) > MaxConditions {
		return Errorf(CodeTooLarge, where, "the request has %d conditions; at most %d are allowed", len(conditions), MaxConditions)
	}
	items := 0
	for i, c := range conditions {
		place := where + "[" + strconv.Itoa(i) + "]"
		if c.After < 0 {
			return Errorf(CodeInvalidRequest, place+".after", "it must not be negative")
		}
		if err := c.FailIfEventsMatch.Check(place + ".failIfEventsMatch.items"); err != nil {
			return err
		}
		if items += len(c.FailIfEventsMatch); items > MaxQueryItems {
			return Errorf(CodeTooLarge, where, "the conditions have more than %d items together", MaxQueryItems)
		}
	}
	return nil
}

// FailedCondition says why an append's conditions failed.
type FailedCondition struct {
	Conditions []int   // the indexes of the failed conditions, ascending
	Events     []Event // up to MaxConflicts of the newest events that they match, by position, without data and metadata
	Position   int64   // every event up to here was considered: read the log up to here, and decide again
}

// MaxConflicts limits FailedCondition.Events.
const MaxConflicts = 10

// MatchQuery says which events of a log to read.
type MatchQuery struct {
	Query     Query
	After     int64     // only events after this position
	Before    int64     // only events before this position; 0: up to the head
	Limit     int       // at most this many events; at least 1
	MaxBytes  int       // as in LogQuery
	Direction Direction // by position
}
