package mongo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// loadSlice is how many ids one command asks for.
const loadSlice = 10_000

// Load returns the existing documents among ids, and tombstones as documents without data.
func (d *Driver) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	place, err := d.locate(limited, build, tenant)
	if err != nil {
		return nil, readError(build, timeoutError(ctx, limited, err))
	}
	keys := make([]string, 0, len(ids))
	for _, id := range ids {
		if domain.CheckDocumentID("", id) == nil {
			keys = append(keys, place.prefix+id)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	var at bson.Timestamp
	if d.transactions && len(keys) > loadSlice {
		if at, err = d.snapshotTime(limited); err != nil {
			return nil, readError(build, timeoutError(ctx, limited, err))
		}
	}
	var all []domain.Document
	size := 0
	for slice := range slices.Chunk(keys, loadSlice) {
		most := max(1, drivers.MaxLoadBytes+1-size)
		found, err := d.documents(limited, append(bson.D{
			{Key: "find", Value: place.collection},
			{Key: "filter", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: slice}}}, {Key: "tenant", Value: place.tenant}}},
		}, d.snapshot(at)...), most)
		if err != nil {
			return nil, readError(build, timeoutError(ctx, limited, err))
		}
		all = append(all, found...)
		for i := range found {
			size += len(found[i].Data)
		}
		if size > drivers.MaxLoadBytes && len(all) > 1 {
			return nil, readError(build, drivers.ErrLoadTooLarge)
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	if err := d.checkTable(limited, place); err != nil {
		return nil, readError(build, err)
	}
	return nil, nil
}

// Get returns one document; ok is false if it does not exist.
func (d *Driver) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return domain.Document{}, false, err
	}
	limited, cancel := context.WithTimeout(ctx, d.queryTime)
	defer cancel()
	var found []domain.Document
	place, err := d.locate(limited, build, tenant)
	if err == nil && domain.CheckDocumentID("", id) == nil {
		found, err = d.documents(limited, bson.D{
			{Key: "find", Value: place.collection},
			{Key: "filter", Value: on("_id", "$eq", place.prefix+id)},
			{Key: "limit", Value: 1}, {Key: "singleBatch", Value: true},
		}, 0)
	}
	if err == nil && len(found) == 0 {
		err = d.checkTable(limited, place)
	}
	if err != nil {
		return domain.Document{}, false, readError(build, timeoutError(ctx, limited, err))
	}
	if len(found) == 0 || found[0].Data == nil {
		return domain.Document{}, false, nil
	}
	return found[0], true, nil
}

// Query returns a page of documents.
func (d *Driver) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	limited, cancel := context.WithTimeout(ctx, d.queryTime)
	defer cancel()
	q, err := d.prepare(limited, build, tenant, query)
	if err != nil {
		return nil, d.queryTimeoutError(ctx, limited, err)
	}
	page, err := d.keyedPage(limited, q)
	if err != nil {
		return nil, readError(build, d.queryTimeoutError(ctx, limited, err))
	}
	return page, nil
}

// prepared is a query with its conditions.
type prepared struct {
	domain.DocumentQuery
	place    place
	matching bson.D
	ordering ordering
	indexes  []string // the paths that have an index, as they were declared
	byKeys   bool     // the ordering is that of keys
	reading  bson.D   // the read concern of its commands
}

