package seal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

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

// Postgres reads and writes the tables of seals. All methods may be called concurrently. An error that a client can act on
// is a *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Postgres struct {
	db   *pg.DB
	keys *signing.Keys
}

// NewPostgres returns the tables of a database. It signs with keys.
func NewPostgres(db *pg.DB, keys *signing.Keys) *Postgres { return &Postgres{db, keys} }

// origin names a log in checkpoints and receipts.
func (s *Postgres) origin(ctx context.Context, log domain.TenantID) (string, error) {
	name, err := s.keys.Name(ctx)
	return name + "/" + log.String(), err
}

// state is how far a log is sealed.
type state struct {
	size       int64
	edge       []byte
	checkpoint string
}

const readState = "select s.size, s.edge, s.checkpoint from sealed_logs as s where s.tenant_id = $1"

func scanState(row pgx.CollectableRow) (s state, err error) {
	return s, row.Scan(&s.size, &s.edge, &s.checkpoint)
}

// lockState locks the row that says how far a log is sealed, and makes it for a new log. ok is false if there is no log.
func (s *Postgres) lockState(ctx context.Context, tx pgx.Tx, log domain.TenantID) (current state, ok bool, err error) {
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
	_, err = pg.Exec(ctx, tx, "begin to seal a log", `
		insert into sealed_logs (tenant_id, size, edge, checkpoint, sealed_at) values ($1, 0, '', '', statement_timestamp()) on conflict (tenant_id) do nothing`, log)
	if err != nil {
		return current, false, err
	}
	return pg.SelectOne(ctx, tx, what, scanState, readState+" for update", log)
}

// treeOf returns a log's tree, and an error if it is not the one that was signed.
func (s *Postgres) treeOf(ctx context.Context, current state, origin string) (*proof.Tree, error) {
	tree, err := proof.NewTree(current.size, current.edge)
	if err != nil || current.size == 0 {
		return tree, err
	}
	text, err := s.keys.Open(ctx, []byte(current.checkpoint))
	if err != nil {
		return nil, err
	}
	signed, err := proof.ParseCheckpoint(text)
	if err == nil && signed != (proof.Checkpoint{Origin: origin, Size: tree.Size(), Root: tree.Root()}) {
		err = errors.New("the seal differs from what was signed: somebody has changed it in the database")
	}
	return tree, err
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
}

// add adds a leaf.
func (s *sealing) add(leaf, content proof.Hash, salt proof.Salt) {
	position := s.tree.Size() + 1
	if len(s.first) == 0 || (position-1)%tile == 0 {
		s.first = append(s.first, position)
		s.leaves, s.contents, s.salts = append(s.leaves, make([]byte, 0, 32*tile)), append(s.contents, make([]byte, 0, 32*tile)), append(s.salts, make([]byte, 0, 16*tile))
	}
	row := len(s.first) - 1
	s.leaves[row], s.contents[row], s.salts[row] = append(s.leaves[row], leaf[:]...), append(s.contents[row], content[:]...), append(s.salts[row], salt[:]...)
	s.tree.Add(0, leaf, func(level int, hash proof.Hash) {
		if level%tileLevel == 0 {
			s.levels, s.numbers, s.roots = append(s.levels, int64(level)), append(s.numbers, (position-1)>>level), append(s.roots, hash[:])
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
		select e.position, e.event_id, e.stream_id, e.stream_version, e.event_type, case when e.gap is null then e.event_data end::text,
		  case when e.gap is null then e.metadata end::text, e.occurred_at, e.created_at, e.gap is not null
		from events as e where e.tenant_id = $1 and e.position > $2 and e.position <= $3 order by e.position`

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
		update sealed_logs as s set size = $2, edge = $3, checkpoint = $4, sealed_at = statement_timestamp() where s.tenant_id = $1`
)

// Seal seals the next positions of a log, at most slice of them, in one transaction that locks the log's seal. done means
// that it has reached the head. It returns the size of the sealed log. An erasure that commits before the lock is taken is
// sealed with its result; one that commits later finds the salts of what was sealed before.
func (s *Postgres) Seal(ctx context.Context, log domain.TenantID) (size int64, done bool, err error) {
	origin, err := s.origin(ctx, log)
	if err != nil {
		return 0, false, err
	}
	err = pg.Under(ctx, s.db.App, log, func(tx pgx.Tx) error {
		current, ok, err := s.lockState(ctx, tx, log)
		if done = !ok; err != nil || done {
			return err
		}
		head, ok, err := pg.SelectOne(ctx, tx, "read the head of a log", pgx.RowTo[int64], "select l.head from logs as l where l.tenant_id = $1", log)
		size = current.size
		if done = !ok || head <= size; err != nil || done {
			return err
		}
		to := min(head, (size/slice+1)*slice)
		adding := &sealing{}
		if adding.tree, err = s.treeOf(ctx, current, origin); err != nil {
			return fmt.Errorf("log %s at position %d: %w", log, size, err)
		}
		if err := adding.readPages(ctx, tx, log, to); err != nil {
			return err
		}
		checkpoint := proof.Checkpoint{Origin: origin, Size: adding.tree.Size(), Root: adding.tree.Root()}
		signed, err := s.keys.Sign(ctx, checkpoint.Text())
		if err != nil {
			return err
		}
		size, done = checkpoint.Size, checkpoint.Size == head
		return adding.save(ctx, tx, log, string(signed))
	})
	return size, done, err
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
			Position: pg.Int8Value(values[0]), ID: domain.UUID(pg.UUIDValue(values[1])).String(), Stream: string(values[2]), Version: pg.Int8Value(values[3]), Type: string(values[4]),
			Data: values[5], Metadata: values[6], OccurredAt: pg.TimeValue(values[7]), RecordedAt: pg.TimeValue(values[8]), Unreadable: pg.BoolValue(values[9]),
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

// save stores what was added.
func (s *sealing) save(ctx context.Context, tx pgx.Tx, log domain.TenantID, checkpoint string) error {
	var batch pgx.Batch
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

// unsealed returns the logs with events that are not sealed.
func (s *Postgres) unsealed(ctx context.Context) ([]domain.Head, error) {
	return pg.Select(ctx, s.db.System, "list logs that are not sealed", func(row pgx.CollectableRow) (head domain.Head, err error) {
		return head, row.Scan((*[16]byte)(&head.Tenant), &head.Position)
	}, `
		select l.tenant_id, l.head from logs as l left join sealed_logs as s on s.tenant_id = l.tenant_id
		where l.head > coalesce(s.size, 0)`)
}
