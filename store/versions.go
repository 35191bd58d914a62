package store

import "strings"

// versionsKept is how many streams' versions a writer remembers at least; at most twice as many.
const versionsKept = 8192

// versions remembers the versions of the streams that were used last. It holds two generations: what is used moves to
// the young one, and when that is full it becomes the old one, and the one before it is dropped. That is nearly the order
// of last use, without a list to keep.
//
// The names are copies: those that come in may be parts of requests' bodies. The versions are pointers, since setting an
// element of a map that is there replaces its key, too, by the one that came in.
type versions struct {
	young, old map[string]*int64
}

func (v *versions) get(stream string) (int64, bool) {
	if version, ok := v.young[stream]; ok {
		return *version, true
	}
	version, ok := v.old[stream]
	if !ok {
		return 0, false
	}
	v.put(stream, *version)
	return *version, true
}

// put remembers a version.
func (v *versions) put(stream string, version int64) {
	if kept, ok := v.young[stream]; ok {
		*kept = version
		return
	}
	if v.young == nil {
		v.young = make(map[string]*int64)
	}
	if len(v.young) >= versionsKept {
		v.old, v.young = v.young, make(map[string]*int64)
	}
	v.young[strings.Clone(stream)] = &version
}

// mend puts right what is remembered of a stream that somebody else appended to; other streams are not taken in.
func (v *versions) mend(stream string, version int64) {
	if kept, ok := v.young[stream]; ok {
		*kept = version
	} else if kept, ok := v.old[stream]; ok {
		*kept = version
	}
}

func (v *versions) forget() { v.young, v.old = nil, nil }

func (v *versions) empty() bool { return len(v.young)+len(v.old) == 0 }
