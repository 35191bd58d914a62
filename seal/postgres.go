package seal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/proof"
	"github.com/manifold-es/manifold/signing"
)

const (
	// tile is how many leaves a row of seals has at most.
	tile = 256
	// tileLevel is the level of a tile's root: 1<<tileLevel = tile.
	tileLevel = 8
	// slice is how many positions one transaction seals, unless their events have more than sliceBytes.
	slice      = 32 * tile
	sliceBytes = 64 << 20
	// firstPage is how many positions are read first, because the size of their events is not known; later pages have
	// about pageBytes.
	firstPage = 64
	pageBytes = 16 << 20
)

// Postgres reads and writes the tables of seals. All methods may be called concurrently. An error that a client can act
// on is a *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Postgres struct {
	db     *pg.DB
	keys   *signing.Keys
	signed signedTrees
}

// NewPostgres returns the tables of a database. It signs with keys.
func NewPostgres(db *pg.DB, keys *signing.Keys) *Postgres { return &Postgres{db: db, keys: keys} }

// originOf names a log in checkpoints and receipts.
func originOf(keys *signing.Ring, log domain.TenantID) string {
	return keys.Name() + "/" + log.String()
}

// ErrChanged means that the seal of a log is not one that the service has signed, or not a continuation of the one that
// this process has signed last.
var ErrChanged = errors.New("somebody has changed the seal in the database, or has restored an older one")

// state is how far a log is sealed.
type state struct {
	size       int64
	edge       []byte
	checkpoint string
}

const (
	readState = "select s.size, s.edge, s.checkpoint from sealed_logs as s where s.tenant_id = $1"

	beginState = `
		insert into sealed_logs (tenant_id, size, edge, checkpoint, sealed_at)
		values ($1, 0, '', '', statement_timestamp()) on conflict (tenant_id) do nothing`
)

func scanState(row pgx.CollectableRow) (s state, err error) {
	return s, row.Scan(&s.size, &s.edge, &s.checkpoint)
}

// lockState locks the row that says how far a log is sealed, and makes it for a new log, so that there is something to
// lock. ok is false if there is no log.
func lockState(ctx context.Context, tx pgx.Tx, log domain.TenantID) (current state, ok bool, err error) {
	const what = "lock a log's seal"
	current, ok, err = pg.SelectOne(ctx, tx, what, scanState, readState+" for update", log)
	if ok || err != nil {
		return current, ok, err
	}
	// Erasure removes the log's row before this one, and waits here for it. So it misses no row that follows.
	exists, err := pg.Exec(ctx, tx, what, "select from logs as l where l.tenant_id = $1 for key share", log)
	if err != nil || exists == 0 {
		return current, false, err
	}
	if _, err = pg.Exec(ctx, tx, "begin to seal a log", beginState, log); err != nil {
		return current, false, err
	}
	return pg.SelectOne(ctx, tx, what, scanState, readState+" for update", log)
}

// treeOf returns a log's tree, and an error if it is not the one that was signed.
func treeOf(keys *signing.Ring, log domain.TenantID, current state) (*proof.Tree, error) {
	tree, err := proof.NewTree(current.size, current.edge)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if current.size == 0 {
		return tree, nil
	}
	text, err := keys.Open([]byte(current.checkpoint))
	if err != nil {
		return nil, err
	}
	signed, err := proof.ParseCheckpoint(text)
	if err == nil && signed != (proof.Checkpoint{Origin: originOf(keys, log), Size: tree.Size(), Root: tree.Root()}) {
		err = fmt.Errorf("it differs from what was signed: %w", ErrChanged)
	}
	return tree, err
}

// continues returns an error unless a log's tree continues the one that this process has signed last.
func (s *Postgres) continues(ctx context.Context, tx pgx.Tx, log domain.TenantID, tree *proof.Tree) error {
	last, known := s.signed.last(log)
	switch {
	case !known || last.N == 0:
		return nil
	case tree.Size() < last.N:
		return fmt.Errorf("this process has sealed it up to position %d: %w", last.N, ErrChanged)
	}
	hashes, err := tlog.ProveTree(tree.Size(), last.N, hashReader(ctx, tx, log, tree))
	if err != nil {
		return fmt.Errorf("compare it with what this process has signed at position %d: %w", last.N, err)
	}
	if tlog.CheckTree(hashes, tree.Size(), tree.Root(), last.N, last.Hash) != nil {
		return fmt.Errorf("it does not continue what this process has signed at position %d: %w", last.N, ErrChanged)
	}
	return nil
}

