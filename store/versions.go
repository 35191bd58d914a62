package store

import "strings"

// versionsKept is how many streams' versions a writer remembers at least; at most twice as many.
const versionsKept = 8192

// versions remembers the versions of the streams that were used last. It holds two generations: what is used moves to
// the young one, and when that is full it becomes the old one, and the one before it is dropped. That is nearly the order
// of last use, without a list to keep.
type versions struct {
	young, old map[string]int64
}

func (v *versions) get(stream string) (int64, bool) {
	if version, ok := v.young[stream]; ok {
		return version, true
	}
	version, ok := v.old[stream]
	if ok {
		v.put(stream, version)
	}
	return version, ok
}

// put remembers a version. The name is copied: it may be a part of a request's body.
func (v *versions) put(stream string, version int64) {
	if _, ok := v.young[stream]; !ok {
		if v.young == nil {
			v.young = make(map[string]int64)
		}
		if len(v.young) >= versionsKept {
			v.old, v.young = v.young, make(map[string]int64)
		}
		stream = strings.Clone(stream)
	}
	v.young[stream] = version
}

// mend puts right what is remembered of a stream that somebody else appended to; other streams are not taken in.
func (v *versions) mend(stream string, version int64) {
	if _, ok := v.young[stream]; ok {
		v.young[stream] = version
	} else if _, ok := v.old[stream]; ok {
		v.old[stream] = version
	}
}

func (v *versions) forget() { v.young, v.old = nil, nil }

func (v *versions) empty() bool { return len(v.young)+len(v.old) == 0 }
