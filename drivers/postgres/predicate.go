package postgres

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/pg"
)

// query builds a statement about a build's documents. Values are always parameters, and so are the names of members,
// so statements of one shape have one text. They are planned with their parameters' values, so an expression that
// contains parameters finds the index whose definition has constants there.
//
// Each leaf of a predicate becomes an expression that is true if the leaf matches, and otherwise false or null. That is
// enough, because only "and" and "or" are applied to it. No expression can fail on any document: a value that is not a
// number is never cast to one.
type query struct {
	build    domain.Build
	tenant   domain.TenantID
	args     [][]byte
	argTexts []string          // the arguments as SQL
	names    map[string]string // the parameters that form a path

	// If useGeneral is set, conditions on the common table are repeated in a form that the general index can look up.
	// generalUsable is set by a condition for which that is possible.
	useGeneral, generalUsable bool

	// partitioned is true if indexes can be used: the predicate fixes the value of build.PartitionBy, whose sort key is
	// partition, or there is no such path.
	partitioned bool
	partition   string

	keyed bool // the documents of a tenant's own projection have keys, see place

	err error // why PostgreSQL cannot express the query
}

// newQuery starts with tenant and build as $1 and $2. where is the whole predicate on the documents.
func newQuery(build domain.Build, tenant domain.TenantID, where domain.Predicate) *query {
	q := &query{build: build, tenant: tenant, names: make(map[string]string), useGeneral: true, partitioned: true}
	if build.PartitionBy != "" {
		var value domain.Scalar
		value, q.partitioned = domain.Fixed(where, drivers.DeclaredPath(build.PartitionBy))
		q.partition = drivers.SortKey(value)
	}
	q.arg("uuid", pg.TenantParam(tenant), literal(tenant.String()))
	q.int(build.Number)
	return q
}

// maxArgs is the maximum number of parameters in the protocol.
const maxArgs = math.MaxUint16

// arg adds a parameter and returns its reference in the statement.
func (q *query) arg(kind string, value []byte, text string) string {
	q.args = append(q.args, value)
	q.argTexts = append(q.argTexts, text)
	if len(q.args) > maxArgs {
		q.refuse("", "it has more than %d constants and names", maxArgs)
	}
	return "$" + strconv.Itoa(len(q.args)) + "::" + kind
}

func (q *query) int(n int64) string {
	return q.arg("bigint", pg.Int8Param(n), strconv.FormatInt(n, 10))
}

func (q *query) text(text string) string { return q.arg("text", []byte(text), literal(text)) }

func (q *query) json(text string) string {
	return q.arg("jsonb", pg.AppendJSON(nil, []byte(text)), literal(text))
}

func (q *query) texts(texts []string) string {
	return q.arg("text[]", pg.TextsParam(texts), arrayLiteral(texts))
}

func (q *query) jsons(texts []string) string {
	return q.arg("jsonb[]", encodeJSONBs(texts), arrayLiteral(texts))
}

func arrayLiteral(texts []string) string {
	literals := make([]string, len(texts))
	for i, text := range texts {
		literals[i] = literal(text)
	}
	return "array[" + strings.Join(literals, ", ") + "]"
}

// refuse records the first reason why PostgreSQL cannot express the query.
func (q *query) refuse(place domain.Place, format string, args ...any) {
	if q.err != nil {
		return
	}
	q.err = domain.Errorf(domain.CodeUnsupported, place.Where(), format, args...)
}

// checkTexts refuses texts that cannot be sent. No document contains them.
func (q *query) checkTexts(place domain.Place, texts ...string) {
	for _, text := range texts {
		if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
			q.refuse(place, "%q is not in any document: it is not UTF-8, or has U+0000 in it", text)
		}
	}
}

// at returns the value at a path as jsonb, or null if it is missing. With a text operand, "->" looks only into objects.
func (q *query) at(path domain.Path) string { return pathExpression(q.parameters(path), false) }

