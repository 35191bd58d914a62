package expr

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/manifold-es/manifold/expr/scan"
)

// Messages of cel-go's parser and checker; explain rewords them in terms of this language.
var (
	undeclaredReport = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	overloadReport   = regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '(.*)'$`)
	fieldReport      = regexp.MustCompile(`^undefined field '([^']*)'`)
	reservedReport   = regexp.MustCompile(`^reserved identifier: (\w+)`)
	selectionReport  = regexp.MustCompile(`^type '(.*)' does not support field selection`)
	expectedReport   = regexp.MustCompile(`^expected type '(.*)' but found '(.*)'$`)
	tokenReport      = regexp.MustCompile(`^Syntax error: token recognition error at: '(?s:(.*))'$`)
	inputReport      = regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input '(?s:(.*?))' expecting (.*)$`)
	missingReport    = regexp.MustCompile(`^Syntax error: missing '(.)' at '`)
)

// explain converts the first message of cel-go to an error: in the order of the text, and syntax errors first.
func (l *language) explain(source string, issues *cel.Issues) *CompileError {
	all := issues.Errors()
	if len(all) == 0 {
		return &CompileError{Line: 1, Column: 1, Message: issues.Err().Error(), Source: source}
	}
	first := all[0]
	for _, other := range all[1:] {
		if cmp.Or(cmp.Compare(other.Location.Line(), first.Location.Line()), cmp.Compare(other.Location.Column(), first.Location.Column())) < 0 {
			first = other
		}
	}
	e := &CompileError{Line: max(1, first.Location.Line()), Column: max(0, first.Location.Column()) + 1, Source: source}
	e.Message = strings.TrimPrefix(first.Message, "Syntax error: ")
	at := scan.At(source, e.Line, e.Column)
	match := func(report *regexp.Regexp) []string { return report.FindStringSubmatch(first.Message) }
	switch {
	case match(undeclaredReport) != nil:
		l.undeclared(e, match(undeclaredReport)[1], at)
	case match(overloadReport) != nil:
		m := match(overloadReport)
		l.overload(e, m[1], m[2], at)
	case match(fieldReport) != nil:
		field := match(fieldReport)[1]
		e.Column++ // from the point to the field
		e.Message = fmt.Sprintf("an event has no field %q", field)
		e.Hint = "its fields are " + strings.Join(eventFields, ", ") + "; what the application sent is in event.data"
	case match(reservedReport) != nil:
		word := match(reservedReport)[1]
		e.Message = fmt.Sprintf("%q is a reserved word", word)
		e.Hint = foreignWords[word]
	case match(selectionReport) != nil:
		e.Message = typeWords(match(selectionReport)[1]) + " has no fields"
	case match(expectedReport) != nil:
		m := match(expectedReport)
		e.Message = fmt.Sprintf("%s is wanted here, not %s", typeWords(m[1]), typeWords(m[2]))
		if m[1] == "bool" {
			e.Hint = compareHint
		}
	case match(tokenReport) != nil:
		e.Message, e.Hint = l.badToken(match(tokenReport)[1], at)
	case match(inputReport) != nil:
		m := match(inputReport)
		e.Message, e.Hint = badInput(m[1], m[2], at)
	case match(missingReport) != nil:
		e.Message = fmt.Sprintf("a %s is missing", match(missingReport)[1])
	case strings.HasPrefix(first.Message, "Syntax error: no viable alternative"):
		e.Message = "something is missing or wrong here"
		e.Hint = "behind a point stands the name of a field or function; names that are words of the language are written doc['in']"
	case first.Message == "invalid int literal":
		e.Message, e.Hint = "the number does not fit into a whole number of 64 bits", "with .0 behind it, it is taken as the nearest double"
	case first.Message == "invalid double literal":
		e.Message = "the number is too large"
	case first.Message == "invalid argument to has() macro":
		e.Message, e.Hint = "has() takes a field", "write has(doc.field); for a key that is a text, write 'key' in doc"
	case first.Message == "argument is not an identifier", first.Message == "argument must be a simple name":
		e.Message, e.Hint = "the first argument is a simple name for the element", "as in list.map(x, x.price)"
	case strings.Contains(first.Message, "recursion") || strings.Contains(first.Message, "nesting depth"):
		e.Message, e.Hint = fmt.Sprintf("the expression is nested deeper than %d", MaxNesting), "add many things with [a, b, c].sum() or .join(''); name parts with cel.bind(name, value, expression)"
	case strings.Contains(first.Message, "node count") || strings.Contains(first.Message, "expression count") || strings.Contains(first.Message, "code point size"):
		e.Message, e.Hint = fmt.Sprintf("the expression has more than %d parts", MaxNodes), "name what it repeats with cel.bind(name, value, expression)"
	}
	return e
}

