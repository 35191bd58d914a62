package expr

import (
	"cmp"
	"strings"
	"time"
)

// equal compares two values by meaning: numbers exactly and across their kinds, lists and objects by their contents.
// Values of different kinds are unequal, which is no fault. The walk is charged to the evaluation, since values with
// shared parts can be far larger than the memory that they take.
func (ev *evaluation) equal(a, b Value, at position) (bool, *EvalError) {
	if err := ev.spend(1, at); err != nil {
		return false, err
	}
	switch a := a.(type) {
	case Null, Bool, Int, Double, Duration, Type:
		return a == b, nil
	case String:
		other, same := b.(String)
		return same && a == other, ev.spend(min(len(a), len(other))/64, at)
	case Timestamp:
		other, same := b.(Timestamp)
		return same && time.Time(a).Equal(time.Time(other)), nil
	case List:
		other, same := b.(List)
		if !same || len(a.items) != len(other.items) {
			return false, nil
		}
		for i := range a.items {
			if same, err := ev.equal(a.items[i], other.items[i], at); err != nil || !same {
				return false, err
			}
		}
		return true, nil
	case *Optional:
		other, same := b.(*Optional)
		if !same || a.value == nil || other.value == nil {
			return same && a.value == other.value, nil
		}
		return ev.equal(a.value, other.value, at)
	case *Object, *Event:
		left, err := asObject(a, at)
		if err != nil {
			return false, err
		}
		right, err := asObject(b, at)
		if err != nil {
			return false, err
		}
		if right == nil || len(left.keys) != len(right.keys) {
			return false, nil
		}
		for i, key := range left.keys {
			if fault := ev.scan(key, at); fault != nil {
				return false, fault
			}
			if key != right.keys[i] {
				return false, nil
			}
			if same, err := ev.equal(left.values[i], right.values[i], at); err != nil || !same {
				return false, err
			}
		}
		return true, nil
	}
	return false, nil
}

// asObject returns v as an object, or nil if it is none.
func asObject(v Value, at position) (*Object, *EvalError) {
	switch v := v.(type) {
	case *Object:
		return v, nil
	case *Event:
		o, err := v.object()
		if err != nil {
			return nil, at.asFault(err)
		}
		return o, nil
	}
	return nil, nil
}

// order compares two values of the same ordered kind: numbers, strings (by bytes, which is by code points), bools
// (false first), timestamps and durations. It returns false for any other pair.
func order(a, b Value) (int, bool) {
	switch a := a.(type) {
	case Int, Double:
		return compareNumbers(a, b), isNumber(b)
	case String:
		other, same := b.(String)
		return strings.Compare(string(a), string(other)), same
	case Bool:
		other, same := b.(Bool)
		return cmp.Compare(bit(a), bit(other)), same
	case Timestamp:
		other, same := b.(Timestamp)
		return time.Time(a).Compare(time.Time(other)), same
	case Duration:
		other, same := b.(Duration)
		return cmp.Compare(a, other), same
	}
	return 0, false
}

func bit(b Bool) byte {
	if b {
		return 1
	}
	return 0
}
