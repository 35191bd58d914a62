package domain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Pick returns the object reduced to the values at the given paths, in the order of the paths. If one path extends
// another, the shorter one gives its whole value. Missing values are left out, and so are objects without any requested
// value. Values keep their bytes from data. Pick returns an error if data is not a JSON object.
func Pick(data json.RawMessage, fields []Path) (json.RawMessage, error) {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return nil, errors.New("fields can be picked only from an object")
	}
	var wanted selection
	for _, path := range fields {
		wanted.add(path)
	}
	picked, _, err := wanted.pick(data)
	if err != nil {
		return nil, fmt.Errorf("the object to pick from: %w", err)
	}
	if picked == nil {
		picked = json.RawMessage("{}")
	}
	return picked, nil
}

// selection is the requested part of an object.
type selection struct {
	all   bool
	names []string // of parts, in the order of the request
	parts map[string]*selection
}

func (s *selection) add(path Path) {
	if len(path) == 0 {
		s.all = true
		return
	}
	part := s.parts[path[0]]
	if part == nil {
		if s.parts == nil {
			s.parts = make(map[string]*selection)
		}
		part = &selection{}
		s.parts[path[0]] = part
		s.names = append(s.names, path[0])
	}
	part.add(path[1:])
}

// pick returns false if no requested value exists.
func (s *selection) pick(data json.RawMessage) (json.RawMessage, bool, error) {
	if s.all {
		return data, true, nil
	}
	if len(data) == 0 || data[0] != '{' && !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return nil, false, nil // only objects have members
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, false, err
	}
	var out json.RawMessage
	for _, name := range s.names {
		value, ok := members[name]
		if !ok {
			continue
		}
		value, ok, err := s.parts[name].pick(value)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			continue
		}
		out = append(out, "{,"[min(len(out), 1)])
		out = append(out, Scalar{Kind: ScalarText, Text: name}.JSON()...)
		out = append(append(out, ':'), value...)
	}
	if out == nil {
		return nil, false, nil
	}
	return append(out, '}'), true, nil
}
