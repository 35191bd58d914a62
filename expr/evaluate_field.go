package expr

import (
	"fmt"

	"github.com/manifold-es/manifold/expr/scan"
)

// selectField is operand.field.
type selectField struct {
	operand node
	part    *part // the operand, if it is one
	field   string
	path    string // the operand as written, for messages
	at      position
}

func (n *selectField) eval(ev *evaluation) (Value, *EvalError) {
	if v, found, ok := n.part.member(ev, n.field); ok {
		if !found {
			return nil, n.missing()
		}
		return v, nil
	}
	operand, fault := n.operand.eval(ev)
	if fault != nil {
		return nil, fault
	}
	ev.cost -= 1 + len(n.field)/64
	switch operand := operand.(type) {
	case *Object:
		if v, found := operand.Get(n.field); found {
			return v, nil
		}
		return nil, n.missing()
	case *Event:
		v, found, err := operand.field(n.field)
		if err != nil {
			return nil, n.at.asFault(err)
		}
		if !found {
			return nil, n.missing()
		}
		return v, nil
	case *Optional:
		// After .?a, a plain .b stays optional.
		return optionalField(operand, n.field, n.path, n.at)
	case Null:
		return nil, n.at.fault(KindMissingField, fmt.Sprintf("where it may be null, write %s.?%s.orValue(...)", n.path, n.field),
			"%s is null and has no field %q", n.path, n.field)
	default:
		return nil, n.at.fault(KindType, "", "%s is %s and has no field %q", n.path, Describe(operand), n.field)
	}
}

func (n *selectField) missing() *EvalError {
	return n.at.fault(KindMissingField, fmt.Sprintf("where it may be missing, write %s.?%s.orValue(...) or test has(%[1]s.%[2]s)", n.path, n.field),
		"%s has no field %q", n.path, n.field)
}

// selectOptional is operand.?field.
type selectOptional struct {
	operand node
	part    *part
	field   string
	path    string
	at      position
}

func (n *selectOptional) eval(ev *evaluation) (Value, *EvalError) {
	if v, _, ok := n.part.member(ev, n.field); ok {
		return &Optional{value: v}, nil
	}
	operand, fault := n.operand.eval(ev)
	if fault != nil {
		return nil, fault
	}
	ev.cost -= 1 + len(n.field)/64
	return optionalField(operand, n.field, n.path, n.at)
}

// optionalField returns a field as an optional. A null has no fields, so its optional fields are missing, which is no
// fault.
func optionalField(operand Value, field, path string, at position) (Value, *EvalError) {
	switch operand := operand.(type) {
	case *Object:
		v, _ := operand.Get(field)
		return &Optional{value: v}, nil
	case *Event:
		v, _, err := operand.field(field)
		if err != nil {
			return nil, at.asFault(err)
		}
		return &Optional{value: v}, nil
	case Null:
		return &Optional{}, nil
	case *Optional:
		if operand.value == nil {
			return operand, nil
		}
		return optionalField(operand.value, field, path, at)
	default:
		return nil, at.fault(KindType, "", "%s is %s and has no field %q", path, Describe(operand), field)
	}
}

// hasField is has(operand.field).
type hasField struct {
	operand node
	part    *part
	field   string
	path    string
	at      position
}

func (n *hasField) eval(ev *evaluation) (Value, *EvalError) {
	if _, found, ok := n.part.member(ev, n.field); ok {
		return Bool(found), nil
	}
	operand, fault := n.operand.eval(ev)
	if fault != nil {
		return nil, fault
	}
	ev.cost -= 1 + len(n.field)/64
	if o, ok := operand.(*Object); ok {
		_, found := o.Get(n.field)
		return Bool(found), nil
	}
	v, fault := optionalField(operand, n.field, n.path, n.at)
	if fault != nil {
		return nil, fault
	}
	value := v.(*Optional).value
	if _, isEvent := operand.(*Event); isEvent {
		// Metadata that was not given is null.
		_, null := value.(Null)
		return Bool(value != nil && !null), nil
	}
	return Bool(value != nil), nil
}

