package subscription

// CrowdFrom changes how many bytes feeds that are behind their tails may have before each has to do with less.
func (t *Tails) CrowdFrom(bytes int64) { t.crowd = bytes }

// Behind is how many bytes they have.
func (t *Tails) Behind() int64 { return t.behind.Load() }