// signedTrees remembers what this process has signed last for each log. The zero value is ready to use.
type signedTrees struct {
	mu    sync.Mutex
	trees map[domain.TenantID]tlog.Tree
}

// signedKept is how many logs signedTrees remembers, in about 10 MB. Beyond that, it forgets others.
const signedKept = 100_000

func (s *signedTrees) last(log domain.TenantID) (tlog.Tree, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tree, known := s.trees[log]
	return tree, known
}

func (s *signedTrees) remember(log domain.TenantID, tree *proof.Tree) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trees == nil {
		s.trees = make(map[domain.TenantID]tlog.Tree)
	}
	if s.trees[log].N > tree.Size() {
		return // another call was faster
	}
	s.trees[log] = tlog.Tree{N: tree.Size(), Hash: tree.Root()}
	for other := range s.trees {
		if len(s.trees) <= signedKept {
			break
		}
		delete(s.trees, other)
	}
}

func (s *signedTrees) forget(log domain.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trees, log)
}

// sealing is what one transaction adds.
type sealing struct {
	tree     *proof.Tree
	hasher   proof.Hasher
	first    []int64 // of the rows of seals
	leaves   [][]byte
	contents [][]byte
	salts    [][]byte
	levels   []int64 // of completed subtrees
	numbers  []int64
	roots    [][]byte
	replaced int64 // rows of seals from the first one up to this position are replaced
}

// add adds a leaf.
func (s *sealing) add(leaf, content proof.Hash, salt proof.Salt) {
	position := s.tree.Size() + 1
	if len(s.first) == 0 || (position-1)%tile == 0 {
		s.first = append(s.first, position)
		s.leaves = append(s.leaves, make([]byte, 0, len(leaf)*tile))
		s.contents = append(s.contents, make([]byte, 0, len(content)*tile))
		s.salts = append(s.salts, make([]byte, 0, len(salt)*tile))
	}
	row := len(s.first) - 1
	s.leaves[row] = append(s.leaves[row], leaf[:]...)
	s.contents[row] = append(s.contents[row], content[:]...)
	s.salts[row] = append(s.salts[row], salt[:]...)
	s.tree.Add(0, leaf, func(level int, hash proof.Hash) {
		if level%tileLevel == 0 {
			s.levels, s.numbers = append(s.levels, int64(level)), append(s.numbers, (position-1)>>level)
			s.roots = append(s.roots, hash[:])
		}
	})
}

// addAbsent adds the leaves of the positions up to one, which have no event.
func (s *sealing) addAbsent(to int64) {
	for p := s.tree.Size() + 1; p <= to; p++ {
		s.add(proof.Absent(p), proof.Hash{}, proof.Salt{})
	}
}

const (
	sealedEvents = `
		select e.position, e.event_id, e.stream_id, e.stream_version, e.event_type,
		  case when e.gap is null then e.event_data end::text, case when e.gap is null then e.metadata end::text,
		  e.occurred_at, e.created_at, e.gap is not null
		from events as e where e.tenant_id = $1 and e.position > $2 and e.position <= $3 order by e.position`

	removeTail = "delete from seals as s where s.tenant_id = $1 and s.first_position >= $2 and s.first_position <= $3"

	// The row of the log gives the tenant, so that a sharded database sees where the rows belong.
	insertSeals = `
		insert into seals (tenant_id, first_position, leaves, contents, salts)
		select l.tenant_id, r.first_position, r.leaves, r.contents, r.salts from logs as l
		cross join unnest($2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[]) as r(first_position, leaves, contents, salts)
		where l.tenant_id = $1::uuid`

	insertSubtrees = `
		insert into seal_subtrees (tenant_id, level, number, hash)
		select l.tenant_id, r.level, r.number, r.hash from logs as l
		cross join unnest($2::bigint[], $3::bigint[], $4::bytea[]) as r(level, number, hash)
		where l.tenant_id = $1::uuid`

	saveState = `
		update sealed_logs as s set size = $2, edge = $3, checkpoint = $4, sealed_at = statement_timestamp()
		where s.tenant_id = $1`
)

// Seal seals the next positions of a log, at most slice of them, in one transaction that locks the log's seal. done
// means that it has reached the head. It returns the size of the sealed log. An erasure that commits before the lock is
// taken is sealed with its result; one that commits later finds the salts of what was sealed before.
//
// A tree that the service has not signed, or that does not continue the one that this process has signed last, is not
// extended: the error is ErrChanged. The process forgets what it has signed when the log is erased.
func (s *Postgres) Seal(ctx context.Context, log domain.TenantID) (size int64, done bool, err error) {
	keys, err := s.keys.Load(ctx)
	if err != nil {
		return 0, false, err
	}
	size, done, err = s.seal(ctx, keys, log)
	if errors.Is(err, signing.ErrUnknownKey) { // another process may have rotated the keys
		if keys, err = s.keys.Reload(ctx); err == nil {
			size, done, err = s.seal(ctx, keys, log)
		}
	}
	return size, done, err
}

