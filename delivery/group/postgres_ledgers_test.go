package group_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// ledgerOf reads a partition.
func ledgerOf(t *testing.T, s *tables.Tables, tenant domain.TenantID, name string, partition int) group.LedgerRow {
	t.Helper()
	row, err := s.Ledger(t.Context(), tenant, name, partition, false)
	tablestest.Must(t, err)
	return row
}

// save makes a change on the revisions.
func save(t *testing.T, s *tables.Tables, tenant domain.TenantID, mail domain.Group, revision int64, change group.LedgerChange) (time.Time, bool) {
	t.Helper()
	change.GroupRevision, change.Revision = mail.Revision, revision
	now, saved, err := s.SaveLedger(t.Context(), tenant, mail.Name, change)
	tablestest.Must(t, err)
	return now, saved
}

// mustSave makes a change on what is there, and returns the partition behind it.
func mustSave(t *testing.T, s *tables.Tables, tenant domain.TenantID, mail domain.Group, change group.LedgerChange) group.LedgerRow {
	t.Helper()
	row := ledgerOf(t, s, tenant, mail.Name, change.Partition)
	if _, saved := save(t, s, tenant, row.Group, row.Revision, change); !saved {
		t.Fatal("the change was not saved")
	}
	return ledgerOf(t, s, tenant, mail.Name, change.Partition)
}

// tenths is a time that PostgreSQL keeps as it is.
func tenths(n int64) time.Time { return time.Unix(1_700_000_000, n*1e8).UTC() }

func retryAt(partition int, position int64) group.Retry {
	return group.Retry{
		Partition: partition, Position: position, EventID: domain.NewEventID(), Stream: fmt.Sprintf("order-%d", position), Version: position + 1,
		Attempt: 3, Base: 1, Replays: 2, DueAt: tenths(position), Reason: "the mail server does not answer",
	}
}

func deadLetterAt(partition int, position int64) domain.DeadLetter {
	return domain.DeadLetter{
		Partition: partition, Position: position, EventID: domain.NewEventID(), Stream: fmt.Sprintf("order-%d", position), Version: position + 1,
		Type: "Placed", Attempt: 5, Base: 2, Replays: 1, Reason: "no such address", FirstParkedAt: tenths(position), ParkedAt: tenths(position + 1),
	}
}

// fillPartition gives a partition n retries and n dead letters.
func fillPartition(t *testing.T, s *tables.Tables, tenant domain.TenantID, mail domain.Group, partition, n int) (retries []group.Retry, letters []domain.DeadLetter) {
	t.Helper()
	for i := range n {
		position := int64(100*partition + 2*i + 1)
		retries, letters = append(retries, retryAt(partition, position)), append(letters, deadLetterAt(partition, position+1))
	}
	mustSave(t, s, tenant, mail, group.LedgerChange{Partition: partition, Ledger: []byte("filled"), Retry: retries, Park: letters})
	return retries, letters
}

