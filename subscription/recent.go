package subscription

import (
	"context"
	"slices"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// Bounds of what groups of one tenant read together.
const (
	recentGroups = 8         // with fewer in use each reads by itself what it wants, and no more
	recentWindow = 500       // positions: what is further back is not new to all of them at the same moment
	recentBytes  = 256 << 10 // of one read
	recentReads  = 4         // that are remembered
)

// recent reads what is new in a tenant's log once for all its groups that wait for it: a thousand would read a thousand times
// what one append has written. It is a Log, whose slices that are not new are read as ever. Methods may be called concurrently.
type recent struct {
	Log
	groups func() int // of the tenant that are in use

	mu    sync.Mutex
	reads []*recentRead // the newest last
}

// recentRead is one read of everything in a stretch of the log.
type recentRead struct {
	from, to int64
	done     chan struct{} // closed when what follows is known
	upTo     int64         // everything up to here was read
	slice    domain.LogSlice
	err      error
}

// LogSlice is Log's. Of what is new it gives events of all categories and types.
func (r *recent) LogSlice(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) (domain.LogSlice, error) {
	if q.To-q.From >= recentWindow || r.groups() < recentGroups {
		return r.Log.LogSlice(ctx, tenant, q)
	}
	read, mine := r.read(q)
	if mine {
		read.make(ctx, r.Log, tenant)
	}
	select {
	case <-read.done:
	case <-ctx.Done():
		return domain.LogSlice{}, context.Cause(ctx)
	}
	if read.err != nil || read.upTo < q.To {
		return r.Log.LogSlice(ctx, tenant, q) // whoever has read it was cut off, or there is too much
	}
	return read.part(q), nil
}

// read returns a read with all that is asked for: one that there is, or a new one, which is the caller's to make.
func (r *recent) read(q domain.LogQuery) (read *recentRead, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, read := range slices.Backward(r.reads) {
		if read.from <= q.From && read.to >= q.To {
			return read, false
		}
	}
	read = &recentRead{from: q.From, to: q.To, done: make(chan struct{})}
	if len(r.reads) == recentReads {
		r.reads = slices.Delete(r.reads, 0, 1)
	}
	r.reads = append(r.reads, read)
	return read, true
}

func (read *recentRead) make(ctx context.Context, log Log, tenant domain.TenantID) {
	defer close(read.done)
	q := domain.LogQuery{From: read.from, To: read.to, Limit: recentWindow + 1, MaxBytes: recentBytes}
	read.slice, read.err = log.LogSlice(ctx, tenant, q)
	read.upTo = read.to
	if n := len(read.slice.Events); n > 0 && cut(read.slice.Events, q.Limit, q.MaxBytes) {
		read.upTo = read.slice.Events[n-1].Position
	}
}

// part is what was asked for of a read, in memory of its own but for the events' data.
func (read *recentRead) part(q domain.LogQuery) domain.LogSlice {
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
