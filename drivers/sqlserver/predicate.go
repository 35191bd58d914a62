package sqlserver

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// query builds the parts of a select on documents' content: sources for the values at paths, conditions on them, and
// parameters. Each path has one source, an "outer apply" named p1, p2 ... Its row has the value's type and text as
// returned by OPENJSON, and there is no row if nothing is at the path. The types are
//
//	0 null, 1 text, 2 number, 3 bool, 4 list, 5 object
//
// The source walks through the members by their names, level by level, without a path expression of the database. So a
// path leads only through objects, and a name may be any text.
//
// A condition is true or not true. Unknown, as for a missing value, is not true, and no "not" is applied to conditions
// that could change that.
type query struct {
	table   table
	sources strings.Builder
	values  map[string]string // path -> alias of its value
	numbers map[string]string // alias of a value -> alias of its number key
	keys    map[string]string // path -> expression of its sort key
	args    []any
	params  int

	source   string      // of the documents, the alias t, and of their keys, the alias k, if they are found by keys
	idColumn string      // of their ids
	keyPath  domain.Path // whose sort keys k has; nil: none
}

// maxParams is the maximum number of a statement's parameters: the server accepts 2,100.
const maxParams = 2000

// Collations that compare texts by their code units or bytes.
const (
	binary2    = " collate Latin1_General_100_BIN2"
	binaryUTF8 = " collate Latin1_General_100_BIN2_UTF8"
)

func newQuery(table table, tenant domain.TenantID) *query {
	return &query{
		table: table, values: map[string]string{}, numbers: map[string]string{}, keys: map[string]string{}, args: table.of(tenant),
		source: table.name + " as t\n", idColumn: "t.id_bytes",
	}
}

// param adds a parameter and returns its name.
func (q *query) param(value any) string {
	q.params++
	name := "v" + strconv.Itoa(q.params)
	q.args = append(q.args, sql.Named(name, value))
	return "@" + name
}

func (q *query) text(text string) string { return q.param(mssql.NVarCharMax(text)) }

// id adds an id of any length as a parameter. An id that is cut off after the length of the longest possible one has
// the same position among them.
func (q *query) id(id string) string {
	return fmt.Sprintf("convert(varbinary(%d), %s, 2)", domain.MaxDocumentIDBytes+1, q.param(hexadecimal([]byte(id[:min(len(id), domain.MaxDocumentIDBytes+1)]))))
}

// key adds a sort key, optionally with a byte appended, as a parameter.
func (q *query) key(key []byte) string {
	return "convert(varbinary(" + strconv.Itoa(maxKeyBytes+1) + "), " + q.param(hexadecimal(key)) + ", 2)"
}

// value returns the alias of the value at a path.
func (q *query) value(path domain.Path) string {
	id := fmt.Sprintf("%q", []string(path))
	if alias, ok := q.values[id]; ok {
		return alias
	}
	from := "convert(nvarchar(max), t.document)"
	if last := len(path) - 1; last > 0 {
		around := q.value(path[:last])
		from = "case when " + around + ".type = 5 then " + around + ".value end"
	}
	name := q.text(path[len(path)-1])
	alias := "p" + strconv.Itoa(len(q.values)+1)
	q.values[id] = alias
	fmt.Fprintf(&q.sources, "outer apply (select top (1) j.type, j.value from openjson(%s) as j where %s) as %s\n", from, sameText("j.[key]", name), alias)
	return alias
}

// number returns the number key of a value, which is unknown if the value is not a number.
func (q *query) number(value string) string {
	alias, ok := q.numbers[value]
	if !ok {
		alias = "n" + strings.TrimPrefix(value, "p")
		q.numbers[value] = alias
		fmt.Fprintf(&q.sources, "outer apply "+numberExpression+" as %[2]s\n", value, alias)
	}
	return alias + ".k"
}

// sortKey returns the sort key of the value at a path: a column if the table has one, else an expression.
func (q *query) sortKey(path domain.Path) string {
	if column, ok := q.keyColumn(path); ok {
		return column
	}
	id := fmt.Sprintf("%q", []string(path))
	key, ok := q.keys[id]
	if !ok {
		value := q.value(path)
		number := strings.TrimSuffix(q.number(value), ".k")
		alias := "k" + strings.TrimPrefix(value, "p")
		key = alias + ".k"
		q.keys[id] = key
		fmt.Fprintf(&q.sources, "cross apply "+keyExpression+" as %[3]s\n", value, number, alias)
	}
	return key
}

