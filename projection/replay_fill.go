package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/budget"
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
// of them saves the checkpoint. All fill it up to the same position, so the position is stored before the first
// document is saved: otherwise a late worker could bring a document back that a later event has removed. A fill leaves
// faults to the replay in the order of the log: it saves no document that has one, and is abandoned.
//
// A fill of an aggregate's states begins documents from seeds: snapshots that are the same fold of events that the log
// still has (docs/decisions/0100-rebuilds-of-an-aggregates-states-begin-from-snapshots.md). It goes from page to page
// of seeds, and reads only later events of their streams.
type fill struct {
	*Replay
	seeded     bool          // by seeds
	seeds      []domain.Seed // of the page, by stream: those whose documents are not begun
	exclusions *domain.Exclusions
	cut        unsavedDocument // of the last stream of the previous slice, which may have cut the stream off
	pending    []unsavedDocument
	weight     int // of pending
	events     int // folded into these
	cutEvents  int // folded into cut
	counted    int // reported, including those of an earlier fill that this one continues
	unrecorded int // folded into saved documents since Fill.Document
	unreported int // saved documents that began from seeds, since Fill.Document
	begun      int // documents among pending that began from seeds
	documents  int // saved
	saving     *saving
}

// errUnfillable ends a fill that has met a fault.
var errUnfillable = errors.New("the build cannot be filled stream by stream")

// fillable reports whether a build of this kind can be filled.
func (r *Replay) fillable() bool {
	return r.Unread && r.at.stored == 0 && r.Fold.OwnStream()
}

// beginsFill reports whether to forget what was folded, and to make all documents by a fill: they do not fit into
// memory, and there is much more to fold. Events that are few among others are read faster in the order of the log, as
// are those of a log that does not fit into the database's memory.
func (r *Replay) beginsFill(ctx context.Context) (bool, error) {
	g := &r.pending
	if !r.fillable() || r.Fill.To > 0 || r.saving != nil || g.weight < r.unsavedLimit() ||
		g.upTo > r.to/2 || int64(g.events) < g.upTo/2 || len(g.waiting) > 0 || r.at.maxPerSave > 0 || r.at.refused != nil {
		return false, nil
	}
	fits, err := r.log.FitsInCache(ctx, r.Tenant)
	if err != nil || !fits {
		return false, err
	}
	r.forgetUnsaved()
	return true, r.setFill(ctx, domain.Fill{To: r.to})
}

// continuesFill reports whether the build is to be filled: a fill was begun, or there are seeds for it.
func (r *Replay) continuesFill(ctx context.Context) (bool, error) {
	switch {
	case !r.fillable() || r.Fill.Abandoned:
		return false, nil
	case r.Fill.To == 0:
		return r.beginsSeededFill(ctx)
	}
	return true, r.checkFill(ctx)
}

// beginsSeededFill reports whether there are seeds, and begins a fill from them. As other fills, it reads in an order
// in which a log that does not fit into the database's memory is read slowly.
func (r *Replay) beginsSeededFill(ctx context.Context) (bool, error) {
	if r.Seeds == nil || r.at.seen > 0 || !r.Fold.SeedsFit() {
		return false, nil
	}
	exclusions, err := r.readExclusions(ctx)
	if err != nil || exclusions.SkipsAny() {
		return false, err
	}
	fits, err := r.log.FitsInCache(ctx, r.Tenant)
	if err != nil || !fits {
		return false, err
	}
	upcasters, err := r.Fold.Upcasters().Revision(ctx, r.Tenant)
	if err != nil {
		return false, err
	}
	for after := ""; ; {
		page, err := r.readSeeds(ctx, after, r.to, upcasters)
		if err != nil {
			return false, err
		}
		if len(page.Seeds) > 0 {
			if after == "" {
				r.firstSeeds = &page
			}
			r.forgetUnsaved()
			return true, r.setFill(ctx, domain.Fill{To: r.to})
		}
		if after = page.UpTo; after == "" {
			return false, nil
		}
	}
}

