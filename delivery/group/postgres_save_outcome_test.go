package group_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// openThrough opens the tables through a network, as one process does.
func openThrough(t testing.TB, db pgtest.DB, network *pgtest.Network) *tables.Tables {
	t.Helper()
	return tablestest.OpenWith(t, db, func(c *tables.Config) {
		c.AppURL, c.SystemURL, c.MaxConns = network.URL(t, db, migrations.RoleApp), network.URL(t, db, migrations.RoleSystem), 8
	})
}

// nth is true the n-th time.
func nth(n int64) func() bool {
	var times atomic.Int64
	return func() bool { return times.Add(1) == n }
}

func TestLostConnectionAtSaveSavesOnce(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(string, func() bool) pgtest.Fault{"before": pgtest.BeforeCommit, "behind": pgtest.AfterCommit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			network := pgtest.NewNetwork(t, db)
			network.On(how("manifold_save_ledger", nth(2)))
			s := openThrough(t, db, network)
			tenant := domain.NewTenantID()
			mail := tablestest.PutGroup(t, s, tenant, "mail", 0)
			for i := range int64(4) {
				row := ledgerOf(t, s, tenant, "mail", 0)
				now, saved := save(t, s, tenant, mail, row.Revision, group.LedgerChange{
					Ledger: fmt.Append(nil, i), Retry: []group.Retry{retryAt(0, i+1)}, Park: []domain.DeadLetter{deadLetterAt(0, i+1)},
				})
				if !saved || now.IsZero() {
					t.Errorf("save %d: saved %v at %v", i, saved, now)
				}
				if row := ledgerOf(t, s, tenant, "mail", 0); string(row.Ledger) != fmt.Sprint(i) || int64(len(row.Retries)) != i+1 {
					t.Errorf("behind save %d it is %+v", i, row)
				}
			}
			if got := tablestest.StatusOf(t, s, tenant, "mail", 0); got.Retrying != 4 || got.Parked != 4 {
				t.Errorf("counted are %+v", got)
			}
		})
	}
}

// Two processes save concurrently while their connections keep breaking. An acknowledged save is stored, a refused one
// is not, and one with an unknown outcome is stored whole or not at all.
func TestLostConnectionsUnderLoadSaveOnce(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(string, func() bool) pgtest.Fault{"before": pgtest.BeforeCommit, "behind": pgtest.AfterCommit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			tenant := domain.NewTenantID()
			reader := tablestest.OpenAgain(t, db)
			mail := tablestest.PutGroup(t, reader, tenant, "mail", 0)
			var position atomic.Int64
			var mu sync.Mutex
			outcomes := make(map[int64]string)
			var wg sync.WaitGroup
			for range 2 {
				var commits atomic.Int64
				network := pgtest.NewNetwork(t, db)
				network.On(how("manifold_save_ledger", func() bool { return commits.Add(1)%5 == 0 }))
				s := openThrough(t, db, network)
				for range 3 {
					wg.Go(func() {
						for range 30 {
							row, err := s.Ledger(t.Context(), tenant, "mail", 0, true)
							if err != nil {
								t.Error(err)
								return
							}
							at := position.Add(1)
							_, saved, err := s.SaveLedger(t.Context(), tenant, "mail", group.LedgerChange{
								GroupRevision: mail.Revision, Revision: row.Revision, Ledger: fmt.Append(nil, at),
								Retry: []group.Retry{retryAt(0, at)}, Park: []domain.DeadLetter{deadLetterAt(0, at)},
							})
							if err != nil && tablestest.CodeOf(err) != domain.CodeOutcomeUnknown {
								t.Error(err)
							}
							mu.Lock()
							outcomes[at] = fmt.Sprint(saved, " ", tablestest.CodeOf(err))
							mu.Unlock()
						}
					})
				}
			}
			wg.Wait()
			retries, letters := make(map[int64]bool), make(map[int64]bool)
			row := ledgerOf(t, reader, tenant, "mail", 0)
			for _, r := range row.Retries {
				retries[r.Position] = true
			}
			parked, err := reader.DeadLetters(t.Context(), tenant, "mail", 0, 1000)
			tablestest.Must(t, err)
			for _, d := range parked {
				letters[d.Position] = true
			}
			counts := make(map[string]int)
			for at, outcome := range outcomes {
				counts[outcome]++
				if retries[at] != letters[at] || outcome == "true " && !retries[at] || outcome == "false " && retries[at] {
					t.Errorf("%d: the outcome was %q, the retry is there: %v, the dead letter: %v", at, outcome, retries[at], letters[at])
				}
			}
			if counts["true "] == 0 {
				t.Error("nothing was saved")
			}
			if got := tablestest.StatusOf(t, reader, tenant, "mail", 0); got.Retrying != int64(len(retries)) || got.Parked != int64(len(letters)) {
				t.Errorf("counted are %+v, there are %d and %d", got, len(retries), len(letters))
			}
			t.Logf("the outcomes: %v", counts)
		})
	}
}

