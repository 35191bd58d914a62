package seal_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/proof"
	"github.com/manifold-es/manifold/seal"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// appendRandom appends events to some streams, with data that JSON writes in several ways.
func appendRandom(t testing.TB, s *tables.Tables, log domain.TenantID, random *rand.Rand, n int) {
	t.Helper()
	for left := n; left > 0; {
		some := min(left, 1+random.IntN(300))
		left -= some
		events := make([]domain.NewEvent, some)
		for i := range events {
			events[i] = domain.NewEvent{Type: "Placed", Data: json.RawMessage(fmt.Sprintf(
				`{"long-key": %d.50, "a":"\u00e4\t\"\u0001", "n":[1e3,null,true,{}]}`, random.IntN(1000)))}
			if random.IntN(2) == 0 {
				events[i].Metadata = json.RawMessage(`{"user":"u-1"}`)
				events[i].OccurredAt = time.UnixMicro(random.Int64N(1e15)).UTC()
			}
		}
		tablestest.Append(t, s, log, domain.Append{Streams: []domain.StreamAppend{{
			Stream: fmt.Sprintf("order-%d", random.IntN(20)), Expected: domain.Any, Events: events,
		}}})
	}
}

// A log that grows and is sealed in between, also by two processes at once, has the tree of its events at each size,
// with proofs that transparency logs accept.
func TestSealedLogsProveTheirEvents(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	ctx, log := t.Context(), tablestest.NewTenant(t, s)
	random := rand.New(rand.NewPCG(3, 4))
	if _, done, err := s.Seal(ctx, log); !done || err != nil {
		t.Errorf("a log without events is sealed: %v, %v", done, err)
	}
	_, err := s.SealTables.Checkpoint(ctx, log)
	tablestest.WantCode(t, err, domain.CodeNotFound)

	var checkpoints []proof.Checkpoint
	for _, n := range []int{1, 2, 254, 700, 3, 9000, 1} {
		var both sync.WaitGroup
		both.Go(func() { appendRandom(t, s, log, random, n) })
		for _, process := range []*tables.Tables{s, other} {
			both.Go(func() { tablestest.SealAll(t, process, log) })
		}
		both.Wait()
		tablestest.SealAll(t, s, log)
		checkpoints = append(checkpoints, tablestest.Checkpoint(t, s, log))
	}
	last := checkpoints[len(checkpoints)-1]
	events := tablestest.WholeLog(t, s, log)
	if last.Size != int64(len(events)) || !strings.HasSuffix(last.Origin, "/"+log.String()) {
		t.Fatalf("the checkpoint is %+v, with %d events", last, len(events))
	}
	if summary, findings := tablestest.Verify(t, s, log, last); len(findings) > 0 || summary.Intact != last.Size {
		t.Errorf("it is verified with %+v, %+v", summary, findings)
	}
	for _, earlier := range checkpoints {
		hashes, err := s.Consistency(ctx, log, earlier.Size, last.Size)
		tablestest.Must(t, err)
		tablestest.Must(t, tlog.CheckTree(hashes, last.Size, last.Root, earlier.Size, earlier.Root))
		position := 1 + random.Int64N(earlier.Size)
		leaf, hashes, err := s.Inclusion(ctx, log, position, earlier.Size)
		tablestest.Must(t, err)
		tablestest.Must(t, tlog.CheckRecord(hashes, earlier.Size, earlier.Root, position-1, leaf))
		block, _, err := s.Leaves(ctx, log, (position-1)/proof.BlockSize)
		tablestest.Must(t, err)
		var hasher proof.Hasher
		event := tablestest.SealedEvent(t, &events[position-1])
		if got := hasher.Leaf(event, hasher.Content(event, block.Leaves[(position-1)%proof.BlockSize].Salt)); got != leaf {
			t.Errorf("position %d has the leaf %s, and its event %s", position, leaf, got)
		}
	}
	_, _, err = s.Inclusion(ctx, log, last.Size, last.Size+1)
	tablestest.WantCode(t, err, domain.CodeInvalidRequest)
	_, _, err = s.Inclusion(ctx, log, 5, 4)
	tablestest.WantCode(t, err, domain.CodeInvalidRequest)
	_, err = s.Consistency(ctx, log, 5, 4)
	tablestest.WantCode(t, err, domain.CodeInvalidRequest)
	_, err = s.Consistency(ctx, log, 5, last.Size+1)
	tablestest.WantCode(t, err, domain.CodeInvalidRequest)
}

