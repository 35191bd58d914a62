package filter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/expr/scan"
)

// MaxFields is how many paths CompileFields accepts.
const MaxFields = 100

// CompileOrder compiles an order of documents: up to domain.MaxOrderTerms different paths, written as in an expression
// without `doc.`. Each may be followed by asc (the default) or desc: total desc,customer.name,["odd name"] asc. The
// error is a *CompileError, unless the language itself cannot be set up.
func CompileOrder(source string) ([]domain.Order, error) {
	var orders []domain.Order
	err := readPaths(source, func(l *pathList) *expr.CompileError {
		start := l.Cursor
		path, err := l.path()
		if err != nil {
			return err
		}
		order := domain.Order{Path: path}
		l.space()
		at := l.Cursor
		switch word := at.Word(); word {
		case "":
		case "asc", "desc":
			order.Descending = word == "desc"
			l.Cursor = l.Skip(len([]rune(word)))
		default:
			hint := "write asc or desc, and a comma before the next path"
			if scan.IsNameRune(l.Before()) { // the name continues with letters that it cannot have
				hint = quotedHint
			}
			if lower := strings.ToLower(word); lower == "asc" || lower == "desc" {
				hint = "write " + lower
			}
			return l.fail(at, hint, "%q cannot stand here", scan.Clip(word))
		}
		switch {
		case slices.ContainsFunc(orders, func(other domain.Order) bool { return slices.Equal(other.Path, path) }):
			return l.fail(start, "", "the path %s is listed twice", scan.Clip(l.between(start, at)))
		case len(orders) == domain.MaxOrderTerms:
			return l.fail(start, "ties are ordered by the document's id", "an order has at most %d paths", domain.MaxOrderTerms)
		}
		orders = append(orders, order)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return orders, nil
}

// CompileFields compiles the paths of the requested parts of a document, written as in CompileOrder: status,
// customer.name. There are at most MaxFields. Errors are those of CompileOrder.
func CompileFields(source string) ([]domain.Path, error) {
	var paths []domain.Path
	err := readPaths(source, func(l *pathList) *expr.CompileError {
		start := l.Cursor
		path, err := l.path()
		if err != nil {
			return err
		}
		if len(paths) == MaxFields {
			return l.fail(start, "a shorter path includes everything below it", "there are more than %d paths", MaxFields)
		}
		paths = append(paths, path)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return paths, nil
}

// readPaths calls term at the start of each element of a comma-separated list.
func readPaths(source string, term func(*pathList) *expr.CompileError) error {
	if len(source) > expr.MaxSourceBytes {
		return &expr.CompileError{Line: 1, Column: 1, Message: fmt.Sprintf("the list of paths has %d bytes; at most %d are allowed", len(source), expr.MaxSourceBytes)}
	}
	if !utf8.ValidString(source) {
		return &expr.CompileError{Line: 1, Column: 1, Message: "the list of paths is not in UTF-8"}
	}
	l := &pathList{source: source, Cursor: scan.At(source, 1, 1)}
	for {
		l.space()
		if err := term(l); err != nil {
			return err
		}
		l.space()
		switch {
		case l.Offset == len(l.Text):
			return nil
		case l.Here() != ',':
			return l.fail(l.Cursor, l.hint(), "%q cannot stand here", scan.Clip(cmp.Or(l.Word(), string(l.Here()))))
		}
		l.Cursor = l.Skip(1)
	}
}

// pathList reads paths and what separates them.
type pathList struct {
	source string
	scan.Cursor
}

func (l *pathList) fail(at scan.Cursor, hint, format string, args ...any) *expr.CompileError {
	line, column := 1, 1
	for _, r := range at.Text[:at.Offset] {
		if column++; r == '\n' {
			line, column = line+1, 1
		}
	}
	return &expr.CompileError{Line: line, Column: column, Message: fmt.Sprintf(format, args...), Hint: hint, Source: l.source}
}

func (l *pathList) space() {
	for l.Offset < len(l.Text) && strings.ContainsRune(" \t\r\n", l.Here()) {
		l.Cursor = l.Skip(1)
	}
}

func (l *pathList) between(from, to scan.Cursor) string {
	return strings.TrimSpace(string(l.Text[from.Offset:to.Offset]))
}

const quotedHint = `a name that is not made of A to Z, a to z, digits and _ is written ["odd-name"]`

// hint returns a hint for what cannot follow a path.
func (l *pathList) hint() string {
	switch l.Here() {
	case '-', ':', '$', '/', '@', '#', '\'', '"':
		return quotedHint
	case ';', '|', '+':
		return "paths are separated by commas"
	case '(':
		return "only paths can be listed, no functions"
	}
	switch word := strings.ToLower(l.Word()); {
	case word == "":
		return ""
	case scan.IsNameRune(l.Before()): // the name continues with letters that it cannot have
		return quotedHint
	case word == "asc" || word == "desc":
		return "asc or desc stands once after each path of an order, and nowhere else"
	}
	return "paths are separated by commas"
}

// path reads name.name["odd name"].
func (l *pathList) path() (domain.Path, *expr.CompileError) {
	const wanted = "expected a path, such as total or customer.name"
	var path domain.Path
	for first := true; ; first = false {
		at := l.Cursor
		switch {
		case l.Here() == '[':
			name, err := l.bracket()
			if err != nil {
				return nil, err
			}
			path = append(path, name)
		case first || l.Here() == '.':
			if !first {
				l.Cursor = l.Skip(1)
			}
			name := asciiWord(l.Cursor)
			if name == "" {
				hint := l.hint()
				if first && l.Here() == '-' {
					hint = "for a descending order write total desc"
				}
				return nil, l.fail(l.Cursor, hint, "%s", wanted)
			}
			l.Cursor = l.Skip(len(name))
			if first && name == "doc" && (l.Here() == '.' || l.Here() == '[') {
				return nil, l.fail(at, `leave out doc and the point; a field that is called doc is written ["doc"]`, "paths are written without doc here")
			}
			path = append(path, name)
		default:
			return path, nil
		}
		if len(path) > expr.MaxNesting {
			return nil, l.fail(at, "", "a path has at most %d names", expr.MaxNesting)
		}
	}
}

// asciiWord returns the identifier that begins here.
func asciiWord(c scan.Cursor) string {
	word := []rune(c.Word())
	for i, r := range word {
		if r >= utf8.RuneSelf || i == 0 && '0' <= r && r <= '9' {
			return string(word[:i])
		}
	}
	return string(word)
}

// bracket reads ["name"], with the strings of expressions.
func (l *pathList) bracket() (string, *expr.CompileError) {
	open := l.Cursor
	l.Cursor = l.Skip(1)
	l.space()
	at, quote := l.Cursor, l.Here()
	if quote != '"' && quote != '\'' {
		hint := `write ["odd name"]`
		if '0' <= quote && quote <= '9' {
			hint = "a path does not lead into lists"
		}
		return "", l.fail(at, hint, "expected a name in quotes")
	}
	l.Cursor = l.Skip(1)
	for l.Here() != quote {
		if l.Here() == '\\' {
			l.Cursor = l.Skip(1)
		}
		if l.Offset >= len(l.Text) {
			return "", l.fail(at, fmt.Sprintf("write %c after it", quote), "this string does not end")
		}
		l.Cursor = l.Skip(1)
	}
	l.Cursor = l.Skip(1)
	name, ok := literal(string(l.Text[at.Offset:l.Offset]))
	if !ok {
		return "", l.fail(at, `write \\ for a backslash`, "this string has an escape sequence that does not exist")
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", l.fail(at, "", "no document has a string with the character U+0000 in it")
	}
	l.space()
	if l.Here() != ']' {
		return "", l.fail(l.Cursor, "", "a ] is missing for the [ at column %d", l.fail(open, "", "").Column)
	}
	l.Cursor = l.Skip(1)
	return name, nil
}

// literal reads a quoted string as an expression does.
func literal(quoted string) (text string, ok bool) {
	tree, err := expr.Parse(expr.ScopeDocument, quoted)
	if err != nil || tree.Root().Kind() != ast.LiteralKind {
		return "", false
	}
	value, ok := tree.Root().AsLiteral().(types.String)
	return string(value), ok
}