// The connection is lost while the save is open, and the database gets the commit only later: who looks before that
// sees nothing.
func TestLostSaveIsWaitedFor(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	sent, written, goOn, first := make(chan struct{}), make(chan struct{}), make(chan struct{}), nth(1)
	network.On(pgtest.Fault{Statement: "manifold_save_ledger", Commit: func(s *pgtest.Statement) bool {
		if first() {
			close(sent)
			select {
			case <-written:
			case <-t.Context().Done():
			}
			s.HangUp()
			select {
			case <-goOn:
			case <-t.Context().Done():
			}
		}
		return true
	}})
	s := openThrough(t, db, network)
	tenant := domain.NewTenantID()
	mail := tablestest.PutGroup(t, s, tenant, "mail", 0)
	row := ledgerOf(t, s, tenant, "mail", 0)
	done := make(chan bool, 1)
	go func() {
		_, saved, err := s.SaveLedger(context.Background(), tenant, "mail", group.LedgerChange{GroupRevision: mail.Revision, Revision: row.Revision, Ledger: []byte("once")})
		if err != nil {
			t.Error(err)
		}
		done <- saved
	}()
	<-sent
	db.WaitForWrite(t) // otherwise the next attempt may have the lock first
	close(written)
	db.WaitForLock(t)
	close(goOn)
	if !tablestest.Receive(t, done, "the save") {
		t.Error("it was not saved")
	}
	if got := ledgerOf(t, s, tenant, "mail", 0); got.Revision != row.Revision+1 || string(got.Ledger) != "once" {
		t.Errorf("the ledger is %+v", got)
	}
}

// Others save after a save whose answer was lost. If one of them has reached the same revision, the lost save is known
// to have failed. After several of them, the outcome is unknown.
func TestLostSaveFollowedByOthers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		how    func(string, func() bool) pgtest.Fault
		others int
		want   domain.Code
		saved  bool
	}{
		{"nobody", pgtest.AfterCommit, 0, "", true},
		{"one came first", pgtest.BeforeCommit, 1, "", false},
		{"one behind it", pgtest.AfterCommit, 1, domain.CodeOutcomeUnknown, false},
		{"two came first", pgtest.BeforeCommit, 2, domain.CodeOutcomeUnknown, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			other := tablestest.OpenAgain(t, db)
			tenant := domain.NewTenantID()
			mail := tablestest.PutGroup(t, other, tenant, "mail", 0)
			network := pgtest.NewNetwork(t, db)
			first, release := nth(1), make(chan func(), 1)
			network.On(test.how("manifold_save_ledger", func() bool {
				if !first() {
					return false
				}
				release <- network.Hold()
				return true
			}))
			s := openThrough(t, db, network)
			row := ledgerOf(t, other, tenant, "mail", 0)
			type outcome struct {
				saved bool
				err   error
			}
			done := make(chan outcome, 1)
			go func() {
				_, saved, err := s.SaveLedger(context.Background(), tenant, "mail", group.LedgerChange{GroupRevision: mail.Revision, Revision: row.Revision, Ledger: []byte("mine")})
				done <- outcome{saved, err}
			}()
			reconnect := tablestest.Receive(t, release, "the cut")
			for range test.others {
				mustSave(t, other, tenant, mail, group.LedgerChange{Ledger: []byte("other")})
			}
			reconnect()
			got := tablestest.Receive(t, done, "the save")
			if tablestest.CodeOf(got.err) != test.want || got.saved != test.saved {
				t.Errorf("saved %v, %v", got.saved, got.err)
			}
			wantLedger := "mine"
			if test.others > 0 {
				wantLedger = "other"
			}
			if row := ledgerOf(t, other, tenant, "mail", 0); string(row.Ledger) != wantLedger {
				t.Errorf("the ledger is %q", row.Ledger)
			}
		})
	}
}

func TestUnknownOutcomeOfASaveIsReported(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	var armed atomic.Bool
	network.On(pgtest.AfterCommit("manifold_save_ledger", func() bool {
		if armed.Load() {
			network.Cut()
		}
		return armed.Load()
	}))
	s := openThrough(t, db, network)
	tenant := domain.NewTenantID()
	mail := tablestest.PutGroup(t, s, tenant, "mail", 0)
	row := mustSave(t, s, tenant, mail, group.LedgerChange{Ledger: []byte("first")})
	armed.Store(true)
	change := group.LedgerChange{GroupRevision: mail.Revision, Revision: row.Revision, Ledger: []byte("second")}
	_, saved, err := s.SaveLedger(t.Context(), tenant, "mail", change)
	tablestest.Problem(t, err, domain.CodeOutcomeUnknown)
	if saved {
		t.Error("it is said to be saved")
	}
	// There is no longer a connection, so nothing is sent: that is certain.
	_, _, err = s.SaveLedger(t.Context(), tenant, "mail", change)
	tablestest.Problem(t, err, domain.CodeUnavailable)
}
