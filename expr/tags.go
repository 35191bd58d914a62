package expr

import (
	"fmt"

	"github.com/manifold-es/manifold/domain"
)

// Tags is a compiled expression for tags: event -> null, a tag, or a list of tags. It is safe for concurrent use.
type Tags struct{ compiled }

// unstable lists the event's fields that the append sets, and those that include the tags.
var unstable = []string{"id", "occurredAt", "position", "recordedAt", "tags", "version"}

// CompileTags compiles an expression for tags. It may not read fields of the event that only its append determines.
// Errors are those of Compile.
func CompileTags(source string) (*Tags, error) {
	root, c, err := compile(ScopeEvent, source)
	if err != nil {
		return nil, err
	}
	tags := &Tags{compiled{c.program(root, source)}}
	for _, field := range unstable {
		if !tags.Uses(field) {
			continue
		}
		at := c.fail(c.ast.Expr(), "read event.data, metadata, stream, category, key or type", "tags must not depend on event.%s", field)
		if tags.program.use.all {
			at = c.fail(c.ast.Expr(), "read its fields instead, such as event.data", "tags must not depend on the whole event")
		}
		at.Source = source
		return nil, at
	}
	return tags, nil
}

// Eval returns the event's tags as domain.CheckTags does. The error is always an *EvalError.
func (t *Tags) Eval(event *Event) ([]string, error) {
	v, fault := t.program.run(nil, event)
	if fault != nil {
		return nil, fault
	}
	var tags []string
	switch v := v.(type) {
	case Null:
		return nil, nil
	case String:
		tags = []string{string(v)}
	case List:
		if v.Len() > domain.MaxTags {
			return nil, &EvalError{Kind: KindResult, Message: fmt.Sprintf("there are %d tags; at most %d are allowed", v.Len(), domain.MaxTags)}
		}
		for i := range v.Len() {
			tag, ok := v.At(i).(String)
			if !ok {
				return nil, &EvalError{Kind: KindResult, Hint: "write string(...) around it", Message: fmt.Sprintf("tag %d is %s; tags are strings", i, Describe(v.At(i)))}
			}
			tags = append(tags, string(tag))
		}
	default:
		return nil, &EvalError{Kind: KindResult, Hint: "write string(...) around it", Message: fmt.Sprintf("tags are a string, a list of strings, or null for none; this is %s", Describe(v))}
	}
	checked, err := domain.CheckTags("", tags)
	if err != nil {
		return nil, &EvalError{Kind: KindResult, Message: domain.ClientMessage(err)}
	}
	return checked, nil
}
