package expr

import (
	"maps"
	"slices"
	"strings"
)

// foreignWords are words of other languages, with their equivalents here.
var foreignWords = map[string]string{
	"and": "write &&", "or": "write ||", "not": "write !", "is": "write ==", "like": "write string.startsWith(part), string.endsWith(part) or string.contains(part)", "between": "write x >= a && x <= b", "mod": "write a % b",
	"if": "write condition ? a : b", "else": "write condition ? a : b", "then": "write condition ? a : b", "case": "write condition ? a : b", "switch": "write a ? x : b ? y : z",
	"let": bindHint, "var": bindHint, "const": bindHint,
	"return": "leave it out: what the expression gives is the result",
	"for":    loopHint, "while": loopHint, "loop": loopHint, "forEach": loopHint,
	"reduce": "keep the running result in the document, or write list.map(x, x.price).sum()", "fold": "keep the running result in the document, or write list.map(x, x.price).sum()",
	"function": "functions cannot be made; list.map(x, x.price) walks over a list", "lambda": "functions cannot be made; list.map(x, x.price) walks over a list",
	"True": "write true", "TRUE": "write true", "False": "write false", "FALSE": "write false",
	"None": "write null", "nil": "write null", "NULL": "write null", "Null": "write null", "undefined": "write null; for a field that may be missing, doc.?field.orValue(0) or has(doc.field)",
	"now": clockHint, "today": clockHint, "Date": clockHint, "random": "expressions have no random numbers: the same events must give the same document", "uuid": "expressions have no random numbers: event.id is unique",
	"len": "write x.size()", "length": "write x.size()", "count": "write x.size(), or list.filter(x, condition).size()",
	"push": "write list + [element]", "append": "write list + [element]", "add": "write list + [element]", "concat": "write a + b",
	"max": "write math.greatest(a, b)", "min": "write math.least(a, b)", "abs": "write math.abs(x)", "round": "write math.round(x, digits)", "floor": "write math.floor(x)", "ceil": "write math.ceil(x)", "sqrt": "write math.sqrt(x)",
	"toLowerCase": "write string.lowerAscii()", "lower": "write string.lowerAscii()", "toUpperCase": "write string.upperAscii()", "upper": "write string.upperAscii()", "strip": "write string.trim()",
	"startswith": "write string.startsWith(part)", "endswith": "write string.endsWith(part)",
	"includes": "write element in list, or string.contains(part)", "substr": "write string.substring(start, end)",
	"parseInt": "write int(x)", "Number": "write double(x)", "parseFloat": "write double(x)", "float": "write double(x)", "str": "write string(x)", "toString": "write string(x)", "String": "write string(x)", "uint": "write int(x): there are no unsigned numbers",
	"delete": "write without(object, 'key')", "remove": "write without(object, 'key')", "unset": "write without(object, 'key')",
	"assign": "write merge(a, b)", "update": "write merge(a, b)", "set": "write merge(object, {'key': value})", "put": "write merge(object, {'key': value})",
	"keys": "write object.map(key, key)", "values": "write object.map(key, object[key])", "any": "write list.exists(x, condition)", "some": "write list.exists(x, condition)", "every": "write list.all(x, condition)", "find": "write list.filter(x, condition).first().orValue(null)", "coalesce": "write doc.?field.orValue(0)", "unique": "write list.distinct()", "bind": bindHint, "range": "write lists.range(count)",
	"data": "write event.data",
}

const (
	bindHint  = "to name a part of an expression, write cel.bind(name, value, expression)"
	loopHint  = "there are no loops; list.map(x, ...), list.filter(x, ...), list.exists(x, ...) walk over a list"
	clockHint = "expressions have no clock: use event.occurredAt or event.recordedAt"
)

// macros look like functions, but the parser expands them.
var macros = map[string]string{
	"has": "has(doc.field)", "all": "list.all(x, condition)", "exists": "list.exists(x, condition)", "exists_one": "list.exists_one(x, condition)",
	"existsOne": "list.existsOne(i, x, condition)", "map": "list.map(x, value) or list.map(x, condition, value)", "filter": "list.filter(x, condition)",
	"transformList": "list.transformList(i, x, value)", "transformMap": "object.transformMap(key, x, value)", "transformMapEntry": "object.transformMapEntry(key, x, {newKey: value})",
	"sortBy": "list.sortBy(x, key)", "optMap": "x.?field.optMap(v, value)", "optFlatMap": "x.?field.optFlatMap(v, v.?inner)", "cel.bind": "cel.bind(name, value, expression)",
	"orValue": orValueFunction.usage, "or": orFunction.usage,
}

// usages returns how the functions of this name are called.
func (l *language) usages(name string) []string {
	var out []string
	for _, member := range []bool{false, true} {
		if f, ok := l.functions[functionKey{name, member}]; ok {
			out = append(out, f.usage)
		}
	}
	if usage, ok := macros[name]; ok {
		out = append(out, usage)
	}
	return out
}

// listFunctions returns the functions whose names begin with space and a point as a hint, or "" if there are none.
func (l *language) listFunctions(space string) string {
	names := map[string]bool{}
	for key := range l.functions {
		names[key.name] = true
	}
	for name := range macros {
		names[name] = true
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return !strings.HasPrefix(name, space+".") })
	if len(names) == 0 {
		return ""
	}
	return "its functions are " + strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}