// A seal whose commit is lost, or whose answer is, leaves no trace or all of it.
func TestSealsSurviveLostConnections(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	var sent, committed atomic.Int64
	network.On(pgtest.BeforeCommit("sealed_logs", func() bool { return sent.Add(1)%3 == 1 }))
	network.On(pgtest.AfterCommit("sealed_logs", func() bool { return committed.Add(1)%3 == 1 }))
	s := tablestest.OpenAgain(t, db)
	broken := tablestest.OpenWith(t, db, func(c *tables.Config) { c.AppURL = network.URL(t, db, migrations.RoleApp) })
	log, random := tablestest.NewTenant(t, s), rand.New(rand.NewPCG(1, 2))
	failed := 0
	for range 6 {
		appendRandom(t, s, log, random, 400)
		for {
			_, done, err := broken.Seal(t.Context(), log)
			if err != nil {
				failed++
			} else if done {
				break
			}
		}
	}
	summary, findings := tablestest.Verify(t, s, log, tablestest.Checkpoint(t, s, log))
	if failed < 2 || len(findings) > 0 || summary.Intact != 2400 {
		t.Errorf("after %d failures it is %+v, %+v", failed, summary, findings)
	}
}

// sealedLog is a sealed log, and a superuser's connection to tamper with.
type sealedLog struct {
	*tables.Tables
	t     *testing.T
	db    pgtest.DB
	super *pgxpool.Pool
	log   domain.TenantID
	size  int64
}

func newSealedLog(t *testing.T, events int) *sealedLog {
	t.Helper()
	s, db := tablestest.Open(t)
	l := &sealedLog{s, t, db, db.Pool(t, pgtest.RoleSuperuser, 2), tablestest.NewTenant(t, s), int64(events)}
	appendRandom(t, s, l.log, rand.New(rand.NewPCG(5, 6)), events)
	tablestest.SealAll(t, s, l.log)
	return l
}

// addReceipt adds positions to a receipt. It calls before with the number of each attempt when the keys are loaded.
func (l *sealedLog) addReceipt(kind proof.Kind, cause string, positions []int64, before func(attempt int)) (attempts int) {
	l.t.Helper()
	tablestest.Must(l.t, l.SealTables.WithReceipts(l.t.Context(), l.log, func(receipts *seal.Receipts) error {
		attempts++
		before(attempts)
		return pg.Under(l.t.Context(), l.DB.Retention, l.log, func(tx pgx.Tx) error {
			var batch pgx.Batch
			if err := receipts.Queue(l.t.Context(), tx, &batch, kind, cause, positions); err != nil {
				return err
			}
			return tx.SendBatch(l.t.Context(), &batch).Close()
		})
	}))
	return attempts
}

// execute runs statements, with the log's tenant as the first argument.
func (l *sealedLog) execute(statement string, args ...any) {
	l.t.Helper()
	_, err := l.super.Exec(l.t.Context(), statement, append([]any{l.log}, args...)...)
	tablestest.Must(l.t, err)
}

