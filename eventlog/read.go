package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// ReadLog returns events of a tenant's log in the order of the query. A position that it skips either does not match
// the query or has no event. Later appends never fill such gaps.
func (s *Log) ReadLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) ([]domain.Event, error) {
	if !q.Query.Tagged() || q.Direction != domain.Forward {
		return s.readLog(ctx, tenant, q)
	}
	head := q.To
	if head == 0 {
		if err := s.db.Read(ctx, tenant, nil, HeadQuery(tenant, &head)); err != nil {
			return nil, err
		}
	}
	if head-q.From < matchingFrom {
		return s.readLog(ctx, tenant, q)
	}
	return s.readTagged(ctx, tenant, q, head)
}

// readLog is ReadLog. After each page it also runs the other queries, in the same round trip unless the page was cut
// off.
func (s *Log) readLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery, others ...pg.Query) ([]domain.Event, error) {
	r := &pageReader{
		limit: q.Limit, maxBytes: q.MaxBytes, from: q.From, direction: q.Direction, others: others, asOf: q.AsOf,
		at: func(e *domain.Event) int64 { return e.Position },
		page: func(from int64, limit int, events *eventReader) pg.Query {
			return logQuery(tenant, q, from, last(q.To, q.Direction), limit, events)
		},
	}
	to := func() int64 { return q.To }
	if isScattered(q) {
		window, err := s.openWindow(ctx, tenant, q)
		if err != nil {
			return nil, err
		}
		r.from, r.page, r.advance = window.from, window.page, window.advance
		to = func() int64 { return window.to }
	}
	switch {
	case q.Direction == domain.Backward:
		// Newer events come first, so the replica must have all of them.
		if r.least = func() int64 { return r.from }; q.From == 0 {
			r.asOf = time.Time{}
		}
	case q.To == 0:
		r.asOf = time.Time{}
	default:
		r.missing = func(head int64) (int64, bool) { return max(r.from, head+1), head < to() }
	}
	return s.readPages(ctx, tenant, r)
}

// ReadStream returns events of one stream in the order of the query; none if there is no such stream.
func (s *Log) ReadStream(ctx context.Context, tenant domain.TenantID, stream string, q domain.StreamQuery) ([]domain.Event, error) {
	return s.readStream(ctx, tenant, stream, q)
}

func (s *Log) readStream(ctx context.Context, tenant domain.TenantID, stream string, q domain.StreamQuery, others ...pg.Query) ([]domain.Event, error) {
	page := func(from int64, limit int, events *eventReader) pg.Query {
		st := &streamForward
		if q.Direction == domain.Backward {
			st = &streamBackward
		}
		return pg.Query{Statement: st, Params: [][]byte{pg.TenantParam(tenant), []byte(stream), pg.Int8Param(first(from, q.Direction)), pg.Int8Param(last(q.To, q.Direction)), pg.Int8Param(int64(limit))}, Row: events.row}
	}
	r := &pageReader{
		limit: q.Limit, maxBytes: q.MaxBytes, from: q.From, direction: q.Direction, others: others,
		page: page, at: func(e *domain.Event) int64 { return e.Version },
	}
	if q.Direction == domain.Forward && q.To > 0 {
		r.asOf = q.AsOf
		r.missing = func(int64) (int64, bool) { return r.from, r.from <= q.To }
	}
	return s.readPages(ctx, tenant, r)
}

// ReadByStream returns events of a tenant's log in the order of their streams.
func (s *Log) ReadByStream(ctx context.Context, tenant domain.TenantID, q domain.ByStreamQuery) ([]domain.Event, error) {
	page := func(_ int64, limit int, events *eventReader) pg.Query {
		next := q
		if n := len(events.events); n > 0 {
			next.AfterStream, next.AfterVersion = events.events[n-1].Stream, events.events[n-1].Version
		}
		return byStreamQuery(tenant, next, limit, events)
	}
	return s.readPages(ctx, tenant, &pageReader{
		limit: q.Limit, maxBytes: q.MaxBytes, page: page, at: func(*domain.Event) int64 { return 0 },
		asOf: q.AsOf, least: func() int64 { return q.To }, // any stream may have an event up to there
	})
}

