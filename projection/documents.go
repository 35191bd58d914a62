package projection

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Freshness says how up to date documents must be when they are read.
type Freshness struct {
	MinPosition int64         // every event of the projection's source up to here is folded; 0: whatever is there
	Wait        time.Duration // how long to wait for that; 0: DefaultWait
}

// DefaultWait is how long a read waits for its MinPosition.
const DefaultWait = 5 * time.Second

// backupPoll is how often a waiting read looks by itself: the projection may be followed by another process.
const backupPoll = 50 * time.Millisecond

// DocumentsQuery asks for a page of documents, in the order of their ids as bytes.
type DocumentsQuery struct {
	PageSize  int    // at most this many; at least 1
	PageToken string // DocumentsPage.Next of the page before; empty: the first
	Freshness
}

// DocumentsPage is a page of documents, all of one build.
type DocumentsPage struct {
	Documents []domain.Document
	Next      string // opaque; empty on the last page
}

// Document returns one document of the live build: domain.CodeNotFound where it is not there, domain.CodeNotCaughtUp
// where the wished freshness was not reached in time, domain.CodeFaulted where it cannot be.
func (c *Catalog) Document(ctx context.Context, tenant domain.TenantID, name, id string, fresh Freshness) (domain.Document, error) {
	var document domain.Document
	err := c.readLive(ctx, tenant, name, fresh, func(driver drivers.Driver, build domain.Build) error {
		var ok bool
		var err error
		if document, ok, err = driver.Get(ctx, build, tenant, id); err == nil && !ok {
			err = domain.Errorf(domain.CodeNotFound, "id", "projection %q has no document %q", name, clip(id))
		}
		return err
	})
	return document, err
}

// Documents returns a page of the live build's documents. A page behind the first is of the same build as that, or
// domain.CodeGone: start again, since another build went live meanwhile.
func (c *Catalog) Documents(ctx context.Context, tenant domain.TenantID, name string, q DocumentsQuery) (DocumentsPage, error) {
	var from pageToken
	if q.PageToken != "" {
		var err error
		if from, err = parsePageToken(q.PageToken); err != nil {
			return DocumentsPage{}, err
		}
	}
	if q.PageSize < 1 {
		return DocumentsPage{}, domain.Errorf(domain.CodeInvalidRequest, "pageSize", "it is %d; it must be at least 1", q.PageSize)
	}
	var page DocumentsPage
	err := c.readLive(ctx, tenant, name, q.Freshness, func(driver drivers.Driver, build domain.Build) error {
		here := pageToken{shared: build.Shared(), build: build.Number}
		if q.PageToken != "" && (from.shared != here.shared || from.build != here.build) {
			return domain.Errorf(domain.CodeGone, "pageToken", "the documents of this page were replaced by a newer build; start again from the first page")
		}
		// One more than asked for tells whether there is a next page.
		query := domain.DocumentQuery{Limit: q.PageSize + 1}
		if q.PageToken != "" {
			query.After = &domain.SortKey{ID: from.after}
		}
		documents, err := driver.Query(ctx, build, tenant, query)
		if err != nil {
			return err
		}
		page = DocumentsPage{Documents: documents}
		if len(documents) > q.PageSize {
			page.Documents = documents[:q.PageSize]
			here.after = documents[q.PageSize-1].ID
			page.Next = here.String()
		}
		return nil
	})
	return page, err
}

// readLive looks the live build up and reads from it. Where its table went away in between (a swap, and then the drop of
// the old table), it looks once more: the reader sees all of the old or all of the new.
func (c *Catalog) readLive(ctx context.Context, tenant domain.TenantID, name string, fresh Freshness, read func(drivers.Driver, domain.Build) error) error {
	var last int64
	for again := false; ; again = true {
		p, err := c.Get(ctx, tenant, name)
		if err != nil {
			return err
		}
		if again && p.Build == last {
			return fmt.Errorf("build %d of projection %q is live, but: %w", p.Build, name, drivers.ErrNoTable)
		}
		if fresh.MinPosition > 0 {
			p, err = c.awaitPosition(ctx, tenant, p, fresh)
		}
		build := p.LiveBuild()
		if err == nil {
			var driver drivers.Driver
			if driver, err = c.driver(build); err == nil {
				err = read(driver, build)
			}
		}
		if again || !errors.Is(err, drivers.ErrNoTable) {
			return err
		}
		last = p.Build
	}
}