// Whatever is done to events in the database is found, with its position.
func TestTamperingIsFound(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t, 5000)
	checkpoint := tablestest.Checkpoint(t, l.Tables, l.log)
	random := rand.New(rand.NewPCG(7, 8))
	l.execute("create table kept as select * from manifold.events where tenant_id = $1")
	names := "tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, metadata, occurred_at, " +
		"created_at, gap, gap_at, tagged"
	for name, tamper := range map[string]struct {
		statement string
		want      proof.Problem
	}{
		"data":     {"update manifold.events set event_data = event_data || '{\"n\": 1}' where tenant_id = $1 and position = $2", proof.Changed},
		"number":   {"update manifold.events set event_data = event_data || '{\"n\": [1e3, null, true, {}, 1]}' where tenant_id = $1 and position = $2", proof.Changed},
		"metadata": {"update manifold.events set metadata = '{}' where tenant_id = $1 and position = $2", proof.Changed},
		"recorded": {"update manifold.events set created_at = (created_at at time zone 'UTC' - interval '1 microsecond') at time zone 'UTC' where tenant_id = $1 and position = $2", proof.Changed},
		"occurred": {"update manifold.events set occurred_at = now() where tenant_id = $1 and position = $2", proof.Changed},
		"type":     {"update manifold.events set event_type = 'Paid' where tenant_id = $1 and position = $2", proof.Changed},
		"stream":   {"update manifold.events set stream_id = 'order-x' where tenant_id = $1 and position = $2", proof.Changed},
		"version":  {"update manifold.events set stream_version = 99999 where tenant_id = $1 and position = $2", proof.Changed},
		"id":       {"update manifold.events set event_id = '0190d3a4-5b6c-7def-8123-456789abcdef' where tenant_id = $1 and position = $2", proof.Changed},
		"gap":      {"update manifold.events set gap = 'r', metadata = '{\"redacted\": \"x\"}', gap_at = now() where tenant_id = $1 and position = $2", proof.Changed},
		"removal":  {"delete from manifold.events where tenant_id = $1 and position = $2", proof.Missing},
		"salt":     {"update manifold.seals set salts = decode(repeat('00', length(salts)), 'hex') where tenant_id = $1 and $2 between first_position and first_position + length(salts) / 16 - 1", proof.Unsettled},
	} {
		position := 1 + random.Int64N(l.size)
		l.execute("create table seals_kept as select * from manifold.seals where tenant_id = $1")
		l.execute(tamper.statement, position)
		_, findings := tablestest.Verify(t, l.Tables, l.log, checkpoint)
		found := false
		for _, f := range findings {
			found = found || f.First == position && f.Problem == tamper.want
		}
		if !found || len(findings) > 1 && name != "salt" {
			t.Errorf("%s of position %d: the findings are %+v", name, position, findings)
		}
		l.execute("delete from manifold.seals where tenant_id = $1")
		l.execute("insert into manifold.seals select * from seals_kept where tenant_id = $1")
		l.execute("delete from manifold.events where tenant_id = $1")
		l.execute("insert into manifold.events (" + names + ") select " + names + " from kept where tenant_id = $1")
		_, err := l.super.Exec(t.Context(), "drop table seals_kept")
		tablestest.Must(t, err)
	}
	if summary, findings := tablestest.Verify(t, l.Tables, l.log, checkpoint); len(findings) > 0 || summary.Intact != l.size {
		t.Fatalf("after everything was restored: %+v, %+v", summary, findings)
	}

	// Two events change places.
	l.execute("update manifold.events set position = -1 where tenant_id = $1 and position = 77")
	l.execute("update manifold.events set position = 77 where tenant_id = $1 and position = 4711")
	l.execute("update manifold.events set position = 4711 where tenant_id = $1 and position = -1")
	_, findings := tablestest.Verify(t, l.Tables, l.log, checkpoint)
	if len(findings) != 2 || findings[0].Problem != proof.Moved ||
		!strings.Contains(findings[0].Detail, "was sealed at position 4711") ||
		!strings.Contains(findings[1].Detail, "was sealed at position 77") {
		t.Errorf("two events that have changed places are %+v", findings)
	}
}

// Somebody who changes a stored leaf as well is found by the signed root, and the sealer extends nothing that was
// changed.
func TestChangedSealsAreFound(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t, 1000)
	checkpoint := tablestest.Checkpoint(t, l.Tables, l.log)
	block, _, err := l.Leaves(t.Context(), l.log, 0)
	tablestest.Must(t, err)
	l.execute("update manifold.events set event_data = '{}' where tenant_id = $1 and position = 300")
	events, err := l.ReadLog(t.Context(), l.log, domain.LogQuery{From: 300, To: 300, Limit: 1})
	tablestest.Must(t, err)
	var hasher proof.Hasher
	event := tablestest.SealedEvent(t, &events[0])
	content := hasher.Content(event, block.Leaves[299].Salt)
	leaf := hasher.Leaf(event, content)
	l.execute(`update manifold.seals set leaves = overlay(leaves placing $2 from (300 - first_position)::int * 32 + 1),
		contents = overlay(contents placing $3 from (300 - first_position)::int * 32 + 1)
		where tenant_id = $1 and 300 between first_position and first_position + length(leaves) / 32 - 1`, leaf[:], content[:])
	_, findings := tablestest.Verify(t, l.Tables, l.log, checkpoint)
	if len(findings) != 1 || findings[0].Problem != proof.Forged || findings[0].First != 257 || findings[0].Last != 512 {
		t.Errorf("the findings are %+v", findings)
	}
	if _, _, err := l.Inclusion(t.Context(), l.log, 300, 1000); err == nil {
		t.Error("the changed leaf has a proof")
	}
	l.execute("update manifold.seal_subtrees set hash = decode(repeat('00', 32), 'hex') where tenant_id = $1")
	if _, findings = tablestest.Verify(t, l.Tables, l.log, checkpoint); len(findings) == 0 || findings[0].Problem != proof.Forged {
		t.Errorf("with changed subtrees the findings are %+v", findings)
	}

	l.execute("update manifold.sealed_logs set edge = decode(repeat('00', length(edge)), 'hex') where tenant_id = $1")
	appendRandom(t, l.Tables, l.log, rand.New(rand.NewPCG(1, 1)), 1)
	_, _, err = l.Seal(t.Context(), l.log)
	if err == nil || !strings.Contains(err.Error(), "it differs from what was signed") {
		t.Errorf("a changed seal is extended: %v", err)
	}
}

