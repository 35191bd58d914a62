package expr

import (
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr/scan"
)

// Target is a document that an event belongs to.
type Target struct {
	ID   string
	Item Value // what the event has for this document, in JSON's kinds; nil is null
}

// values returns the values of `key` and `item` for an expression; used is false if it reads neither.
func (t *Target) values(used bool) []Value {
	if !used {
		return noTarget
	}
	item := t.Item
	if item == nil {
		item = Null{}
	}
	return []Value{String(t.ID), item}
}

var noTarget = []Value{Null{}, Null{}}

// Targets appends the documents that event belongs to, in the order of the key. Their ids are distinct. There are none
// if the event is not for this projection: the expression gave null, or a list without ids. The error is always an
// *EvalError.
func (k *Key) Targets(targets []Target, event *Event) ([]Target, error) {
	v, fault := k.program.run(nil, event)
	if fault != nil {
		return nil, fault
	}
	if _, ok := v.(*Object); ok {
		return nil, &EvalError{Kind: KindResult, Message: "a key is a string, a list, or null; this one is an object", Hint: `write [{"id": ..., "item": ...}]`}
	}
	list, ok := v.(List)
	if !ok {
		id, ok, fault := keyText(v)
		switch {
		case fault != nil:
			return nil, fault
		case ok:
			targets = append(targets, Target{ID: id})
		}
		return targets, nil
	}
	first, room := len(targets), domain.MaxItemBytes
	for i := range list.Len() {
		target, ok, fault := targetOf(list.At(i), &room)
		if fault != nil {
			fault.Message = fmt.Sprintf("element %d of the key: %s", i, fault.Message)
			return nil, fault
		}
		if !ok {
			continue
		}
		if slices.ContainsFunc(targets[first:], func(other Target) bool { return other.ID == target.ID }) {
			return nil, &EvalError{Kind: KindResult, Message: fmt.Sprintf("the key has the id %q twice", scan.Clip(target.ID)), Hint: "write list.distinct(), or give one item for each document"}
		}
		if targets = append(targets, target); len(targets)-first > domain.MaxEventDocuments {
			return nil, &EvalError{Kind: KindResult, Message: fmt.Sprintf("the key gives more than %d documents, which an event may have", domain.MaxEventDocuments)}
		}
	}
	return targets, nil
}

// targetOf reads an element of a key's list: an id, an object {"id": id, "item": value}, or null for no document. room
// is how many bytes items may still have.
func targetOf(v Value, room *int) (target Target, ok bool, _ *EvalError) {
	var fault *EvalError
	object, isObject := v.(*Object)
	if !isObject {
		target.ID, ok, fault = keyText(v)
		return target, ok, fault
	}
	for i := range object.Len() {
		if name, _ := object.Entry(i); name != "id" && name != "item" {
			return target, false, &EvalError{Kind: KindResult, Message: fmt.Sprintf("it has a field %q; there are id and item", scan.Clip(name)), Hint: "put all that the document's fold needs into item"}
		}
	}
	id, found := object.Get("id")
	if !found {
		return target, false, &EvalError{Kind: KindResult, Message: "it has no id", Hint: `write {"id": ..., "item": ...}`}
	}
	if target.ID, ok, fault = keyText(id); fault != nil || !ok {
		return target, false, fault
	}
	item, found := object.Get("item")
	if !found {
		return target, true, nil
	}
	settled, err := settle(item)
	if err != nil {
		return target, false, position{}.asFault(err)
	}
	m := measureOf(settled)
	if fault := m.fault(); fault != nil {
		return target, false, fault
	}
	if *room -= m.bytes; *room < 0 {
		return target, false, &EvalError{Kind: KindMemory, Message: fmt.Sprintf("the items come to more than %d bytes as JSON", domain.MaxItemBytes), Hint: "leave out what the folds can read from event"}
	}
	target.Item = settled
	return target, true, nil
}