func (d *Driver) prepare(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (prepared, error) {
	if err := errors.Join(drivers.CheckTenant(build, tenant), query.Check()); err != nil {
		return prepared{}, err
	}
	matching, err := d.filter(query.Where)
	if err != nil {
		return prepared{}, err
	}
	place, err := d.locate(ctx, build, tenant)
	if err != nil {
		return prepared{}, readError(build, err)
	}
	q := prepared{DocumentQuery: query, place: place.restrictedBy(query.Where), matching: matching, ordering: newOrdering(query.Order, place.declared)}
	var at bson.Timestamp
	if d.transactions && len(query.Order) > 0 { // there are several commands
		if at, err = d.snapshotTime(ctx); err != nil {
			return prepared{}, readError(build, err)
		}
	}
	q.reading = d.snapshot(at)
	if build.Shared() && (q.place.partition == nil || q.place.only != "") {
		q.indexes = build.Indexes
	}
	return q, nil
}

// documents is the condition for the tenant's documents in the build that meet all the conditions. It restricts the
// keys, for sharded clusters and the primary index, and the tenant, with which the other indexes begin. Checkpoints and
// tombstones have no data.
func (p place) documents(conditions ...bson.D) bson.D {
	all := bson.D{
		{Key: "tenant", Value: p.tenant},
		{Key: "_id", Value: bson.D{{Key: "$gt", Value: p.prefix}, {Key: "$lt", Value: p.end}}},
		{Key: data, Value: bson.D{{Key: "$exists", Value: true}}},
	}
	if p.only != "" {
		all = append(all, bson.E{Key: partition, Value: p.only})
	}
	if p.byBuild {
		all = append(all, bson.E{Key: "build", Value: p.build})
	}
	if more := and(conditions...); len(more) > 0 {
		all = append(all, bson.E{Key: "$and", Value: bson.A{more}})
	}
	return all
}

// page reads the parts of the order one after the other until the page is full.
func (d *Driver) page(ctx context.Context, q prepared) (page []domain.Document, err error) {
	if len(q.Order) == 0 {
		page, err = d.documents(ctx, q.byID(bson.D{}, q.After, q.Limit), q.MaxBytes)
	} else {
		if q.After == nil || !q.After.Unordered {
			if page, err = d.ordered(ctx, q); err != nil {
				return nil, err
			}
		}
		if q.Ended(page) {
			after := q.After
			if after != nil && !after.Unordered {
				after = nil
			}
			rest, err := d.documents(ctx, q.byID(q.ordering.unordered(), after, q.Limit-len(page)), q.MaxBytes)
			if err != nil {
				return nil, err
			}
			page = q.Cut(append(page, rest...))
		}
	}
	if err == nil && len(page) == 0 {
		err = d.checkTable(ctx, q.place)
	}
	return page, err
}

// byID returns the command for the documents that meet a condition, by id.
func (q prepared) byID(condition bson.D, after *domain.SortKey, limit int) bson.D {
	place := q.place
	if after != nil {
		place.prefix += after.ID // the keys after it
	}
	return q.find(place.documents(q.matching, condition), bson.D{{Key: "_id", Value: 1}}, limit)
}

// part returns the command for one part of the documents that can be ordered.
func (q prepared) part(chosen int) bson.D {
	condition := q.ordering.part(chosen)
	if q.After != nil {
		condition = and(condition, q.ordering.after(chosen, *q.After, q.place.prefix))
	}
	return q.find(q.place.documents(q.matching, condition), q.ordering.sort(chosen), q.Limit)
}

func (q prepared) find(filter, sort bson.D, limit int) bson.D {
	return append(bson.D{
		{Key: "find", Value: q.place.collection},
		{Key: "filter", Value: filter},
		{Key: "sort", Value: sort},
		{Key: "limit", Value: int64(limit)},
		{Key: "allowDiskUse", Value: true}, // if no index has the order; the default from MongoDB 6 on
	}, q.reading...)
}

// ordered merges the sorted parts of the documents that can be ordered.
func (d *Driver) ordered(ctx context.Context, q prepared) ([]domain.Document, error) {
	var page []domain.Document
	for _, chosen := range q.ordering.choices() {
		var part []domain.Document
		var err error
		if q.backward(chosen) {
			part, err = d.descending(ctx, q)
		} else {
			part, err = d.documents(ctx, q.part(chosen), q.MaxBytes)
		}
		if err != nil {
			return nil, err
		}
		if page, err = merge(page, part, q.Order); err != nil {
			return nil, err
		}
	}
	return q.Cut(page), nil
}

// merge merges two sorted lists of documents. If a document changed in between and is in both, it is kept once.
func merge(a, b []domain.Document, order []domain.Order) ([]domain.Document, error) {
	if len(b) == 0 {
		return a, nil
	}
	seen := make(map[string]bool, len(a))
	for _, document := range a {
		seen[document.ID] = true
	}
	b = slices.DeleteFunc(b, func(document domain.Document) bool { return seen[document.ID] })
	keys := make(map[string]domain.SortKey, len(a)+len(b))
	for _, document := range slices.Concat(a, b) {
		key, err := domain.SortKeyOf(document, order)
		if err != nil {
			return nil, err
		}
		keys[document.ID] = key
	}
	merged := make([]domain.Document, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if keys[a[0].ID].Compare(keys[b[0].ID], order) < 0 {
			merged, a = append(merged, a[0]), a[1:]
		} else {
			merged, b = append(merged, b[0]), b[1:]
		}
	}
	return append(append(merged, a...), b...), nil
}

// Count returns how many of the tenant's documents in the build match.
func (d *Driver) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return 0, err
	}
	matching, err := d.filter(where)
	if err != nil {
		return 0, err
	}
	limited, cancel := context.WithTimeout(ctx, d.queryTime)
	defer cancel()
	place, err := d.locate(limited, build, tenant)
	if err != nil {
		return 0, readError(build, d.queryTimeoutError(ctx, limited, err))
	}
	place = place.restrictedBy(where)
	var count int64
	// The command "count" also counts documents that are moving between the shards of a cluster.
	err = d.find(limited, append(bson.D{
		{Key: "aggregate", Value: place.collection},
		{Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$match", Value: place.documents(matching)}},
			bson.D{{Key: "$count", Value: "n"}},
		}},
		{Key: "cursor", Value: bson.D{}},
	}, d.snapshot(bson.Timestamp{})...), func() { count = 0 }, func(row bson.Raw) error {
		var ok bool
		if count, ok = row.Lookup("n").AsInt64OK(); !ok {
			return errors.New("the answer has no number")
		}
		return nil
	})
	if err == nil && count == 0 {
		err = d.checkTable(limited, place)
	}
	return count, drivers.BuildError("count the documents of", build, d.queryTimeoutError(ctx, limited, patternError(err)))
}