func TestLedger(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	_, err := s.Ledger(t.Context(), tenant, "mail", 0, false)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	mail := tablestest.PutGroup(t, s, tenant, "mail", 2)
	_, err = s.Ledger(t.Context(), tenant, "mail", 2, true)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	before := ledgerOf(t, s, tenant, "mail", 1)
	if before.Ledger != nil || before.ReadTo != 0 || !reflect.DeepEqual(before.Group, mail) || before.Now.IsZero() {
		t.Errorf("a new one is %+v", before)
	}

	owner := domain.NewGroupMemberID()
	ledger := []byte(strings.Repeat("\x00ledger\xff", 10_000))
	change := group.LedgerChange{
		Partition: 1, Ledger: ledger,
		Status: domain.PartitionStatus{Partition: 1, Checkpoint: 11, ReadTo: 22, Oldest: 12, InFlight: 4, Owner: owner},
		Retry:  []group.Retry{retryAt(1, 9), retryAt(1, 7)},
		Park:   []domain.DeadLetter{deadLetterAt(1, 6), deadLetterAt(1, 5)},
	}
	now, saved := save(t, s, tenant, mail, before.Revision, change)
	if !saved || now.Before(before.Now) {
		t.Errorf("saved %v at %v, read before at %v", saved, now, before.Now)
	}
	for _, wait := range []bool{false, true} {
		got, err := s.Ledger(t.Context(), tenant, "mail", 1, wait)
		tablestest.Must(t, err)
		if got.Now.Before(now) || time.Since(got.Now).Abs() > time.Minute {
			t.Errorf("the clock went from %v to %v", now, got.Now)
		}
		want := group.LedgerRow{Group: mail, Revision: before.Revision + 1, Ledger: ledger, ReadTo: 22, Now: got.Now, Retries: []group.Retry{change.Retry[1], change.Retry[0]}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read %+v, want %+v", got, want)
		}
	}
	if got := tablestest.StatusOf(t, s, tenant, "mail", 1); got != (domain.PartitionStatus{Partition: 1, Checkpoint: 11, ReadTo: 22, Oldest: 12, InFlight: 4, Retrying: 2, Parked: 2, Owner: owner}) {
		t.Errorf("the status is %+v", got)
	}
	if got := ledgerOf(t, s, tenant, "mail", 0); got.Ledger != nil || got.Retries != nil {
		t.Errorf("the other partition is %+v", got)
	}
	letters, err := s.DeadLetters(t.Context(), tenant, "mail", 0, 10)
	if want := []domain.DeadLetter{change.Park[1], change.Park[0]}; err != nil || !reflect.DeepEqual(letters, want) {
		t.Errorf("dead letters %+v, %v; want %+v", letters, err, want)
	}

	// One retry changes and one goes, one dead letter comes back later, and one goes.
	again, parkedAgain := change.Retry[0], change.Park[0]
	again.Attempt, again.Reason = 4, "still not\x00"
	parkedAgain.Replays, parkedAgain.FirstParkedAt, parkedAgain.ParkedAt = 2, time.Time{}, tenths(99)
	got := mustSave(t, s, tenant, mail, group.LedgerChange{
		Partition: 1, Ledger: []byte{}, Unretry: []int64{7}, Retry: []group.Retry{again}, Unpark: []int64{5}, Park: []domain.DeadLetter{parkedAgain},
	})
	again.Reason, parkedAgain.FirstParkedAt = "still not", change.Park[0].FirstParkedAt
	if !reflect.DeepEqual(got.Retries, []group.Retry{again}) || got.Ledger == nil {
		t.Errorf("read %+v, want the retry %+v", got, again)
	}
	letters, err = s.DeadLetters(t.Context(), tenant, "mail", 0, 10)
	if want := []domain.DeadLetter{parkedAgain}; err != nil || !reflect.DeepEqual(letters, want) {
		t.Errorf("dead letters %+v, %v; want %+v", letters, err, want)
	}
	if got := tablestest.StatusOf(t, s, tenant, "mail", 1); got != (domain.PartitionStatus{Partition: 1, Retrying: 1, Parked: 1}) {
		t.Errorf("the status is %+v", got)
	}
}