func (s *Postgres) seal(ctx context.Context, keys *signing.Ring, log domain.TenantID) (
	size int64, done bool, err error,
) {
	var tree *proof.Tree // as it is stored afterwards; nil: there is no log
	err = pg.Under(ctx, s.db.App, log, func(tx pgx.Tx) error {
		current, ok, err := lockState(ctx, tx, log)
		if err != nil || !ok {
			return err
		}
		size = current.size
		if tree, err = treeOf(keys, log, current); err == nil {
			err = s.continues(ctx, tx, log, tree)
		}
		if err != nil {
			return fmt.Errorf("the seal of log %s at position %d: %w", log, size, err)
		}
		head, ok, err := pg.SelectOne(ctx, tx, "read the head of a log", pgx.RowTo[int64],
			"select l.head from logs as l where l.tenant_id = $1", log)
		switch {
		case err != nil:
			return err
		case !ok:
			tree = nil
			return nil
		case head < size:
			return fmt.Errorf("the log %s ends at position %d, and is sealed up to %d: %w", log, head, size, ErrChanged)
		case head == size:
			done = true
			return nil
		}
		adding := &sealing{tree: tree}
		if err := adding.readPages(ctx, tx, log, min(head, (size/slice+1)*slice)); err != nil {
			return err
		}
		if err := adding.mergeTail(ctx, tx, log); err != nil {
			return err
		}
		signed, err := keys.Sign(proof.Checkpoint{Origin: originOf(keys, log), Size: tree.Size(), Root: tree.Root()}.Text())
		if err != nil {
			return err
		}
		size, done = tree.Size(), tree.Size() == head
		return adding.save(ctx, tx, log, string(signed))
	})
	switch {
	case err != nil:
		return size, false, err
	case tree == nil:
		s.signed.forget(log)
		return size, true, nil
	}
	s.signed.remember(log, tree)
	return size, done, nil
}

// readPages adds the events up to a position, or until they have sliceBytes.
func (s *sealing) readPages(ctx context.Context, tx pgx.Tx, log domain.TenantID, to int64) error {
	total := 0
	for page := int64(firstPage); s.tree.Size() < to && total < sliceBytes; {
		end := min(to, s.tree.Size()+page)
		bytes, err := s.read(ctx, tx, log, end)
		if err != nil {
			return err
		}
		total += bytes
		page = max(1, page*pageBytes/int64(max(bytes, pageBytes/16))) // at most 16 times as many
	}
	return nil
}

// read adds the events up to a position, and returns how many bytes they have.
func (s *sealing) read(ctx context.Context, tx pgx.Tx, log domain.TenantID, to int64) (bytes int, err error) {
	from := s.tree.Size()
	salts := make([]byte, (to-from)*proof.SaltBytes)
	rand.Read(salts)
	rows, err := tx.Query(ctx, sealedEvents, log, from, to)
	if err != nil {
		return 0, fmt.Errorf("read events to seal: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		values := rows.RawValues() // in the binary form, of which nothing is copied
		event := proof.Event{
			Position: pg.Int8Value(values[0]), ID: domain.UUID(pg.UUIDValue(values[1])).String(),
			Stream: string(values[2]), Version: pg.Int8Value(values[3]), Type: string(values[4]),
			Data: values[5], Metadata: values[6],
			OccurredAt: pg.TimeValue(values[7]), RecordedAt: pg.TimeValue(values[8]), Unreadable: pg.BoolValue(values[9]),
		}
		bytes += len(event.Data) + len(event.Metadata)
		s.addAbsent(event.Position - 1)
		salt := proof.Salt(salts[(event.Position-from-1)*proof.SaltBytes:])
		content := s.hasher.Content(&event, salt)
		s.add(s.hasher.Leaf(&event, content), content, salt)
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("read events to seal: %w", err)
	}
	s.addAbsent(to)
	return bytes, nil
}

// mergeTail adds what is sealed already of the first tile, if that is complete now: its rows become one.
func (s *sealing) mergeTail(ctx context.Context, tx pgx.Tx, log domain.TenantID) error {
	next := s.first[0]
	begin := (next-1)/tile*tile + 1
	if next == begin || s.tree.Size() < begin-1+tile {
		return nil
	}
	earlier, err := readLeaves(ctx, tx, log, begin, next-1)
	if err != nil {
		return err
	}
	if int64(len(earlier)) != next-begin {
		return fmt.Errorf("merge the rows of a seal: leaves before position %d are missing", next)
	}
	var leaves, contents, salts []byte
	for _, leaf := range earlier {
		leaves, contents = append(leaves, leaf.Hash[:]...), append(contents, leaf.Content[:]...)
		salts = append(salts, leaf.Salt[:]...)
	}
	s.leaves[0], s.contents[0] = append(leaves, s.leaves[0]...), append(contents, s.contents[0]...)
	s.salts[0] = append(salts, s.salts[0]...)
	s.first[0], s.replaced = begin, next-1
	return nil
}

// save stores what was added.
func (s *sealing) save(ctx context.Context, tx pgx.Tx, log domain.TenantID, checkpoint string) error {
	var batch pgx.Batch
	if s.replaced > 0 {
		batch.Queue(removeTail, log, s.first[0], s.replaced)
	}
	batch.Queue(insertSeals, log, s.first, s.leaves, s.contents, s.salts)
	if len(s.levels) > 0 {
		batch.Queue(insertSubtrees, log, s.levels, s.numbers, s.roots)
	}
	batch.Queue(saveState, log, s.tree.Size(), s.tree.Edge(), checkpoint)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("save a seal: %w", err)
	}
	return nil
}