// readSeeds returns the next seeds of streams after the given one, as of position to.
func (r *Replay) readSeeds(ctx context.Context, after string, to int64, upcasters domain.UpcasterRevision) (domain.SeedPage, error) {
	if first := r.firstSeeds; first != nil && after == "" {
		r.firstSeeds = nil
		return *first, nil
	}
	if r.Turn != nil {
		if err := r.Turn(ctx); err != nil {
			return domain.SeedPage{}, err
		}
	}
	d := r.Fold.Definition()
	return r.Seeds(ctx, r.Tenant, domain.SeedQuery{
		Category: d.Aggregate, Initial: d.Initial, On: d.On, Upcasters: upcasters, AfterStream: after, To: to,
	})
}

// checkFill begins the fill again if the documents' database no longer has the last saved document, as after it was
// restored or has failed over.
func (r *Replay) checkFill(ctx context.Context) error {
	if r.Fill.Document == "" {
		return nil
	}
	found, err := r.Driver.Load(ctx, r.Build, r.Tenant, []string{r.Fill.Document})
	if err != nil {
		return fmt.Errorf("load a document of build %d of projection %q: %w", r.Build.Number, r.Build.Name, err)
	}
	if len(found) > 0 && found[0].Version >= r.Fill.Version {
		return nil
	}
	if err := r.setFill(ctx, domain.Fill{To: r.Fill.To}); err != nil {
		return err
	}
	return errRefold
}

// fill makes the remaining documents and saves the checkpoint. After a fault it returns errRefold, and the documents
// are made in the order of the log.
func (r *Replay) fill(ctx context.Context) error {
	ctx = budget.OfTenant(ctx, r.Tenant)
	f := &fill{Replay: r}
	f.count(int(r.Fill.Events))
	err := f.run(ctx)
	if err == nil {
		err = f.startSave(ctx)
	}
	if saveErr := f.awaitSave(ctx); err == nil {
		err = saveErr
	}
	if err == nil {
		err = r.checkFill(ctx)
	}
	if err == nil {
		if err = r.Driver.Save(ctx, r.Build, r.Tenant, drivers.Batch{To: r.Fill.To}); err == nil {
			r.at.saved(r.Fill.To)
			r.memory.complete = false
			r.reportFolded(f.counted, f.documents)
			return f.reportSeeds(ctx)
		}
	}
	r.reportCounted(-f.counted)
	r.exclusions = nil
	if errors.Is(err, drivers.ErrStale) {
		checkpoint, checkErr := r.Driver.Checkpoint(ctx, r.Build, r.Tenant)
		if checkErr != nil || checkpoint > 0 {
			r.at.known = false
			return cmp.Or(checkErr, err)
		}
		err = errUnfillable // another worker is filling, or the driver does not allow it
	}
	switch {
	case errors.Is(err, errRefold):
		return err
	case errors.Is(err, errUnfillable):
		r.memory.complete = false
		return cmp.Or(r.setFill(ctx, domain.Fill{To: r.Fill.To, Abandoned: true}), errRefold)
	}
	return fmt.Errorf("make the documents of build %d of projection %q: %w", r.Build.Number, r.Build.Name, err)
}

func (f *fill) count(events int) {
	f.counted += events
	f.reportCounted(events)
}

// reportSeeds records the seeds of removed documents, after which none was saved.
func (f *fill) reportSeeds(ctx context.Context) error {
	if f.unreported == 0 {
		return nil
	}
	done := f.Fill
	done.Seeded += int64(f.unreported)
	return f.setFill(ctx, done)
}

