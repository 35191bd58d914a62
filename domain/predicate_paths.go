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
	case Has:
		yield(p.Path)
	case Compare:
		yield(p.Path)
	case OneOf:
		yield(p.Path)
	case Contains:
		yield(p.Path)
	case Text:
		yield(p.Path)
	case Matches:
		yield(p.Path)
	}
}
