package rebuild

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
)

// The documents of two builds are compared while events arrive, so the builds are at different positions. Differences
// that only follow from that must not be reported. A document's version is the position of the last event that changed
// it. So a page shows since which position each document is unchanged:
//
//   - A document in both builds is compared only if neither version is above the position that the other build had
//     reached before its page was read. At the lower of the two positions, both documents were then as they are now.
//   - A document in the new build alone may have been removed from the live one by an event that the new build has not
//     seen. So the new build catches up with the head that the log had after the live page was read. The document
//     counts as new if it is then still there with the same version: no event that the live build can have seen changes
//     it.
//   - A document in the live build alone is the reverse case. It counts as gone if it is still there with the same
//     version when the live build has reached the new build's position. The live build catches up by itself. The wait
//     for it is short, since it may have stopped at an event that it cannot fold.
//
// Documents that stay undecided were changed by events during the comparison, and are not counted.

// baselinePatience is how long a validation waits in total for the live build to catch up.
const baselinePatience = 10 * time.Second

// baseline is what the new build is compared with: the live build of each tenant.
type baseline struct {
	projection domain.Projection
	source     domain.Source
	types      []string // that the live definition folds; nil: all

	mu     sync.Mutex
	waited time.Duration
}

// liveError is an error while reading the live build.
type liveError struct {
	database string
	err      error
}

func (e *liveError) Error() string { return "read the live build: " + e.err.Error() }
func (e *liveError) Unwrap() error { return e.err }

// comparison walks through one tenant's documents in both builds, ordered by id.
type comparison struct {
	*attempt
	tenant domain.TenantID
	*baseline
	live    foldedBuild // the tenant's
	found   tally
	added   []undecided // in the new build alone
	removed []undecided // in the live build alone
}

// foldedBuild is a build with what is needed to tell how far it is folded.
type foldedBuild struct {
	domain.Build
	driver drivers.Driver
	source domain.Source // of its definition, as are types
	types  []string      // nil: all
}

// undecided is a document that must be read again.
type undecided struct {
	document domain.Document
	at       int64 // the new build's position when the document was missing there
}

// compare validates a tenant's documents. It also compares them with the tenant's live ones, unless baseline is nil.
func (a *attempt) compare(ctx context.Context, tenant domain.TenantID, baseline *baseline) (tally, error) {
	c := &comparison{attempt: a, tenant: tenant, baseline: baseline, found: tally{noExamples: a.row.NoExamples}}
	built := &pages{tenant: tenant, read: a.readBuilt}
	if baseline == nil {
		err := c.checkAll(ctx, built)
		return c.found, err
	}
	err := c.findLive(ctx)
	if err == nil {
		err = c.compareAll(ctx, &pages{tenant: tenant, read: c.readLive}, built)
	}
	if err == nil {
		err = c.recheckUndecided(ctx)
	}
	if err == nil {
		err = c.checkParked(ctx)
	}
	return c.found, err
}

// checkAll checks the assertions on all documents of the new build.
func (c *comparison) checkAll(ctx context.Context, built *pages) error {
	for {
		document, err := built.peek(ctx)
		if err != nil || document == nil {
			return err
		}
		if err := c.checkDocument(ctx, document); err != nil {
			return err
		}
		built.next()
	}
}

// compareAll compares all documents of both builds, in the order of their ids. It leaves some undecided.
func (c *comparison) compareAll(ctx context.Context, live, built *pages) error {
	return merge(ctx, live, built, func(liveDocument, builtDocument *domain.Document) error {
		if builtDocument != nil {
			if err := c.checkDocument(ctx, builtDocument); err != nil {
				return err
			}
		}
		if liveDocument != nil {
			c.found.live++
		}
		settled := isSettled(live, built, liveDocument, builtDocument)
		switch {
		case liveDocument != nil && builtDocument != nil:
			if settled {
				c.found.addBoth(c.tenant, liveDocument, builtDocument)
			}
		case liveDocument == nil && settled:
			c.found.addNew(c.tenant, builtDocument)
		case liveDocument == nil && builtDocument.Version <= live.at:
			c.added = append(c.added, undecided{*builtDocument, built.at})
		case builtDocument == nil && settled:
			c.found.addGone(c.tenant, liveDocument)
		case builtDocument == nil && liveDocument.Version <= built.at:
			c.removed = append(c.removed, undecided{*liveDocument, built.at})
		}
		if len(c.added)+len(c.removed) < pageDocuments {
			return nil
		}
		return c.recheckUndecided(ctx)
	})
}

