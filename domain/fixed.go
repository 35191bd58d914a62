package domain

import "slices"

// Fixed returns the value that a predicate requires at a path of every document by `==`, either alone or as one part of
// an And. ok is false if the predicate requires none in this way.
func Fixed(where Predicate, path Path) (value Scalar, ok bool) {
	switch p := where.(type) {
	case Compare:
		if p.Comparison == Equal && slices.Equal(p.Path, path) {
			return p.Value, true
		}
	case And:
		for _, part := range p {
			if value, ok := Fixed(part, path); ok {
				return value, true
			}
		}
	}
	return Scalar{}, false
}
