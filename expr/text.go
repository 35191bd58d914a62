package expr

import "cel.dev/cel-go/common/types"

// CheckText refuses a key expression that can never return a text, whatever the event: such a key would not distinguish
// events. Errors are those of Compile.
func CheckText(source string) error {
	_, c, err := compile(ScopeEvent, source)
	if err != nil {
		return err
	}
	kind, optional, never := c.never(types.StringKind)
	if !never {
		return nil
	}
	root := c.ast.Expr()
	hint := "write string(...) around it"
	switch c.ast.GetType(root.ID()).Kind() {
	case types.NullTypeKind:
		hint = "write a field of the event, such as event.data.order"
	case types.ListKind, types.MapKind, types.StructKind:
		hint = "take what tells them apart out of it, and write string(...) around that where it is no text: string(event.data.number)"
	}
	if optional {
		hint = "unwrap it: event.data.?field.orValue(null)"
	}
	at := c.fail(root, hint, "it must give a text; this gives %s", kind)
	at.Source = source
	return at
}