// FitsInCache reports whether the events of all tenants are likely to stay in memory while they are read in an order
// other than that of the log: they take no more space than PostgreSQL's effective_cache_size.
func (s *Log) FitsInCache(ctx context.Context, tenant domain.TenantID) (fits bool, err error) {
	statement := &fitsInCache
	if s.db.Distributed {
		statement = &fitsInCaches
	}
	err = s.db.Read(ctx, tenant, nil, pg.Query{Statement: statement, Row: func(values [][]byte) error {
		fits = pg.BoolValue(values[0])
		return nil
	}})
	return fits, err
}

var fitsInCache = pg.Statement{
	Name: "manifold_events_fit_in_cache",
	SQL:  "select pg_table_size('events') <= pg_size_bytes(current_setting('effective_cache_size'))",
}

// fitsInCaches counts the caches of all nodes that have events, each as large as the coordinator's.
var fitsInCaches = pg.Statement{
	Name: "manifold_events_fit_in_caches",
	SQL: `select citus_table_size('events') <=
			pg_size_bytes(current_setting('effective_cache_size')) * (select count(*) from pg_dist_node where shouldhaveshards and isactive and noderole = 'primary')`,
}

// firstPage is how many events are read first if the result is limited by bytes, because their size is not known yet.
const firstPage = 500

// pageReader says how to read events page by page.
type pageReader struct {
	limit     int   // events
	maxBytes  int   // 0: no limit
	from      int64 // where the next page begins
	direction domain.Direction
	page      func(from int64, limit int, events *eventReader) pg.Query
	at        func(*domain.Event) int64                                  // where an event is
	advance   func(ctx context.Context) (from int64, ok bool, err error) // where to continue after a page that is not full; nil: nowhere
	others    []pg.Query                                                 // run with each page; the results of any number of runs must add up

	// A replica may answer pages until one that is not full. From there on, the primary answers.
	asOf    time.Time                              // as in domain.LogQuery
	least   func() int64                           // the head that a replica must have for the page at from; nil: any
	missing func(head int64) (from int64, ok bool) // what a page lacks that is not full, of a replica with this head; nil: nothing
}

// readPages reads in as many statements as it takes to come close to maxBytes without reading much more. Without such a
// limit it uses one statement.
func (s *Log) readPages(ctx context.Context, tenant domain.TenantID, r *pageReader) ([]domain.Event, error) {
	events := eventReader{maxBytes: r.maxBytes}
	queries := make([]pg.Query, 1, 1+len(r.others))
	queries = append(queries, r.others...)
	size := r.limit
	if r.maxBytes > 0 {
		size = min(r.limit, firstPage)
	}
	for {
		before := events.mark()
		events.limit = before.events + size
		queries[0] = r.page(r.from, size, &events)
		head, replicated, err := s.readReplica(ctx, tenant, r, queries)
		if !replicated {
			r.asOf = time.Time{}
			err = s.db.ReadInTurn(ctx, tenant, func() { events.back(before) }, queries...)
		}
		if errors.Is(err, errEnough) { // the others did not run, because they come after the events
			if err = nil; len(r.others) > 0 {
				err = s.db.Read(ctx, tenant, nil, r.others...)
			}
		}
		if err != nil {
			return nil, err
		}
		read := len(events.events)
		if read >= r.limit || events.full {
			break
		}
		page := read - before.events
		if page > 0 {
			if r.from = r.at(&events.events[read-1]) + 1; r.direction == domain.Backward {
				r.from -= 2
			}
		}
		more := page >= size
		if !more && replicated && r.missing != nil {
			if r.from, more = r.missing(head); more {
				r.asOf = time.Time{}
			}
		}
		if !more && r.advance != nil {
			if r.from, more, err = r.advance(ctx); err != nil {
				return nil, err
			}
		}
		if !more || r.direction == domain.Backward && r.from < 1 { // 0 would mean the log's end
			break
		}
		switch {
		case r.maxBytes == 0:
			size = r.limit - read
		case read > 0:
			average := max(1, events.bytes/read)
			size = min(r.limit-read, (r.maxBytes-events.bytes)/average+1, 4*size)
		}
	}
	s.observeRead(len(events.events))
	return events.events, nil
}

func (s *Log) observeRead(events int) {
	if s.observer.ReadEvents != nil {
		s.observer.ReadEvents(events)
	}
}