// keyColumn returns the key column of a path, if there is one. A declared path consists of names with dots between
// them, so a path with a dot within a name is a different path.
func (q *query) keyColumn(path domain.Path) (column string, ok bool) {
	if len(q.keyPath) > 0 && slices.Equal(q.keyPath, path) {
		return "k.sort_key", true
	}
	i := slices.IndexFunc(q.table.keys, func(key string) bool { return slices.Equal(drivers.DeclaredPath(key), path) })
	if i < 0 {
		return "", false
	}
	return "t." + keyColumn(q.table.keys[i]), true
}

// sameText compares two texts exactly: by their code units and, because trailing blanks are ignored, by their lengths.
func sameText(a, b string) string {
	return a + " = " + b + binary2 + " and datalength(" + a + ") = datalength(" + b + ")"
}

// all joins the conditions of several parts.
func (q *query) all(parts []domain.Predicate, between, none string) (string, error) {
	if len(parts) == 0 {
		return none, nil
	}
	conditions := make([]string, len(parts))
	for i, part := range parts {
		condition, err := q.condition(part)
		if err != nil {
			return "", err
		}
		conditions[i] = condition
	}
	return "(" + strings.Join(conditions, between) + ")", nil
}

const (
	always = "1 = 1"
	never  = "1 = 0"
)

// condition returns a condition that is true for the documents that the predicate matches. For a declared path it adds
// a condition on its key column, which is true whenever the other one is: it only lets the server use the path's index.
func (q *query) condition(predicate domain.Predicate) (string, error) {
	var narrow, exact string
	var err error
	switch p := predicate.(type) {
	case domain.And:
		return q.all(p, "\nand ", always)
	case domain.Or:
		return q.all(p, "\nor ", never)
	case domain.Has:
		exact = q.has(p)
	case domain.Compare:
		exact, narrow = q.compare(p)
	case domain.OneOf:
		exact, narrow = q.oneOf(p)
	case domain.Contains:
		exact = q.contains(p)
	case domain.Text:
		exact, narrow, err = q.textTest(p)
	case domain.Matches:
		exact, err = q.matches(p)
	default:
		return "", fmt.Errorf("a predicate of an unknown type: %T", predicate)
	}
	if err != nil {
		return "", err
	}
	if q.params > maxParams {
		return "", domain.Errorf(domain.CodeUnsupported, "filter", "it has more than %d constants and names, which is more than SQL Server takes at once", maxParams)
	}
	if narrow != "" {
		return "(" + narrow + " and " + exact + ")", nil
	}
	return "(" + exact + ")", nil
}

func (q *query) has(p domain.Has) string {
	value := q.value(p.Path)
	if !p.Not {
		return value + ".type is not null"
	}
	last := len(p.Path) - 1
	if last == 0 {
		return value + ".type is null"
	}
	around := q.value(p.Path[:last])
	return around + ".type = 0 or " + around + ".type = 5 and " + value + ".type is null"
}

// The types of values in OPENJSON.
const (
	typeNull   = 0
	typeText   = 1
	typeNumber = 2
	typeBool   = 3
)

func typeOf(s domain.Scalar) int {
	switch {
	case s.Number():
		return typeNumber
	case s.Kind == domain.ScalarText:
		return typeText
	case s.Kind == domain.ScalarBool:
		return typeBool
	}
	return typeNull
}

// textOf returns the scalar as OPENJSON returns its value. Numbers are saved in their shortest form, so equal ones have
// equal texts.
func textOf(s domain.Scalar) string {
	if s.Kind == domain.ScalarText {
		return s.Text
	}
	return s.JSON()
}

// equals is true if an alias's value, which may be something other than a path's, equals the scalar.
func (q *query) equals(alias string, s domain.Scalar) string {
	if s.Kind == domain.ScalarNull {
		return alias + ".type = 0"
	}
	return alias + ".type = " + strconv.Itoa(typeOf(s)) + " and " + sameText(alias+".value", q.text(textOf(s)))
}

