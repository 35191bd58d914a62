package group

import (
	"context"
	"slices"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
)

// Bounds of reads that groups of one tenant share.
const (
	sharedFromGroups = 8         // with fewer in use, each group reads by itself, and only what it selects
	sharedWindow     = 500       // positions; older events are not new to all groups at once
	sharedBytes      = 256 << 10 // of one read
	sharedReadsKept  = 4         // kept in memory
)

// sharedReads reads what is new in a tenant's log once for all groups that wait for it. Otherwise a thousand groups
// would read each append a thousand times. It passes other reads through. Methods may be called concurrently.
type sharedReads struct {
	*eventlog.Log
	groups func() int // number of the tenant's groups in use

	mu    sync.Mutex
	reads []*sharedRead // newest last
}

// sharedRead is one read of all events in a range of the log.
type sharedRead struct {
	from, to int64
	done     chan struct{} // closed when the fields below are set
	upTo     int64         // everything up to here was read
	slice    domain.LogSlice
	err      error
}

// LogSlice reads the log. Of recent events, it returns all categories and types.
func (r *sharedReads) LogSlice(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) (domain.LogSlice, error) {
	if q.To-q.From >= sharedWindow || r.groups() < sharedFromGroups {
		return r.Log.LogSlice(ctx, tenant, q)
	}
	read, mine := r.findOrAdd(q)
	if mine {
		read.run(ctx, r.Log, tenant)
	}
	select {
	case <-read.done:
	case <-ctx.Done():
		return domain.LogSlice{}, context.Cause(ctx)
	}
	if read.err != nil || read.upTo < q.To {
		return r.Log.LogSlice(ctx, tenant, q) // the shared read was cancelled or cut off
	}
	return read.part(q), nil
}

// findOrAdd returns an existing read that covers q, or a new one. If mine is set, the caller must make the new read.
func (r *sharedReads) findOrAdd(q domain.LogQuery) (read *sharedRead, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, read := range slices.Backward(r.reads) {
		if read.from <= q.From && read.to >= q.To {
			return read, false
		}
	}
	read = &sharedRead{from: q.From, to: q.To, done: make(chan struct{})}
	if len(r.reads) == sharedReadsKept {
		r.reads = slices.Delete(r.reads, 0, 1)
	}
	r.reads = append(r.reads, read)
	return read, true
}

func (read *sharedRead) run(ctx context.Context, log *eventlog.Log, tenant domain.TenantID) {
	defer close(read.done)
	q := domain.LogQuery{From: read.from, To: read.to, Limit: sharedWindow + 1, MaxBytes: sharedBytes}
	read.slice, read.err = log.LogSlice(ctx, tenant, q)
	read.upTo = read.to
	if n := len(read.slice.Events); n > 0 && wasCut(read.slice.Events, q.Limit, q.MaxBytes) {
		read.upTo = read.slice.Events[n-1].Position
	}
}

// part returns the part of a read that q asks for. It has separate memory, except for the events' data.
func (read *sharedRead) part(q domain.LogQuery) domain.LogSlice {
	part := domain.LogSlice{RemovedTo: read.slice.RemovedTo}
	bytes := q.MaxBytes
	for i := range read.slice.Events {
		e := &read.slice.Events[i]
		if e.Position < q.From || e.Position > q.To {
			continue
		}
		part.Events = append(part.Events, *e)
		if bytes -= eventBytes(e); len(part.Events) >= q.Limit || q.MaxBytes > 0 && bytes <= 0 {
			break
		}
	}
	return part
}
