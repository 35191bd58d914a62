package projection

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
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
}

// DefaultWait is how long a read waits for its MinPosition.
const DefaultWait = 5 * time.Second

// backupPoll is how often a waiting read polls the checkpoint: another process may be following the projection.
const backupPoll = 50 * time.Millisecond

// maxPageBytes ends a page of documents early. It limits the memory that a request holds, except for the one document
// that exceeds the limit.
const maxPageBytes = 8 << 20

// What reading documents takes from the memory account in its context. A read first takes what most reads need. Once it
// has the documents, it takes their size times the number of copies in memory on their way out.
const (
	documentRoom = 8 << 20
	pageRoom     = 2 * maxPageBytes
	answerFactor = 3
	roomPatience = 10 * time.Second
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
	err := c.readLive(ctx, tenant, name, fresh, func(reader documentReader, p domain.Projection) error {
		build := p.LiveBuild()
		room := fairshare.From(ctx)
		if err := room.Wait(ctx, documentRoom, roomPatience); err != nil {
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
	var page DocumentsPage
	err = c.readLive(ctx, tenant, name, q.Freshness, func(reader documentReader, p domain.Projection) error {
		build := p.LiveBuild()
		if err := asked.on(build); err != nil {
			return err
		}
		room := fairshare.From(ctx)
		if err := room.Wait(ctx, pageRoom, roomPatience); err != nil {
			return err
		}
		leave, err := c.place(ctx, tenant, asked.query.Where != nil || len(asked.query.Order) > 0 || q.Count)
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
			here := pageToken{shared: build.Shared(), build: build.Number, question: asked.question}
			if here.after, err = domain.SortKeyOf(page.Documents[len(page.Documents)-1], asked.query.Order); err != nil {
				return err
			}
			if page.Next, err = c.tokens.seal(ctx, tokenOfPage, here.encode()); err != nil {
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
	var explained Explanation
	err = c.readLive(ctx, tenant, name, q.Freshness, func(reader documentReader, p domain.Projection) error {
		build := p.LiveBuild()
		if err := asked.on(build); err != nil {
			return err
		}
		explained.Database = build.Database
		var err error
		explained.Explanation, err = reader.Explain(ctx, build, tenant, asked.query)
		return err
	})
	return explained, err
}

// place waits for a slot among the tenant's queries if the query is a costly one.
func (c *Catalog) place(ctx context.Context, tenant domain.TenantID, costs bool) (leave func(), err error) {
	if !costs {
		return func() {}, nil
	}
	return c.queries.enter(ctx, tenant)
}

// compiledQuery is a DocumentsQuery in the form that drivers take.
type compiledQuery struct {
	query    domain.DocumentQuery // asks for one document more than the page, to see whether there is a next page
	from     *pageToken           // nil: the first page
	question question
}

func (c *Catalog) compile(ctx context.Context, tenant domain.TenantID, name string, q DocumentsQuery) (compiledQuery, error) {
	asked := compiledQuery{question: questionOf(tenant, name, q.Filter, q.OrderBy)}
	if q.PageSize < 1 {
		return asked, domain.Errorf(domain.CodeInvalidRequest, "pageSize", "it is %d; it must be at least 1", q.PageSize)
	}
	asked.query.Limit, asked.query.MaxBytes = q.PageSize+1, maxPageBytes
	var err error
	if q.Filter != "" {
		if asked.query.Where, err = c.filters.compile(ctx, c.config.Requests, tenant, q.Filter); err != nil {
			return asked, notCompiled("filter", err)
		}
	}
	if q.OrderBy != "" {
		if asked.query.Order, err = filter.CompileOrder(q.OrderBy); err != nil {
			return asked, notCompiled("orderBy", err)
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
	// Compare the question as well: a token of another order may pass the check by chance.
	if from.question != asked.question || asked.query.Check() != nil {
		return asked, domain.Errorf(domain.CodeInvalidRequest, "pageToken", "it was given for another query; filter and orderBy must be those of the page before, as in its Link header")
	}
	return asked, nil
}

// openPage reads a page token. It also accepts the unencrypted tokens of the previous release, which may run beside
// this one. That is safe: a token that a client makes up is only a place among its own documents.
func (c *Catalog) openPage(ctx context.Context, text string) (pageToken, error) {
	plain, err := c.tokens.open(ctx, tokenOfPage, text)
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
		return pageToken{}, noPageToken(text)
	}
	return from, nil
}

// on refuses the page of another build, and a list without a partition if the build is partitioned.
func (q compiledQuery) on(build domain.Build) error {
	if q.from != nil && (q.from.shared != build.Shared() || q.from.build != build.Number) {
		return domain.Errorf(domain.CodeGone, "pageToken", "the documents of this page were replaced by a newer build; start again from the first page")
	}
	return checkNarrowed(build, q.query.Where)
}

// notCompiled is the error for an expression of a request that does not compile. Errors that are not the expression's
// fault keep their code.
func notCompiled(where string, err error) error {
	if wrong, ok := errors.AsType[*expr.CompileError](err); ok {
		return domain.Errorf(domain.CodeInvalidRequest, where, "%s", wrong)
	}
	return fmt.Errorf("compile %s: %w", where, err)
}

// live returns the projection with this name: the tenant's own, or else the shared one. It comes with the build and
// definition that are live for the tenant, since a rebuild may have given the tenant a separate build.
func (c *Catalog) live(ctx context.Context, tenant domain.TenantID, name string) (domain.Projection, error) {
	p, err := c.config.Store.LiveProjection(ctx, tenant, domain.ProjectionID{Owner: tenant, Name: name})
	if domain.IsCode(err, domain.CodeNotFound) && tenant != domain.Everyone {
		p, err = c.config.Store.LiveProjection(ctx, tenant, domain.ProjectionID{Owner: domain.Everyone, Name: name})
	}
	if domain.IsCode(err, domain.CodeNotFound) {
		return domain.Projection{}, domain.Errorf(domain.CodeNotFound, "name", "there is no projection named %q", folding.Clip(name))
	}
	return p, err
}

// readLive looks up the live build and reads from it. If the table disappeared in between (after a swap, the old table
// is dropped), it tries again. So the reader sees either the old documents or the new ones, never a mix.
func (c *Catalog) readLive(ctx context.Context, tenant domain.TenantID, name string, fresh Freshness, read func(documentReader, domain.Projection) error) error {
	var last int64
	for again := false; ; again = true {
		p, err := c.live(ctx, tenant, name)
		if err != nil {
			return err
		}
		if again && p.Build == last {
			return c.noTable(p)
		}
		if fresh.MinPosition > 0 {
			p, err = c.awaitPosition(ctx, tenant, p, fresh)
		}
		build := p.LiveBuild()
		if err == nil && p.Definition.Mode == domain.ModeLive {
			return read(&liveReader{catalog: c, projection: p}, p)
		}
		if err == nil {
			var driver drivers.Driver
			if driver, err = c.driver(build); err == nil {
				err = read(driver, p)
			}
		}
		if again || !errors.Is(err, drivers.ErrNoTable) {
			return err
		}
		last = p.Build
	}
}

// awaitPosition waits until the live build has seen every event of the projection's source up to fresh.MinPosition. It
// returns the projection as of then: another build may have gone live during the wait, after which nothing follows the
// previous one.
func (c *Catalog) awaitPosition(ctx context.Context, tenant domain.TenantID, p domain.Projection, fresh Freshness) (domain.Projection, error) {
	wait := fresh.Wait
	if wait <= 0 {
		wait = DefaultWait
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	missing := int64(0) // the build whose table was missing
	for first := true; ; first = false {
		moved, done := c.config.Progress.wait(p.ProjectionID, tenant)
		var err error
		if !first {
			var now domain.Projection
			if now, err = c.live(ctx, tenant, p.Name); err == nil {
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
