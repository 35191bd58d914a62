package group

import (
	"context"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
)

// Bounds of reads that the groups of one tenant share, and of those kept in memory.
const (
	sharedFromGroups = 8       // with fewer in use, a group without partitions reads by itself
	sharedWindow     = 2000    // positions before the head; older events are not new to all groups at once
	sharedEvents     = 2000    // per read
	sharedBytes      = 1 << 20 // per read
	sharedReadsKept  = 128
	sharedBytesKept  = 8 << 20          // beyond this, parts that no partition is about to take are dropped
	sharedBytesHeld  = 32 << 20         // beyond this, whole reads are dropped
	sharedFor        = 10 * time.Second // until an unused read is dropped
	eventOverhead    = 256              // bytes of an event besides its data and metadata, approximately
)

// sharedReads makes one read of a tenant's log do for many readers, and keeps the last reads in memory. The partitions
// of a group share all reads of the events that their group selects, and a read is kept, within bounds, until all of
// them have taken their parts. If many groups are in use, they share reads of all new events. Otherwise 16 partitions
// would read the log 16 times, and a thousand groups each append a thousand times. Other reads pass through. Methods
// may be called concurrently.
type sharedReads struct {
	log    *eventlog.Log
	groups func() int    // number of the tenant's groups in use
	memory *memoryBudget // of all tenants
	events int           // sharedEvents, except in tests
	kept   int           // bytes; sharedBytesKept, except in tests
	held   int           // bytes; sharedBytesHeld, except in tests

	mu     sync.Mutex
	reads  []*sharedRead // used last comes last
	bytes  int           // of reads
	places map[readKind][]readPlace
	closed bool // nothing is kept any longer
}

// readPlace is where a partition has asked for events last. The zero value means that it has never asked.
type readPlace struct {
	position int64
	asked    time.Time
}

// memoryBudget counts the bytes of events that all groups of a process have in memory.
type memoryBudget struct {
	used  atomic.Int64
	bound int64
}

// scarce reports whether too much is in memory, so that readers must read only what they need next.
func (m *memoryBudget) scarce() bool { return m.used.Load() > m.bound }

// tight reports whether so much is in memory that only what is needed soon may be added.
func (m *memoryBudget) tight() bool { return m.used.Load() > m.bound/2 }

// readKind says which events of a range a shared read has, and how it divides them.
type readKind struct {
	categories, types string
	partitions        int // 0: not divided
}

// sharedRead is one read of a range of the log.
type sharedRead struct {
	kind     readKind
	from, to int64
	used     time.Time     // guarded by sharedReads.mu, like bytes
	bytes    int           // of events; 0 until done
	parts    []readPart    // set when done; guarded by sharedReads.mu
	done     chan struct{} // closed when the fields below are set
	upTo     int64         // everything up to here was read
	removed  int64         // as in domain.LogSlice
	err      error
}

// readPart is what a shared read has for one partition, or for all readers if it is not divided.
type readPart struct {
	events  []domain.Event
	bytes   int
	wanted  bool // its partition is about to take it
	dropped bool
}

// read returns events of q in order, with the position up to which they are complete, which is at least q.From-1. If
// there are partitions, it may also return events of others, and events that q does not select by category or type.
// head is where the caller's log ends.
func (r *sharedReads) read(ctx context.Context, tenant domain.TenantID, q domain.LogQuery, partition, partitions int, head int64) (slice domain.LogSlice, upTo int64, err error) {
	wide := q
	switch {
	case head-q.From < sharedWindow && r.groups() >= sharedFromGroups:
		wide.Categories, wide.Types, partition, partitions = nil, nil, 0, 0
	case partitions < 2:
		return r.readAlone(ctx, tenant, q)
	}
	kind := readKind{strings.Join(wide.Categories, "\x00"), strings.Join(wide.Types, "\x00"), partitions}
	at, bytes := q.From, q.MaxBytes
	// Finished reads that follow each other count as one, so that a reader that lags behind is given all at once.
	for waited := false; at <= q.To && (!waited || at == q.From); {
		wide.From = at
		read, mine := r.findOrAdd(kind, wide, partition, q.From)
		var events []domain.Event
		if mine {
			events = r.run(ctx, tenant, read, wide, partition)
		}
		waited = waited || mine
		select {
		case <-read.done:
		default:
			waited = true
			select {
			case <-read.done:
			case <-ctx.Done():
				return domain.LogSlice{}, 0, context.Cause(ctx)
			}
		}
		switch {
		case read.err == nil:
		case at > q.From:
			return slice, at - 1, nil
		case mine:
			return domain.LogSlice{}, 0, read.err
		default:
			return r.readAlone(ctx, tenant, q) // the other reader may have given up
		}
		if !mine {
			var there bool
			if events, there = r.eventsOf(read, partition); !there {
				continue // findOrAdd does not return it again
			}
		}
		events = events[sort.Search(len(events), func(i int) bool { return events[i].Position >= at }):]
		slice.RemovedTo = max(slice.RemovedTo, read.removed)
		for _, e := range events {
			if e.Position > q.To {
				break
			}
			slice.Events = append(slice.Events, e)
			if bytes -= eventBytes(&e); len(slice.Events) >= q.Limit || bytes <= 0 {
				return slice, e.Position, nil
			}
		}
		at = max(at, min(read.upTo, q.To)+1)
	}
	return slice, at - 1, nil
}