// A process seals nothing that is older than what it has sealed, or something else, although the service has signed it:
// a seal that somebody has put back, or one of changed events from the first position on.
func TestOlderSealsAreNotContinued(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t, 1000)
	random := rand.New(rand.NewPCG(4, 4))
	for _, table := range []string{"sealed_logs", "seals", "seal_subtrees"} {
		l.execute("create table earlier_" + table + " as select * from manifold." + table + " where tenant_id = $1")
	}
	appendRandom(t, l.Tables, l.log, random, 500)
	tablestest.SealAll(t, l.Tables, l.log)
	other := tablestest.OpenAgain(t, l.db)
	refused := func(what string) {
		t.Helper()
		if _, _, err := l.Seal(t.Context(), l.log); !errors.Is(err, seal.ErrChanged) {
			t.Errorf("%s is sealed: %v", what, err)
		}
	}
	putBack := func(from string) {
		for _, table := range []string{"sealed_logs", "seals", "seal_subtrees"} {
			l.execute("delete from manifold." + table + " where tenant_id = $1")
			l.execute("insert into manifold." + table + " select * from " + from + table + " where tenant_id = $1")
		}
	}
	for _, table := range []string{"sealed_logs", "seals", "seal_subtrees"} {
		l.execute("create table later_" + table + " as select * from manifold." + table + " where tenant_id = $1")
	}

	l.execute("update manifold.events set event_data = '{}' where tenant_id = $1 and position = 1200")
	putBack("earlier_")
	refused("an older seal")
	tablestest.SealAll(t, other, l.log) // a process that has just started does not know better
	refused("another continuation of an older seal")

	l.execute("delete from manifold.sealed_logs where tenant_id = $1")
	l.execute("delete from manifold.seals where tenant_id = $1")
	l.execute("delete from manifold.seal_subtrees where tenant_id = $1")
	refused("a log from its first position on")

	putBack("later_")
	l.execute("update manifold.sealed_logs set size = 9000000000000000000 where tenant_id = $1")
	refused("a seal that is longer than the log")
	putBack("later_")
	appendRandom(t, l.Tables, l.log, random, 3)
	tablestest.SealAll(t, tablestest.OpenAgain(t, l.db), l.log)
	appendRandom(t, l.Tables, l.log, random, 3)
	tablestest.SealAll(t, l.Tables, l.log) // after what another process has sealed
	if size := tablestest.Checkpoint(t, l.Tables, l.log).Size; size != 1506 {
		t.Errorf("the log is sealed up to position %d", size)
	}

	l.execute("delete from manifold.logs where tenant_id = $1") // as erasure does
	l.execute("delete from manifold.sealed_logs where tenant_id = $1")
	if size, done, err := l.Seal(t.Context(), l.log); size != 0 || !done || err != nil {
		t.Errorf("an erased log is sealed up to %d, %v, %v", size, done, err)
	}
}

