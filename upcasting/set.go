package upcasting

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Set is the upcasters in force for a tenant. It is immutable and safe for concurrent use; a nil Set has no upcasters.
type Set struct {
	layers []*layer // if several have an upcaster for a type and version, the first one's is in force
}

// layer is the upcasters of one owner.
type layer struct {
	revision int64
	bytes    int                        // of all expressions
	steps    map[string]map[int64]*step // by event type and schema version
}

// step is one upcaster, compiled on first use.
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

// NewSet returns a set of upcasters that are not stored. It refuses what Put would refuse.
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

// Upcasters returns the upcasters in force for the wanted event types, by type and version.
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

// Uses reports whether an upcaster in force for the wanted event types may read that field of its event.
func (s *Set) Uses(wanted func(eventType string) bool, field string) bool {
	return slices.ContainsFunc(s.Upcasters(wanted), func(u domain.Upcaster) bool {
		expression, err := s.step(u.Type, u.Version).compiled()
		return err == nil && expression.Uses(field)
	})
}

// step returns the upcaster in force for an event type and schema version; nil if there is none.
func (s *Set) step(eventType string, version int64) *step {
	for _, layer := range s.layers {
		if step := layer.steps[eventType][version]; step != nil {
			return step
		}
	}
	return nil
}

// Fault says which upcaster fails for an event, and why. The same event gives the same fault.
type Fault struct {
	Upcaster domain.Upcaster
	Err      error // with the place in the expression, if known
}

// Error names the upcaster and its error.
func (f *Fault) Error() string { return f.Upcaster.Name() + ": " + f.Err.Error() }

// Unwrap returns the underlying error.
func (f *Fault) Unwrap() error { return f.Err }

// Upcast converts an event's data to the highest schema version that a chain of the set leads to, and writes that
// version to schemaVersion in its metadata. Everything else stays byte for byte as it is. Data and Metadata are
// replaced, never modified in place. With a fault the event is unchanged. A meter may end the conversion (nil: none
// does), with a meaningless fault.
func (s *Set) Upcast(meter *expr.Meter, event *domain.Event) *Fault {
	if !s.Concerns(event.Type) {
		return nil
	}
	_, _, fault := s.trace(meter, event, true)
	return fault
}

// UpcastUnrecorded is Upcast for an event before its append. An upcaster that uses what is not known before the append
// is a fault.
func (s *Set) UpcastUnrecorded(meter *expr.Meter, event *domain.Event) *Fault {
	if !s.Concerns(event.Type) {
		return nil
	}
	_, _, fault := s.trace(meter, event, false)
	return fault
}

// errUnrecorded is the error of an upcaster that cannot run before the event is in the log.
var errUnrecorded = errors.New("it uses the time of recording, which is unknown before the append; put the time into the event's data")

// timeless reports whether an upcaster uses nothing of an event that only its recording determines. That includes the
// time of occurrence of an event without one, which is the time of recording.
func timeless(expression *expr.Upcaster, event *domain.Event) bool {
	return !expression.Uses("recordedAt") && (!expression.Uses("occurredAt") || !event.OccurredAt.IsZero())
}

// trace is Upcast, or UpcastUnrecorded. It also returns the schema version that the event had, and the one it reached:
// with a fault, the one before the fault. Both are 0 if the event's version is invalid.
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
			// It compiled when it was stored: this release interprets it differently.
			return before, after, &Fault{step.Upcaster, err}
		}
		if !recorded && !timeless(expression, &upcast) {
			return before, after, &Fault{step.Upcaster, errUnrecorded}
		}
		data, err := expression.Eval(expr.NewEvent(&upcast).WithMeter(meter))
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

// schemaVersion reads an event's schema version from its metadata; ok is false if it is invalid. others is the text of
// the metadata without the version, ready for a version to be added; nil if there is no place for one.
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

// NamedVersion returns the schema version that an event's metadata names; ok is false if it names none, or an invalid
// one. The metadata may be as a client sent it.
func NamedVersion(metadata []byte) (version int64, ok bool) {
	// An escape may hide the name.
	if len(metadata) == 0 || !bytes.Contains(metadata, []byte("schemaVersion")) && bytes.IndexByte(metadata, '\\') < 0 || metadata[0] != '{' {
		return 0, false
	}
	scanner := domain.NewStoredJSONScanner(metadata)
	err := scanner.Object(func(name string) error {
		value, err := scanner.Value()
		if err == nil && name == "schemaVersion" {
			version, ok = wholeNumber(value)
			ok = ok && string(value) != "null"
		}
		return err
	})
	return version, ok && err == nil
}

// wholeNumber reads a schema version; null is version 1.
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
