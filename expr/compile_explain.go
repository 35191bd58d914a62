package expr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/manifold-es/manifold/expr/scan"
)

// An error of cel-go has a place and often the id of a part, but no kind. So the functions below examine the text and
// the tree at that place. They keep cel-go's message if they find no better one.

// errorAt returns the first error in the order of the text, with cel-go's message.
func errorAt(source string, all []*common.Error) (*CompileError, *common.Error) {
	first := slices.MinFunc(all, func(a, b *common.Error) int {
		return cmp.Or(cmp.Compare(a.Location.Line(), b.Location.Line()), cmp.Compare(a.Location.Column(), b.Location.Column()))
	})
	return &CompileError{Line: max(1, first.Location.Line()), Column: max(0, first.Location.Column()) + 1, Message: first.Message, Source: source}, first
}

const compareHint = "compare it: x != null, x > 0, x != ''"

// explainParsing explains errors of cel-go's parser.
func (l *language) explainParsing(source string, all []*common.Error) *CompileError {
	e, first := errorAt(source, all)
	at := scan.At(source, e.Line, e.Column)
	switch {
	case first.Location.Line() < 1: // compile has checked the only other limit of the whole text
		e.Message = fmt.Sprintf("the expression is nested deeper than %d", MaxNesting)
		e.Hint = "add many things with [a, b, c].sum() or .join(''); name parts with cel.bind(name, value, expression)"
	case first.ExprID == 0:
		e.Message, e.Hint = l.syntax(at)
	case foreignWords[at.Word()] != "":
		e.Hint = foreignWords[at.Word()]
	case tooLarge(at.Word()):
		e.Hint = "a whole number has 64 bits; with .0 after it, it is taken as the nearest double"
	default:
		if open := openBracket(at.Text[:at.Offset]); open >= 0 {
			if usage := macros[at.To(open).PreviousWord()]; usage != "" {
				e.Hint = "it is called as " + usage
			}
		}
	}
	return e
}

// explainChecking explains errors of cel-go's type checker; tree has the types that it found.
func (l *language) explainChecking(source string, tree *ast.AST, all []*common.Error) *CompileError {
	e, first := errorAt(source, all)
	at := scan.At(source, e.Line, e.Column)
	var part ast.Expr
	isRange := false
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(other ast.Expr) {
		if other.ID() == first.ExprID {
			part = other
		}
		isRange = isRange || other.Kind() == ast.ComprehensionKind && other.AsComprehension().IterRange().ID() == first.ExprID
	}))
	if part == nil {
		return e
	}
	failed := tree.GetType(part.ID()).Kind() == types.ErrorKind
	switch {
	case part.Kind() == ast.SelectKind && tree.GetType(part.AsSelect().Operand().ID()).Kind() == types.StructKind && failed:
		e.Column++ // from the point to the field
		e.Message = fmt.Sprintf("an event has no field %q", part.AsSelect().FieldName())
		e.Hint = "its fields are " + strings.Join(eventFields, ", ") + "; what the application sent is in event.data"
	case part.Kind() == ast.SelectKind && tree.GetType(part.ID()).Kind() == types.DynKind:
		e.Message = typeWords(tree.GetType(part.AsSelect().Operand().ID())) + " has no fields"
	case !failed && !isRange: // the part has a value, and it stands where a bool is needed
		e.Message = "expected a bool, not " + typeWords(tree.GetType(part.ID()))
		e.Hint = compareHint
	case part.Kind() == ast.IdentKind:
		l.undeclared(e, part.AsIdent(), at)
	case part.Kind() == ast.StructKind:
		l.undeclared(e, part.AsStruct().TypeName(), at)
	case part.Kind() == ast.CallKind && l.env.HasFunction(part.AsCall().FunctionName()):
		var kinds []string
		for _, operand := range Operands(part.AsCall()) {
			kinds = append(kinds, typeWords(tree.GetType(operand.ID())))
		}
		l.overload(e, part.AsCall().FunctionName(), kinds, at)
	case part.Kind() == ast.CallKind:
		l.undeclaredFunction(e, part.AsCall().FunctionName(), at)
	}
	return e
}

// undeclared explains a name that is not a variable.
func (l *language) undeclared(e *CompileError, name string, at scan.Cursor) {
	e.Message = fmt.Sprintf("there is no variable %q here", name)
	known := l.scope.variables()
	last := len(known) - 1
	fallback := "there is only " + known[last]
	if last > 0 {
		fallback = "there are " + strings.Join(known[:last], ", ") + " and " + known[last]
	}
	end := at.Skip(len([]rune(name)))
	functions := l.listFunctions(name)
	switch {
	case end.Here() == ':' && at.Before() != '?':
		e.Hint = fmt.Sprintf("the keys of an object are quoted: {\"%s\": ...}", name)
	case functions != "":
		e.Message = fmt.Sprintf("there is no such function in %s", name)
		e.Hint = cmp.Or(foreignWords[end.Skip(1).Word()], functions)
	case foreignWords[name] != "":
		e.Hint = l.foreign(name)
	case name == "event":
		e.Hint = "event is not available here; " + fallback
	case name == "doc":
		e.Hint = "doc is not available here; " + fallback
		if l.scope.subject() == "state" {
			e.Hint = "write state: doc is a projection's document"
		}
	case name == "state":
		e.Hint = "state is not available here; " + fallback
		if l.scope == ScopeProjection {
			e.Hint = "write doc: state is an aggregate's"
		}
	default:
		if subject := l.scope.subject(); subject != "" {
			field := subject + "." + name
			switch {
			case l.scope.event():
				field += " or event.data." + name
			case l.scope.decides():
				field += " or command." + name
			}
			fallback += fmt.Sprintf("; a field is written %s, a string %q", field, name)
		}
		e.Hint = fallback
	}
}