// textAt is at as text: a string's content, and other scalars as JSON.
func (q *query) textAt(path domain.Path) string { return pathExpression(q.parameters(path), true) }

// keyAt returns the sort key at a path.
func (q *query) keyAt(path domain.Path) string { return keyExpression(q.at(path)) }

func (q *query) parameters(path domain.Path) []string {
	steps := make([]string, len(path))
	for i := range path {
		prefix := strings.Join(path[:i+1], "\x00")
		step, known := q.names[prefix]
		if !known {
			step = q.text(path[i])
			q.names[prefix] = step
		}
		steps[i] = step
	}
	return steps
}

// pathExpression builds at or textAt from steps that are SQL.
func pathExpression(steps []string, text bool) string {
	last := len(steps) - 1
	expression := "document"
	for _, step := range steps[:last] {
		expression += " -> " + step
	}
	if text {
		return "(" + expression + " ->> " + steps[last] + `) collate "C"`
	}
	return "(" + expression + " -> " + steps[last] + ")"
}

// keyExpression returns what a B-tree of a declared path holds for the value there.
func keyExpression(value string) string {
	return keyFunction + "(" + value + `) collate "C"`
}

// membersExpression returns what `in` examines: a list, or the names of an object's members as a list. The list is
// nested below a name made of tenant, build and the partition's sort key, if there is one, so that an index on it finds
// only their documents.
func membersExpression(value, partition string) string {
	return nested("case jsonb_typeof("+value+") when 'array' then "+value+
		" when 'object' then jsonb_path_query_array("+value+", '$.keyvalue().key') end", partition)
}

// membersCondition is true if membersExpression has a value: the index holds only such rows.
func membersCondition(value string) string {
	return "jsonb_typeof(" + value + ") in ('array', 'object')"
}

// nested nests a value below a name made of tenant, build and a partition's sort key; empty: no partition.
func nested(value, partition string) string {
	if partition != "" {
		partition = " || '/' || " + partition
	}
	return "jsonb_set('{}'::jsonb, array[tenant_id::text || '/' || build::text" + partition + "], " + value + ")"
}

// nestedConstant returns a constant to search for in the results of nested.
func (q *query) nestedConstant(path domain.Path, value, partition string) string {
	for i := range path {
		value = "{" + domain.Scalar{Kind: domain.ScalarText, Text: path[len(path)-1-i]}.JSON() + ": " + value + "}"
	}
	if partition != "" {
		partition = "/" + partition
	}
	name := q.tenant.String() + "/" + strconv.FormatInt(q.build.Number, 10) + partition
	return q.json("{" + domain.Scalar{Kind: domain.ScalarText, Text: name}.JSON() + ": " + value + "}")
}

// indexed reports whether the definition declares an index on the path in a table of one build. If the table has a
// partition that the predicate does not fix, no index helps. If the index does not exist after all, the query is only
// slower.
func (q *query) indexed(path domain.Path) bool {
	return q.build.Shared() && q.partitioned && (drivers.Declares(q.build.Indexes, path) || q.isPartition(path))
}

// isPartition reports whether a path is the table's partition.
func (q *query) isPartition(path domain.Path) bool {
	return q.build.PartitionBy != "" && slices.Equal(drivers.DeclaredPath(q.build.PartitionBy), path)
}

// from returns the part of a statement that selects the matching documents.
func (q *query) from(source string, where domain.Predicate) string {
	return q.fromCondition(source, q.where(where))
}

func (q *query) fromCondition(source, condition string) string {
	return "from " + source + " where tenant_id = $1::uuid and build = $2::bigint and id <> '' and (" + condition + ")"
}