// Explain reports how the database would execute the query. For an ordered query it explains the part of the documents
// that can be ordered and have no list on the way, which is nearly all of them. For a page that is read backwards it
// explains the backward read.
func (d *Driver) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error) {
	limited, cancel := context.WithTimeout(ctx, d.queryTime)
	defer cancel()
	q, err := d.prepare(limited, build, tenant, query)
	if err != nil {
		return domain.Explanation{}, d.queryTimeoutError(ctx, limited, err)
	}
	keyed, ok, err := d.prepareKeys(limited, q)
	if err != nil {
		return domain.Explanation{}, readError(build, d.queryTimeoutError(ctx, limited, err))
	}
	if ok {
		q = keyed
	}
	q.reading = nil // an explained query reads nothing
	var command bson.D
	switch {
	case len(q.Order) == 0:
		command = q.byID(bson.D{}, q.After, q.Limit)
	case q.After != nil && q.After.Unordered:
		command = q.byID(q.ordering.unordered(), q.After, q.Limit)
	case q.backward(0):
		command = q.backwardCommand(q.firstBelow(), q.Limit)
	default:
		command = q.part(0)
	}
	statement, err := bson.MarshalExtJSONIndent(command, false, false, "", "  ")
	if err != nil {
		return domain.Explanation{}, fmt.Errorf("write the query: %w", err)
	}
	if err := d.checkTable(limited, q.place); err != nil {
		return domain.Explanation{}, readError(build, d.queryTimeoutError(ctx, limited, err))
	}
	explanation := domain.Explanation{Statement: string(statement)}
	answer, err := d.run(limited, bson.D{{Key: "explain", Value: command}, {Key: "verbosity", Value: "queryPlanner"}})
	if isUnsupported(err) {
		return explanation, nil
	}
	if err != nil {
		return domain.Explanation{}, readError(build, d.queryTimeoutError(ctx, limited, err))
	}
	if explanation.Plan, err = bson.MarshalExtJSON(answer, false, false); err != nil {
		return domain.Explanation{}, fmt.Errorf("write the plan: %w", err)
	}
	return explanation, nil
}