// A log with few events at a time has one row for 256 of them as soon as these are complete, without the salts of
// erased ones.
func TestRowsOfSlowLogsAreMerged(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t, 1)
	random := rand.New(rand.NewPCG(4, 4))
	grow := func(events int) {
		appendRandom(t, l.Tables, l.log, random, events)
		tablestest.SealAll(t, l.Tables, l.log)
	}
	rows := func(want string) {
		t.Helper()
		var got string
		tablestest.Must(t, l.super.QueryRow(t.Context(), `
			select string_agg(first_position || '+' || length(salts) / 16, ' ' order by first_position)
			from manifold.seals`).Scan(&got))
		if got != want {
			t.Errorf("the rows are %s; want %s", got, want)
		}
	}
	grow(2)
	grow(100)
	l.execute("update manifold.events set event_data = '{}', metadata = null where tenant_id = $1 and position = 2")
	tablestest.Must(t, l.ForgetSalts(t.Context(), l.log, "erasure 1", []int64{2}))
	rows("1+1 2+2 4+100")
	grow(153)
	rows("1+256")
	grow(10)
	grow(600)
	rows("1+256 257+256 513+256 769+98")
	summary, findings := tablestest.Verify(t, l.Tables, l.log, tablestest.Checkpoint(t, l.Tables, l.log))
	if want := (proof.Summary{Size: 866, Intact: 865, Erased: 1}); summary != want || len(findings) > 0 {
		t.Errorf("it is %+v, %+v", summary, findings)
	}
}

// An erasure that meets the first seal of a log waits for it, and finds the salts.
func TestErasureWaitsForTheFirstSeal(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s := tablestest.OpenAgain(t, db)
	l := &sealedLog{s, t, db, db.Pool(t, pgtest.RoleSuperuser, 1), tablestest.NewTenant(t, s), 300}
	appendRandom(t, s, l.log, rand.New(rand.NewPCG(5, 6)), 300)
	network, nodes, forgotten := pgtest.NewNetwork(t, db), db.Nodes(t), make(chan error, 1)
	network.On(pgtest.BeforeCommit("sealed_logs", func() bool {
		l.execute("update manifold.events set event_data = '{}', metadata = null where tenant_id = $1 and position = 3")
		go func() { forgotten <- s.ForgetSalts(t.Context(), l.log, "erasure 1", []int64{3}) }()
		for waits, i := false, 0; !waits && len(forgotten) == 0; i++ {
			err := nodes[i%len(nodes)].QueryRow(t.Context(), `
				select exists (select from pg_stat_activity a where a.datname = current_database() and a.wait_event_type = 'Lock'),
				  pg_sleep(0.01)::text`).Scan(&waits, new(string))
			if err != nil {
				t.Error(err)
				break
			}
		}
		return false
	}))
	sealing := tablestest.OpenWith(t, db, func(c *tables.Config) { c.AppURL = network.URL(t, db, migrations.RoleApp) })
	tablestest.SealAll(t, sealing, l.log)
	tablestest.Must(t, tablestest.Receive(t, forgotten, "the erasure"))
	summary, findings := tablestest.Verify(t, s, l.log, tablestest.Checkpoint(t, s, l.log))
	if want := (proof.Summary{Size: 300, Intact: 299, Erased: 1}); summary != want || len(findings) > 0 {
		t.Errorf("it is %+v, %+v", summary, findings)
	}
}

// However many erasures and runs of retention there are, a block has few receipts, and they explain everything. One
// that somebody has replaced is signed again.
func TestReceiptsAreMerged(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t, 300)
	l.execute("update manifold.events set event_data = '{}', metadata = null where tenant_id = $1 and position <= 200")
	for position := range int64(200) {
		tablestest.Must(t, l.ForgetSalts(t.Context(), l.log, fmt.Sprintf("erasure %d", position/2), []int64{position + 1}))
	}
	l.execute("delete from manifold.events where tenant_id = $1 and position > 250")
	for _, positions := range [][]int64{{251}, {253, 255}, {251, 252}, {254, 256, 257}} {
		l.addReceipt(proof.Expired, "retention of category order", positions, func(int) {})
	}
	_, signed, err := l.Leaves(t.Context(), l.log, 0)
	tablestest.Must(t, err)
	if len(signed) != 66 {
		t.Errorf("there are %d receipts", len(signed))
	}
	summary, findings := tablestest.Verify(t, l.Tables, l.log, tablestest.Checkpoint(t, l.Tables, l.log))
	if want := (proof.Summary{Size: 300, Intact: 50, Erased: 200, Expired: 7, Problems: 43}); summary != want || len(findings) != 43 {
		t.Errorf("it is %+v, %+v", summary, findings)
	}

	l.execute("update manifold.seal_receipts set receipt = 'x' where tenant_id = $1")
	for cause := range 100 {
		positions := []int64{int64(2*cause + 1), int64(2*cause + 2)}
		tablestest.Must(t, l.ForgetSalts(t.Context(), l.log, fmt.Sprintf("erasure %d", cause), positions))
	}
	l.execute("delete from manifold.seal_receipts where tenant_id = $1 and receipt = 'x'")
	if summary, _ = tablestest.Verify(t, l.Tables, l.log, tablestest.Checkpoint(t, l.Tables, l.log)); summary.Erased != 200 {
		t.Errorf("after receipts were signed again it is %+v", summary)
	}
}

