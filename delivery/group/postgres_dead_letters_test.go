package group_test

import (
	"context"
	"testing"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestDeadLettersAreListedByPosition(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	_, err := s.DeadLetters(t.Context(), tenant, "mail", 0, 10)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	mail := tablestest.PutGroup(t, s, tenant, "mail", 2)
	for p, positions := range [][]int64{{9, 3, 5}, {4, 8}} {
		var letters []domain.DeadLetter
		for _, position := range positions {
			letters = append(letters, deadLetterAt(p, position))
		}
		mustSave(t, s, tenant, mail, group.LedgerChange{Partition: p, Park: letters})
	}
	var got []int64
	for after := int64(3); ; {
		page, err := s.DeadLetters(t.Context(), tenant, "mail", after, 2)
		tablestest.Must(t, err)
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			got = append(got, d.Position)
		}
		after = page[len(page)-1].Position
	}
	if len(got) != 4 || got[0] != 4 || got[1] != 5 || got[2] != 8 || got[3] != 9 {
		t.Errorf("listed are %v", got)
	}
}

func TestReplayIsRequested(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	for _, do := range []func(context.Context, domain.TenantID, string, domain.EventID) (int64, error){s.ReplayDeadLetters, s.DiscardDeadLetters} {
		_, err := do(t.Context(), tenant, "mail", domain.EventID{})
		tablestest.WantCode(t, err, domain.CodeNotFound)
	}
	mail := tablestest.PutGroup(t, s, tenant, "mail", 2)
	_, letters := fillPartition(t, s, tenant, mail, 1, 3)
	before, other := ledgerOf(t, s, tenant, "mail", 1), ledgerOf(t, s, tenant, "mail", 0)
	for range 2 { // asking again changes nothing
		if n, err := s.ReplayDeadLetters(t.Context(), tenant, "mail", letters[1].EventID); err != nil || n != 1 {
			t.Errorf("one: %d, %v", n, err)
		}
	}
	row := ledgerOf(t, s, tenant, "mail", 1)
	if len(row.Replays) != 1 || row.Replays[0].EventID != letters[1].EventID || row.Replays[0].ReplayAt.IsZero() || row.Revision != before.Revision+1 {
		t.Errorf("the replays are %+v", row.Replays)
	}
	if row := ledgerOf(t, s, tenant, "mail", 0); row.Replays != nil || row.Revision != other.Revision {
		t.Errorf("of the other partition %+v", row)
	}
	_, err := s.ReplayDeadLetters(t.Context(), tenant, "mail", domain.NewEventID())
	tablestest.WantCode(t, err, domain.CodeNotFound)
	if n, err := s.ReplayDeadLetters(t.Context(), tenant, "mail", domain.EventID{}); err != nil || n != 2 {
		t.Errorf("all: %d, %v", n, err)
	}
	// In the order in which they were asked for.
	row = ledgerOf(t, s, tenant, "mail", 1)
	var order []int64
	for _, d := range row.Replays {
		order = append(order, d.Position)
	}
	if len(order) != 3 || order[0] != letters[1].Position || order[1] != letters[0].Position || order[2] != letters[2].Position {
		t.Errorf("the replays are at %v", order)
	}
	// Who has read the ledger before does not pass the discard of what is to be replayed.
	if n, err := s.DiscardDeadLetters(t.Context(), tenant, "mail", letters[0].EventID); err != nil || n != 1 {
		t.Errorf("discarded %d, %v", n, err)
	}
	if _, saved := save(t, s, tenant, mail, row.Revision, group.LedgerChange{Partition: 1, Unpark: []int64{letters[0].Position}}); saved {
		t.Error("a dead letter that was discarded was taken")
	}
	_, err = s.DiscardDeadLetters(t.Context(), tenant, "mail", letters[0].EventID)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	if got := tablestest.StatusOf(t, s, tenant, "mail", 1); got.Parked != 2 {
		t.Errorf("counted are %+v", got)
	}
}