// errEnough ends the reading of a reply.
var errEnough = errors.New("enough was read")

// documents runs a find command on rows. It stops after the document with which the total size of the data reaches
// maxBytes; 0: no limit.
func (d *Driver) documents(ctx context.Context, command bson.D, maxBytes int) (all []domain.Document, err error) {
	var size int
	err = d.find(ctx, command, func() { all, size = nil, 0 }, func(row bson.Raw) error {
		document, err := decodeRow(row)
		if err != nil {
			return err
		}
		all = append(all, document)
		if size += len(document.Data); maxBytes > 0 && size >= maxBytes {
			return errEnough
		}
		return nil
	})
	return all, patternError(err)
}

// decodeRow decodes a row; a tombstone becomes a document without data.
func decodeRow(row bson.Raw) (document domain.Document, err error) {
	elements, err := row.Elements()
	if err != nil {
		return domain.Document{}, err
	}
	for _, element := range elements {
		value := element.Value()
		ok := true
		switch element.Key() {
		case "id":
			document.ID, ok = value.StringValueOK()
		case "version":
			document.Version, ok = value.AsInt64OK()
		case data:
			if ok = value.Type == bson.TypeEmbeddedDocument; ok {
				document.Data, err = decodeDocument(make(json.RawMessage, 0, len(value.Value)), value.Value)
			}
		}
		if !ok || err != nil {
			return domain.Document{}, errors.Join(fmt.Errorf("the document %s is not as it was saved: its %s", row.Lookup("_id"), element.Key()), err)
		}
	}
	return document, nil
}

func readError(build domain.Build, err error) error {
	return drivers.BuildError("read documents of", build, err)
}

// patternError translates the server's errors about patterns that it cannot evaluate, or gave up on.
func patternError(err error) error {
	switch {
	case hasCode(err, codeInvalidPattern):
		return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnsupported, "filter", "a pattern in it is beyond what MongoDB takes; write a simpler one"), err)
	case hasCode(err, codePatternGaveUp, codePatternStopped):
		return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeTooCostly, "filter", "MongoDB has given up on a pattern in it; write a simpler one"), err)
	}
	return err
}

// slow is the error for a method other than a query whose own time limit has passed.
var slow = domain.Errorf(domain.CodeUnavailable, "", "the documents' database took too long to answer; try again later")

// answerTime is how long a server may take to show that it answers at all after a query ran out of time.
const answerTime = time.Second

// queryTimeoutError translates the error of a query. If the query's own time is up, and not its caller's, the query is
// too costly, unless the server does not answer anything else either.
func (d *Driver) queryTimeoutError(caller, own context.Context, err error) error {
	if !ownTimeIsUp(caller, own, err) {
		return err
	}
	if !hasCode(err, codeMaxTimeMSExpired) {
		asking, cancel := context.WithTimeout(context.WithoutCancel(caller), answerTime)
		defer cancel()
		if d.client.Ping(asking, readpref.Primary()) != nil {
			return fmt.Errorf("%w: %w", slow, err)
		}
	}
	return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeTooCostly, "", "the query took longer than %s; ask for less, or by what has an index", d.queryTime), err)
}

// timeoutError translates the error of a method other than a query. If its own time is up, and not its caller's, the
// database is too slow.
func timeoutError(caller, own context.Context, err error) error {
	if !ownTimeIsUp(caller, own, err) {
		return err
	}
	return fmt.Errorf("%w: %w: %w", slow, drivers.ErrTimedOut, err)
}

// ownTimeIsUp reports whether a method's own time was up, and not its caller's.
func ownTimeIsUp(caller, own context.Context, err error) bool {
	if !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if _, sorted := errors.AsType[*domain.Error](err); sorted {
		return false
	}
	callerDeadline, bounded := caller.Deadline()
	ownDeadline, _ := own.Deadline()
	return !bounded || callerDeadline.After(ownDeadline)
}
