package projection

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/expr/filter"
	"github.com/manifold-es/manifold/fairshare"
	"github.com/manifold-es/manifold/projection/folding"
)

// Freshness says how up to date documents must be when they are read.
type Freshness struct {
	MinPosition int64         // every event of the projection's source up to here is folded; 0: no requirement
	Wait        time.Duration // how long to wait for that; 0: DefaultWait
	fromPrimary bool          // no replica may answer
	began       time.Time     // when the wait began; zero: it begins now
}

// DefaultWait is how long a read waits for its MinPosition.
const DefaultWait = 5 * time.Second

// backupPoll is how often a waiting read polls the checkpoint: another process may be following the projection.
const backupPoll = 50 * time.Millisecond

// maxPageBytes ends a page of documents early. It limits the memory that a request holds, except for the one document
// that exceeds the limit.
const maxPageBytes = 8 << 20

// How much of the memory account in its context a read of documents uses: at first what most reads need, and once it
// has the documents, their size times the number of copies in memory on their way out.
const (
	documentReserve = 8 << 20
	pageReserve     = 2 * maxPageBytes
	answerFactor    = 3
	memoryPatience  = 10 * time.Second
)

// DocumentsQuery asks for a page of documents.
type DocumentsQuery struct {
	Filter    string        // an expression, as filter.Compile takes it; selects documents; empty: all
	OrderBy   string        // paths, as filter.CompileOrder takes them, such as "total desc,customer"; empty: by id as bytes
	PageSize  int           // at most this many, and fewer if they exceed some megabytes; at least 1
	PageToken string        // DocumentsPage.Next of the previous page, for the same filter and order; empty: first page
	Count     bool          // count all documents that match the filter, which may cost much more than the page
	Fields    []domain.Path // the fields that the caller will show; used only for warnings
	Freshness
}

// DocumentsPage is a page of documents, all of one build.
type DocumentsPage struct {
	Documents []domain.Document
	Next      string // opaque; empty on the last page
	Count     int64  // with DocumentsQuery.Count: how many there are on all pages, counted after the page was read
	// Warnings, meant for people, name fields of the filter, order and selection that no document of the projection can
	// have.
	Warnings []string
}

// Explanation says how the database answers a query for documents.
type Explanation struct {
	Database string // by its name in the configuration
	domain.Explanation
}

// Document returns one document of the live build. The error is domain.CodeNotFound if the document does not exist,
// domain.CodeNotCaughtUp if the required freshness was not reached in time, and domain.CodeFaulted if it cannot be
// reached.
func (c *Catalog) Document(ctx context.Context, tenant domain.TenantID, name, id string, fresh Freshness) (domain.Document, error) {
	var document domain.Document
	err := c.readLive(ctx, tenant, name, fresh, func(reader drivers.Reader, p domain.Projection) error {
		build := p.LiveBuild()
		room := fairshare.From(ctx)
		if err := room.Wait(ctx, documentReserve, memoryPatience); err != nil {
			return err
		}
		var ok bool
		var err error
		document, ok, err = reader.Get(ctx, build, tenant, id)
		room.Set(answerFactor * int64(len(document.Data)))
		if err == nil && !ok {
			err = domain.Errorf(domain.CodeNotFound, "id", "projection %q has no document %q", name, folding.Clip(id))
		}
		return err
	})
	return document, err
}

// Documents returns a page of the live build's documents. Every later page comes from the same build as the first. If
// another build has gone live since, the error is domain.CodeGone: start again from the first page. An invalid query is
// domain.CodeInvalidRequest, and one that only this database does not support is domain.CodeUnsupported; both name the
// place. A query that exceeds the driver's time limit is domain.CodeTooCostly.
func (c *Catalog) Documents(ctx context.Context, tenant domain.TenantID, name string, q DocumentsQuery) (DocumentsPage, error) {
	asked, err := c.compile(ctx, tenant, name, q)
	if err != nil {
		return DocumentsPage{}, err
	}
	q.Freshness.fromPrimary = asked.from != nil // a replica could lack what earlier pages have shown
	var page DocumentsPage
	err = c.readLive(ctx, tenant, name, q.Freshness, func(reader drivers.Reader, p domain.Projection) error {
		build := p.LiveBuild()
		if err := asked.checkBuild(build); err != nil {
			return err
		}
		room := fairshare.From(ctx)
		if err := room.Wait(ctx, pageReserve, memoryPatience); err != nil {
			return err
		}
		leave, err := c.enterCostly(ctx, tenant, asked.query.Where != nil || len(asked.query.Order) > 0 || q.Count)
		if err != nil {
			return err
		}
		defer leave()
		documents, err := reader.Query(ctx, build, tenant, asked.query)
		size := 0
		for _, document := range documents {
			size += len(document.Data)
		}
		room.Set(answerFactor * int64(size))
		if err != nil {
			return err
		}
		page = DocumentsPage{Documents: documents[:min(len(documents), q.PageSize)]}
		if !asked.query.Ended(documents) {
			here := pageToken{shared: build.Shared(), build: build.Number, query: asked.id}
			if here.after, err = domain.SortKeyOf(page.Documents[len(page.Documents)-1], asked.query.Order); err != nil {
				return err
			}
			if page.Next, err = c.tokens.seal(ctx, pageTokenKind, here.encode()); err != nil {
				return err
			}
		}
		if q.Count {
			if page.Count, err = reader.Count(ctx, build, tenant, asked.query.Where); err != nil {
				return err
			}
		}
		page.Warnings = c.warnings(ctx, p, asked.query, q.Fields)
		return nil
	})
	return page, err
}