// readAlone reads for one reader only.
func (r *sharedReads) readAlone(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) (slice domain.LogSlice, upTo int64, err error) {
	slice, err = r.log.LogSlice(ctx, tenant, q)
	return slice, completeTo(slice.Events, q), err
}

// completeTo returns the position up to which the result of a read is complete.
func completeTo(events []domain.Event, q domain.LogQuery) int64 {
	if n := len(events); n > 0 && wasCut(events, q.Limit, q.MaxBytes) {
		return events[n-1].Position
	}
	return q.To
}

// findOrAdd returns an existing read that has the first position of q for a partition, or a new one. If mine is set,
// the caller must make the new read. The partition has taken everything before the position taken.
func (r *sharedReads) findOrAdd(kind readKind, q domain.LogQuery, partition int, taken int64) (read *sharedRead, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if kind.partitions > 0 {
		if r.places[kind] == nil {
			if r.places == nil {
				r.places = make(map[readKind][]readPlace)
			}
			r.places[kind] = make([]readPlace, kind.partitions)
		}
		r.places[kind][partition] = readPlace{taken, now}
	}
	found := -1
	for i, read := range r.reads {
		if read.kind != kind {
			continue
		}
		if len(read.parts) > 0 {
			part := &read.parts[partition]
			part.wanted = part.wanted && read.upTo >= taken
			if part.dropped {
				continue
			}
		}
		if read.from <= q.From && q.From <= read.reaches(r.events) {
			found = i
		}
	}
	if found >= 0 {
		read = r.reads[found]
		r.reads = append(slices.Delete(r.reads, found, found+1), read)
		read.used = now
		return read, false
	}
	read = &sharedRead{kind: kind, from: q.From, to: q.To, used: now, done: make(chan struct{})}
	if !r.closed {
		r.reads = append(r.reads, read)
	}
	return read, true
}

// reaches returns the position up to which a read has its events, or, while it is running, is likely to have them.
// limit is how many events it may read.
func (read *sharedRead) reaches(limit int) int64 {
	select {
	case <-read.done:
		return read.upTo
	default:
		return min(read.to, read.from+int64(limit)-1)
	}
}