// EventColumns are the columns that eventReader.row expects, of the events table as e. $1 is the tenant.
var EventColumns = `e.event_id, e.stream_id, e.stream_version, e.position, e.event_type,
			case when e.gap is null then e.event_data end, case when e.gap is null then e.metadata end, e.occurred_at, e.created_at,
			` + gapSQL + `,
			` + tagsSQL

// The statements that read events. Each has one sensible plan: it follows an index in the requested order. The bounds
// are inclusive.
var (
	logForward  = pg.Statement{Name: "manifold_log_forward", SQL: logSQL("", "asc")}
	logBackward = pg.Statement{Name: "manifold_log_backward", SQL: logSQL("", "desc")}

	logTypesForward  = pg.Statement{Name: "manifold_log_types_forward", SQL: logSQL("and e.event_type = any($5::text[])", "asc")}
	logTypesBackward = pg.Statement{Name: "manifold_log_types_backward", SQL: logSQL("and e.event_type = any($5::text[])", "desc")}

	categoryForward  = pg.Statement{Name: "manifold_category_forward", SQL: logSQL("and e.category = $5::text", "asc")}
	categoryBackward = pg.Statement{Name: "manifold_category_backward", SQL: logSQL("and e.category = $5::text", "desc")}

	categoriesForward  = pg.Statement{Name: "manifold_categories_forward", SQL: categoriesSQL("", "asc")}
	categoriesBackward = pg.Statement{Name: "manifold_categories_backward", SQL: categoriesSQL("", "desc")}

	categoriesTypesForward  = pg.Statement{Name: "manifold_categories_types_forward", SQL: categoriesSQL("and c.event_type = any($6::text[])", "asc")}
	categoriesTypesBackward = pg.Statement{Name: "manifold_categories_types_backward", SQL: categoriesSQL("and c.event_type = any($6::text[])", "desc")}

	byStream              = pg.Statement{Name: "manifold_by_stream", SQL: byStreamSQL("")}
	byStreamTypes         = pg.Statement{Name: "manifold_by_stream_types", SQL: byStreamSQL("and e.event_type = any($6::text[])")}
	byStreamCategory      = pg.Statement{Name: "manifold_by_stream_category", SQL: byStreamSQL(ofCategory)}
	byStreamCategoryTypes = pg.Statement{Name: "manifold_by_stream_category_types", SQL: byStreamSQL(ofCategory + " and e.event_type = any($8::text[])")}

	byStreamSeeds      = pg.Statement{Name: "manifold_by_stream_seeds", SQL: byStreamSeedsSQL("")}
	byStreamSeedsTypes = pg.Statement{Name: "manifold_by_stream_seeds_types", SQL: byStreamSeedsSQL("and e.event_type = any($8::text[])")}

	streamForward  = pg.Statement{Name: "manifold_stream_forward", SQL: streamSQL("asc")}
	streamBackward = pg.Statement{Name: "manifold_stream_backward", SQL: streamSQL("desc")}
)

func between(column, order, begin, stop string) string {
	if order == "desc" {
		return fmt.Sprintf("%s <= %s::bigint and %s >= %s::bigint", column, begin, column, stop)
	}
	return fmt.Sprintf("%s >= %s::bigint and %s <= %s::bigint", column, begin, column, stop)
}

func logSQL(and, order string) string {
	return `select ` + EventColumns + ` from events as e
		where e.tenant_id = $1::uuid and ` + between("e.position", order, "$2", "$3") + ` ` + and + `
		order by e.position ` + order + ` limit $4::bigint`
}

// categoriesSQL first finds the positions, for each category in its part of the index. The index contains the type as
// well, so events of other types are not touched. Only then does it read the events.
func categoriesSQL(and, order string) string {
	return `select ` + EventColumns + ` from (
			select p.position from unnest($5::text[]) as k(category)
			cross join lateral (
				select c.position from events as c
				where c.tenant_id = $1::uuid and c.category = k.category and ` + between("c.position", order, "$2", "$3") + ` ` + and + `
				order by c.position ` + order + ` limit $4::bigint
			) as p
			order by p.position ` + order + ` limit $4::bigint
		) as p
		cross join lateral (
			select * from events as e where e.tenant_id = $1::uuid and e.position = p.position limit 1
		) as e
		order by p.position ` + order
}

// ofCategory ends the reading of the index where the category's streams end. "is true" keeps the planner from the index
// on categories: with it, each page would read and sort the whole category.
const ofCategory = "and e.stream_id < $6::text and (e.category = $7::text) is true"

