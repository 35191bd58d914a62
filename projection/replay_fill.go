package projection

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
)

// A fill makes the documents of a new build stream by stream instead of in the order of the log, if each document is
// folded from one stream. So it folds each document whole and saves it once, however many documents there are, and
// keeps only a few in memory (docs/decisions/0074-a-fill-folds-stream-by-stream.md).
//
// The build has no checkpoint while it is filled. A worker that continues a fill makes the documents again that were
// saved after the last Fill that it knows of, with the same result. Several workers may fill the same build, until one
// of them saves the checkpoint. A fill leaves faults to the replay in the order of the log: it saves no document that
// has one, and ends.
type fill struct {
	*Replay
	exclusions *domain.Exclusions
	cut        unsavedDocument // of the last stream of the previous reading, which may have cut the stream off
	pending    []unsavedDocument
	weight     int // of pending
	events     int // folded into these
	cutEvents  int // folded into cut
	counted    int // reported, including those of an earlier fill that this one continues
	documents  int // saved
	saving     *saving
}

// errUnfillable ends a fill that has met a fault.
var errUnfillable = errors.New("the build cannot be filled stream by stream")

// fillable reports whether a build of this kind can be filled.
func (r *Replay) fillable() bool {
	return r.Unread && r.at.stored == 0 && !r.neverFills && r.Fold.OwnStream()
}

// beginsFill reports whether to forget what was folded, and to make all documents by a fill: they do not fit into
// memory, and there is much more to fold. Events that are few among others are read faster in the order of the log, as
// are those of a log that does not fit into the database's memory.
func (r *Replay) beginsFill(ctx context.Context) (bool, error) {
	g := &r.pending
	if !r.fillable() || r.Fill.To > 0 || r.saving != nil || g.weight < r.Limits.DocumentBytes/4 ||
		g.upTo > r.to/2 || int64(g.events) < g.upTo/2 || len(g.waiting) > 0 || r.at.maxPerSave > 0 || r.at.refused != nil {
		return false, nil
	}
	fits, err := r.log.FitsInCache(ctx, r.Tenant)
	if err != nil || !fits {
		return false, err
	}
	r.forgetUnsaved()
	r.Fill = domain.Fill{To: r.to}
	return true, nil
}

// continuesFill reports whether the build is to be filled.
func (r *Replay) continuesFill(ctx context.Context) (bool, error) {
	if !r.fillable() || r.Fill.To == 0 {
		return false, nil
	}
	if r.Fill.Document == "" {
		return true, nil
	}
	// The documents' database may have been restored to a state before that save.
	found, err := r.Driver.Load(ctx, r.Build, r.Tenant, []string{r.Fill.Document})
	if err != nil {
		return false, fmt.Errorf("load a document of build %d of projection %q: %w", r.Build.Number, r.Build.Name, err)
	}
	if len(found) == 0 || found[0].Version != r.Fill.Version {
		r.Fill = domain.Fill{To: r.to}
	}
	return true, nil
}

// fill makes the remaining documents and saves the checkpoint. After a fault it returns errRefold, and the documents
// are made in the order of the log.
func (r *Replay) fill(ctx context.Context) error {
	f := &fill{Replay: r}
	f.count(int(r.Fill.Events))
	err := f.run(ctx)
	if err == nil {
		err = f.startSave(ctx)
	}
	if saveErr := f.awaitSave(); err == nil {
		err = saveErr
	}
	if err == nil {
		if err = r.Driver.Save(ctx, r.Build, r.Tenant, drivers.Batch{To: r.Fill.To}); err == nil {
			r.at.saved(r.Fill.To)
			r.memory.complete = false
			r.reportFolded(f.counted, f.documents)
			r.setFill(domain.Fill{})
			return nil
		}
	}
	r.reportCounted(-f.counted)
	r.exclusions = nil
	switch {
	case errors.Is(err, drivers.ErrStale):
		r.at.known = false
		return err
	case errors.Is(err, errUnfillable):
		r.neverFills, r.memory.complete = true, false
		r.setFill(domain.Fill{})
		return errRefold
	}
	return fmt.Errorf("make the documents of build %d of projection %q: %w", r.Build.Number, r.Build.Name, err)
}

func (f *fill) count(events int) {
	f.counted += events
	f.reportCounted(events)
}

func (r *Replay) setFill(to domain.Fill) {
	r.Fill = to
	if r.Filled != nil {
		r.Filled(to)
	}
}

// run makes the documents of each category.
func (f *fill) run(ctx context.Context) error {
	exclusions, err := f.readExclusions(ctx)
	if err != nil {
		return err
	}
	if len(exclusions.Parked) > 0 {
		return errUnfillable
	}
	f.exclusions = exclusions
	upcasters, err := f.Fold.Upcasters().Revision(ctx, f.Tenant)
	if err != nil {
		return err
	}
	categories := slices.Compact(slices.Sorted(slices.Values(f.Fold.Definition().Source.Categories)))
	if len(categories) == 0 {
		return f.fillCategory(ctx, "", f.Fill.Document, upcasters)
	}
	done := f.Fill.Document
	for _, category := range categories {
		after := ""
		if done != "" {
			switch strings.Compare(category, domain.Category(done)) {
			case -1:
				continue
			case 0:
				after = done
			}
		}
		if err := f.fillCategory(ctx, category, after, upcasters); err != nil {
			return err
		}
	}
	return nil
}