func (q *query) compare(p domain.Compare) (exact, narrow string) {
	switch p.Comparison {
	case domain.Equal:
		narrow = q.narrowing(p)
		if partition := q.partition(p.Path, p.Value); partition != "" {
			narrow = strings.TrimSuffix(partition+" and "+narrow, " and ")
		}
		return q.equals(q.value(p.Path), p.Value), narrow
	case domain.NotEqual:
		value := q.value(p.Path)
		if p.Value.Kind == domain.ScalarNull {
			return value + ".type <> 0", ""
		}
		text := q.text(textOf(p.Value))
		return fmt.Sprintf("%[1]s.type <> %[2]d or %[1]s.value <> %[3]s%[4]s or datalength(%[1]s.value) <> datalength(%[3]s)", value, typeOf(p.Value), text, binary2), ""
	}
	switch operator := string(p.Comparison); {
	case operator != "<" && operator != "<=" && operator != ">" && operator != ">=":
		return never, ""
	case p.Value.Kind == domain.ScalarBool:
		return q.compareBool(p), ""
	case p.Value.Number():
		value := q.value(p.Path)
		exact = value + ".type = 2 and " + q.number(value) + " " + operator + " " + q.key(sortKey(p.Value))
	case p.Value.Kind == domain.ScalarText:
		value := q.value(p.Path)
		bytes := "convert(varbinary(max), convert(varchar(max), " + value + ".value" + binaryUTF8 + "))"
		exact = value + ".type = 1 and " + bytes + " " + operator + " convert(varbinary(max), " + q.param(hexadecimal([]byte(p.Value.Text))) + ", 2)"
	default:
		return never, ""
	}
	return exact, q.narrowing(p)
}

func (q *query) compareBool(p domain.Compare) string {
	fits := func(value bool) bool {
		order := domain.Scalar{Kind: domain.ScalarBool, Bool: value}.Compare(p.Value)
		return order < 0 && p.Comparison[0] == '<' || order > 0 && p.Comparison[0] == '>' || order == 0 && len(p.Comparison) == 2
	}
	switch {
	case fits(false) && fits(true):
		return q.value(p.Path) + ".type = 3"
	case fits(false), fits(true):
		return q.equals(q.value(p.Path), domain.Scalar{Kind: domain.ScalarBool, Bool: fits(true)})
	}
	return never
}

// narrowing returns what must hold for the key column of a predicate's path if the predicate is true. It is empty if
// there is no column, or if the predicate is true for too many keys.
func (q *query) narrowing(predicate domain.Predicate) string {
	path, _ := narrowed(predicate)
	column, ok := q.keyColumn(path)
	if !ok {
		return ""
	}
	switch p := predicate.(type) {
	case domain.Compare:
		switch {
		case p.Comparison == domain.Equal:
			return column + " = " + q.key(columnKey(p.Value))
		case p.Comparison != domain.NotEqual && (p.Value.Number() || p.Value.Kind == domain.ScalarText):
			return q.ranged(column, p)
		}
	case domain.OneOf:
		if p.Not || len(p.Values) == 0 || len(p.Values) > maxNarrowed {
			return ""
		}
		keys := make([]string, len(p.Values))
		for i, scalar := range p.Values {
			keys[i] = q.key(columnKey(scalar))
		}
		return column + " in (" + strings.Join(keys, ", ") + ")"
	case domain.Text:
		if p.Test != domain.StartsWith || p.Not || p.Text == "" {
			return ""
		}
		key := columnKey(domain.Scalar{Kind: domain.ScalarText, Text: p.Text})
		if len(key) == 1 {
			return column + " = 0xff"
		}
		// 0xff is in no text, so it is greater than anything that follows the prefix.
		return "(" + column + " >= " + q.key(key) + " and " + column + " < " + q.key(append(slices.Clone(key), 0xff)) + " or " + column + " = 0xff)"
	}
	return ""
}

// ranged narrows a comparison to its range, within one kind. If texts are compared, the range includes those that are
// too long to be ordered.
func (q *query) ranged(column string, p domain.Compare) string {
	text := p.Value.Kind == domain.ScalarText
	low, high := []byte{kindNumber}, []byte{kindText}
	if text {
		low, high = []byte{kindText}, []byte{kindBool}
	}
	key := columnKey(p.Value)
	if len(key) == 1 && key[0] == kindUnordered {
		return "(" + column + " >= 0x30 and " + column + " < 0x40 or " + column + " = 0xff)"
	}
	var condition string
	if p.Comparison[0] == '<' {
		condition = column + " >= " + bytesLiteral(low) + " and " + column + " " + string(p.Comparison) + " " + q.key(key)
	} else {
		condition = column + " " + string(p.Comparison) + " " + q.key(key) + " and " + column + " < " + bytesLiteral(high)
	}
	if text {
		return "(" + condition + " or " + column + " = 0xff)"
	}
	return condition
}

func bytesLiteral(bytes []byte) string { return fmt.Sprintf("0x%x", bytes) }

// maxNarrowed is the maximum number of constants in a list that are looked up in an index.
const maxNarrowed = 50