// where returns the condition for a predicate.
func (q *query) where(predicate domain.Predicate) string {
	switch p := predicate.(type) {
	case nil:
		return "true"
	case domain.And:
		return q.and(p)
	case domain.Or:
		return joined(q.each(p), " or ", "false")
	case domain.Has:
		q.checkTexts(p.Place, p.Path...)
		return q.has(p)
	case domain.Compare:
		q.checkTexts(p.Place, append(slices.Clone(p.Path), p.Value.Text)...)
		return q.compare(p)
	case domain.OneOf:
		q.checkTexts(p.Place, p.Path...)
		for _, value := range p.Values {
			q.checkTexts(p.Place, value.Text)
		}
		return q.oneOf(p)
	case domain.Contains:
		q.checkTexts(p.Place, append(slices.Clone(p.Path), p.Value.Text)...)
		return q.contains(p)
	case domain.Text:
		q.checkTexts(p.Place, append(slices.Clone(p.Path), p.Text)...)
		if leaf, ok := q.keyRange(p); ok && q.indexed(p.Path) {
			return q.inRanges(p.Path, []keyRange{leaf})
		}
		return q.testText(p)
	case domain.Matches:
		q.checkTexts(p.Place, p.Path...)
		// With the collation "C", the pattern's character classes do not depend on a language.
		return q.isText(p.Path) + " and " + not(p.Not, q.textAt(p.Path)+" ~ "+q.text(p.Pattern.Portable(`\A`, `\Z`)))
	}
	q.refuse("", "a predicate of the type %T is not known", predicate)
	return "false"
}

func (q *query) each(parts []domain.Predicate) []string {
	conditions := make([]string, len(parts))
	for i, part := range parts {
		conditions[i] = q.where(part)
	}
	return conditions
}

func joined(conditions []string, between, none string) string {
	if len(conditions) == 0 {
		return none
	}
	return "(" + strings.Join(conditions, ")"+between+"(") + ")"
}

// and combines ranges at one declared path into one range, so that an index can find it. Each range of texts alone also
// includes the texts that are too long for the index, and a range between two such ends cannot be looked up.
func (q *query) and(parts []domain.Predicate) string {
	var conditions []string
	var paths []domain.Path
	ranges := make(map[string][]keyRange)
	for _, part := range parts {
		leaf, ok := q.keyRange(part)
		if !ok || !q.indexed(leaf.path) {
			conditions = append(conditions, q.where(part))
			continue
		}
		name := strings.Join(leaf.path, "\x00")
		if ranges[name] == nil {
			paths = append(paths, leaf.path)
		}
		ranges[name] = append(ranges[name], leaf)
	}
	for _, path := range paths {
		conditions = append(conditions, q.inRanges(path, ranges[strings.Join(path, "\x00")]))
	}
	return joined(conditions, " and ", "true")
}

// keyRange is a leaf that the sort keys of a declared path can find.
type keyRange struct {
	path     domain.Path
	from, to string        // sort keys; the matches are between them
	fromOpen bool          // from itself does not match
	toClosed bool          // to itself matches
	plain    func() string // the leaf for a text that is too long to have a distinct sort key; nil: none matches
}

// keyRange returns the leaf as a range, if it is one.
func (q *query) keyRange(predicate domain.Predicate) (keyRange, bool) {
	switch p := predicate.(type) {
	case domain.Compare:
		leaf := keyRange{path: p.Path}
		switch {
		case p.Value.Kind == domain.ScalarText:
			leaf.from, leaf.to, leaf.plain = drivers.KeyText, drivers.KeyFalse, func() string { return q.compareText(p) }
		case p.Value.Kind == domain.ScalarBool:
			leaf.from, leaf.to = drivers.KeyFalse, drivers.KeyUnordered
		case p.Value.Number():
			leaf.from, leaf.to = drivers.KeyNegative, drivers.KeyText
		default: // nothing is less or greater than null
			return keyRange{}, false
		}
		switch p.Comparison {
		case domain.Less, domain.LessOrEqual:
			leaf.to, leaf.toClosed = drivers.FullSortKey(p.Value), p.Comparison == domain.LessOrEqual
		case domain.Greater, domain.GreaterOrEqual:
			leaf.from, leaf.fromOpen = drivers.FullSortKey(p.Value), p.Comparison == domain.Greater
		default:
			return keyRange{}, false
		}
		q.checkTexts(p.Place, append(slices.Clone(p.Path), p.Value.Text)...)
		return leaf, true
	case domain.Text:
		if p.Test != domain.StartsWith || p.Not {
			break
		}
		q.checkTexts(p.Place, append(slices.Clone(p.Path), p.Text)...)
		prefix := drivers.KeyText + p.Text
		end, _ := drivers.PrefixEnd(prefix) // there is one: drivers.KeyText is not the last character
		return keyRange{path: p.Path, from: prefix, to: end, plain: func() string { return q.testText(p) }}, true
	}
	return keyRange{}, false
}