// byStreamSQL orders by stream. "is true" keeps the planner from the primary key: before a table's first analyze, it
// may prefer to read all positions and to sort them.
func byStreamSQL(and string) string {
	return `select ` + EventColumns + ` from events as e
		where e.tenant_id = $1::uuid and (e.stream_id, e.stream_version) > ($2::text, $3::bigint)
			and (e.position <= $4::bigint) is true ` + and + `
		order by e.stream_id, e.stream_version limit $5::bigint`
}

// byStreamSeedsSQL is byStreamSQL for several parts of the index, one after the other. It reads none after its limit.
func byStreamSeedsSQL(and string) string {
	return `select ` + EventColumns + ` from unnest($2::text[], $3::bigint[], $4::text[]) with ordinality as p(stream_id, version, until, place)
		cross join lateral (
			select * from events as e
			where e.tenant_id = $1::uuid and (e.stream_id, e.stream_version) > (p.stream_id, p.version) and e.stream_id < p.until
				and (e.category = $5::text) is true and (e.position <= $6::bigint) is true ` + and + `
			order by e.stream_id, e.stream_version limit $7::bigint
		) as e
		order by p.place, e.stream_id, e.stream_version limit $7::bigint`
}

// byStreamSeedsQuery leaves out what comes before the seeds: each part of the index begins after a seed, and ends
// before the stream of the next.
func byStreamSeedsQuery(tenant domain.TenantID, q domain.ByStreamQuery, limit int, events *eventReader) pg.Query {
	seeds := q.Seeds
	for len(seeds) > 0 && seeds[0].Stream < q.AfterStream {
		seeds = seeds[1:]
	}
	streams, versions, ends := []string{q.AfterStream}, []int64{q.AfterVersion}, []string{}
	for _, seed := range seeds {
		if seed.Stream == q.AfterStream {
			versions[0] = max(versions[0], seed.Version)
			continue
		}
		ends = append(ends, seed.Stream)
		streams, versions = append(streams, seed.Stream), append(versions, seed.Version)
	}
	end := q.Category + "." // as in byStreamQuery
	if q.UpToStream != "" {
		end = q.UpToStream + " " // less than any other name that begins with the stream's
	}
	ends = append(ends, end)
	params := [][]byte{
		pg.TenantParam(tenant), pg.TextsParam(streams), pg.Int8sParam(versions), pg.TextsParam(ends),
		[]byte(q.Category), pg.Int8Param(q.To), pg.Int8Param(int64(limit)),
	}
	st := &byStreamSeeds
	if len(q.Types) > 0 {
		st = &byStreamSeedsTypes
		params = append(params, pg.TextsParam(q.Types))
	}
	return pg.Query{Statement: st, Params: params, Row: events.row}
}

func byStreamQuery(tenant domain.TenantID, q domain.ByStreamQuery, limit int, events *eventReader) pg.Query {
	if q.AfterStream < q.Category {
		q.AfterStream, q.AfterVersion = q.Category, 0 // the first that can be of the category: its name alone
	}
	if len(q.Seeds) > 0 || q.UpToStream != "" {
		return byStreamSeedsQuery(tenant, q, limit, events)
	}
	params := [][]byte{pg.TenantParam(tenant), []byte(q.AfterStream), pg.Int8Param(q.AfterVersion), pg.Int8Param(q.To), pg.Int8Param(int64(limit))}
	st, ofTypes := &byStream, &byStreamTypes
	if q.Category != "" {
		st, ofTypes = &byStreamCategory, &byStreamCategoryTypes
		// All streams of a category are its name alone, or begin with it and "-", which is the byte before ".".
		params = append(params, []byte(q.Category+"."), []byte(q.Category))
	}
	if len(q.Types) > 0 {
		st = ofTypes
		params = append(params, pg.TextsParam(q.Types))
	}
	return pg.Query{Statement: st, Params: params, Row: events.row}
}

func streamSQL(order string) string {
	return `select ` + EventColumns + ` from events as e
		where e.tenant_id = $1::uuid and e.stream_id = $2::text and ` + between("e.stream_version", order, "$3", "$4") + `
		order by e.stream_version ` + order + ` limit $5::bigint`
}