// index is operand[key], or operand[?key].
type index struct {
	operand  node
	key      node
	optional bool
	path     string
	at       position
}

func (n *index) eval(ev *evaluation) (Value, *EvalError) {
	operand, fault := n.operand.eval(ev)
	if fault != nil {
		return nil, fault
	}
	key, fault := n.key.eval(ev)
	if fault != nil {
		return nil, fault
	}
	ev.cost--
	if text, ok := key.(String); ok {
		if fault := ev.scan(string(text), n.at); fault != nil {
			return nil, fault
		}
	}
	optional := n.optional
	if chain, ok := operand.(*Optional); ok {
		if chain.value == nil {
			return chain, nil
		}
		operand, optional = chain.value, true
	}
	v, fault := n.lookUp(operand, key, optional)
	if fault != nil {
		return nil, fault
	}
	if optional {
		return &Optional{value: v}, nil
	}
	return v, nil
}

// lookUp returns nil if the key is optional and missing.
func (n *index) lookUp(operand, key Value, optional bool) (Value, *EvalError) {
	switch operand := operand.(type) {
	case List:
		i, ok := key.(Int)
		if !ok {
			return nil, n.at.fault(KindType, "", "%s is a list; its places are counted by an int from 0, not by %s", n.path, Describe(key))
		}
		if i >= 0 && int64(i) < int64(len(operand.items)) {
			return operand.items[i], nil
		}
		if optional {
			return nil, nil
		}
		return nil, n.at.fault(KindIndex, fmt.Sprintf("where it may be too short, write %s[?i].orValue(...)", n.path),
			"%s has %d elements, none at place %d", n.path, len(operand.items), i)
	case *Object, *Event:
		field, ok := key.(String)
		if !ok {
			return nil, n.at.fault(KindType, "write string(...) around it", "%s is an object; its keys are strings, not %s", n.path, Describe(key))
		}
		v, fault := optionalField(operand, string(field), n.path, n.at)
		if fault != nil {
			return nil, fault
		}
		if value := v.(*Optional).value; value != nil || optional {
			return value, nil
		}
		return nil, n.at.fault(KindMissingField, fmt.Sprintf("where it may be missing, write %s[?key].orValue(...) or test key in %[1]s", n.path),
			"%s has no field %q", n.path, scan.Clip(string(field)))
	case Null:
		if optional {
			return nil, nil
		}
		return nil, n.at.fault(KindMissingField, fmt.Sprintf("where it may be null, write %s[?key].orValue(...)", n.path), "%s is null and has nothing inside", n.path)
	default:
		return nil, n.at.fault(KindType, "", "%s is %s and has nothing inside", n.path, Describe(operand))
	}
}

// part is event.data or event.metadata with a field selected. Most expressions need few fields of an event, so only
// those are parsed; an expression that uses the whole part has it parsed.
type part struct {
	slot int // of the event
	name string
}

// partOf returns the part that an operand is; nil for anything else.
func partOf(operand node) *part {
	field, ok := operand.(*selectField)
	if !ok || field.field != "data" && field.field != "metadata" {
		return nil
	}
	event, ok := field.operand.(*name)
	if !ok {
		return nil
	}
	return &part{event.slot, field.field}
}

// member returns a field of the part; ok is false if the part must be evaluated like any other value. It charges what
// that evaluation would have charged.
func (p *part) member(ev *evaluation, field string) (v Value, found, ok bool) {
	if p == nil {
		return nil, false, false
	}
	event, ok := ev.variables[p.slot].value.(*Event)
	if !ok || ev.variables[p.slot].fault != nil {
		return nil, false, false
	}
	if p.name == "data" {
		v, found, ok = event.dataIndex.member(event.data, event.event.Data, field)
	} else {
		v, found, ok = event.metadataIndex.member(event.metadata, event.event.Metadata, field)
	}
	if ok {
		ev.cost -= 3 + len(field)/64 // the event's name and the part's as well
	}
	return v, found, ok
}
