package postgres

import (
	"slices"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// A page is one statement, so all of it is of one moment. If its order begins with a declared path, it is assembled
// from slices. Each slice has at most as many documents as the page, and is read only if the slices before it did not
// fill the page:
//
//   - the documents that can be ordered, from the place where the last page ended;
//   - after them the documents that cannot be ordered, by id.
//
// An index of a declared path holds the sort keys and, for equal keys, the ids. It can be read in both directions, but
// ids must ascend also in descending orders. So for one descending declared path the first slice becomes three:
//
//   - the documents with the last page's key, by id;
//   - the next documents backwards in the index, except those with the last key, because the smallest ids of that key
//     may be missing;
//   - the documents with that last key, by id.

// page returns the statement for a page of documents: id, version, document.
func (q *query) page(source string, asked domain.DocumentQuery) string {
	limit := q.int(int64(asked.Limit))
	if len(asked.Order) == 0 {
		var after string
		if asked.After != nil {
			after = asked.After.ID
		}
		return q.byID(source, asked.Where, q.text(after), limit, asked.Limit)
	}
	p := page{query: q, order: asked.Order, limit: limit}
	for _, part := range asked.Order {
		q.checkTexts("", part.Path...)
		p.keys = append(p.keys, q.keyAt(part.Path))
	}
	matches := q.where(asked.Where)
	p.from = q.fromCondition(source, matches)
	if q.indexed(asked.Order[0].Path) {
		p.inOrder(asked.After)
		return p.statement()
	}
	// If the general index finds the documents, sorting them reads less than looking up all in their order.
	if place := q.place(asked.Order[0].Path); place > 0 && !q.generalUsable {
		return p.byKeys(place, asked.After)
	}
	if tables, ok := q.rangeOf(asked.Where); ok {
		return p.sortedRange(tables, source, matches, asked.After)
	}
	return p.sorted(asked.After)
}

// inOrder adds the slices of a page that is read in the order of the first path.
func (p *page) inOrder(after *domain.SortKey) {
	switch {
	case after != nil && after.Unordered:
		p.unordered(after.ID)
	case len(p.order) == 1 && p.order[0].Descending:
		p.backward(after)
		p.unordered("")
	default:
		p.ordered(after)
		p.unordered("")
	}
}

// scannedPages is how many pages' worth of documents are scanned by id before the general index is used.
const scannedPages = 20

// byID is the page of matching documents, by id.
//
// The general index returns all matching documents, keys in a range return the ids of all documents in it, and their
// number is unknown. So the next documents by id are scanned first. If too few of those match, probably few documents
// match in total.
func (q *query) byID(source string, where domain.Predicate, after, limit string, page int) string {
	afterID, byID := " and id > "+after, " order by id limit "+limit
	q.useGeneral = false
	matches := q.where(where)
	tables, ok := q.rangeOf(where)
	if !q.generalUsable && !ok {
		// If an equality fixes the key of a declared path, its index leads to the documents, in the order of their ids.
		order := "id"
		if key := q.fixedKey(where); key != "" {
			order = key + ", id"
		}
		order = q.before("") + order
		return "select id, version, document " + q.fromCondition(source, matches) + afterID + " order by " + order + " limit " + limit
	}
	const columns = "select id, version, document "
	condition := afterID + " and (select count(*) from scanned) < " + limit
	var found string
	if q.generalUsable {
		q.useGeneral = true
		found = columns + "from (" + columns + q.from(source, where) + condition + " offset 0) found" + byID
	} else {
		found = "(" + columns + q.fromRange(source, matches) + condition + " and " + ifInRange + byID + ") union all (" +
			columns + q.fromCondition(source, matches) + condition + " and not " + ifInRange + byID + ")"
	}
	return "with " + tables + "scanned as materialized (" + columns + "from (" + columns + q.fromCondition(source, "true") + afterID +
		" order by id limit " + q.int(scannedPages*int64(page)) + ") next where " + matches + byID + "), found as materialized (" + found +
		") " + columns + "from (select * from scanned where (select count(*) from scanned) = " + limit + " union all select * from found) page order by id"
}

// before returns the first expression of an index's order: the partition's sort key, which is equal in all matching
// documents. The planner does not see that it is equal, because that condition must not be evaluated before the
// row-level policy's. With the expression in the order, the planner finds the index.
func (q *query) before(direction string) string {
	if q.build.PartitionBy == "" || !q.partitioned || !q.build.Shared() {
		return ""
	}
	return q.keyAt(drivers.DeclaredPath(q.build.PartitionBy)) + direction + ", "
}

// fixedKey returns the sort key of a declared path that is equal in all matching documents, or an empty string if there
// is none or only the partition's.
func (q *query) fixedKey(where domain.Predicate) string {
	switch p := where.(type) {
	case domain.Compare:
		if p.Comparison == domain.Equal && q.indexed(p.Path) && !q.isPartition(p.Path) {
			return q.keyAt(p.Path)
		}
	case domain.And:
		for _, part := range p {
			if key := q.fixedKey(part); key != "" {
				return key
			}
		}
	}
	return ""
}

// page is a page that is assembled from slices.
type page struct {
	*query
	order  []domain.Order
	keys   []string // the sort keys of the order's paths
	tables string   // the tables that the statement begins with, see rangeOf
	from   string   // the source of all pages' documents: "from ... where ..."
	limit  string
	slices []slice
}

type slice struct {
	name      string
	statement string
	part      string // a condition on the slice's rows: rows that meet it are in the page, if there is room
	last      string // the page's first order expression
	direction string // " desc": it is read backwards
}

// sorted is the whole page if no index has the order: all matching documents are read and sorted.
func (p *page) sorted(after *domain.SortKey) string {
	slice := p.sortedSlice(after, "")
	columns := make([]string, len(p.keys))
	for i := range columns {
		columns[i] = column(i)
	}
	return "select id, version, document from (" + slice.statement + ") page order by last, " + p.directed(columns)
}

// sortedSlice is a slice of the documents that are after a place and meet a condition, read and sorted.
func (p *page) sortedSlice(after *domain.SortKey, condition string) slice {
	unordered := p.text(drivers.KeyUnordered)
	columns, last, order := make([]string, len(p.keys)), make([]string, len(p.keys)), make([]string, len(p.keys))
	var keys strings.Builder
	for i, key := range p.keys {
		columns[i] = column(i)
		last[i] = columns[i] + " = " + unordered
		order[i] = "case when not last then " + columns[i] + " end"
		keys.WriteString(", " + key + " as " + columns[i])
	}
	// "offset 0" makes the database compute each key once per document.
	from := "from (select *, " + strings.Join(last, " or ") + " as last from (select id, version, document" + keys.String() + " " + p.from + condition + " offset 0) matching) page"
	switch {
	case after == nil:
	case after.Unordered:
		from += " where last and id > " + p.text(after.ID)
	default:
		from += " where last or " + p.afterPlace(columns, after)
	}
	shown := make([]string, len(columns))
	for i := range columns {
		shown[i] = ", " + order[i] + " as " + columns[i]
	}
	return slice{name: "plain", part: "true", last: "last", statement: "select id, version, document, last::int" + strings.Join(shown, "") + " " + from +
		" order by page.last, " + p.directed(order) + " limit " + p.limit}
}

// ordered adds the documents that can be ordered and come after a place.
func (p *page) ordered(after *domain.SortKey) {
	var conditions []string
	for _, key := range p.keys {
		conditions = append(conditions, key+" < "+p.text(drivers.KeyUnordered))
	}
	if after != nil {
		conditions = append(conditions, p.afterPlace(p.keys, after))
	}
	p.add(slice{name: "ordered", part: "true", last: "0"}, p.keys, strings.Join(conditions, " and "), p.directed(p.keys))
}

// afterPlace is the condition for the documents with these keys that are after a place.
func (p *page) afterPlace(keys []string, after *domain.SortKey) string {
	places := make([]string, len(keys))
	for i, value := range after.Values {
		places[i] = p.text(drivers.FullSortKey(value))
	}
	id := p.text(after.ID)
	if !slices.ContainsFunc(p.order, func(part domain.Order) bool { return part.Descending }) {
		return "(" + strings.Join(keys, ", ") + ", id) > (" + strings.Join(places, ", ") + ", " + id + ")"
	}
	condition := "id > " + id
	for i := len(keys) - 1; i >= 0; i-- {
		operator := " > "
		if p.order[i].Descending {
			operator = " < "
		}
		condition = keys[i] + operator + places[i] + " or " + keys[i] + " = " + places[i] + " and (" + condition + ")"
	}
	// An implied condition on the first key lets an index find its starting point.
	operator := " >= "
	if p.order[0].Descending {
		operator = " <= "
	}
	return keys[0] + operator + places[0] + " and (" + condition + ")"
}

// backward adds the same as ordered, for one descending path.
func (p *page) backward(after *domain.SortKey) {
	key := p.keys[0]
	var before string
	if after == nil {
		before = p.text(drivers.KeyUnordered)
	} else {
		before = p.text(drivers.FullSortKey(after.Values[0]))
		p.add(slice{name: "same", part: "true", last: "0"}, p.keys, key+" = "+before+" and id > "+p.text(after.ID), key+", id")
	}
	const end = "(select min(key1) from next)"
	p.add(slice{name: "next", part: "key1 > " + end, last: "0", direction: " desc"}, p.keys, key+" < "+before, key+" desc")
	p.add(slice{name: "ends", part: "true", last: "0"}, p.keys, key+" = "+end, key+", id")
}

// unordered adds the documents that cannot be ordered and whose ids are after an id.
func (p *page) unordered(after string) {
	unordered := p.text(drivers.KeyUnordered)
	conditions, none := make([]string, len(p.keys)), make([]string, len(p.keys))
	for i, key := range p.keys {
		conditions[i], none[i] = key+" = "+unordered, "null"
	}
	order := "id"
	if len(p.keys) == 1 {
		order = p.keys[0] + ", id"
	}
	p.add(slice{name: "unordered", part: "true", last: "1"}, none, "("+strings.Join(conditions, " or ")+") and id > "+p.text(after), order)
}

// add adds a slice of the documents for which the condition holds, in an order. keys are its columns key1, key2 ... The
// slice is not read if the slices before it fill the page, which is known before its first document.
func (p *page) add(slice slice, keys []string, condition, order string) {
	var columns, room strings.Builder
	for i, key := range keys {
		columns.WriteString(", " + key + " as " + column(i))
	}
	for i, before := range p.slices {
		room.WriteString([]string{" and ", " + "}[min(i, 1)] + "(select count(*) from " + before.name + " where " + before.part + ")")
	}
	if len(p.slices) > 0 {
		room.WriteString(" < " + p.limit)
	}
	slice.statement = "select id, version, document" + columns.String() + " " + p.from + " and (" + condition + ")" + room.String() +
		" order by " + p.before(slice.direction) + order + " limit " + p.limit
	p.slices = append(p.slices, slice)
}

// statement concatenates the slices.
func (p *page) statement() string {
	columns := make([]string, len(p.keys))
	for i := range columns {
		columns[i] = column(i)
	}
	var with, all []string
	for _, slice := range p.slices {
		with = append(with, slice.name+" as materialized ("+slice.statement+")")
		all = append(all, "select id, version, document, "+slice.last+" as last, "+strings.Join(columns, ", ")+" from "+slice.name+" where "+slice.part)
	}
	return "with " + p.tables + strings.Join(with, ", ") + " select id, version, document from (" + strings.Join(all, " union all ") + ") page order by last, " +
		p.directed(columns) + " limit " + p.limit
}

func column(i int) string { return "key" + strconv.Itoa(i+1) }

// directed returns the order by the expressions for the sort keys.
func (p *page) directed(keys []string) string {
	var order strings.Builder
	for i, key := range keys {
		order.WriteString(key)
		if p.order[i].Descending {
			order.WriteString(" desc")
		}
		order.WriteString(", ")
	}
	return order.String() + "id"
}