func (r *Replay) setFill(ctx context.Context, fill domain.Fill) error {
	r.Fill = fill
	if r.Filled == nil {
		return nil
	}
	return r.Filled(ctx, fill)
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
	f.seeded = f.Seeds != nil && f.Fold.SeedsFit() && !exclusions.SkipsAny() // a seed has the skipped events
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

// fillCategory makes the documents of a category's streams (empty: of all) after the given one.
func (f *fill) fillCategory(ctx context.Context, category, after string, upcasters domain.UpcasterRevision) error {
	for {
		page := domain.SeedPage{}
		if f.seeded {
			var err error
			if page, err = f.readSeeds(ctx, after, f.Fill.To, upcasters); err != nil {
				return err
			}
			f.seeds = page.Seeds
			f.recordSeedSize()
		}
		if err := f.fillPage(ctx, category, after, page, upcasters); err != nil {
			return err
		}
		f.beginBefore("")
		if f.weight >= f.Limits.DocumentBytes/4 {
			if err := f.startSave(ctx); err != nil {
				return err
			}
		}
		if after = page.UpTo; after == "" {
			return nil
		}
	}
}

// recordSeedSize records how large documents from the page's seeds are at least.
func (f *fill) recordSeedSize() {
	bytes := 0
	for i := range f.seeds {
		bytes += len(f.seeds[i].State)
	}
	if n := len(f.seeds); n > 0 {
		f.documentBytes = max(1, f.documentBytes, bytes/n)
	}
}

// beginBefore adds the documents of seeds of streams before the given one (empty: of all) to what is saved next: these
// streams have no later events.
func (f *fill) beginBefore(stream string) {
	for len(f.seeds) > 0 && (stream == "" || f.seeds[0].Stream < stream) {
		seed := f.begin()
		f.add(unsavedDocument{seed.Stream, documentOf(seed)})
		f.events += int(seed.Events)
	}
}

// begin takes the next seed, and counts its events as folded.
func (f *fill) begin() domain.Seed {
	seed := f.seeds[0]
	f.seeds = f.seeds[1:]
	f.begun++
	f.count(int(seed.Events))
	return seed
}

// documentOf returns a seed's document.
func documentOf(seed domain.Seed) cachedDocument {
	return cachedDocument{version: seed.Position, data: seed.State}
}

// fillPage reads, folds and saves, all three at once, the streams of a page of seeds, or of a category without seeds.
func (f *fill) fillPage(ctx context.Context, category, after string, page domain.SeedPage, upcasters domain.UpcasterRevision) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	fetch := func(stream string, version int64, limits Limits) *fetched {
		q := domain.ByStreamQuery{
			AfterStream: stream, AfterVersion: version, Category: category, Seeds: page.Seeds, UpToStream: page.UpTo,
			To: f.Fill.To, Types: f.Fold.Types(),
			Limit: f.eventsPerReading(limits), MaxBytes: limits.Bytes,
		}
		read := func(ctx context.Context, _ domain.LogQuery) (domain.Reading, error) {
			events, err := f.log.ReadByStream(ctx, f.Tenant, q)
			return domain.Reading{Events: events, Upcasters: upcasters}, err
		}
		return f.fetchQuery(reading, read, domain.LogQuery{Limit: q.Limit, MaxBytes: q.MaxBytes})
	}
	next := fetch(after, math.MaxInt64, f.Limits)
	for next != nil {
		p, err := next.wait()
		if err != nil {
			return err
		}
		f.recordEventSize(p)
		paced := p.more && f.Pacing.appending() > 0
		if next = nil; p.more && !paced {
			next = fetch(p.last().Stream, p.last().Version, f.Limits)
		}
		if err := f.foldReading(ctx, p); err != nil {
			if next != nil {
				stop()
				<-next.done
			}
			return err
		}
		if paced {
			if err := f.awaitSave(ctx); err != nil {
				return err
			}
			if err := f.pauseForAppends(ctx, p); err != nil {
				return err
			}
			next = fetch(p.last().Stream, p.last().Version, f.Limits.paced())
		}
	}
	return nil
}