// merge calls each with all documents of both builds, in the order of their ids. A document that one of the builds
// lacks is nil there.
func merge(ctx context.Context, live, built *pages, each func(live, built *domain.Document) error) error {
	for {
		// Read the live page first: whatever it shows, the new build is then at least where the live build was.
		liveDocument, err := live.peek(ctx)
		if err != nil {
			return err
		}
		builtDocument, err := built.peek(ctx)
		if err != nil {
			return err
		}
		switch {
		case liveDocument == nil && builtDocument == nil:
			return nil
		case liveDocument == nil || builtDocument == nil:
		case liveDocument.ID < builtDocument.ID:
			builtDocument = nil
		case liveDocument.ID > builtDocument.ID:
			liveDocument = nil
		}
		if err := each(liveDocument, builtDocument); err != nil {
			return err
		}
		if liveDocument != nil {
			live.next()
		}
		if builtDocument != nil {
			built.next()
		}
	}
}

// isSettled reports whether a difference between two documents, one of which may be missing, follows from the
// definitions, and not from the positions of the builds. See above.
func isSettled(live, built *pages, liveDocument, builtDocument *domain.Document) bool {
	switch {
	case liveDocument == nil:
		return builtDocument.Version <= live.at && live.head <= built.at
	case builtDocument == nil:
		return liveDocument.Version <= built.at && live.at >= built.at
	default:
		return liveDocument.Version <= built.at && builtDocument.Version <= live.at
	}
}

// checkDocument counts a document of the new build and checks the assertions on it.
func (c *comparison) checkDocument(ctx context.Context, document *domain.Document) error {
	c.found.documents++
	return c.assert(ctx, c.tenant, *document)
}

// findLive looks up the tenant's live build.
func (c *comparison) findLive(ctx context.Context) error {
	live := c.projection
	c.live = foldedBuild{Build: live.LiveBuild(), source: c.baseline.source, types: c.baseline.types}
	if !folding.SameDefinition(live.Definition, c.projection.Definition) {
		c.live.source, c.live.types = live.Definition.Source, c.r.typesOf(ctx, live.Definition)
	}
	var err error
	if c.live.driver, err = c.r.driver(c.live.Database); err != nil {
		return &liveError{c.live.Database, err}
	}
	return nil
}

// readBuilt reads a page of the new build. Only this attempt moves that build, so its position is known.
func (a *attempt) readBuilt(ctx context.Context, p *pages) error {
	if err := a.giveWay(ctx); err != nil {
		return err
	}
	p.at = a.position(p.tenant)
	var err error
	if p.page, err = a.driver.Query(ctx, a.build, p.tenant, p.query()); err != nil {
		return fmt.Errorf("read the documents of the new build: %w", err)
	}
	return nil
}

// readLive reads a page of the live build, with a position that the build had reached before, and the log's head after
// it.
func (c *comparison) readLive(ctx context.Context, p *pages) error {
	if err := c.giveWay(ctx); err != nil {
		return err
	}
	var err error
	if p.at, err = c.liveAt(ctx); err != nil {
		return err
	}
	if p.page, err = c.live.driver.Query(ctx, c.live.Build, p.tenant, p.query()); err != nil {
		return &liveError{c.live.Database, err}
	}
	head, err := c.r.config.Store.Head(ctx, p.tenant)
	if err != nil {
		return fmt.Errorf("read the log's head: %w", err)
	}
	p.head = head.Position
	return nil
}

// liveAt returns a position that the live build has reached.
func (c *comparison) liveAt(ctx context.Context) (int64, error) {
	stored, err := c.live.driver.Checkpoint(ctx, c.live.Build, c.tenant)
	if err != nil {
		return 0, &liveError{c.live.Database, err}
	}
	return c.r.reachedBy(ctx, c.tenant, &c.live, stored, c.position(c.tenant))
}

// reachedBy returns a position that a build has reached: its checkpoint, or upTo if the build folds no event in
// between. A checkpoint is not saved for events that change nothing.
func (r *Rebuilds) reachedBy(ctx context.Context, tenant domain.TenantID, build *foldedBuild, checkpoint, upTo int64) (int64, error) {
	if checkpoint >= upTo {
		return checkpoint, nil
	}
	between, err := r.config.Store.AnyEvent(ctx, tenant, build.source, build.types, checkpoint, upTo)
	if err != nil {
		return 0, fmt.Errorf("look for events after the position of build %d: %w", build.Number, err)
	}
	if between {
		return checkpoint, nil
	}
	return upTo, nil
}

