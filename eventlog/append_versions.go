package eventlog

import "strings"

// versionsKept is the smallest number of streams whose versions a writer can remember; the largest is twice that.
const versionsKept = 8192

// versions remembers the versions of the most recently used streams. It holds two generations. A used entry moves to
// the young one. When that is full, it becomes the old one, and the previous old one is dropped. The result is close to
// the order of last use, without a list to maintain.
//
// The names are copies, because incoming names may be parts of request bodies. The versions are pointers, because
// assigning to an existing map element must not replace its key by the incoming one.
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

// update sets the remembered version of a stream that another process has appended to. It adds no other streams.
func (v *versions) update(stream string, version int64) {
	if kept, ok := v.young[stream]; ok {
		*kept = version
	} else if kept, ok := v.old[stream]; ok {
		*kept = version
	}
}

func (v *versions) forget() { v.young, v.old = nil, nil }

func (v *versions) empty() bool { return len(v.young)+len(v.old) == 0 }