// Explain says how the database would answer the query for the tenant, and returns no documents. It is meant for
// operators: the result may contain the filter's values and the names of tables. Errors are those of Documents.
func (c *Catalog) Explain(ctx context.Context, tenant domain.TenantID, name string, q DocumentsQuery) (Explanation, error) {
	asked, err := c.compile(ctx, tenant, name, q)
	if err != nil {
		return Explanation{}, err
	}
	q.Freshness.fromPrimary = true
	var explained Explanation
	err = c.readLive(ctx, tenant, name, q.Freshness, func(reader drivers.Reader, p domain.Projection) error {
		build := p.LiveBuild()
		if err := asked.checkBuild(build); err != nil {
			return err
		}
		explained.Database = build.Database
		var err error
		explained.Explanation, err = reader.Explain(ctx, build, tenant, asked.query)
		return err
	})
	return explained, err
}

// queriesAtOnce is how many queries of unknown cost one tenant may have at databases at the same time. It is less than
// a driver's connections for them, so one tenant's queries cannot block all others.
const queriesAtOnce = 3

func newQueryShares() *fairshare.Budget {
	return fairshare.New("queries for documents", math.MaxInt64, queriesAtOnce)
}

// enterCostly waits for a place among the tenant's queries if the query is a costly one. leave returns the place.
func (c *Catalog) enterCostly(ctx context.Context, tenant domain.TenantID, costly bool) (leave func(), err error) {
	account := c.queries.Account(tenant)
	if costly {
		err = account.Wait(ctx, 1, 0)
	}
	return account.Close, err
}

// compiledQuery is a DocumentsQuery in the form that drivers take.
type compiledQuery struct {
	query domain.DocumentQuery // asks for one document more than the page, to see whether there is a next page
	from  *pageToken           // nil: the first page
	id    queryID
}

func (c *Catalog) compile(ctx context.Context, tenant domain.TenantID, name string, q DocumentsQuery) (compiledQuery, error) {
	asked := compiledQuery{id: queryIDOf(tenant, name, q.Filter, q.OrderBy)}
	if q.PageSize < 1 {
		return asked, domain.Errorf(domain.CodeInvalidRequest, "pageSize", "it is %d; it must be at least 1", q.PageSize)
	}
	asked.query.Limit, asked.query.MaxBytes = q.PageSize+1, maxPageBytes
	var err error
	if q.Filter != "" {
		if asked.query.Where, err = c.filters.compile(ctx, c.config.Requests, tenant, q.Filter); err != nil {
			return asked, invalidExpression("filter", err)
		}
	}
	if q.OrderBy != "" {
		if asked.query.Order, err = filter.CompileOrder(q.OrderBy); err != nil {
			return asked, invalidExpression("orderBy", err)
		}
	}
	if q.PageToken == "" {
		return asked, nil
	}
	from, err := c.openPage(ctx, q.PageToken)
	if err != nil {
		return asked, err
	}
	asked.from, asked.query.After = &from, &from.after
	// Compare the query as well: a token of another order may pass the check by chance.
	if from.query != asked.id || asked.query.Check() != nil {
		return asked, domain.Errorf(domain.CodeInvalidRequest, "pageToken", "it was given for another query; filter and orderBy must be those of the page before, as in its Link header")
	}
	return asked, nil
}

// openPage reads a page token. It also accepts the unencrypted tokens of the previous release, which may run beside
// this one. That is safe: a token that a client makes up is only a place among its own documents.
func (c *Catalog) openPage(ctx context.Context, text string) (pageToken, error) {
	plain, err := c.tokens.open(ctx, pageTokenKind, text)
	if domain.IsCode(err, domain.CodeInvalidRequest) && len(text) <= maxPageTokenBytes {
		if raw, wrong := base64.RawURLEncoding.DecodeString(text); wrong == nil && base64.RawURLEncoding.EncodeToString(raw) == text {
			plain, err = raw, nil
		}
	}
	if err != nil {
		return pageToken{}, err
	}
	from, err := decodePageToken(plain)
	if err != nil {
		return pageToken{}, invalidPageToken(text)
	}
	return from, nil
}