// recheckUndecided reads the undecided documents again, and counts those that are unchanged.
func (c *comparison) recheckUndecided(ctx context.Context) error {
	added, removed := c.added, c.removed
	c.added, c.removed = nil, nil
	if len(removed) > 0 {
		if err := c.recheckRemoved(ctx, removed); err != nil {
			return err
		}
	}
	if len(added) == 0 {
		return nil
	}
	head, err := c.r.config.Store.Head(ctx, c.tenant)
	if err != nil {
		return fmt.Errorf("read the log's head: %w", err)
	}
	if err := c.foldUpTo(ctx, []domain.Head{{Tenant: c.tenant, Position: head.Position}}, c.steady()); err != nil {
		return err
	}
	err = eachUnchanged(ctx, c.driver, c.build, c.tenant, added, func(d *domain.Document) { c.found.addNew(c.tenant, d) })
	if err != nil {
		return fmt.Errorf("read the documents of the new build: %w", err)
	}
	return nil
}

func (c *comparison) recheckRemoved(ctx context.Context, removed []undecided) error {
	upTo := int64(0)
	for _, document := range removed {
		upTo = max(upTo, document.at)
	}
	reached, err := c.awaitLive(ctx, upTo)
	if err != nil || !reached {
		return err
	}
	err = eachUnchanged(ctx, c.live.driver, c.live.Build, c.tenant, removed, func(d *domain.Document) { c.found.addGone(c.tenant, d) })
	if err != nil {
		return &liveError{c.live.Database, err}
	}
	return nil
}

// awaitLive waits until the live build has reached a position; false if it does not in time.
func (c *comparison) awaitLive(ctx context.Context, position int64) (bool, error) {
	const interval = 50 * time.Millisecond
	for {
		at, err := c.liveAt(ctx)
		if err != nil || at >= position {
			return err == nil, err
		}
		c.baseline.mu.Lock()
		timedOut := c.waited >= baselinePatience
		c.waited += interval
		c.baseline.mu.Unlock()
		if timedOut {
			return false, nil
		}
		if err := sleep(ctx, interval); err != nil {
			return false, err
		}
	}
}

// eachUnchanged calls use with the documents that a build still has with the same version.
func eachUnchanged(ctx context.Context, driver drivers.Driver, build domain.Build, tenant domain.TenantID, candidates []undecided, use func(*domain.Document)) error {
	ids := make([]string, len(candidates))
	versions := make(map[string]int64, len(candidates))
	for i, candidate := range candidates {
		ids[i], versions[candidate.document.ID] = candidate.document.ID, candidate.document.Version
	}
	return drivers.LoadEach(ctx, driver, build, tenant, ids, func(documents []domain.Document) error {
		for i := range documents {
			if d := &documents[i]; d.Data != nil && d.Version == versions[d.ID] {
				use(d)
			}
		}
		return nil
	})
}

// pages reads all of a tenant's documents in a build, page by page, ordered by id.
type pages struct {
	tenant domain.TenantID
	read   func(ctx context.Context, p *pages) error // reads the next page, and sets at and head

	page  []domain.Document
	i     int
	begun bool
	ended bool
	last  string // the id of the last document of the previous pages
	size  int    // bytes per document of the last page; 0: unknown
	at    int64  // a position that the build had reached before the page was read
	head  int64  // for a live build: the log's head after that
}

func (p *pages) query() domain.DocumentQuery {
	q := domain.DocumentQuery{Limit: pageDocuments, MaxBytes: pageBytes}
	if p.size > 0 {
		// Read many small documents at a time: a page's statements alone cost as much as hundreds of them.
		q.Limit = min(max(pageBytes/2/p.size, minPageDocuments), maxPageDocuments)
	}
	if p.begun {
		q.After = &domain.SortKey{ID: p.last}
	}
	return q
}

// peek returns the next document; nil at the end.
func (p *pages) peek(ctx context.Context) (*domain.Document, error) {
	for p.i == len(p.page) && !p.ended {
		q := p.query()
		if err := p.read(ctx, p); err != nil {
			return nil, err
		}
		p.i, p.begun, p.ended = 0, true, q.Ended(p.page)
		if n := len(p.page); n > 0 {
			p.last = p.page[n-1].ID
			p.size = sizeOf(p.page)
		}
	}
	if p.i == len(p.page) {
		return nil, nil
	}
	return &p.page[p.i], nil
}

func (p *pages) next() { p.i++ }

// sizeOf returns the average size in bytes of a page's documents.
func sizeOf(page []domain.Document) int {
	bytes := 0
	for i := range page {
		bytes += len(page[i].ID) + len(page[i].Data)
	}
	return max(1, bytes/len(page))
}