// A receipt that another process has signed with a key that is newer than those loaded keeps its positions. One whose
// key is not the service's explains nothing, and is replaced.
func TestReceiptsOutliveRotations(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t, 20)
	ctx, other := t.Context(), tablestest.OpenAgain(t, l.db)
	l.execute("update manifold.events set event_data = '{}', metadata = null where tenant_id = $1 and position <= 4")
	positions := func() []int64 {
		_, signed, err := l.Leaves(ctx, l.log, 0)
		tablestest.Must(t, err)
		if len(signed) != 1 {
			t.Fatalf("there are %d receipts", len(signed))
		}
		receipt, err := proof.ParseReceipt(tablestest.OpenSigned(t, l.Tables, signed[0]))
		tablestest.Must(t, err)
		return receipt.Positions
	}
	rotate := func(attempt int) {
		if attempt == 1 {
			_, err := other.Rotate(ctx)
			tablestest.Must(t, err)
			tablestest.Must(t, other.ForgetSalts(ctx, l.log, "erasure 1", []int64{1}))
		}
	}
	if attempts := l.addReceipt(proof.Erased, "erasure 1", []int64{2}, rotate); attempts != 2 {
		t.Errorf("after a rotation it takes %d attempts", attempts)
	}
	if got := positions(); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("after a rotation the receipt has the positions %v", got)
	}

	secret, _, err := note.GenerateKey(nil, "manifold.forged")
	tablestest.Must(t, err)
	forger, err := note.NewSigner(secret)
	tablestest.Must(t, err)
	forged, err := note.Sign(&note.Note{Text: "forged\n"}, forger)
	tablestest.Must(t, err)
	l.execute("update manifold.seal_receipts set receipt = $2 where tenant_id = $1", string(forged))
	if attempts := l.addReceipt(proof.Erased, "erasure 1", []int64{3}, func(int) {}); attempts != 2 {
		t.Errorf("to replace a forged receipt takes %d attempts", attempts)
	}
	if got := positions(); !slices.Equal(got, []int64{3}) {
		t.Errorf("in place of a forged receipt there is one with the positions %v", got)
	}
}

// An erasure's salts are gone wherever the sealer was; its envelopes are still verified, and may not
// change.
func TestErasedContentIsExplained(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t, 600)
	appendRandom(t, l.Tables, l.log, rand.New(rand.NewPCG(9, 9)), 10) // not sealed yet
	positions := []int64{605, 3, 256, 257, 3}
	l.execute(`update manifold.events set event_data = '{}', metadata = null
		where tenant_id = $1 and position = any ($2::bigint[])`, positions)
	for range 2 {
		tablestest.Must(t, l.ForgetSalts(t.Context(), l.log, "erasure 1 of a subject", positions))
	}
	if _, receipts, err := l.Leaves(t.Context(), l.log, 0); err != nil || len(receipts) != 1 {
		t.Errorf("a repeated erasure has the receipts %q, %v", receipts, err)
	}
	tablestest.SealAll(t, l.Tables, l.log)
	summary, findings := tablestest.Verify(t, l.Tables, l.log, tablestest.Checkpoint(t, l.Tables, l.log))
	if want := (proof.Summary{Size: 610, Intact: 607, Erased: 3}); summary != want || len(findings) > 0 {
		t.Errorf("it is %+v, %+v", summary, findings)
	}
	l.execute("update manifold.events set event_type = 'Other' where tenant_id = $1 and position = 3")
	l.execute("delete from manifold.events where tenant_id = $1 and position = 256")
	_, findings = tablestest.Verify(t, l.Tables, l.log, tablestest.Checkpoint(t, l.Tables, l.log))
	if len(findings) != 2 || findings[0].Problem != proof.Missing || findings[1].Problem != proof.Changed {
		t.Errorf("after the erasure, the findings are %+v", findings)
	}
}

