package domain

// Paths yields the path of each part of a predicate that reads the document. It may yield the same path more than once.
func Paths(where Predicate, yield func(Path)) {
	switch p := where.(type) {
	case And:
		for _, part := range p {
			Paths(part, yield)
		}
	case Or:
		for _, part := range p {
			Paths(part, yield)
		}
	case nil:
	default:
		yield(LeafPath(p))
	}
}

// LeafPath returns a leaf's path, or nil if the predicate is not a leaf.
func LeafPath(where Predicate) Path {
	switch p := where.(type) {
	case Has:
		return p.Path
	case Compare:
		return p.Path
	case OneOf:
		return p.Path
	case Contains:
		return p.Path
	case Text:
		return p.Path
	case Matches:
		return p.Path
	}
	return nil
}
