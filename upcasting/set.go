package upcasting

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Set is the upcasters in force for a tenant. It is immutable, and may be used by any number of goroutines at once; a nil
// Set has none.
type Set struct {
	layers []*layer // of several upcasters for a type and version the first one's is in force
}

// layer is the upcasters of one owner.
type layer struct {
	revision int64
	bytes    int                        // of all expressions
	steps    map[string]map[int64]*step // by event type and schema version
}

// step is one upcaster, compiled when it is first needed.
type step struct {
	domain.Upcaster
	compiled func() (*expr.Upcaster, error)
}

func newLayer(upcasters []domain.Upcaster, revision int64) *layer {
	l := &layer{revision: revision, steps: make(map[string]map[int64]*step)}
	for _, upcaster := range upcasters {
		if l.steps[upcaster.Type] == nil {
			l.steps[upcaster.Type] = make(map[int64]*step)
		}
		l.steps[upcaster.Type][upcaster.Version] = &step{upcaster, sync.OnceValues(func() (*expr.Upcaster, error) {
			return expr.CompileUpcaster(upcaster.Expression)
		})}
		l.bytes += len(upcaster.Expression)
	}
	return l
}

// NewSet returns a set of upcasters that are not kept anywhere; what Put would refuse is refused.
func NewSet(upcasters []domain.Upcaster) (*Set, error) {
	for i, upcaster := range upcasters {
		if err := check(upcaster); err != nil {
			return nil, err
		}
		for _, other := range upcasters[:i] {
			if other.Type == upcaster.Type && other.Version == upcaster.Version {
				return nil, domain.Errorf(domain.CodeInvalidDefinition, "", "there are two upcasters %s", upcaster.Name())
			}
		}
	}
	return &Set{layers: []*layer{newLayer(upcasters, 0)}}, nil
}

// Concerns reports whether the set has an upcaster for an event type.
func (s *Set) Concerns(eventType string) bool {
	if s == nil {
		return false
	}
	for _, layer := range s.layers {
		if layer.steps[eventType] != nil {
			return true
		}
	}
	return false
}

// Upcasters returns those in force for the event types that wanted names, by type and version.
func (s *Set) Upcasters(wanted func(eventType string) bool) []domain.Upcaster {
	if s == nil {
		return nil
	}
	var all []domain.Upcaster
	for _, layer := range s.layers {
		for eventType, steps := range layer.steps {
			if !wanted(eventType) {
				continue
			}
			for version, step := range steps {
				if s.step(eventType, version) == step {
					all = append(all, step.Upcaster)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b domain.Upcaster) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// step is the upcaster in force for an event type and schema version; nil where there is none.
func (s *Set) step(eventType string, version int64) *step {
	for _, layer := range s.layers {
		if step := layer.steps[eventType][version]; step != nil {
			return step
		}
	}
	return nil
}

// Fault says which upcaster an event does not go through, and why. The same event gives the same fault.
type Fault struct {
	Upcaster domain.Upcaster
	Err      error // with the place in the expression, where there is one
}

// Error names the upcaster and what went wrong in it.
func (f *Fault) Error() string { return f.Upcaster.Name() + ": " + f.Err.Error() }

// Unwrap returns what went wrong.
func (f *Fault) Unwrap() error { return f.Err }

// Upcast brings an event's data into the form of the highest schema version that a chain of the set leads to; its
// metadata says so in schemaVersion. What is no step's stays byte for byte as it is. Data and Metadata are replaced,
// never written into. With a fault the event is as it was.
// A meter may end it (nil: none does), with a fault that means nothing then.
func (s *Set) Upcast(meter *expr.Meter, event *domain.Event) *Fault {
	if !s.Concerns(event.Type) {
		return nil
	}
	_, _, fault := s.trace(meter, event, true)
	return fault
}

// UpcastUnrecorded is Upcast for an event that is to be appended: an upcaster that looks at what is not known before that
// is a fault.
func (s *Set) UpcastUnrecorded(meter *expr.Meter, event *domain.Event) *Fault {
	if !s.Concerns(event.Type) {
		return nil
	}
	_, _, fault := s.trace(meter, event, false)
	return fault
}

// errUnrecorded is why an event is not upcast before it is in the log.
var errUnrecorded = errors.New("it looks at when the event was recorded, which is not known before the event is appended; put the time into the event's data")

// timeless reports whether an upcaster needs nothing of an event that only its recording brings: an event that has no time
// of its own has happened when it was recorded.
func timeless(expression *expr.Upcaster, event *domain.Event) bool {
	return !expression.Uses("recordedAt") && (!expression.Uses("occurredAt") || !event.OccurredAt.IsZero())
}

// trace is Upcast, or UpcastUnrecorded, and says which schema version the event had, and which one it reached: with a fault the one before
// it. Both are 0 where the event says something that is none.
func (s *Set) trace(meter *expr.Meter, event *domain.Event, recorded bool) (before, after int64, fault *Fault) {
	before, others, ok := schemaVersion(event.Metadata)
	if !ok || s == nil {
		return before, before, nil
	}
	upcast := *event
	after = before
	for {
		step := s.step(event.Type, after)
		if step == nil {
			break
		}
		expression, err := step.compiled()
		if err != nil {
			// It compiled when it was kept: this release understands it otherwise.
			return before, after, &Fault{step.Upcaster, err}
		}
		if !recorded && !timeless(expression, &upcast) {
			return before, after, &Fault{step.Upcaster, errUnrecorded}
		}
		data, err := expression.Eval(expr.NewEvent(upcast).Within(meter))
		if err != nil {
			return before, after, &Fault{step.Upcaster, err}
		}
		after++
		upcast.Data = data
		if others != nil {
			upcast.Metadata = strconv.AppendInt(append(others[:len(others):len(others)], `"schemaVersion":`...), after, 10)
			upcast.Metadata = append(upcast.Metadata, '}')
		}
	}
	*event = upcast
	return before, after, nil
}

// schemaVersion reads an event's schema version out of its metadata; ok is false where something else stands there. others
// is the text of metadata with all but the version, ready for it to follow; nil where there is no place for it.
func schemaVersion(metadata []byte) (version int64, others []byte, ok bool) {
	if len(metadata) == 0 || string(metadata) == "null" {
		return 1, []byte{'{'}, true
	}
	if metadata[0] != '{' {
		return 1, nil, true
	}
	version, others = 1, append(make([]byte, 0, len(metadata)+24), '{')
	ok = true
	scanner := domain.NewStoredJSONScanner(metadata)
	err := scanner.Object(func(name string) error {
		value, err := scanner.Value()
		if err != nil {
			return err
		}
		if name == "schemaVersion" {
			version, ok = wholeNumber(value)
			return nil
		}
		key, err := expr.AppendJSON(others, expr.String(name))
		if err != nil {
			return err
		}
		others = append(append(append(key, ':'), value...), ',')
		return nil
	})
	if err != nil || !ok {
		return 0, nil, false
	}
	return version, others, true
}

// wholeNumber reads a schema version; null is the first.
func wholeNumber(text []byte) (int64, bool) {
	value, err := expr.ParseJSON(text)
	if err != nil {
		return 0, false
	}
	switch value := value.(type) {
	case expr.Null:
		return 1, true
	case expr.Int:
		return int64(value), value >= 1
	}
	return 0, false
}