// undeclaredFunction explains a call of what is not a function, or a macro in a form that it does not have.
func (l *language) undeclaredFunction(e *CompileError, name string, at scan.Cursor) {
	e.Column = at.NameStart(e.Column)
	if usages := l.usages(name); len(usages) > 0 {
		e.Message = fmt.Sprintf("%s is not called like this", name)
		e.Hint = "it is called as " + strings.Join(usages, " or ")
		return
	}
	e.Message = fmt.Sprintf("there is no function %q", name)
	e.Hint = l.foreign(name)
}

// foreign returns the hint of foreignWords, adapted to the language's scope.
func (l *language) foreign(word string) string {
	hint := foreignWords[word]
	if hint == clockHint && l.scope.decides() {
		return "the moment of the request is the variable now, without parentheses"
	}
	if hint == clockHint && !l.scope.event() {
		return "expressions have no clock: write the moment itself, as in doc.at >= \"2026-01-31T00:00:00Z\""
	}
	return hint
}

// overload explains arguments of the wrong kinds.
func (l *language) overload(e *CompileError, name string, kinds []string, at scan.Cursor) {
	if symbol := strings.Trim(name, "_"); symbol != name || name == "@in" {
		symbol = strings.ReplaceAll(strings.TrimPrefix(symbol, "@"), "_", "")
		e.Message = fmt.Sprintf("%s does not take %s", symbol, strings.Join(kinds, " and "))
		e.Hint = operatorHint(symbol, kinds)
		return
	}
	e.Column = at.NameStart(e.Column)
	e.Message = fmt.Sprintf("%s does not take %s", name, strings.Join(kinds, ", "))
	if len(kinds) == 0 {
		e.Message = name + " needs something in its parentheses"
	}
	if usages := l.usages(name); len(usages) > 0 {
		e.Hint = "it is called as " + strings.Join(usages, " or ")
	}
}

func operatorHint(symbol string, kinds []string) string {
	has := func(kind string) bool { return slices.Contains(kinds, kind) }
	switch {
	case symbol == "?:" || symbol == "!" || symbol == "&&" || symbol == "||":
		return compareHint
	case symbol == "in":
		return "write == for one value, in [a, b] for one of several, string.contains(part) for a part of a string"
	case symbol == "[]" || symbol == "[?]":
		return "lists are counted by whole numbers from 0, objects by strings"
	case has("a timestamp") && has("a string"):
		return "write timestamp('2026-01-31T00:00:00Z')"
	case symbol == "%":
		return notWhole.hint
	case symbol == "+" && has("a string"):
		return "to join strings, write string(x)"
	case symbol == "+" && has("an object"):
		return "to put objects together, write merge(a, b)"
	case symbol == "+" && has("a list"):
		return "to add one element to a list, write list + [element]"
	case has("a string") && (has("an int") || has("a double")):
		return "write double(x) or int(x) to read a number from a string"
	}
	return ""
}

// typeWords describes the type of a part in words.
func typeWords(t *types.Type) string {
	switch t.Kind() {
	case types.MapKind:
		return "an object"
	case types.ListKind:
		return "a list"
	case types.IntKind:
		return "an int"
	case types.StructKind:
		return "an event"
	case types.NullTypeKind:
		return "null"
	case types.DynKind, types.ErrorKind, types.TypeParamKind:
		return "a value"
	case types.OpaqueKind:
		return "an optional value (unwrap it with .orValue(...))"
	case types.TypeKind:
		return "a type"
	case types.TimestampKind:
		return "a timestamp"
	case types.DurationKind:
		return "a duration"
	}
	return "a " + t.String()
}

