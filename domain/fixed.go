package domain

import "slices"

// Fixed is the value that a predicate demands at a path of every document: by `==`, alone or as one of the parts that must
// all match. ok is false where it demands none in this way.
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