// inRanges is true if the value at the path is in all the ranges. It compares the sort key, or the text itself if it is
// too long to have a distinct sort key.
func (q *query) inRanges(path domain.Path, ranges []keyRange) string {
	key := q.keyAt(path)
	condition := q.between(key, ranges)
	if !longTextsMatch(ranges) {
		return condition
	}
	var plain []string
	for _, leaf := range ranges {
		plain = append(plain, leaf.plain())
	}
	return condition + " or " + key + " = " + q.text(drivers.KeyUnordered) + " and " + strings.Join(plain, " and ")
}

// between is true if a sort key is in all the ranges.
func (q *query) between(key string, ranges []keyRange) string {
	var between []string
	for _, leaf := range ranges {
		from, to := " >= ", " < "
		if leaf.fromOpen {
			from = " > "
		}
		if leaf.toClosed {
			to = " <= "
		}
		between = append(between, key+from+q.text(leaf.from)+" and "+key+to+q.text(leaf.to))
	}
	return strings.Join(between, " and ")
}

// longTextsMatch reports whether texts that are too long to have distinct sort keys may be in all the ranges.
func longTextsMatch(ranges []keyRange) bool {
	return !slices.ContainsFunc(ranges, func(leaf keyRange) bool { return leaf.plain == nil })
}

func not(negated bool, condition string) string {
	if negated {
		return "not (" + condition + ")"
	}
	return condition
}

func (q *query) has(p domain.Has) string {
	here := q.at(p.Path)
	around := p.Path[:len(p.Path)-1]
	switch {
	case !p.Not:
		return here + " is not null"
	case len(around) == 0:
		return here + " is null"
	}
	return "jsonb_typeof(" + q.at(around) + ") = 'object' and " + here + " is null or jsonb_typeof(" + q.at(around) + ") = 'null'"
}

func (q *query) isText(path domain.Path) string {
	return "jsonb_typeof(" + q.at(path) + ") = 'string'"
}

func (q *query) compare(p domain.Compare) string {
	switch p.Comparison {
	case domain.Equal:
		return q.oneOf(domain.OneOf{Path: p.Path, Values: []domain.Scalar{p.Value}, Place: p.Place})
	case domain.NotEqual:
		return q.at(p.Path) + " <> " + q.json(p.Value.JSON())
	case domain.Less, domain.LessOrEqual, domain.Greater, domain.GreaterOrEqual:
	default:
		q.refuse(p.Place, "the comparison %q is not known", p.Comparison)
		return "false"
	}
	if leaf, ok := q.keyRange(p); ok && q.indexed(p.Path) {
		return q.inRanges(p.Path, []keyRange{leaf})
	}
	operator := " " + string(p.Comparison) + " "
	switch {
	case p.Value.Kind == domain.ScalarText:
		return q.compareText(p)
	case p.Value.Kind == domain.ScalarNull: // nothing is less or greater than null
		return "false"
	case p.Value.Number():
		// Only "case" guarantees the order of evaluation.
		return "case when jsonb_typeof(" + q.at(p.Path) + ") = 'number' then " + q.at(p.Path) + "::numeric" + operator + q.text(p.Value.JSON()) + "::numeric end"
	}
	// "false" sorts before "true" as text, too.
	return "jsonb_typeof(" + q.at(p.Path) + ") = 'boolean' and " + q.textAt(p.Path) + operator + q.text(p.Value.JSON())
}

