package expr

// Size returns about how many bytes v has as JSON: at least as many as AppendJSON writes, except for an event. It takes
// time for a string only, and that in proportion to its length.
func Size(v Value) int { return measureOf(v).bytes }