// logQuery reads from a position to another in the query's direction, both inclusive.
func logQuery(tenant domain.TenantID, q domain.LogQuery, from, to int64, limit int, events *eventReader) pg.Query {
	params := [][]byte{pg.TenantParam(tenant), pg.Int8Param(first(from, q.Direction)), pg.Int8Param(to), pg.Int8Param(int64(limit))}
	pick := func(forward, backward *pg.Statement) *pg.Statement {
		if q.Direction == domain.Backward {
			return backward
		}
		return forward
	}
	var st *pg.Statement
	switch {
	case len(q.Categories) == 0 && len(q.Types) == 0:
		st = pick(&logForward, &logBackward)
	case len(q.Categories) == 0:
		st = pick(&logTypesForward, &logTypesBackward)
		params = append(params, pg.TextsParam(q.Types))
	case len(q.Categories) == 1 && len(q.Types) == 0:
		st = pick(&categoryForward, &categoryBackward)
		params = append(params, []byte(q.Categories[0]))
	case len(q.Types) == 0:
		st = pick(&categoriesForward, &categoriesBackward)
		params = append(params, categoriesParam(q.Categories))
	default:
		st = pick(&categoriesTypesForward, &categoriesTypesBackward)
		params = append(params, categoriesParam(q.Categories), pg.TextsParam(q.Types))
	}
	return pg.Query{Statement: st, Params: params, Row: events.row}
}

// categoriesParam removes duplicates, which would return events twice.
func categoriesParam(categories []string) []byte {
	seen := make(map[string]struct{}, len(categories))
	once := make([]string, 0, len(categories))
	for _, category := range categories {
		if _, ok := seen[category]; !ok {
			seen[category] = struct{}{}
			once = append(once, category)
		}
	}
	return pg.TextsParam(once)
}

// first returns where a query begins: at its From, or at the end where its direction starts.
func first(from int64, direction domain.Direction) int64 {
	if from == 0 && direction == domain.Backward {
		return math.MaxInt64
	}
	return from
}

// last returns where a query stops.
func last(to int64, direction domain.Direction) int64 {
	if direction == domain.Backward {
		return max(1, to)
	}
	if to == 0 {
		return math.MaxInt64
	}
	return to
}

// Memory blocks for data and metadata begin small, for reads of an event or two, and then double.
const (
	firstBlock = 1 << 10
	lastBlock  = 64 << 10
)

// errEnough ends a read whose remaining rows are not needed.
var errEnough = errors.New("enough was read")

// eventReader converts rows to events. Data and metadata share memory blocks, so that an event needs almost no
// allocation. Names are separate strings, because they may be kept longer than the event.
type eventReader struct {
	limit    int // how many events there are at most after the statement; 0: not known
	maxBytes int
	toTheEnd bool // read to the end of the answer even if much remains

	events []domain.Event
	bytes  int  // of data, metadata and tags
	full   bool // maxBytes was exceeded: the remaining events are left out
	block  []byte
	types  map[string]string
	stream string // the last stream
}

type eventMark struct{ events, bytes int }

func (r *eventReader) mark() eventMark { return eventMark{len(r.events), r.bytes} }

func (r *eventReader) back(to eventMark) {
	r.events, r.bytes, r.full = r.events[:to.events], to.bytes, false
}

// beyond is how many bytes of omitted events are read to reach the end of the answer. After that the connection is
// closed.
const beyond = 16 << 20

func (r *eventReader) row(values [][]byte) error {
	size := max(0, len(values[5])-1) + max(0, len(values[6])-1) + len(values[10]) // without the version of the binary form
	if r.full {
		if r.bytes += size; r.bytes > r.maxBytes+beyond && !r.toTheEnd {
			return errEnough
		}
		return nil
	}
	if string(values[1]) != r.stream {
		r.stream = string(values[1])
	}
	if n := len(r.events); n == cap(r.events) && n >= firstPage {
		r.reserveEvents()
	}
	r.events = append(r.events, domain.Event{
		ID:         pg.UUIDValue(values[0]),
		Stream:     r.stream,
		Version:    pg.Int8Value(values[2]),
		Position:   pg.Int8Value(values[3]),
		Type:       r.eventType(values[4]),
		Data:       r.json(values[5]),
		Metadata:   r.json(values[6]),
		OccurredAt: pg.TimeValue(values[7]),
		RecordedAt: pg.TimeValue(values[8]),
	})
	if values[9] != nil {
		if err := PutGap(&r.events[len(r.events)-1], pg.JSONValue(values[9])); err != nil {
			return err
		}
	}
	r.events[len(r.events)-1].Tags = tagsOf(values[10])
	r.bytes += size
	r.full = r.maxBytes > 0 && r.bytes >= r.maxBytes
	return nil
}