func (q *query) compareText(p domain.Compare) string {
	return q.isText(p.Path) + " and " + q.textAt(p.Path) + " " + string(p.Comparison) + " " + q.text(p.Value.Text)
}

// maxAlternatives is how many values of a list are looked up in the general index one by one.
const maxAlternatives = 20

func (q *query) oneOf(p domain.OneOf) string {
	if len(p.Values) == 0 && !p.Not {
		return "false"
	}
	here := q.at(p.Path)
	constants := make([]string, len(p.Values))
	for i, value := range p.Values {
		constants[i] = value.JSON()
	}
	if p.Not {
		return here + " is not null and " + here + " <> all (" + q.jsons(constants) + ")"
	}
	plain := func() string {
		if len(constants) == 1 {
			return here + " = " + q.json(constants[0])
		}
		return here + " = any (" + q.jsons(constants) + ")"
	}
	switch {
	case q.indexed(p.Path):
		return q.keyOneOf(p, plain)
	case !q.build.Shared() && len(p.Values) <= maxAlternatives:
		q.generalUsable = true
		if !q.useGeneral {
			return plain()
		}
		found := make([]string, len(constants))
		for i, constant := range constants {
			found[i] = nested("document", "") + " @> " + q.nestedConstant(p.Path, constant, "")
		}
		return plain() + " and (" + strings.Join(found, " or ") + ")"
	}
	return plain()
}

// keyOneOf is oneOf with an index of sort keys. Null and long texts share their keys with other values.
func (q *query) keyOneOf(p domain.OneOf, plain func() string) string {
	key := q.keyAt(p.Path)
	var own, common []string
	for _, value := range p.Values {
		if k := drivers.SortKey(value); k == drivers.KeyNull || k == drivers.KeyUnordered {
			common = append(common, k)
		} else {
			own = append(own, k)
		}
	}
	condition := func(keys []string) string {
		if len(p.Values) == 1 {
			return key + " = " + q.text(keys[0])
		}
		return key + " = any (" + q.texts(keys) + ")"
	}
	switch {
	case len(common) == 0:
		return condition(own)
	case len(own) == 0:
		return condition(common) + " and " + plain()
	}
	return condition(own) + " or " + condition(common) + " and " + plain()
}

func (q *query) contains(p domain.Contains) string {
	here, element := q.at(p.Path), "["+p.Value.JSON()+"]"
	if !p.Not && q.indexed(p.Path) {
		expression, key := "", ""
		if q.build.PartitionBy != "" {
			expression, key = q.keyAt(drivers.DeclaredPath(q.build.PartitionBy)), q.partition
		}
		return membersCondition(here) + " and " + membersExpression(here, expression) + " @> " + q.nestedConstant(nil, element, key)
	}
	// With @>, a list "contains" another if each element of the other equals one of its elements.
	inObject := "false"
	if p.Value.Kind == domain.ScalarText {
		inObject = here + " ? " + q.text(p.Value.Text)
	}
	return "case jsonb_typeof(" + here + ") when 'array' then " + not(p.Not, here+" @> "+q.json(element)) +
		" when 'object' then " + not(p.Not, inObject) + " end"
}

// testText is a Text without an index.
func (q *query) testText(p domain.Text) string {
	text, wanted := q.textAt(p.Path), q.text(p.Text)
	var test string
	switch p.Test {
	case domain.StartsWith:
		test = "starts_with(" + text + ", " + wanted + ")"
	case domain.EndsWith:
		test = "right(" + text + ", char_length(" + wanted + ")) = " + wanted
	case domain.Includes:
		test = "strpos(" + text + ", " + wanted + ") > 0"
	default:
		q.refuse(p.Place, "the test %q is not known", p.Test)
	}
	return q.isText(p.Path) + " and " + not(p.Not, test)
}