func (q *query) oneOf(p domain.OneOf) (exact, narrow string) {
	value := q.value(p.Path)
	texts := make([]string, len(p.Values))
	for i, scalar := range p.Values {
		texts[i] = scalar.JSON()
	}
	list := q.text("[" + strings.Join(texts, ",") + "]")
	is := fmt.Sprintf("exists (select * from openjson(%[1]s) as c where c.type = %[2]s.type and (c.type = 0 or %[3]s))", list, value, sameText("c.value", value+".value"))
	if p.Not {
		return value + ".type is not null and not " + is, ""
	}
	return is, q.narrowing(p)
}

func (q *query) contains(p domain.Contains) string {
	value := q.value(p.Path)
	is := value + ".type = 4 and " + q.equals("e", p.Value)
	if p.Value.Kind == domain.ScalarText {
		is += " or " + value + ".type = 5 and " + sameText("e.[key]", q.text(p.Value.Text))
	}
	is = fmt.Sprintf("exists (select * from openjson(case when %[1]s.type in (4, 5) then %[1]s.value end) as e where %[2]s)", value, is)
	if p.Not {
		return value + ".type in (4, 5) and not " + is
	}
	return is
}

// maxSearched is the maximum length of a text to search for in another, in UTF-16 code units. It is CHARINDEX's limit.
const maxSearched = 4000

func (q *query) textTest(p domain.Text) (exact, narrow string, err error) {
	value := q.value(p.Path)
	if p.Text == "" { // every text starts with, ends with and contains the empty one
		if p.Not {
			return never, "", nil
		}
		return value + ".type = 1", "", nil
	}
	// It compares the texts' bytes: LEFT, RIGHT and LIKE treat blanks, surrogate pairs and wildcards in their own ways.
	bytes := "convert(varbinary(max), " + value + ".value)"
	var test string
	switch p.Test {
	case domain.StartsWith, domain.EndsWith:
		wanted := utf16Bytes(p.Text)
		param := "convert(varbinary(max), " + q.param(hexadecimal(wanted)) + ", 2)"
		from := "1"
		if p.Test == domain.EndsWith {
			from = fmt.Sprintf("datalength(%s.value) - %d", value, len(wanted)-1)
		}
		// A text shorter than the wanted one is compared as if padded with 0x00, which no text contains.
		test = fmt.Sprintf("case when datalength(%s.value) >= %d then substring(%s, %s, %d) end", value, len(wanted), bytes, from, len(wanted))
		if p.Not {
			return fmt.Sprintf("%[1]s.type = 1 and (datalength(%[1]s.value) < %[2]d or %[3]s <> %[4]s)", value, len(wanted), test, param), "", nil
		}
		exact = value + ".type = 1 and " + test + " = " + param
		return exact, q.narrowing(p), nil
	case domain.Includes:
		if utf16Length(p.Text) > maxSearched {
			return "", "", domain.Errorf(domain.CodeUnsupported, p.Place.Where(), "SQL Server looks for texts of at most %d characters within others", maxSearched)
		}
		comparison := " > 0"
		if p.Not {
			comparison = " = 0"
		}
		return value + ".type = 1 and charindex(convert(nvarchar(4000), " + q.text(p.Text) + ")" + binary2 + ", " + value + ".value)" + comparison, "", nil
	}
	return never, "", nil
}

// maxPattern is the maximum length of a pattern, in UTF-16 code units.
const maxPattern = 4000

// matches uses REGEXP_LIKE, whose patterns are RE2's, like this package's. "case" applies it only to texts.
func (q *query) matches(p domain.Matches) (string, error) {
	if !q.table.server.patterns {
		return "", domain.Errorf(domain.CodeUnsupported, p.Place.Where(), "matches() needs SQL Server 2025 and compatibility level 170; use startsWith(), endsWith() or contains() here")
	}
	pattern := p.Pattern.Portable(`\A`, `\z`)
	if utf16Length(pattern) > maxPattern {
		return "", domain.Errorf(domain.CodeUnsupported, p.Place.Where(), "the pattern becomes too long for SQL Server: %d characters, where %d are allowed", utf16Length(pattern), maxPattern)
	}
	value := q.value(p.Path)
	wanted := "1"
	if p.Not {
		wanted = "0"
	}
	return fmt.Sprintf("case when %[1]s.type = 1 then case when regexp_like(%[1]s.value, convert(nvarchar(4000), %[2]s), 'c') then 1 else 0 end end = %[3]s", value, q.text(pattern), wanted), nil
}

// utf16Bytes returns the text as nvarchar stores it: UTF-16, low byte first.
func utf16Bytes(text string) []byte {
	var to []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		to = binary.LittleEndian.AppendUint16(to, unit)
	}
	return to
}