// unsealed returns the logs that are not sealed up to their heads, of those with an event since a time; zero: of all.
func (s *Postgres) unsealed(ctx context.Context, since time.Time) ([]domain.Head, error) {
	scan := func(row pgx.CollectableRow) (head domain.Head, err error) {
		return head, row.Scan((*[16]byte)(&head.Tenant), &head.Position)
	}
	return pg.Select(ctx, s.db.System, "list logs that are not sealed", scan, `
		select l.tenant_id, l.head from logs as l left join sealed_logs as s on s.tenant_id = l.tenant_id
		where l.head <> coalesce(s.size, 0) and ($1::timestamptz is null or l.last_at > $1)`, pg.TimeOrNull(since))
}

// SealedLogs returns all logs with a seal.
func (s *Postgres) SealedLogs(ctx context.Context) ([]domain.TenantID, error) {
	scan := func(row pgx.CollectableRow) (log domain.TenantID, err error) { return log, row.Scan((*[16]byte)(&log)) }
	return pg.Select(ctx, s.db.System, "list sealed logs", scan, "select s.tenant_id from sealed_logs as s")
}

// Lag is a log whose sealing lags.
type Lag struct {
	Log    domain.TenantID
	Sealed int64     // up to this position
	Since  time.Time // when the first event after that was recorded; zero: the log ends before it
}

// lagsListed is how many logs Lagging returns at most.
const lagsListed = 100

// Lagging returns logs with an event that was recorded before a time and is not sealed, and those that are sealed
// further than they go. It looks at no more than 100 that were not sealed since then.
func (s *Postgres) Lagging(ctx context.Context, before time.Time) (lagging []Lag, err error) {
	type unsealed struct {
		lag  Lag
		head int64
	}
	scan := func(row pgx.CollectableRow) (u unsealed, err error) {
		return u, row.Scan((*[16]byte)(&u.lag.Log), &u.lag.Sealed, &u.head)
	}
	logs, err := pg.Select(ctx, s.db.System, "list logs whose sealing lags", scan, `
		select l.tenant_id, coalesce(s.size, 0), l.head from logs as l left join sealed_logs as s on s.tenant_id = l.tenant_id
		where l.head <> coalesce(s.size, 0) and coalesce(s.sealed_at, '-infinity') < $1
		order by s.sealed_at nulls first limit $2`,
		before, lagsListed)
	if err != nil {
		return nil, err
	}
	scanTime := func(row pgx.CollectableRow) (at time.Time, err error) { return at, row.Scan((*pg.Moment)(&at)) }
	for _, log := range logs {
		const what = "read the first event that is not sealed"
		first, exists, err := pg.SelectOneUnder(ctx, s.db.App, log.lag.Log, what, scanTime, `
			select e.created_at from events as e where e.tenant_id = $1 and e.position > $2 order by e.position limit 1`,
			log.lag.Log, log.lag.Sealed)
		if err != nil {
			return nil, err
		}
		if log.lag.Since = first; exists && first.Before(before) || log.head < log.lag.Sealed {
			lagging = append(lagging, log.lag)
		}
	}
	return lagging, nil
}
