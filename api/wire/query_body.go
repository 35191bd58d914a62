package wire

import (
	"bytes"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// The fields of the objects.
var (
	conditionFields = []string{"failIfEventsMatch", "after"} // the first is required
	queryFields     = []string{"items"}
	itemFields      = []string{"types", "tags"}
	readFields      = []string{"query", "after", "before", "direction", "count", "since", "until"} // the first is required
)

// maxPosition is the highest position that a request may name.
const maxPosition = 999_999_999_999_999_999

// readConditions reads the conditions of an append: one, or an array of them.
func (d *bodyReader) readConditions() (conditions []domain.Condition, err error) {
	raw, err := d.scan.Value()
	if err != nil {
		return nil, d.withPlace("condition", err)
	}
	inner := bodyReader{text: raw, scan: domain.NewJSONScanner(raw)}
	if raw[0] != '[' {
		condition, err := inner.readCondition("condition")
		return []domain.Condition{condition}, inner.withPlace("condition", err)
	}
	items := 0
	err = inner.scan.Array(func(i int) error {
		if i == domain.MaxConditions {
			return domain.Errorf(domain.CodeTooLarge, "condition", "there are more than %d conditions", domain.MaxConditions)
		}
		where := "condition[" + strconv.Itoa(i) + "]"
		condition, err := inner.readCondition(where)
		if err != nil {
			return inner.withPlace(where, err)
		}
		if items += len(condition.FailIfEventsMatch); items > domain.MaxQueryItems {
			return domain.Errorf(domain.CodeTooLarge, where, "the conditions have more than %d items together", domain.MaxQueryItems)
		}
		conditions = append(conditions, condition)
		return nil
	})
	if err == nil && len(conditions) == 0 {
		err = domain.Errorf(domain.CodeInvalidRequest, "", "give at least one condition, or leave it out")
	}
	return conditions, inner.withPlace("condition", err)
}

func (d *bodyReader) readCondition(where string) (condition domain.Condition, err error) {
	given, at, err := d.readObject(conditionFields, func(name string) (err error) {
		if name == "after" {
			condition.After, err = d.readPosition()
		} else {
			condition.FailIfEventsMatch, err = d.readQuery(where + "." + name)
		}
		return err
	})
	if missing := given.missing(conditionFields[:1]); err == nil && missing != "" {
		err, at = domain.Errorf(domain.CodeInvalidRequest, "", "required, but missing"), missing
	}
	return condition, d.withPlace(place(where, at), err)
}

// readQuery reads a query, and checks it.
func (d *bodyReader) readQuery(where string) (domain.Query, error) {
	var query domain.Query
	items := where + ".items"
	_, at, err := d.readObject(queryFields, func(string) error {
		return d.scan.Array(func(i int) error {
			if i == domain.MaxQueryItems {
				return domain.Errorf(domain.CodeTooLarge, items, "the query has more than %d items", domain.MaxQueryItems)
			}
			var item domain.QueryItem
			_, at, err := d.readObject(itemFields, func(name string) (err error) {
				if name == "types" {
					item.Types, err = d.readStrings(name, domain.MaxItemTypes)
				} else {
					item.Tags, err = d.readStrings(name, domain.MaxItemTags)
				}
				return err
			})
			query = append(query, item)
			return d.withPlace(place(items+"["+strconv.Itoa(i)+"]", at), err)
		})
	})
	if err == nil {
		err = query.Check(items)
	}
	return query, d.withPlace(place(where, at), err)
}

// DecodeSourceQuery decodes the query of a subscription, and checks it. where is its place.
func DecodeSourceQuery(where string, text []byte) (domain.Query, error) {
	if err := domain.CheckJSON(text); err != nil {
		return nil, domain.Errorf(domain.CodeInvalidRequest, where, "%s", err)
	}
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	return d.readQuery(where)
}

// readPosition reads a position as a whole number.
func (d *bodyReader) readPosition() (int64, error) {
	raw, err := d.scan.Value()
	if err != nil {
		return 0, err
	}
	position, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || position < 0 || position > maxPosition {
		return 0, domain.Errorf(domain.CodeInvalidRequest, "", "%s is not a position, a whole number from 0 on", domain.Clip(string(raw), 40))
	}
	return position, nil
}

// ReadQuery is the body of a read by query. Limit is 0 if the body has no count.
type ReadQuery struct {
	domain.MatchQuery
	Since, Until time.Time // only events recorded in this period, its end excluded; zero: no limit
}

// DecodeQuery decodes the body of a read by query.
func DecodeQuery(text []byte) (ReadQuery, error) {
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	var q ReadQuery
	given, at, err := d.readObject(readFields, func(name string) (err error) {
		switch name {
		case "query":
			q.Query, err = d.readQuery(name)
		case "after":
			q.After, err = d.readPosition()
		case "before":
			if q.Before, err = d.readPosition(); err == nil && q.Before == 0 {
				err = domain.Errorf(domain.CodeInvalidRequest, "", "no event is before position 0; leave it out to read up to the head")
			}
		case "since":
			q.Since, err = d.readTime()
		case "until":
			q.Until, err = d.readTime()
		case "direction":
			var direction string
			if direction, err = d.readString(""); err == nil && direction != "forward" && direction != "backward" {
				err = domain.Errorf(domain.CodeInvalidRequest, "", "%q is neither forward nor backward", domain.Clip(direction, 40))
			}
			if direction == "backward" {
				q.Direction = domain.Backward
			}
		case "count":
			var raw []byte
			if raw, err = d.scan.Value(); err != nil {
				return err
			}
			count, parseErr := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 32)
			if parseErr != nil || count < 1 {
				return domain.Errorf(domain.CodeInvalidRequest, "", "%s is not a number of events", domain.Clip(string(raw), 40))
			}
			q.Limit = int(count)
		}
		return err
	})
	if missing := given.missing(readFields[:1]); err == nil && missing != "" {
		err, at = domain.Errorf(domain.CodeInvalidRequest, "", "required, but missing"), missing
	}
	if err == nil {
		err = d.scan.End()
	}
	if err != nil && at == "" {
		at = "body"
	}
	return q, d.withPlace(at, err)
}