// checkBuild refuses the page of another build, and a list without a partition if the build is partitioned.
func (q compiledQuery) checkBuild(build domain.Build) error {
	if q.from != nil && (q.from.shared != build.Shared() || q.from.build != build.Number) {
		return domain.Errorf(domain.CodeGone, "pageToken", "the documents of this page were replaced by a newer build; start again from the first page")
	}
	return checkNarrowed(build, q.query.Where)
}

// invalidExpression is the error for an expression of a request that does not compile. Errors that are not the
// expression's fault keep their code.
func invalidExpression(where string, err error) error {
	if wrong, ok := errors.AsType[*expr.CompileError](err); ok {
		return domain.Errorf(domain.CodeInvalidRequest, where, "%s", wrong)
	}
	return fmt.Errorf("compile %s: %w", where, err)
}

// readLive looks up the live build, waits until it is fresh enough, and reads from it. If a replica of its database is
// fresh enough, it reads from there instead, without waiting. If that fails, read is called again, and the time
// that it took is part of the wait.
func (c *Catalog) readLive(ctx context.Context, tenant domain.TenantID, name string, fresh Freshness, read func(drivers.Reader, domain.Projection) error) error {
	find := func() (domain.Projection, error) { return c.Live(ctx, tenant, name) }
	return c.retryDropped(find, func(p *domain.Projection) (err error) {
		if fresh.MinPosition > 0 {
			fresh.began = time.Now()
			if err := c.readReplica(*p, fresh, read); !errors.Is(err, drivers.ErrNoReplica) {
				return err
			}
			if *p, err = c.awaitPosition(ctx, tenant, *p, fresh); err != nil {
				return err
			}
		}
		if p.Definition.Mode == domain.ModeLive {
			return read(&liveReader{catalog: c, projection: *p}, *p)
		}
		driver, err := c.driver(p.LiveBuild())
		if err != nil {
			return err
		}
		return read(driver, *p)
	})
}

// readReplica reads from a replica of the live build's database that is fresh enough. The error is drivers.ErrNoReplica
// if there is none.
func (c *Catalog) readReplica(p domain.Projection, fresh Freshness, read func(drivers.Reader, domain.Projection) error) error {
	if fresh.fromPrimary || p.Definition.Mode == domain.ModeLive {
		return drivers.ErrNoReplica
	}
	driver, err := c.driver(p.LiveBuild())
	if err != nil {
		return err
	}
	if replicated, ok := driver.(drivers.Replicated); ok {
		if reader, ok := replicated.AtPosition(fresh.MinPosition); ok {
			return read(reader, p)
		}
	}
	return drivers.ErrNoReplica
}

// retryDropped finds a projection and reads from its live build. If the table disappeared in between (after a swap, the
// old table is dropped), it tries again. So the reader sees either the old documents or the new ones, never a mix. read
// may replace the projection by a later state.
func (c *Catalog) retryDropped(find func() (domain.Projection, error), read func(p *domain.Projection) error) error {
	p, err := find()
	if err != nil {
		return err
	}
	if err := read(&p); !errors.Is(err, drivers.ErrNoTable) {
		return err
	}
	missing := p.Build
	if p, err = find(); err != nil {
		return err
	}
	if p.Build == missing {
		return c.noTable(p)
	}
	return read(&p)
}

// awaitPosition waits until the live build has seen every event of the projection's source up to fresh.MinPosition. It
// returns the projection as of then: another build may have gone live during the wait, after which nothing follows the
// previous one.
func (c *Catalog) awaitPosition(ctx context.Context, tenant domain.TenantID, p domain.Projection, fresh Freshness) (domain.Projection, error) {
	wait := fresh.Wait
	if wait <= 0 {
		wait = DefaultWait
	}
	began := fresh.began
	if began.IsZero() {
		began = time.Now()
	}
	deadline := time.NewTimer(time.Until(began.Add(wait)))
	defer deadline.Stop()
	missing := int64(0) // the build whose table was missing
	for first := true; ; first = false {
		moved, done := c.config.Progress.wait(p.ProjectionID, tenant)
		var err error
		if !first {
			var now domain.Projection
			if now, err = c.Live(ctx, tenant, p.Name); err == nil {
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
			err = domain.Errorf(domain.CodeNotCaughtUp, "minPosition", "projection %q has not reached position %d within %s; try again, or read its state", p.Name, fresh.MinPosition, wait)
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
	if p.Definition.Mode == domain.ModeLive {
		head, err := c.config.Store.Head(ctx, tenant)
		return head.Position >= position, err
	}
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
		return false, nil // events up to position are not known yet
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