// fillCategory reads, folds and saves, all three at once, the streams of a category (empty: of all) after the given one.
func (f *fill) fillCategory(ctx context.Context, category, after string, upcasters domain.UpcasterRevision) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	fetch := func(stream string, version int64) *fetched {
		q := domain.ByStreamQuery{
			AfterStream: stream, AfterVersion: version, Category: category, To: f.Fill.To, Types: f.Fold.Types(),
			Limit: f.eventsPerReading(f.Limits), MaxBytes: f.Limits.Bytes,
		}
		read := func(ctx context.Context, _ domain.LogQuery) (domain.Reading, error) {
			events, err := f.log.ReadByStream(ctx, f.Tenant, q)
			return domain.Reading{Events: events, Upcasters: upcasters}, err
		}
		return f.fetchQuery(reading, read, domain.LogQuery{Limit: q.Limit, MaxBytes: q.MaxBytes})
	}
	next := fetch(after, math.MaxInt64)
	for next != nil {
		p, err := next.wait()
		if err != nil {
			return err
		}
		f.recordEventSize(p)
		if next = nil; p.more {
			last := p.events[len(p.events)-1]
			next = fetch(last.Stream, last.Version)
		}
		if err := f.foldReading(ctx, p); err != nil {
			if next != nil {
				stop()
				<-next.done
			}
			return err
		}
	}
	return nil
}

// foldReading folds a reading, and saves if enough is pending.
func (f *fill) foldReading(ctx context.Context, p *prepared) error {
	if len(p.faults) > 0 {
		return errUnfillable
	}
	for i := range p.events {
		if _, skipped := slices.BinarySearch(f.exclusions.Skipped, p.events[i].Position); skipped {
			p.keys[i] = ""
		}
	}
	cut := "" // the stream that the reading may have cut off
	if p.more {
		cut = p.events[len(p.events)-1].Stream
	}
	chains, next := chainsOf(f.Fold, p.keys)
	before := make([]cachedDocument, len(chains))
	if i := slices.IndexFunc(chains, func(c chain) bool { return c.id == f.cut.id }); i >= 0 {
		before[i], f.cut = f.cut.cachedDocument, unsavedDocument{}
	} else if f.cut.id != cut {
		f.add(f.cut)
		f.cut = unsavedDocument{}
	}
	outcomes, err := foldChains(ctx, f.Fold, expr.MeterOf(ctx), p.events, chains, next, before)
	if err != nil {
		return err
	}
	for i := range outcomes {
		o := &outcomes[i]
		if o.fault != nil || o.unwritable != nil {
			return errUnfillable
		}
		document := unsavedDocument{chains[i].id, cachedDocument{version: o.version, value: o.value, data: o.data}}
		if !o.touched {
			document.cachedDocument = before[i]
		}
		if document.id == cut {
			f.cut = document
		} else {
			f.add(document)
		}
	}
	n := len(p.events)
	if p.more {
		n = slices.IndexFunc(p.events, func(e folding.Event) bool { return e.Stream == cut })
	}
	if n > 0 || !p.more {
		f.events, f.cutEvents = f.events+f.cutEvents, 0
	}
	f.events += n
	f.cutEvents += len(p.events) - n
	f.count(len(p.events))
	if f.weight >= f.Limits.DocumentBytes/4 {
		return f.startSave(ctx)
	}
	return nil
}

// add adds a whole document to what is saved next.
func (f *fill) add(document unsavedDocument) {
	if document.version > 0 {
		f.pending = append(f.pending, document)
		f.weight += document.weight(document.id)
	}
}

// startSave starts to save what is pending, after the previous save has ended.
func (f *fill) startSave(ctx context.Context) error {
	if err := f.awaitSave(); err != nil || len(f.pending) == 0 {
		return err
	}
	s := &saving{done: make(chan struct{}), documents: f.pending, events: f.events}
	f.saving, f.pending, f.weight, f.events = s, nil, 0, 0
	go func() {
		defer close(s.done)
		if s.batch, s.err = s.toBatch(ctx, f.Fold); s.err == nil {
			s.err = f.Driver.Save(ctx, f.Build, f.Tenant, s.batch)
		}
	}()
	return nil
}

// awaitSave waits for the running save, and records how far the fill is.
func (f *fill) awaitSave() error {
	s := f.saving
	if s == nil {
		return nil
	}
	<-s.done
	f.saving = nil
	switch {
	case unstorable(s.err), errors.Is(s.err, drivers.ErrTimedOut):
		return errUnfillable
	case s.err != nil:
		return s.err
	}
	f.at.savedAt = time.Now()
	f.documents += len(s.batch.Upserts)
	to := f.Fill
	to.Events += int64(s.events)
	if n := len(s.batch.Upserts); n > 0 {
		if f.Saved != nil {
			f.Saved(s.batch.Upserts)
		}
		last := &s.batch.Upserts[n-1] // toBatch has sorted them
		to.Document, to.Version = last.ID, last.Version
	}
	f.setFill(to)
	return nil
}