const compareHint = "compare it: x != null, x > 0, x != ''"

// undeclared explains a name that is neither a variable nor a function.
func (l *language) undeclared(e *CompileError, name string, at scan.Cursor) {
	short := name[strings.LastIndexByte(name, '.')+1:]
	if at.Here() != '(' {
		e.Message = fmt.Sprintf("there is no variable %q here", name)
		known := l.scope.variables()
		fallback := "there are " + strings.Join(known, " and ")
		if len(known) == 1 {
			fallback = "there is only " + known[0]
		}
		switch {
		case at.Skip(len([]rune(name))).Here() == ':' && at.Before() != '?':
			e.Hint = fmt.Sprintf("the keys of an object are quoted: {\"%s\": ...}", name)
		case name == "math" || name == "strings" || name == "lists" || name == "optional" || name == "cel":
			e.Message = fmt.Sprintf("there is no such function in %s", name)
			called := at.Skip(len([]rune(name)) + 1).Word()
			e.Hint = cmp.Or(foreignWords[called], l.listFunctions(name))
		case foreignWords[name] != "":
			e.Hint = l.foreign(name)
		case name == "event":
			e.Hint = "an event is not at hand here; " + fallback
		case name == "doc":
			e.Hint = "the document is not at hand here; " + fallback
			if l.scope == ScopeAggregate {
				e.Hint = "write state: doc is a projection's document"
			}
		case name == "state":
			e.Hint = "the state is not at hand here; " + fallback
			if l.scope == ScopeProjection {
				e.Hint = "write doc: state is an aggregate's"
			}
		default:
			if subject := l.scope.subject(); subject != "" {
				field := subject + "." + name
				if l.scope.event() {
					field += " or event.data." + name
				}
				fallback += fmt.Sprintf("; a field is written %s, a text %q", field, name)
			}
			e.Hint = fallback
		}
		return
	}
	e.Column = at.NameStart(e.Column)
	if usages := l.usages(short); len(usages) > 0 {
		e.Message = fmt.Sprintf("%s is not called like this", short)
		e.Hint = "it is called as " + strings.Join(usages, " or ")
		return
	}
	e.Message = fmt.Sprintf("there is no function %q", name)
	e.Hint = l.foreign(short)
	if space, _, found := strings.Cut(name, "."); found && e.Hint == "" {
		e.Hint = l.listFunctions(space)
	}
}

// foreign returns the hint of foreignWords, adapted to the language's scope.
func (l *language) foreign(word string) string {
	hint := foreignWords[word]
	if hint == clockHint && !l.scope.event() {
		return "expressions have no clock: write the moment itself, as in doc.at >= \"2026-01-31T00:00:00Z\""
	}
	return hint
}

// overload explains arguments of the wrong kinds.
func (l *language) overload(e *CompileError, name, types string, at scan.Cursor) {
	receiver, list, isMember := strings.Cut(types, ".(")
	kinds := []string{}
	if isMember {
		kinds = append(kinds, typeWords(receiver))
		types = list
	}
	for _, t := range splitTypes(strings.TrimSuffix(strings.TrimPrefix(types, "("), ")")) {
		kinds = append(kinds, typeWords(t))
	}
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
		return "write == for one value, in [a, b] for one of several, text.contains(part) for a part of a text"
	case symbol == "[]" || symbol == "[?]":
		return "lists are counted by whole numbers from 0, objects by texts"
	case has("a timestamp") && has("a string"):
		return "write timestamp('2026-01-31T00:00:00Z')"
	case symbol == "%":
		return notWhole.hint
	case symbol == "+" && has("a string"):
		return "to join texts, write string(x)"
	case symbol == "+" && has("an object"):
		return "to put objects together, write merge(a, b)"
	case symbol == "+" && has("a list"):
		return "to add one element to a list, write list + [element]"
	case has("a string") && (has("an int") || has("a double")):
		return "write double(x) or int(x) to read a number from a text"
	}
	return ""
}

// typeWords describes a cel-go type in words.
func typeWords(t string) string {
	switch base, _, _ := strings.Cut(t, "("); base {
	case "map":
		return "an object"
	case "list":
		return "a list"
	case "int":
		return "an int"
	case "event":
		return "an event"
	case "null":
		return "null"
	case "dyn", "!error!":
		return "a value"
	case "optional_type", "optional":
		return "an optional value (unwrap it with .orValue(...))"
	case "type":
		return "a type"
	default:
		return "a " + t
	}
}