// A save that comes too late leaves no trace, whether the ledger or the group has moved.
func TestLostSaveLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	mail := tablestest.PutGroup(t, s, tenant, "mail", 0)
	retries, letters := fillPartition(t, s, tenant, mail, 0, 3)
	before := ledgerOf(t, s, tenant, "mail", 0)
	for name, late := range map[string]struct{ group, revision int64 }{
		"an earlier ledger": {mail.Revision, before.Revision - 1}, "a later one": {mail.Revision, before.Revision + 1},
		"an earlier group": {mail.Revision - 1, before.Revision}, "a later group": {mail.Revision + 1, before.Revision},
	} {
		mail.Revision = late.group
		now, saved := save(t, s, tenant, mail, late.revision, group.LedgerChange{
			Ledger: []byte("late"), Retry: []group.Retry{retryAt(0, 77), retries[0]}, Unretry: []int64{retries[1].Position},
			Park: []domain.DeadLetter{deadLetterAt(0, 78)}, Unpark: []int64{letters[0].Position},
		})
		if saved || now.IsZero() {
			t.Errorf("%s: saved %v at %v", name, saved, now)
		}
	}
	after := ledgerOf(t, s, tenant, "mail", 0)
	if before.Now = after.Now; !reflect.DeepEqual(after, before) {
		t.Errorf("it was %+v, and is %+v", before, after)
	}
	if got, err := s.DeadLetters(t.Context(), tenant, "mail", 0, 10); err != nil || !reflect.DeepEqual(got, letters) {
		t.Errorf("dead letters are %+v, %v", got, err)
	}
	if got := tablestest.StatusOf(t, s, tenant, "mail", 0); got.Retrying != 3 || got.Parked != 3 {
		t.Errorf("counted are %+v", got)
	}
}