// syntax explains what cannot stand in a place of the text.
func (l *language) syntax(at scan.Cursor) (message, hint string) {
	switch here, next := at.Here(), at.Skip(1).Here(); {
	case here == 0:
		return endsEarly(at)
	case here == '=' && next != '=':
		return l.assignment(at, next)
	case here == '&' && next != '&':
		return "a single & is not part of the language", "write &&"
	case here == '|' && next != '|':
		return "a single | is not part of the language", "write ||"
	case here == ';':
		return "a ; is not part of the language", "leave it out: there is one expression; cel.bind(name, value, expression) names a part of it"
	case here == '"' || here == '\'':
		if message, hint := l.quoted(at); message != "" {
			return message, hint
		}
	case strings.ContainsRune("“”„‘’«»", here):
		return "these are not the quotes of the language", `write "..." or '...'`
	case here == '#':
		return "# is not part of the language", "a comment begins with //"
	}
	word := cmp.Or(at.Word(), string(at.Here()))
	previous := at.PreviousWord()
	message = fmt.Sprintf("%q cannot stand here", scan.Clip(word))
	if foreignWords[previous] != "" {
		message += " after " + previous
	}
	return message, misplaced(at, word, previous)
}

// misplaced returns a hint for a word in the wrong place.
func misplaced(at scan.Cursor, word, previous string) string {
	if hint := optionalHint(at); hint != "" {
		return hint
	}
	open := openBracket(at.Text[:at.Offset])
	switch {
	case foreignWords[previous] != "":
		return foreignWords[previous]
	case foreignWords[word] != "":
		return foreignWords[word]
	case foreignWords[strings.ToLower(word)] != "": // SQL keywords are often uppercase
		return foreignWords[strings.ToLower(word)]
	case word == ">" && at.Before() == '<':
		return "write !="
	case at.Before() == '.':
		return "a field whose name is a word of the language is written doc['" + word + "']"
	case word == "," && open >= 0 && at.Text[open] == '(':
		return "a list is written [a, b]"
	case word == ")" && strings.HasSuffix(strings.TrimSpace(string(at.Text[:at.Offset])), ","):
		return "leave out the comma before it"
	}
	return ""
}

// optionalHint returns a hint for the question marks of other languages.
func optionalHint(at scan.Cursor) string {
	source := string(at.Text)
	switch {
	case strings.Contains(source, "??"):
		return "for a value to use where a field is missing, write doc.?field.orValue(0)"
	case strings.Contains(source, "?.") && !strings.Contains(source, ".?"):
		return "an optional field is written doc.?field"
	}
	return ""
}

func endsEarly(at scan.Cursor) (message, hint string) {
	hint = cmp.Or(optionalHint(at), foreignWords[at.PreviousWord()])
	if open := openBracket(at.Text); hint == "" && open >= 0 {
		hint = fmt.Sprintf("a %c is missing", closing[at.Text[open]])
	}
	if hint == "" && strings.ContainsRune(string(at.Text), '?') {
		hint = "write condition ? a : b"
	}
	return "the expression ends too early", hint
}

// assignment explains a single =, before the character next.
func (l *language) assignment(at scan.Cursor, next rune) (message, hint string) {
	assign := "nothing is assigned here: an expression gives the whole new document, as in merge(doc, {\"field\": value})"
	switch l.scope {
	case ScopeDocument:
		assign = "nothing is assigned here: this is a condition"
	case ScopeEvent, ScopeCommand, ScopeItem:
		// This may be a filter, a key or a whole document: which one is unknown here.
		assign = "nothing is assigned here: an expression gives a value"
	}
	if next == '>' {
		return "=> is not part of the language", "write list.map(x, x.price)"
	}
	switch before := at.Before(); before {
	case '=':
		if at.Offset >= 2 && at.Text[at.Offset-2] == '!' {
			return "!== is not part of the language", "write !="
		}
		return "=== is not part of the language", "write =="
	case '!':
		return "!= is written without a blank", "write !="
	case '+', '-', '*', '/':
		return "there is no " + string(before) + "=", assign
	}
	return "a single = is not part of the language", "to compare, write ==; " + assign
}

// quoted explains a string that begins here, unless it is well formed.
func (l *language) quoted(at scan.Cursor) (message, hint string) {
	quote, end := at.Here(), at.Offset+1
	for end < len(at.Text) && at.Text[end] != quote {
		if at.Text[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(at.Text) {
		return "this string does not end", "write " + string(quote) + " after it"
	}
	if _, issues := l.env.Parse(string(at.Text[at.Offset : end+1])); len(issues.Errors()) > 0 {
		return "this string has an escape sequence that does not exist", `write \\ for a backslash, or r'...' for a string without escape sequences`
	}
	return "", ""
}

// tooLarge reports whether text is a whole number that does not fit into 64 bits.
func tooLarge(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return errors.Is(err, strconv.ErrRange)
}

var closing = map[rune]rune{'(': ')', '[': ']', '{': '}'}

// openBracket returns the place of the innermost unclosed bracket, or -1.
func openBracket(text []rune) int {
	var open []int
	quote := rune(0)
	for i := 0; i < len(text); i++ {
		switch r := text[i]; {
		case quote != 0 && r == '\\':
			i++
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case closing[r] != 0:
			open = append(open, i)
		case len(open) > 0 && r == closing[text[open[len(open)-1]]]:
			open = open[:len(open)-1]
		}
	}
	if len(open) == 0 {
		return -1
	}
	return open[len(open)-1]
}