// splitTypes splits a list of types at the commas outside parentheses.
func splitTypes(text string) []string {
	var out []string
	depth, start := 0, 0
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(text[start:i]))
				start = i + 1
			}
		}
	}
	if rest := strings.TrimSpace(text[start:]); rest != "" {
		out = append(out, rest)
	}
	return out
}

// badToken explains a character that cannot begin a token of the language.
func (l *language) badToken(token string, at scan.Cursor) (message, hint string) {
	assign := "nothing is assigned here: an expression gives the whole new document, as in merge(doc, {\"field\": value})"
	switch l.scope {
	case ScopeDocument:
		assign = "nothing is assigned here: this is a condition"
	case ScopeEvent:
		// This may be a filter, a key or a whole document: which one is unknown here.
		assign = "nothing is assigned here: an expression gives a value"
	}
	switch {
	case strings.HasPrefix(token, "=>"):
		return "=> is not part of the language", "write list.map(x, x.price)"
	case strings.HasPrefix(token, "="):
		if at.Offset >= 2 && string(at.Text[at.Offset-2:at.Offset]) == "!=" {
			return "!== is not part of the language", "write !="
		}
		switch at.Before() {
		case '=':
			return "=== is not part of the language", "write =="
		case '!':
			return "!= is written without a blank", "write !="
		case '+', '-', '*', '/':
			return "there is no " + string(at.Before()) + "=", assign
		}
		return "a single = is not part of the language", "to compare, write ==; " + assign
	case strings.HasPrefix(token, "&"):
		return "a single & is not part of the language", "write &&"
	case strings.HasPrefix(token, "|"):
		return "a single | is not part of the language", "write ||"
	case strings.HasPrefix(token, ";"):
		return "a ; is not part of the language", "leave it out: there is one expression; cel.bind(name, value, expression) names a part of it"
	case strings.HasPrefix(token, `"`), strings.HasPrefix(token, "'"):
		if strings.Contains(token, `\`) {
			return "this text has an escape sequence that does not exist, or does not end", `write \\ for a backslash, or r'...' for a text without escape sequences`
		}
		return "this text does not end", "write " + token[:1] + " behind it"
	case strings.ContainsAny(token, "“”„‘’«»"):
		return "these are not the quotes of the language", `write "text" or 'text'`
	case strings.HasPrefix(token, "#"):
		return "# is not part of the language", "a comment begins with //"
	}
	return fmt.Sprintf("%q is not part of the language", scan.Clip(token)), ""
}

// badInput explains a word in the wrong place.
func badInput(word, expected string, at scan.Cursor) (message, hint string) {
	source := string(at.Text)
	message = fmt.Sprintf("%q cannot stand here", scan.Clip(word))
	switch {
	case strings.Contains(source, "??"):
		hint = "for a value to use where a field is missing, write doc.?field.orValue(0)"
	case strings.Contains(source, "?.") && !strings.Contains(source, ".?"):
		hint = "an optional field is written doc.?field"
	case foreignWords[at.PreviousWord()] != "":
		message += " behind " + at.PreviousWord()
		hint = foreignWords[at.PreviousWord()]
	case foreignWords[word] != "":
		hint = foreignWords[word]
	case foreignWords[strings.ToLower(word)] != "": // SQL keywords are often uppercase
		hint = foreignWords[strings.ToLower(word)]
	case word == ">" && at.Before() == '<':
		hint = "write !="
	case word != "<EOF>" && at.Before() == '.':
		hint = "a field whose name is a word of the language is written doc['" + word + "']"
	case word == "," && openBracket(at.Text[:at.Offset]) == '(':
		hint = "a list is written [a, b]"
	case expected == "':'":
		hint = "write condition ? a : b"
	case word == ")" && at.Before() == ',', word == ")" && strings.HasSuffix(strings.TrimSpace(string(at.Text[:at.Offset])), ","):
		hint = "leave out the comma before it"
	}
	if word == "<EOF>" {
		message = "the expression ends too early"
		if open := openBracket(at.Text); hint == "" && open != 0 {
			hint = fmt.Sprintf("a %c is missing", closing[open])
		}
		return message, hint
	}
	return message, hint
}

var closing = map[rune]rune{'(': ')', '[': ']', '{': '}'}

// openBracket returns the innermost unclosed bracket, or 0.
func openBracket(text []rune) rune {
	var open []rune
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
			open = append(open, r)
		case len(open) > 0 && r == closing[open[len(open)-1]]:
			open = open[:len(open)-1]
		}
	}
	if len(open) == 0 {
		return 0
	}
	return open[len(open)-1]
}