// awaitPosition waits until the live build has seen every event of the projection's source up to fresh.MinPosition, and
// returns the projection as it is then: another build may have been swapped in while it waited, behind which the one
// that was live is followed no more.
func (c *Catalog) awaitPosition(ctx context.Context, tenant domain.TenantID, p domain.Projection, fresh Freshness) (domain.Projection, error) {
	wait := fresh.Wait
	if wait <= 0 {
		wait = DefaultWait
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	missing := int64(0) // the build whose table was not there
	for first := true; ; first = false {
		moved, done := c.config.Progress.wait(p.ProjectionID, tenant)
		var err error
		if !first {
			var now domain.Projection
			if now, err = c.Get(ctx, tenant, p.Name); err == nil {
				p = now
			}
		}
		reached := false
		if err == nil {
			reached, err = c.reached(ctx, tenant, p, fresh.MinPosition)
		}
		if errors.Is(err, drivers.ErrNoTable) && p.Build != missing {
			missing, err = p.Build, nil // replaced and dropped just now
		}
		if err != nil || reached {
			done()
			return p, err
		}
		poll := time.NewTimer(backupPoll)
		select {
		case <-moved:
		case <-poll.C:
		case <-deadline.C:
			err = domain.Errorf(domain.CodeNotCaughtUp, "minPosition", "projection %q has not reached position %d within %s; try again, or look at its state", p.Name, fresh.MinPosition, wait)
		case <-ctx.Done():
			err = ctx.Err()
		}
		poll.Stop()
		done()
		if err != nil {
			return p, err
		}
	}
}

func (c *Catalog) reached(ctx context.Context, tenant domain.TenantID, p domain.Projection, position int64) (bool, error) {
	driver, err := c.driver(p.LiveBuild())
	if err != nil {
		return false, err
	}
	checkpoint, err := driver.Checkpoint(ctx, p.LiveBuild(), tenant)
	if err != nil || checkpoint >= position {
		return err == nil, err
	}
	head, err := c.config.Store.Head(ctx, tenant)
	if err != nil {
		return false, err
	}
	if head.Position < position {
		return false, nil // what it will hold is not known yet
	}
	between, err := c.config.Store.AnyEvent(ctx, tenant, p.Definition.Source, c.types(p.Definition), checkpoint, position)
	if err != nil || !between {
		return err == nil, err
	}
	fault, faulted, err := c.config.Store.Fault(ctx, tenant, p.ProjectionID, p.Build)
	if err != nil {
		return false, err
	}
	if faulted && checkpoint < fault.Position && fault.Position <= position {
		return false, domain.Errorf(domain.CodeFaulted, "", "projection %q stopped before position %d: %s", p.Name, fault.Position, fault.Message)
	}
	return false, nil
}

// pageToken says where a page starts, and in which build. Its text is opaque to clients.
type pageToken struct {
	shared bool
	build  int64
	after  string
}

func (t pageToken) String() string {
	raw := []byte{0}
	if t.shared {
		raw[0] = 1
	}
	raw = binary.AppendUvarint(raw, uint64(t.build))
	return base64.RawURLEncoding.EncodeToString(append(raw, t.after...))
}

func parsePageToken(text string) (pageToken, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(raw) > 1 && raw[0] <= 1 {
		if build, n := binary.Uvarint(raw[1:]); n > 0 && build <= 1<<62 && len(raw) <= 1+n+domain.MaxDocumentIDBytes {
			return pageToken{shared: raw[0] == 1, build: int64(build), after: string(raw[1+n:])}, nil
		}
	}
	return pageToken{}, domain.Errorf(domain.CodeInvalidRequest, "pageToken", "%q is not a page token; take it from the answer with the page before", clip(text))
}