// What retention had removed before the log was sealed is sealed as absent: nobody can add it later.
func TestAbsentEventsAreSealed(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	l := &sealedLog{s, t, db, db.Pool(t, pgtest.RoleSuperuser, 1), tablestest.NewTenant(t, s), 700}
	appendRandom(t, s, l.log, rand.New(rand.NewPCG(5, 6)), 700)
	l.execute("create table kept as select * from manifold.events where tenant_id = $1 and position in (1, 300, 700)")
	l.execute("delete from manifold.events where tenant_id = $1 and (position < 280 or position in (300, 700))")
	tablestest.SealAll(t, s, l.log)
	checkpoint := tablestest.Checkpoint(t, s, l.log)
	summary, findings := tablestest.Verify(t, s, l.log, checkpoint)
	if want := (proof.Summary{Size: 700, Intact: 419, Absent: 281}); summary != want || len(findings) > 0 {
		t.Errorf("it is %+v, %+v", summary, findings)
	}
	l.execute(`
		insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
		select tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at
		from kept where tenant_id = $1`)
	if _, findings = tablestest.Verify(t, s, l.log, checkpoint); len(findings) != 3 || findings[0].Problem != proof.Added {
		t.Errorf("added events are %+v", findings)
	}
}

// An event that PostgreSQL cannot print is sealed as unreadable, and keeps no other from being sealed.
func TestUnreadableEventsAreSealed(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	l := &sealedLog{s, t, db, db.Pool(t, pgtest.RoleSuperuser, 1), tablestest.NewTenant(t, s), 300}
	appendRandom(t, s, l.log, rand.New(rand.NewPCG(5, 6)), 300)
	l.execute(`update manifold.events set event_data = (select jsonb_agg('1e131071'::jsonb) from generate_series(1, 420))
		where tenant_id = $1 and position = 40`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sealer := seal.New(seal.Config{
		Store: s.SealTables, Events: s.Log, Owns: func(domain.TenantID) bool { return true },
		Log: slog.New(slog.DiscardHandler),
	})
	done := make(chan error, 1)
	go func() { done <- sealer.Run(ctx) }()
	for sealed := false; !sealed; {
		tablestest.Must(t, l.super.QueryRow(t.Context(), `
			select count(*) > 0, pg_sleep(0.01)::text from manifold.sealed_logs where tenant_id = $1 and size = 300`, l.log).Scan(&sealed, new(string)))
	}
	cancel()
	tablestest.Must(t, tablestest.Receive(t, done, "the sealer"))
	if summary, findings := tablestest.Verify(t, s, l.log, tablestest.Checkpoint(t, s, l.log)); len(findings) > 0 || summary.Intact != 300 {
		t.Errorf("it is %+v, %+v", summary, findings)
	}
}

// The sealer seals what it owns: logs that it is notified of, and those from before it started. A long log does not
// keep others waiting.
func TestSealerSealsLogs(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	long, short, foreign := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	random := rand.New(rand.NewPCG(5, 6))
	appendRandom(t, s, long, random, 20000)
	appendRandom(t, s, foreign, random, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sealer := seal.New(seal.Config{Store: s.SealTables, Events: s.Log, Owns: func(log domain.TenantID) bool { return log != foreign }, Log: slog.New(slog.DiscardHandler)})
	done := make(chan error, 1)
	go func() { done <- sealer.Run(ctx) }()
	appendRandom(t, s, short, random, 300)
	for _, log := range []domain.TenantID{short, foreign} {
		head, err := s.Head(t.Context(), log)
		tablestest.Must(t, err)
		sealer.Wake(head)
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	for sealed := false; !sealed; {
		tablestest.Must(t, super.QueryRow(t.Context(), `
			select count(*) = 2, pg_sleep(0.01)::text from manifold.sealed_logs
			where (tenant_id, size) in (($1::uuid, 20000), ($2::uuid, 300))`, long, short).Scan(&sealed, new(string)))
	}
	cancel()
	tablestest.Must(t, tablestest.Receive(t, done, "the sealer"))
	_, err := s.SealTables.Checkpoint(t.Context(), foreign)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	if summary, findings := tablestest.Verify(t, s, long, tablestest.Checkpoint(t, s, long)); len(findings) > 0 || summary.Intact != 20000 {
		t.Errorf("it is %+v, %+v", summary, findings)
	}
}
