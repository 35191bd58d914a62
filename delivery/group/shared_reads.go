package group

import (
	"context"
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
	sharedReadsKept  = 32
	sharedBytesKept  = 8 << 20
	sharedFor        = 10 * time.Second // until an unused read is dropped
	eventOverhead    = 256              // bytes of an event besides its data and metadata, approximately
)

// sharedReads makes one read of a tenant's log do for many readers, and keeps the last reads in memory. The partitions
// of a group share all reads of the events that their group selects. If many groups are in use, they share reads of all
// new events. Otherwise 16 partitions would read the log 16 times, and a thousand groups each append a thousand times.
// Other reads pass through. Methods may be called concurrently.
type sharedReads struct {
	log    *eventlog.Log
	groups func() int    // number of the tenant's groups in use
	memory *memoryBudget // of all tenants
	events int           // sharedEvents, except in tests

	mu     sync.Mutex
	reads  []*sharedRead // used last comes last
	bytes  int           // of reads
	closed bool          // nothing is kept any longer
}

// memoryBudget counts the bytes of events that all groups of a process have in memory.
type memoryBudget struct {
	used  atomic.Int64
	bound int64
}

// scarce reports whether too much is in memory, so that readers must read only what they need next.
func (m *memoryBudget) scarce() bool { return m.used.Load() > m.bound }

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
	done     chan struct{} // closed when the fields below are set
	upTo     int64         // everything up to here was read
	removed  int64         // as in domain.LogSlice
	parts    [][]domain.Event
	err      error
}

// read returns events of q in order, with the position up to which they are complete, which is at least q.From-1. If
// there are partitions, it returns only events of the given one. It may also return events that q does not select by
// category or type. head is where the caller's log ends.
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
		read, mine := r.findOrAdd(kind, wide)
		if mine {
			r.run(ctx, tenant, read, wide)
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
		slice.RemovedTo = max(slice.RemovedTo, read.removed)
		for _, e := range read.after(at, partition) {
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

// findOrAdd returns an existing read that has the first position of q, or a new one. If mine is set, the caller must make
// the new read.
func (r *sharedReads) findOrAdd(kind readKind, q domain.LogQuery) (read *sharedRead, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, read := range slices.Backward(r.reads) {
		if read.kind == kind && read.from <= q.From && q.From <= read.reaches(r.events) {
			r.reads = append(slices.Delete(r.reads, i, i+1), read)
			read.used = time.Now()
			return read, false
		}
	}
	read = &sharedRead{kind: kind, from: q.From, to: q.To, used: time.Now(), done: make(chan struct{})}
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

// run makes a read, and keeps it unless it fails.
func (r *sharedReads) run(ctx context.Context, tenant domain.TenantID, read *sharedRead, q domain.LogQuery) {
	q.Limit, q.MaxBytes = r.events, sharedBytes
	if r.memory.scarce() {
		q.MaxBytes = scarceBytes
	}
	slice, err := r.log.LogSlice(ctx, tenant, q)
	read.upTo, read.removed, read.err = completeTo(slice.Events, q), slice.RemovedTo, err
	read.divide(slice.Events)
	bytes := 0
	for i := range slice.Events {
		bytes += eventOverhead + eventBytes(&slice.Events[i])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	close(read.done)
	if !slices.Contains(r.reads, read) {
		return
	}
	r.count(read, bytes)
	most := sharedBytesKept
	if r.memory.scarce() {
		most = scarceBytes
	}
	r.reads = slices.DeleteFunc(r.reads, func(old *sharedRead) bool { return old == read && err != nil })
	for len(r.reads) > 1 && (len(r.reads) > sharedReadsKept || r.bytes > most) {
		r.dropFirst()
	}
}

// divide divides a read's events between the partitions. Each partition has separate memory, so that one that keeps its
// events does not keep those of the others.
func (read *sharedRead) divide(events []domain.Event) {
	n := read.kind.partitions
	if n == 0 {
		read.parts = [][]domain.Event{events}
		return
	}
	read.parts = make([][]domain.Event, n)
	sizes := make([]int, n)
	for i := range events {
		part := partitionOf(events[i].Stream, n)
		read.parts[part] = append(read.parts[part], events[i])
		sizes[part] += eventBytes(&events[i])
	}
	for part, events := range read.parts {
		block := make([]byte, 0, sizes[part])
		separate := func(text []byte) []byte {
			if text == nil {
				return nil
			}
			begin := len(block)
			block = append(block, text...)
			return block[begin:len(block):len(block)]
		}
		for i := range events {
			events[i].Data, events[i].Metadata = separate(events[i].Data), separate(events[i].Metadata)
		}
	}
}

// after returns the events of a partition from a position on.
func (read *sharedRead) after(at int64, partition int) []domain.Event {
	events := read.parts[partition]
	return events[sort.Search(len(events), func(i int) bool { return events[i].Position >= at }):]
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