// More than two slices, in several partitions: the replays that a ledger has are bounded, and all are counted right.
func TestVeryManyDeadLetters(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	mail := tablestest.PutGroup(t, s, tenant, "mail", 2)
	const many = 25_000
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, sql := range []string{
		`insert into manifold.dead_letters select $1, 'mail', n, case when n > $2 - 5 then 1 else 0 end, gen_random_uuid(), 'order-1', n, 'Placed', 5, 0, 0, 'why', now(), now(), null
			from generate_series(1, $2::int) n`,
		`update manifold.subscription_ledgers set parked = case when partition = 0 then $2 - 5 else 5 end where tenant_id = $1`,
	} {
		_, err := super.Exec(t.Context(), sql, tenant, many)
		tablestest.Must(t, err)
	}
	if n, err := s.ReplayDeadLetters(t.Context(), tenant, "mail", domain.EventID{}); err != nil || n != many {
		t.Errorf("replays of %d were asked for, %v", n, err)
	}
	if n, err := s.ReplayDeadLetters(t.Context(), tenant, "mail", domain.EventID{}); err != nil || n != 0 {
		t.Errorf("replays of %d were asked for again, %v", n, err)
	}
	row := ledgerOf(t, s, tenant, "mail", 0)
	if len(row.Replays) != domain.MaxReplays || row.Replays[0].Position != 1 || row.Replays[domain.MaxReplays-1].Position != domain.MaxReplays {
		t.Errorf("the ledger has %d replays", len(row.Replays))
	}
	if beside, err := s.ReplaysOfOtherStreams(t.Context(), tenant, "mail", 0, []string{"order-1"}, 10); err != nil || len(beside) != 0 {
		t.Errorf("beside all that there are %d replays are, %v", len(beside), err)
	}
	if beside, err := s.ReplaysOfOtherStreams(t.Context(), tenant, "mail", 1, []string{"order-2", "order-3"}, 3); err != nil || len(beside) != 3 || beside[0].Position != many-4 {
		t.Errorf("beside other streams there are the replays %+v, %v", beside, err)
	}
	if row := ledgerOf(t, s, tenant, "mail", 1); len(row.Replays) != 5 {
		t.Errorf("the other ledger has %d replays", len(row.Replays))
	}
	if _, saved := save(t, s, tenant, mail, row.Revision, group.LedgerChange{Unpark: []int64{1, 2, 3}}); !saved {
		t.Error("not saved")
	}
	if n, err := s.DiscardDeadLetters(t.Context(), tenant, "mail", domain.EventID{}); err != nil || n != many-3 {
		t.Errorf("discarded %d, %v", n, err)
	}
	for p := range 2 {
		if got := tablestest.StatusOf(t, s, tenant, "mail", p); got.Parked != 0 {
			t.Errorf("counted are %+v", got)
		}
	}
}

// A discard waits for a save that is under way, which takes a dead letter for a consumer: that one is not discarded.
func TestDiscardDuringASave(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	mail := tablestest.PutGroup(t, s, tenant, "mail", 0)
	_, letters := fillPartition(t, s, tenant, mail, 0, 2)
	tx, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	tablestest.Must(t, err)
	defer tx.Rollback(t.Context())
	for _, sql := range []string{
		"update manifold.subscription_ledgers set revision = revision + 1, parked = parked - 1 where tenant_id = $1 and $2::bigint > 0",
		"delete from manifold.dead_letters where tenant_id = $1 and position = $2",
	} {
		_, err := tx.Exec(t.Context(), sql, tenant, letters[0].Position)
		tablestest.Must(t, err)
	}
	done := make(chan int64, 1)
	go func() {
		n, err := s.DiscardDeadLetters(context.Background(), tenant, "mail", domain.EventID{})
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	db.WaitForLock(t)
	tablestest.Must(t, tx.Commit(t.Context()))
	if n := tablestest.Receive(t, done, "the discard"); n != 1 {
		t.Errorf("discarded %d", n)
	}
	if got := tablestest.StatusOf(t, s, tenant, "mail", 0); got.Parked != 0 {
		t.Errorf("counted are %+v", got)
	}
}

// While dead letters come, replays of all are asked for again and again: each call ends, and what is saved meanwhile is
// saved.
func TestReplaysDuringSaves(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	mail := tablestest.PutGroup(t, s, tenant, "mail", 0)
	done := make(chan struct{})
	replays := make(chan int64, 1)
	go func() {
		asked := int64(0)
		for more := true; more; {
			select {
			case <-done:
				more = false // the last round, after all others
			default:
			}
			n, err := s.ReplayDeadLetters(context.Background(), tenant, "mail", domain.EventID{})
			if asked += n; err != nil {
				t.Error(err)
			}
		}
		replays <- asked
	}()
	for at := int64(1); at <= 50; at++ {
		for saved := false; !saved; {
			row, err := s.Ledger(t.Context(), tenant, "mail", 0, true)
			tablestest.Must(t, err)
			_, saved, err = s.SaveLedger(t.Context(), tenant, "mail", group.LedgerChange{
				GroupRevision: mail.Revision, Revision: row.Revision, Park: []domain.DeadLetter{deadLetterAt(0, at)},
			})
			tablestest.Must(t, err)
		}
	}
	close(done)
	if asked := tablestest.Receive(t, replays, "the replays"); asked != 50 {
		t.Errorf("%d replays were asked for", asked)
	}
	if row := ledgerOf(t, s, tenant, "mail", 0); len(row.Replays) != 50 {
		t.Errorf("there are %d replays", len(row.Replays))
	}
	if got := tablestest.StatusOf(t, s, tenant, "mail", 0); got.Parked != 50 {
		t.Errorf("counted are %+v", got)
	}
}