// run makes a read, keeps it unless it fails, and returns the events of a partition.
func (r *sharedReads) run(ctx context.Context, tenant domain.TenantID, read *sharedRead, q domain.LogQuery, partition int) []domain.Event {
	q.Limit, q.MaxBytes = r.events, sharedBytes
	if r.memory.scarce() {
		q.MaxBytes = scarceBytes
	}
	slice, err := r.log.LogSlice(ctx, tenant, q)
	read.upTo, read.removed, read.err = completeTo(slice.Events, q), slice.RemovedTo, err
	parts := divide(slice.Events, read.kind.partitions)
	events, bytes := parts[partition].events, 0
	for i := range parts {
		bytes += parts[i].bytes
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, place := range r.places[read.kind] {
		parts[i].wanted = place.position <= read.upTo && time.Since(place.asked) < sharedFor
	}
	read.parts = parts
	close(read.done)
	if !slices.Contains(r.reads, read) {
		return events
	}
	r.count(read, bytes)
	r.reads = slices.DeleteFunc(r.reads, func(old *sharedRead) bool { return old == read && err != nil })
	r.shrink(read)
	return events
}

// shrink drops what exceeds the bounds: first parts that are not wanted, except those of the newest read, then whole
// reads. It begins with the reads that were used least recently. r.mu must be held.
func (r *sharedReads) shrink(newest *sharedRead) {
	kept, held := r.kept, r.held
	switch {
	case r.memory.scarce():
		kept, held = scarceBytes, scarceBytes
	case r.memory.tight():
		held = kept
	}
	for i := 0; i < len(r.reads) && (len(r.reads) > sharedReadsKept || r.bytes > kept); {
		if r.reads[i] == newest || r.dropUnwanted(r.reads[i]) {
			i++
		} else {
			r.reads = slices.Delete(r.reads, i, i+1)
		}
	}
	for len(r.reads) > 1 && (len(r.reads) > sharedReadsKept || r.bytes > held) {
		r.dropFirst()
	}
}

// divide divides events between partitions; 0 means that they are not divided. Each part has separate memory, so that a
// partition that keeps its events does not keep those of the others.
func divide(events []domain.Event, partitions int) []readPart {
	parts := make([]readPart, max(1, partitions))
	if partitions == 0 {
		parts[0].events = events
	}
	sizes := make([]int, len(parts))
	for i := range events {
		n := partitionOf(events[i].Stream, partitions)
		if partitions > 0 {
			parts[n].events = append(parts[n].events, events[i])
		}
		sizes[n] += eventBytes(&events[i])
		parts[n].bytes += eventOverhead + eventBytes(&events[i])
	}
	if partitions == 0 {
		return parts
	}
	for n, part := range parts {
		block := make([]byte, 0, sizes[n])
		separate := func(text []byte) []byte {
			if text == nil {
				return nil
			}
			begin := len(block)
			block = append(block, text...)
			return block[begin:len(block):len(block)]
		}
		for i := range part.events {
			part.events[i].Data, part.events[i].Metadata = separate(part.events[i].Data), separate(part.events[i].Metadata)
		}
	}
	return parts
}

// eventsOf returns the events of a finished read for a partition. there is false if they were dropped.
func (r *sharedReads) eventsOf(read *sharedRead, partition int) (events []domain.Event, there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	part := read.parts[partition]
	return part.events, !part.dropped
}

// dropUnwanted drops the parts of a read that are not wanted. It reports whether anything is left, as in a read that is
// still being made. r.mu must be held.
func (r *sharedReads) dropUnwanted(read *sharedRead) (left bool) {
	bytes := read.bytes
	for i := range read.parts {
		switch part := &read.parts[i]; {
		case part.wanted:
			left = true
		case part.bytes > 0:
			bytes -= part.bytes
			*part = readPart{dropped: true}
		}
	}
	r.count(read, bytes)
	return left || len(read.parts) == 0
}

// count counts a read's memory. r.mu must be held.
func (r *sharedReads) count(read *sharedRead, bytes int) {
	r.bytes += bytes - read.bytes
	r.memory.used.Add(int64(bytes - read.bytes))
	read.bytes = bytes
}

// dropFirst drops the read that was not used for the longest time. r.mu must be held.
func (r *sharedReads) dropFirst() {
	r.count(r.reads[0], 0)
	r.reads = slices.Delete(r.reads, 0, 1)
}

// dropUnused drops the reads that nobody has used for a while.
func (r *sharedReads) dropUnused(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.reads) > 0 && now.Sub(r.reads[0].used) > sharedFor {
		r.dropFirst()
	}
	maps.DeleteFunc(r.places, func(_ readKind, places []readPlace) bool {
		return !slices.ContainsFunc(places, func(place readPlace) bool { return now.Sub(place.asked) <= sharedFor })
	})
}

// close drops all reads. From then on, none is kept.
func (r *sharedReads) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.dropAll()
}

// forget drops all reads, because stored events have changed.
func (r *sharedReads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropAll()
}

// dropAll drops all reads. One that is under way is not kept. r.mu must be held.
func (r *sharedReads) dropAll() {
	for len(r.reads) > 0 {
		r.dropFirst()
	}
}