// foldReading folds a reading in slices, and saves whenever enough is pending.
func (f *fill) foldReading(ctx context.Context, p *prepared) error {
	for _, fault := range p.faults {
		if !f.exclusions.Skips(fault.Event.Position, "") {
			return errUnfillable
		}
	}
	for i := range p.events {
		if f.exclusions.Skips(p.events[i].Position, p.keys[i]) {
			p.keys[i] = ""
		}
	}
	if len(p.events) == 0 { // the one before was cut off at the end of its stream
		f.endCut()
	}
	for start := 0; start < len(p.events); {
		end := start + f.countFitting(p.events[start:], p.keys[start:])
		if err := f.foldSlice(ctx, p.events[start:end], p.keys[start:end], p.more || end < len(p.events)); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// foldSlice folds events of one or several streams. more: the last stream may continue.
func (f *fill) foldSlice(ctx context.Context, events []folding.Event, keys []string, more bool) error {
	carried, last := f.cut, events[len(events)-1].Stream
	continues := func(c chain) bool { return c.id == carried.id }
	chains, next := chainsOf(f.Fold, keys)
	before := make([]cachedDocument, len(chains))
	seeded, seededCut := 0, 0 // events before the seeds of chains, and before that of the last stream if it was cut off
	for i, c := range chains {
		if continues(c) {
			before[i] = carried.cachedDocument
		}
		if f.beginBefore(c.id); len(f.seeds) > 0 && f.seeds[0].Stream == c.id {
			seed := f.begin()
			before[i] = documentOf(seed)
			if more && c.id == last {
				seededCut = int(seed.Events)
			} else {
				seeded += int(seed.Events)
			}
		}
	}
	outcomes, err := foldChains(ctx, f.Fold, expr.MeterOf(ctx), events, chains, next, before)
	if err != nil {
		return err
	}
	f.cut = unsavedDocument{}
	whole := len(events) // so many are of streams that have ended
	if more {
		f.cut.id = last
		whole = slices.IndexFunc(events, func(e folding.Event) bool { return e.Stream == last })
	}
	keep := func(document unsavedDocument) {
		if more && document.id == last {
			f.cut = document
		} else {
			f.add(document)
		}
	}
	if !slices.ContainsFunc(chains, continues) { // it has ended, or continues with skipped events
		keep(carried)
	}
	touched, bytes := 0, 0
	for i := range outcomes {
		o, document := &outcomes[i], unsavedDocument{chains[i].id, before[i]}
		if o.fault != nil || o.unwritable != nil {
			return errUnfillable
		}
		if o.touched {
			document.cachedDocument = cachedDocument{version: o.version, value: o.value, data: o.data}
			touched, bytes = touched+1, bytes+document.size()
		}
		keep(document)
	}
	if f.documentBytes == 0 && touched > 0 {
		f.documentBytes = max(1, bytes/touched) // until they are written
	}
	if whole == 0 && carried.id == last {
		f.cutEvents += len(events) + seededCut
	} else {
		f.events += f.cutEvents + whole + seeded
		f.cutEvents = len(events) - whole + seededCut
	}
	f.count(len(events))
	if f.weight >= f.Limits.DocumentBytes/4 {
		return f.startSave(ctx)
	}
	return nil
}

// endCut takes the stream that was cut off as ended.
func (f *fill) endCut() {
	f.add(f.cut)
	f.events += f.cutEvents
	f.cut, f.cutEvents = unsavedDocument{}, 0
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
	if err := f.awaitSave(ctx); err != nil || len(f.pending) == 0 {
		return err
	}
	s := &saving{done: make(chan struct{}), documents: f.pending, events: f.events, seeded: f.begun}
	f.saving, f.pending, f.weight, f.events, f.begun = s, nil, 0, 0, 0
	go func() {
		defer close(s.done)
		if s.batch, s.err = s.toBatch(ctx, f.Fold); s.err == nil {
			s.err = f.Driver.Save(ctx, f.Build, f.Tenant, s.batch)
		}
	}()
	return nil
}

// awaitSave waits for the running save, and records how far the fill is.
func (f *fill) awaitSave(ctx context.Context) error {
	s := f.saving
	if s == nil {
		return nil
	}
	<-s.done
	f.saving = nil
	switch {
	case unstorable(s.err), errors.Is(s.err, drivers.ErrTimedOut), domain.IsCode(s.err, domain.CodeInvalidRequest):
		return errUnfillable
	case s.err != nil:
		return s.err
	}
	f.at.savedAt = time.Now()
	f.documents += len(s.batch.Upserts)
	f.unrecorded += s.events
	f.unreported += s.seeded
	if len(s.batch.Upserts) == 0 {
		return nil
	}
	if err := f.checkFill(ctx); err != nil { // of the save before
		return err
	}
	f.recordDocumentSize(s.batch.Upserts)
	if f.Saved != nil {
		f.Saved(s.batch.Upserts)
	}
	last := &s.batch.Upserts[len(s.batch.Upserts)-1] // toBatch has sorted them
	done := domain.Fill{
		To: f.Fill.To, Document: last.ID, Version: last.Version, Events: f.Fill.Events + int64(f.unrecorded), Seeded: f.Fill.Seeded + int64(f.unreported),
	}
	f.unrecorded, f.unreported = 0, 0
	return f.setFill(ctx, done)
}