// reserveEvents makes room for the events that are likely to come, judging by the size of those read so far. The room
// is at most four times what was read, because the limit may far exceed the log. Without reserveEvents, append would
// copy the events of a long answer many times.
func (r *eventReader) reserveEvents() {
	more := min(r.limit, 4*len(r.events)) - len(r.events)
	if average := r.bytes / len(r.events); r.maxBytes > 0 && average > 0 {
		more = min(more, (r.maxBytes-r.bytes)/average+1)
	}
	r.events = slices.Grow(r.events, max(1, more))
}

// eventType returns one string for all events of a type.
func (r *eventReader) eventType(b []byte) string {
	if name, ok := r.types[string(b)]; ok {
		return name
	}
	if r.types == nil {
		r.types = make(map[string]string)
	}
	name := string(b)
	r.types[name] = name
	return name
}

// json copies the text of a jsonb, which follows the version of its binary form; a null is nil.
func (r *eventReader) json(b []byte) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	b = b[1:]
	if len(b) > cap(r.block)-len(r.block) {
		r.block = make([]byte, 0, max(firstBlock, min(2*cap(r.block), lastBlock), len(b)))
	}
	start := len(r.block)
	r.block = append(r.block, b...)
	return json.RawMessage(r.block[start:len(r.block):len(r.block)])
}

// ReadWith reads a slice of the tenant's log with its head and what was removed, and runs another query, usually in one
// round trip. Each part has a separate snapshot, in this order: head, events, what was removed, the other query. It
// reads forward, whatever q.Direction says. If MaxBytes cut the slice short, Head is at most the position of its last
// event. It sets no other fields of the reading. reset must discard the rows of the other query before a retry.
func (s *Log) ReadWith(ctx context.Context, tenant domain.TenantID, q domain.LogQuery, reset func(), other pg.Query) (domain.Reading, error) {
	var reading domain.Reading
	head := HeadQuery(tenant, &reading.Head)
	ending := []pg.Query{removedToQuery(tenant, q.Categories, &reading.RemovedTo), other}
	q.Direction = domain.Forward
	to := int64(math.MaxInt64) // how far the first round trip reads
	switch {
	case q.Query.Tagged():
		if err := s.db.Read(ctx, tenant, nil, head); err != nil {
			return domain.Reading{}, err
		}
		if reading.Head-q.From >= matchingFrom {
			to = q.From - 1
		}
	case isScattered(q):
		to = q.From + followedWindow - 1
	}
	events := eventReader{limit: q.Limit, maxBytes: q.MaxBytes, toTheEnd: true}
	if to >= q.From {
		err := s.db.Read(ctx, tenant, func() {
			reading = domain.Reading{}
			events.back(eventMark{})
			reset()
		}, append([]pg.Query{head, logQuery(tenant, q, q.From, to, q.Limit, &events)}, ending...)...)
		if err != nil {
			return domain.Reading{}, err
		}
		s.observeRead(len(events.events))
	}
	reading.Events = events.events
	if to < reading.Head && len(reading.Events) < q.Limit && !events.full {
		rest := q
		rest.From, rest.To, rest.Limit = to+1, reading.Head, q.Limit-len(reading.Events)
		if q.MaxBytes > 0 {
			rest.MaxBytes = q.MaxBytes - events.bytes
		}
		found, err := s.ReadLog(ctx, tenant, rest)
		if err != nil {
			return domain.Reading{}, err
		}
		reset()
		if err := s.db.Read(ctx, tenant, reset, ending...); err != nil {
			return domain.Reading{}, err
		}
		reading.Events = append(reading.Events, found...)
		for i := range found {
			events.bytes += found[i].Bytes()
		}
		events.full = q.MaxBytes > 0 && events.bytes >= q.MaxBytes
	}
	if reading.RemovedTo < q.From {
		reading.RemovedTo = 0
	}
	if n := len(reading.Events); events.full {
		reading.Head = min(reading.Head, reading.Events[n-1].Position)
	}
	return reading, nil
}