// Two processes save concurrently, each based on the revision it has read. Exactly one save of each revision wins, and
// nothing of the others is stored.
func TestOneSaveOfEachRevisionWins(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	mail := tablestest.PutGroup(t, s, tenant, "mail", 0)
	first := ledgerOf(t, s, tenant, "mail", 0).Revision
	const savers, each = 6, 25
	var position atomic.Int64
	var mu sync.Mutex
	won := make(map[int64]int64) // revision -> position
	var wg sync.WaitGroup
	for i := range savers {
		wg.Go(func() {
			process := s
			if i%2 == 1 {
				process = other
			}
			for saved := 0; saved < each; {
				row, err := process.Ledger(t.Context(), tenant, "mail", 0, saved%2 == 1)
				if err != nil {
					t.Error(err)
					return
				}
				if want := row.Revision - first; int64(len(row.Retries)) != want {
					t.Errorf("revision %d has %d retries: torn", want, len(row.Retries))
				}
				at := position.Add(1)
				_, ok, err := process.SaveLedger(t.Context(), tenant, "mail", group.LedgerChange{
					GroupRevision: mail.Revision, Revision: row.Revision, Ledger: fmt.Append(nil, at),
					Retry: []group.Retry{retryAt(0, at)}, Park: []domain.DeadLetter{deadLetterAt(0, at)},
				})
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					saved++
					mu.Lock()
					if was, taken := won[row.Revision]; taken {
						t.Errorf("revision %d was saved twice, with %d and %d", row.Revision, was, at)
					}
					won[row.Revision] = at
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	row := ledgerOf(t, s, tenant, "mail", 0)
	if row.Revision != first+savers*each || len(won) != savers*each {
		t.Errorf("the revision is %d behind the first, and %d were saved", row.Revision-first, len(won))
	}
	want := slices.Sorted(maps.Values(won))
	var retries, letters []int64
	for _, r := range row.Retries {
		retries = append(retries, r.Position)
	}
	parked, err := s.DeadLetters(t.Context(), tenant, "mail", 0, 1000)
	tablestest.Must(t, err)
	for _, d := range parked {
		letters = append(letters, d.Position)
	}
	if !slices.Equal(retries, want) || !slices.Equal(letters, want) {
		t.Errorf("retries are %v, dead letters %v; saved were %v", retries, letters, want)
	}
	if got := tablestest.StatusOf(t, s, tenant, "mail", 0); got.Retrying != savers*each || got.Parked != savers*each {
		t.Errorf("counted are %+v", got)
	}
}

// After random operations on a group's partitions, with current and outdated revisions, the tables equal a simple
// model.
func TestGroupModel(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		tenant := domain.NewTenantID()
		partitions := rapid.IntRange(1, 3).Draw(rt, "partitions")
		mail, _, err := s.PutGroup(ctx, tenant, "mail", tablestest.GroupDefinition(partitions), 1)
		if err != nil {
			rt.Fatal(err)
		}
		type partition struct {
			ledger   []byte
			retries  map[int64]group.Retry
			letters  map[int64]domain.DeadLetter
			revision int64
		}
		model := make([]partition, partitions)
		for p := range model {
			row, err := s.Ledger(ctx, tenant, "mail", p, false)
			if err != nil {
				rt.Fatal(err)
			}
			model[p] = partition{nil, make(map[int64]group.Retry), make(map[int64]domain.DeadLetter), row.Revision}
		}
		positions := func(p int) *rapid.Generator[[]int64] {
			// Each partition has distinct positions.
			return rapid.SliceOfNDistinct(rapid.Map(rapid.Int64Range(0, 7), func(n int64) int64 { return n*int64(partitions) + int64(p) + 1 }), 0, 4, rapid.ID)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"save": func(rt *rapid.T) {
				p := rapid.IntRange(0, partitions-1).Draw(rt, "partition")
				change := group.LedgerChange{
					Partition: p, GroupRevision: mail.Revision, Revision: model[p].revision, Ledger: rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(rt, "ledger"),
					Unretry: positions(p).Draw(rt, "unretry"), Unpark: positions(p).Draw(rt, "unpark"),
				}
				for _, position := range positions(p).Draw(rt, "retry") {
					change.Retry = append(change.Retry, retryAt(p, position))
				}
				for _, position := range positions(p).Draw(rt, "park") {
					change.Park = append(change.Park, deadLetterAt(p, position))
				}
				late := rapid.SampledFrom([]int64{0, 0, 0, -1, 1}).Draw(rt, "late")
				change.Revision += late
				_, saved, err := s.SaveLedger(ctx, tenant, "mail", change)
				if err != nil || saved != (late == 0) {
					rt.Fatalf("saved %v, %v", saved, err)
				}
				if !saved {
					return
				}
				model[p].revision++
				model[p].ledger = change.Ledger
				for _, position := range change.Unretry {
					delete(model[p].retries, position)
				}
				for _, position := range change.Unpark {
					delete(model[p].letters, position)
				}
				for _, r := range change.Retry {
					model[p].retries[r.Position] = r
				}
				for _, d := range change.Park {
					model[p].letters[d.Position] = d
				}
			},
			"discard": func(rt *rapid.T) {
				n, err := s.DiscardDeadLetters(ctx, tenant, "mail", domain.EventID{})
				want := int64(0)
				for p := range model {
					if len(model[p].letters) > 0 {
						want += int64(len(model[p].letters))
						model[p].revision++
						clear(model[p].letters)
					}
				}
				if err != nil || n != want {
					rt.Fatalf("discarded %d, %v; want %d", n, err, want)
				}
			},
			"replay or discard one": func(rt *rapid.T) {
				p := rapid.IntRange(0, partitions-1).Draw(rt, "partition")
				at := slices.Sorted(maps.Keys(model[p].letters))
				if len(at) == 0 {
					rt.Skip()
				}
				d := model[p].letters[rapid.SampledFrom(at).Draw(rt, "position")]
				discard := rapid.Bool().Draw(rt, "discard")
				do := s.ReplayDeadLetters
				if discard {
					do = s.DiscardDeadLetters
				}
				if n, err := do(ctx, tenant, "mail", d.EventID); err != nil || n != 1 {
					rt.Fatalf("%d, %v", n, err)
				}
				if d.ReplayAt.IsZero() || discard {
					model[p].revision++
				}
				if d.ReplayAt = time.Now(); discard {
					delete(model[p].letters, d.Position)
				} else {
					model[p].letters[d.Position] = d
				}
			},
			"seek": func(rt *rapid.T) {
				to := rapid.Int64Range(0, 30).Draw(rt, "to")
				var got [][]byte
				moved, err := s.SeekGroup(ctx, tenant, "mail", func(p int, ledger []byte) ([]byte, domain.PartitionStatus, error) {
					got = append(got, ledger)
					return fmt.Append(nil, "sought", p), domain.PartitionStatus{Checkpoint: to, ReadTo: to}, nil
				})
				if err != nil || moved.Revision <= mail.Revision {
					rt.Fatalf("moved to %+v, %v", moved, err)
				}
				mail = moved
				for p := range model {
					if string(got[p]) != string(model[p].ledger) || (got[p] == nil) != (model[p].ledger == nil) {
						rt.Fatalf("partition %d was remade of %q, want %q", p, got[p], model[p].ledger)
					}
					model[p].ledger, model[p].retries = fmt.Append(nil, "sought", p), make(map[int64]group.Retry)
					maps.DeleteFunc(model[p].letters, func(position int64, d domain.DeadLetter) bool { return position > to && !d.ReplayAt.IsZero() })
					model[p].revision++
				}
			},
			"": func(rt *rapid.T) {
				status, err := s.GroupStatus(ctx, tenant, "mail")
				if err != nil {
					rt.Fatal(err)
				}
				parked := 0
				for p := range model {
					row, err := s.Ledger(ctx, tenant, "mail", p, p%2 == 0)
					if err != nil {
						rt.Fatal(err)
					}
					retries, replays := make(map[int64]group.Retry), make(map[int64]bool)
					for _, r := range row.Retries {
						retries[r.Position] = r
					}
					for _, d := range row.Replays {
						replays[d.Position] = true
					}
					for position, d := range model[p].letters {
						if replays[position] == d.ReplayAt.IsZero() {
							rt.Fatalf("of %+v the replays are %v", d, replays)
						}
						delete(replays, position)
					}
					if len(replays) > 0 || row.Revision != model[p].revision || string(row.Ledger) != string(model[p].ledger) || !reflect.DeepEqual(retries, model[p].retries) {
						rt.Fatalf("partition %d is %+v, want %+v", p, row, model[p])
					}
					if got := status.Partitions[p]; got.Retrying != int64(len(retries)) || got.Parked != int64(len(model[p].letters)) {
						rt.Fatalf("partition %d is counted as %+v, want %d and %d", p, got, len(retries), len(model[p].letters))
					}
					parked += len(model[p].letters)
				}
				letters, err := s.DeadLetters(ctx, tenant, "mail", 0, 1000)
				if err != nil || len(letters) != parked {
					rt.Fatalf("there are %d dead letters, %v; want %d", len(letters), err, parked)
				}
			},
		})
	})
}

func TestSeekReplacesLedgers(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	remake := func(p int, ledger []byte) ([]byte, domain.PartitionStatus, error) {
		return append(ledger, "again"...), domain.PartitionStatus{Checkpoint: int64(p + 1), ReadTo: int64(p + 2), Oldest: int64(p + 3), InFlight: int64(p + 4)}, nil
	}
	_, err := s.SeekGroup(t.Context(), tenant, "mail", remake)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	mail := tablestest.PutGroup(t, s, tenant, "mail", 2)
	fillPartition(t, s, tenant, mail, 1, 2)
	owner := domain.NewGroupMemberID()
	// Two have waited for their replay: one is behind the place where the partition continues, and comes anyway.
	stays, comes := deadLetterAt(1, 3), deadLetterAt(1, 106)
	stays.ReplayAt, comes.ReplayAt = tenths(200), tenths(201)
	before := mustSave(t, s, tenant, mail, group.LedgerChange{
		Partition: 1, Ledger: []byte("was "), Park: []domain.DeadLetter{stays, comes}, Status: domain.PartitionStatus{Owner: owner},
	})

	failed := errors.New("cannot be remade")
	_, err = s.SeekGroup(t.Context(), tenant, "mail", func(p int, ledger []byte) ([]byte, domain.PartitionStatus, error) {
		if p == 1 {
			return nil, domain.PartitionStatus{}, failed
		}
		return remake(p, ledger)
	})
	if !errors.Is(err, failed) {
		t.Errorf("the error is %v", err)
	}
	after := ledgerOf(t, s, tenant, "mail", 1)
	if before.Now = after.Now; !reflect.DeepEqual(after, before) {
		t.Errorf("a seek that failed leaves %+v of %+v", after, before)
	}

	moved, err := s.SeekGroup(t.Context(), tenant, "mail", remake)
	tablestest.Must(t, err)
	if moved.Revision <= mail.Revision {
		t.Errorf("the revision went from %d to %d", mail.Revision, moved.Revision)
	}
	for p, want := range []string{"again", "was again"} {
		if row := ledgerOf(t, s, tenant, "mail", p); string(row.Ledger) != want || row.Retries != nil || row.ReadTo != int64(p+2) {
			t.Errorf("partition %d is %+v", p, row)
		}
	}
	if got := tablestest.StatusOf(t, s, tenant, "mail", 1); got != (domain.PartitionStatus{Partition: 1, Checkpoint: 2, ReadTo: 3, Oldest: 4, InFlight: 5, Parked: 3, Owner: owner}) {
		t.Errorf("the status is %+v", got)
	}
	if row := ledgerOf(t, s, tenant, "mail", 1); !reflect.DeepEqual(row.Replays, []domain.DeadLetter{stays}) {
		t.Errorf("the replays are %+v", row.Replays)
	}
}

// A save that is on its way when the group is moved is not saved; one that has come first is what the seek begins with.
func TestSeekDuringASave(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	mail := tablestest.PutGroup(t, s, tenant, "mail", 0)
	row := ledgerOf(t, s, tenant, "mail", 0)
	saved := make(chan bool, 1)
	_, err := s.SeekGroup(t.Context(), tenant, "mail", func(int, []byte) ([]byte, domain.PartitionStatus, error) {
		go func() {
			_, ok, err := s.SaveLedger(context.Background(), tenant, "mail", group.LedgerChange{
				GroupRevision: mail.Revision, Revision: row.Revision, Ledger: []byte("late"), Retry: []group.Retry{retryAt(0, 1)},
			})
			if err != nil {
				t.Error(err)
			}
			saved <- ok
		}()
		db.WaitForLock(t)
		return []byte("sought"), domain.PartitionStatus{}, nil
	})
	tablestest.Must(t, err)
	if tablestest.Receive(t, saved, "the save") {
		t.Error("the late save was saved")
	}
	if row := ledgerOf(t, s, tenant, "mail", 0); string(row.Ledger) != "sought" || row.Retries != nil {
		t.Errorf("the ledger is %+v", row)
	}
}

// Who waits reads what the one before has saved, with all that belongs to it.
func TestLockedReadSeesTheEarlierSave(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.PutGroup(t, s, tenant, "mail", 0)
	tx, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	tablestest.Must(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "update manifold.subscription_ledgers set ledger = 'by another', revision = revision + 1 where tenant_id = $1", tenant)
	tablestest.Must(t, err)
	_, err = tx.Exec(t.Context(), `insert into manifold.subscription_retries select tenant_id, name, 0, 5, tenant_id, 'order-1', 1, 1, 0, 0, now(), ''
		from manifold.subscription_ledgers where tenant_id = $1`, tenant)
	tablestest.Must(t, err)
	if row := ledgerOf(t, s, tenant, "mail", 0); row.Ledger != nil {
		t.Errorf("read %+v before it was saved", row)
	}
	done := make(chan group.LedgerRow, 1)
	go func() {
		row, err := s.Ledger(context.Background(), tenant, "mail", 0, true)
		if err != nil {
			t.Error(err)
		}
		done <- row
	}()
	db.WaitForLock(t)
	tablestest.Must(t, tx.Commit(t.Context()))
	if row := tablestest.Receive(t, done, "the ledger"); string(row.Ledger) != "by another" || len(row.Retries) != 1 {
		t.Errorf("read %+v", row)
	}
}
