package registry_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// worker returns the name of a worker: a UUID.
func worker() string { return domain.NewRebuildID().String() }

func owners(t *testing.T, s *tables.Tables) map[string]domain.TenantID {
	return map[string]domain.TenantID{"shared": domain.Everyone, "own": tablestest.NewTenant(t, s)}
}

func TestProjectionNamesAreUniqueForTheirOwner(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	for _, owner := range owners(t, s) {
		const attempts = 8
		var won atomic.Int32
		var wg sync.WaitGroup
		for range attempts {
			wg.Go(func() {
				build, err := s.NextBuild(t.Context(), owner)
				if err == nil {
					err = s.CreateProjection(t.Context(), domain.Projection{ProjectionID: domain.ProjectionID{Owner: owner, Name: "same"}, Build: build}, "test")
				}
				switch {
				case err == nil:
					won.Add(1)
				case tablestest.CodeOf(err) != domain.CodeAlreadyExists:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d of %d attempts made the projection", won.Load(), attempts)
		}
	}
}

// A change of a projection succeeds although the database ends its first transaction because of a deadlock.
func TestAChangeOutlivesADeadlock(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	made, _ := tablestest.Projection(t, s, domain.ProjectionID{Owner: tablestest.NewTenant(t, s), Name: "orders"})
	other, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	tablestest.Must(t, err)
	defer other.Rollback(context.WithoutCancel(t.Context()))
	lock := func(table string) {
		t.Helper()
		_, err := other.Exec(t.Context(), "select from manifold."+table+" where tenant_id = $1 and name = $2 for update", made.Owner, made.Name)
		tablestest.Must(t, err)
	}
	_, err = other.Exec(t.Context(), "set local deadlock_timeout = '1min'") // the change is to find the deadlock
	tablestest.Must(t, err)
	lock("rebuilds")
	deleted := make(chan error, 1)
	go func() { deleted <- s.DeleteProjection(t.Context(), made.ProjectionID, time.Now(), "test") }()
	db.WaitForLock(t)
	lock("projections") // which the change has locked, until it ends
	tablestest.Must(t, other.Rollback(t.Context()))
	tablestest.Must(t, <-deleted)
}

func TestProjectionsBelongToTheirOwner(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	mine, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	for _, owner := range []domain.TenantID{mine, other, domain.Everyone} {
		made, _ := tablestest.Projection(t, s, domain.ProjectionID{Owner: owner, Name: "same"})
		if made.Revision != 1 || made.Definition.Initial == nil || made.Definition.Source.Categories[0] != "order" || made.UpdatedAt.IsZero() || made.HeldBy != "" {
			t.Fatalf("made %+v", made)
		}
	}
	tablestest.Must(t, reset(t, s, ended(t, s, domain.ProjectionID{Owner: other, Name: "same"}), 77))
	for owner, build := range map[domain.TenantID]int64{mine: 1, other: 77, domain.Everyone: 1} {
		list, err := s.Projections(t.Context(), owner)
		tablestest.Must(t, err)
		if len(list) != 1 || list[0].Owner != owner || list[0].Build != build {
			t.Errorf("%s has %+v", owner, list)
		}
	}
	tablestest.Must(t, s.DeleteProjection(t.Context(), domain.ProjectionID{Owner: mine, Name: "same"}, time.Now(), "test"))
	_, err := s.Projection(t.Context(), domain.ProjectionID{Owner: mine, Name: "same"})
	tablestest.WantCode(t, err, domain.CodeNotFound)
	all, err := s.AllProjections(t.Context(), time.Time{})
	tablestest.Must(t, err)
	if len(all) != 2 {
		t.Errorf("all are %+v", all)
	}
	since, err := s.AllProjections(t.Context(), all[0].UpdatedAt.Add(time.Hour))
	tablestest.Must(t, err)
	if len(since) != 0 {
		t.Errorf("changed in the future: %+v", since)
	}
}

// ended cancels the projection's running rebuild and returns the projection's id.
func ended(t *testing.T, s *tables.Tables, id domain.ProjectionID) domain.ProjectionID {
	t.Helper()
	rebuilds, err := s.Rebuilds(t.Context(), id)
	tablestest.Must(t, err)
	last := rebuilds[0]
	last.State = domain.RebuildCancelled
	tablestest.Must(t, s.EndRebuild(t.Context(), last, time.Now()))
	return id
}

func TestBuildNumbersAreUnique(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	owner := tablestest.NewTenant(t, s)
	const takers, each = 6, 10
	numbers := make([]int64, takers*each)
	var wg sync.WaitGroup
	for i := range takers {
		wg.Go(func() {
			for j := range each {
				var err error
				if numbers[i*each+j], err = s.NextBuild(t.Context(), owner); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(numbers)
	for i, number := range numbers {
		if number != int64(i+1) {
			t.Fatalf("the numbers taken are %v", numbers)
		}
	}
}

func TestOneRebuildAtATime(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	for name, owner := range owners(t, s) {
		t.Run(name, func(t *testing.T) {
			id := domain.ProjectionID{Owner: owner, Name: "same"}
			projection, first := tablestest.Projection(t, s, id)
			second := domain.Rebuild{ProjectionID: id, ID: domain.NewRebuildID(), Build: 50, Definition: projection.Definition}
			tablestest.WantCode(t, s.CreateRebuild(t.Context(), second), domain.CodeRebuildRunning)
			tablestest.WantCode(t, reset(t, s, id, 51), domain.CodeRebuildRunning)
			mine := tablestest.Claim(t, s, first)
			mine.State = domain.RebuildFailed
			mine.Error = "it did not work"
			tablestest.Must(t, s.EndRebuild(t.Context(), mine, time.Now()))
			tablestest.WantCode(t, s.EndRebuild(t.Context(), mine, time.Now()), domain.CodeConflict)
			tablestest.Must(t, s.CreateRebuild(t.Context(), second))
			list, err := s.Rebuilds(t.Context(), id)
			tablestest.Must(t, err)
			if len(list) != 2 || list[0].ID != second.ID || list[1].State != domain.RebuildFailed || list[1].Error != "it did not work" || list[1].EndedAt.IsZero() {
				t.Errorf("the rebuilds are %+v", list)
			}
			tablestest.WantCode(t, s.CreateRebuild(t.Context(), domain.Rebuild{ProjectionID: domain.ProjectionID{Owner: owner, Name: "none"}, ID: domain.NewRebuildID()}), domain.CodeNotFound)
		})
	}
	running, err := s.RunningRebuilds(t.Context())
	tablestest.Must(t, err)
	if len(running) != 2 {
		t.Errorf("running are %+v", running)
	}
}

func TestOneClaimWins(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	for _, owner := range owners(t, s) {
		_, rebuild := tablestest.Projection(t, s, domain.ProjectionID{Owner: owner, Name: "same"})
		// Twice: of a rebuild that nobody has, and of one whose worker counts as dead at once.
		for _, stale := range []time.Duration{time.Hour, time.Minute} {
			if stale == time.Minute {
				super := db.Pool(t, "postgres", 1)
				_, err := super.Exec(t.Context(), "update manifold.rebuilds set alive_at = now() - interval '2 minutes'")
				tablestest.Must(t, err)
			}
			var won atomic.Int32
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					me := worker()
					mine, ok, err := s.ClaimRebuild(t.Context(), rebuild.ProjectionID, rebuild.ID, me, stale)
					if err != nil {
						t.Error(err)
					}
					if ok {
						won.Add(1)
						if mine.Worker != me || mine.State != domain.RebuildBuilding || mine.StartedAt.IsZero() {
							t.Errorf("claimed %+v", mine)
						}
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				t.Errorf("%d claims won", won.Load())
			}
		}
	}
}

func TestAStaleWorkerChangesNothing(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	for name, owner := range owners(t, s) {
		t.Run(name, func(t *testing.T) {
			id := domain.ProjectionID{Owner: owner, Name: "same"}
			before, rebuild := tablestest.Projection(t, s, id)
			stale := tablestest.Claim(t, s, rebuild)
			tablestest.Must(t, s.HoldProjection(t.Context(), stale))
			fresh, ok, err := s.ClaimRebuild(t.Context(), id, rebuild.ID, worker(), -time.Second)
			tablestest.Must(t, err)
			if !ok {
				t.Fatal("a worker that counts as dead was not taken over")
			}
			_, err = s.SaveRebuild(t.Context(), stale)
			tablestest.WantCode(t, err, domain.CodeConflict)
			tablestest.WantCode(t, s.HoldProjection(t.Context(), stale), domain.CodeConflict)
			tablestest.WantCode(t, s.ReleaseProjection(t.Context(), stale), domain.CodeConflict)
			tablestest.WantCode(t, s.SwapProjection(t.Context(), stale, nil, time.Now()), domain.CodeConflict)
			ending := stale
			ending.State = domain.RebuildFailed
			tablestest.WantCode(t, s.EndRebuild(t.Context(), ending, time.Now()), domain.CodeConflict)
			tablestest.Must(t, s.ReleaseRebuild(t.Context(), stale))
			after, err := s.Projection(t.Context(), id)
			tablestest.Must(t, err)
			if after.Build != before.Build || after.HeldBy != rebuild.ID.String() {
				t.Errorf("the projection is %+v", after)
			}
			if _, err := s.SaveRebuild(t.Context(), fresh); err != nil {
				t.Errorf("the worker that took over: %v", err)
			}
			tablestest.Must(t, s.SwapProjection(t.Context(), fresh, nil, time.Now()))
			tablestest.WantCode(t, s.SwapProjection(t.Context(), fresh, nil, time.Now()), domain.CodeConflict)
		})
	}
}

func TestSwapIsOneStep(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	for _, owner := range []domain.TenantID{domain.Everyone, tenant} {
		id := domain.ProjectionID{Owner: owner, Name: "same"}
		before, rebuild := tablestest.Projection(t, s, id)
		fault := domain.Fault{ProjectionID: id, Tenant: tenant, Build: before.Build, Position: 4, EventID: domain.NewEventID(), Failure: domain.Failure{Message: "no"}}
		tablestest.PutFault(t, s, fault)
		mine := tablestest.Claim(t, s, rebuild)

		// Not held: nothing of the swap happens, the rebuild's end included.
		tablestest.WantCode(t, s.SwapProjection(t.Context(), mine, nil, time.Now()), domain.CodeConflict)
		if got, err := s.Rebuild(t.Context(), id, rebuild.ID); err != nil || got.State != domain.RebuildValidating {
			t.Fatalf("after a swap that failed the rebuild is %+v, %v", got, err)
		}
		tablestest.Must(t, s.HoldProjection(t.Context(), mine))
		tablestest.Must(t, s.ReleaseProjection(t.Context(), mine))
		tablestest.WantCode(t, s.SwapProjection(t.Context(), mine, nil, time.Now()), domain.CodeConflict)
		tablestest.Must(t, s.HoldProjection(t.Context(), mine))
		tablestest.Must(t, s.HoldProjection(t.Context(), mine))

		// A reader sees the old build with the old definition or the new one with the new.
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				got, err := s.Projection(t.Context(), id)
				if err != nil {
					t.Error(err)
					return
				}
				old := got.Build == before.Build && got.Definition.On["*"] == "doc" && got.HeldBy != ""
				fresh := got.Build == rebuild.Build && got.Definition.On["*"] == rebuild.Definition.On["*"] && got.HeldBy == ""
				if !old && !fresh {
					t.Errorf("a reader saw %+v", got)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		mine.Documents, mine.LiveBefore, mine.EventsDone, mine.EventsTotal = 3, 2, 10, 10
		dropAt := time.Now().Add(-time.Minute)
		err := s.SwapProjection(t.Context(), mine, nil, dropAt)
		close(stop)
		wg.Wait()
		tablestest.Must(t, err)

		swapped, err := s.Rebuild(t.Context(), id, rebuild.ID)
		tablestest.Must(t, err)
		if swapped.State != domain.RebuildSwapped || swapped.EndedAt.IsZero() || swapped.Documents != 3 || swapped.LiveBefore != 2 || swapped.EventsDone != 10 || swapped.Worker != "" {
			t.Errorf("the rebuild is %+v", swapped)
		}
		retired, err := s.RetiredBuilds(t.Context(), time.Now())
		tablestest.Must(t, err)
		if len(retired) != 1 || retired[0].Number != before.Build || retired[0].Database != "default" || retired[0].ProjectionID != id {
			t.Fatalf("retired are %+v", retired)
		}
		if none, err := s.RetiredBuilds(t.Context(), dropAt.Add(-time.Minute)); err != nil || len(none) != 0 {
			t.Errorf("to drop before their time: %+v, %v", none, err)
		}
		builds, err := s.Builds(t.Context(), owner)
		tablestest.Must(t, err)
		if len(builds) != 2 {
			t.Errorf("builds with documents: %+v", builds)
		}
		tablestest.Must(t, s.ForgetBuild(t.Context(), retired[0].Build))
		tablestest.Must(t, s.ForgetBuild(t.Context(), retired[0].Build))
		if _, there, err := s.Fault(t.Context(), tenant, id, before.Build); err != nil || there {
			t.Errorf("the old build's fault is there: %v, %v", there, err)
		}
		if builds, err = s.Builds(t.Context(), owner); err != nil || len(builds) != 1 || builds[0].Number != rebuild.Build {
			t.Errorf("builds with documents: %+v, %v", builds, err)
		}
	}
}

func TestCancelledRebuildDoesNotSwap(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	id := domain.ProjectionID{Owner: tablestest.NewTenant(t, s), Name: "same"}
	before, rebuild := tablestest.Projection(t, s, id)
	mine := tablestest.Claim(t, s, rebuild)
	tablestest.Must(t, s.HoldProjection(t.Context(), mine))
	tablestest.Must(t, s.CancelRebuild(t.Context(), id, rebuild.ID))
	tablestest.WantCode(t, s.SwapProjection(t.Context(), mine, nil, time.Now()), domain.CodeConflict)
	saved, err := s.SaveRebuild(t.Context(), mine)
	tablestest.Must(t, err)
	if !saved.Cancel {
		t.Fatal("the worker was not notified")
	}
	mine.State = domain.RebuildCancelled
	tablestest.Must(t, s.EndRebuild(t.Context(), mine, time.Now()))
	after, err := s.Projection(t.Context(), id)
	tablestest.Must(t, err)
	if after.Build != before.Build || after.HeldBy != "" {
		t.Errorf("the projection is %+v", after)
	}
	retired, err := s.RetiredBuilds(t.Context(), time.Now().Add(time.Minute))
	tablestest.Must(t, err)
	if len(retired) != 1 || retired[0].Number != rebuild.Build {
		t.Errorf("retired are %+v", retired)
	}
	tablestest.WantCode(t, s.CancelRebuild(t.Context(), id, rebuild.ID), domain.CodeConflict)
	tablestest.WantCode(t, s.CancelRebuild(t.Context(), id, domain.NewRebuildID()), domain.CodeNotFound)
	if _, ok, err := s.ClaimRebuild(t.Context(), id, rebuild.ID, worker(), -time.Second); err != nil || ok {
		t.Errorf("an ended rebuild was claimed: %v, %v", ok, err)
	}
}

func TestDeletingAProjectionEndsItsRebuild(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	for name, owner := range owners(t, s) {
		t.Run(name, func(t *testing.T) {
			id := domain.ProjectionID{Owner: owner, Name: "same"}
			_, rebuild := tablestest.Projection(t, s, id)
			mine := tablestest.Claim(t, s, rebuild)
			tablestest.Must(t, s.HoldProjection(t.Context(), mine))
			tablestest.Must(t, s.DeleteProjection(t.Context(), id, time.Now(), "test"))
			tablestest.WantCode(t, s.DeleteProjection(t.Context(), id, time.Now(), "test"), domain.CodeNotFound)
			_, err := s.SaveRebuild(t.Context(), mine)
			tablestest.WantCode(t, err, domain.CodeConflict)
			tablestest.WantCode(t, s.SwapProjection(t.Context(), mine, nil, time.Now()), domain.CodeNotFound)
			builds, err := s.Builds(t.Context(), owner)
			tablestest.Must(t, err)
			if len(builds) != 2 {
				t.Errorf("still to be dropped: %+v", builds)
			}
			got, err := s.Rebuild(t.Context(), id, rebuild.ID)
			tablestest.Must(t, err)
			if got.State != domain.RebuildCancelled {
				t.Errorf("the rebuild is %+v", got)
			}
			// The name is free, and the numbers continue.
			again, _ := tablestest.Projection(t, s, id)
			if again.Build <= rebuild.Build {
				t.Errorf("build %d was used before", again.Build)
			}
		})
	}
}

func TestFaultsBelongToTheirTenant(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	shared := domain.ProjectionID{Owner: domain.Everyone, Name: "same"}
	tenants := []domain.TenantID{tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)}
	for i, tenant := range tenants {
		for _, id := range []domain.ProjectionID{shared, {Owner: tenant, Name: "same"}} {
			fault := domain.Fault{ProjectionID: id, Tenant: tenant, Build: 1, Position: int64(i), EventID: domain.NewEventID(), Failure: domain.Failure{Message: "first"}}
			tablestest.PutFault(t, s, fault)
			fault.Message = id.Owner.String()
			tablestest.PutFault(t, s, fault)
			got, ok, err := s.Fault(t.Context(), tenant, id, 1)
			tablestest.Must(t, err)
			if !ok || got.Position != int64(i) || got.Message != id.Owner.String() || got.EventID != fault.EventID || got.At.IsZero() {
				t.Errorf("got %+v, %v", got, ok)
			}
			if _, ok, err := s.Fault(t.Context(), tenant, id, 2); err != nil || ok {
				t.Errorf("another build's fault: %v, %v", ok, err)
			}
		}
	}
	all, err := s.Faults(t.Context(), shared, 1)
	tablestest.Must(t, err)
	own, err := s.Faults(t.Context(), domain.ProjectionID{Owner: tenants[0], Name: "same"}, 1)
	tablestest.Must(t, err)
	if len(all) != 2 || len(own) != 1 {
		t.Errorf("faults: %+v and %+v", all, own)
	}
	tablestest.Must(t, s.DeleteFault(t.Context(), tenants[0], shared, 1))
	if all, err = s.Faults(t.Context(), shared, 1); err != nil || len(all) != 1 || all[0].Tenant != tenants[1] {
		t.Errorf("faults: %+v, %v", all, err)
	}
	tablestest.Must(t, s.DeleteFaults(t.Context(), shared, 1))
	if all, err = s.Faults(t.Context(), shared, 1); err != nil || len(all) != 0 {
		t.Errorf("faults: %+v, %v", all, err)
	}
	if _, ok, err := s.Fault(t.Context(), tenants[0], domain.ProjectionID{Owner: tenants[0], Name: "same"}, 1); err != nil || !ok {
		t.Errorf("the tenant's own projection has lost its fault: %v, %v", ok, err)
	}
}

func TestProjectionChangesReachEveryProcess(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	far := tablestest.OpenAgain(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan struct{}, 1000)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := far.ListenProjections(ctx, func() { heard <- struct{}{} }); err != nil {
			t.Error(err)
		}
	})
	tablestest.Receive(t, heard, "the first call")
	id := domain.ProjectionID{Owner: tablestest.NewTenant(t, s), Name: "same"}
	_, rebuild := tablestest.Projection(t, s, id)
	tablestest.Receive(t, heard, "a new projection")
	tablestest.Receive(t, heard, "a new rebuild")
	tablestest.Must(t, s.CancelRebuild(t.Context(), id, rebuild.ID))
	tablestest.Receive(t, heard, "a cancelled rebuild")
	cancel()
	wg.Wait()
}

// However creating, claiming, holding, swapping, cancelling, ending, resetting and deleting interleave, every build
// number ends up in one place, and nothing blocks forever.
func TestConcurrentChangesOfAProjection(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	owner := tablestest.NewTenant(t, s)
	id := domain.ProjectionID{Owner: owner, Name: "same"}
	definition := domain.Definition{Name: id.Name, Database: "default", On: map[string]string{"*": "doc"}}
	expected := map[domain.Code]bool{
		"": true, domain.CodeAlreadyExists: true, domain.CodeNotFound: true, domain.CodeRebuildRunning: true, domain.CodeConflict: true,
		domain.CodeUnavailable: true, // a reset that was taken for dead
	}
	var taken, swapped atomic.Int64
	check := func(what string, err error) bool {
		if err != nil && (tablestest.CodeOf(err) == "" || !expected[tablestest.CodeOf(err)]) {
			t.Errorf("%s: %v", what, err)
		}
		return err == nil
	}
	build := func() int64 {
		number, err := s.NextBuild(t.Context(), owner)
		check("take a number", err)
		return number
	}
	var wg sync.WaitGroup
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		wg.Go(func() {
			for range 80 {
				switch random.IntN(10) {
				case 0, 1:
					if check("create", s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: definition, Build: build()}, "test")) {
						taken.Add(1)
					}
				case 2, 3:
					if check("rebuild", s.CreateRebuild(t.Context(), domain.Rebuild{ProjectionID: id, ID: domain.NewRebuildID(), Build: build(), Definition: definition})) {
						taken.Add(1)
					}
				case 4:
					if random.IntN(3) == 0 {
						check("delete", s.DeleteProjection(t.Context(), id, time.Now(), "test"))
					} else {
						made := domain.Build{ProjectionID: id, Number: build(), Database: "default"}
						if check("begin a reset", s.BeginReset(t.Context(), made, definition, "test")) {
							taken.Add(1) // also where somebody takes it for dead
							check("reset", s.ResetProjection(t.Context(), id, made.Number, time.Now()))
						}
					}
				default:
					running, err := s.RunningRebuilds(t.Context())
					check("list", err)
					if len(running) > 1 {
						t.Errorf("%d rebuilds of one projection are running", len(running))
					}
					if len(running) == 0 {
						continue
					}
					if random.IntN(60) == 0 {
						check("cancel", s.CancelRebuild(t.Context(), id, running[0].ID))
						continue
					}
					stale := time.Hour
					if random.IntN(40) == 0 {
						stale = 0 // takes it from its current worker
					}
					mine, ok, err := s.ClaimRebuild(t.Context(), id, running[0].ID, worker(), stale)
					if !check("claim", err) || !ok {
						continue
					}
					mine.State = domain.RebuildValidating
					saved, err := s.SaveRebuild(t.Context(), mine)
					check("save", err)
					check("hold", s.HoldProjection(t.Context(), mine))
					if !saved.Cancel && random.IntN(3) > 0 && check("swap", s.SwapProjection(t.Context(), mine, nil, time.Now())) {
						swapped.Add(1)
						continue
					}
					mine.State = domain.RebuildCancelled
					check("end", s.EndRebuild(t.Context(), mine, time.Now()))
				}
			}
		})
	}
	wg.Wait()
	if swapped.Load() == 0 {
		t.Error("nothing was swapped: the test shows nothing")
	}
	builds, err := s.Builds(t.Context(), owner)
	tablestest.Must(t, err)
	if int64(len(builds)) != taken.Load() {
		t.Errorf("%d builds were made, and there are %d", taken.Load(), len(builds))
	}
	var wrong int
	tablestest.Must(t, db.Pool(t, "postgres", 1).QueryRow(t.Context(), `
		select count(*) from manifold.projections p
		where p.held_by is not null and not exists (select from manifold.rebuilds r where r.rebuild_id = p.held_by
			and r.state in ('queued', 'building', 'catching-up', 'validating'))
		or exists (select from manifold.retired_builds b where b.tenant_id = p.tenant_id and b.build = p.build)
		or exists (select from manifold.retired_builds b join manifold.rebuilds r on r.tenant_id = b.tenant_id and r.build = b.build
			where r.state in ('queued', 'building', 'catching-up', 'validating'))`).Scan(&wrong))
	if wrong != 0 {
		t.Error("a projection is held by a rebuild that has ended, or a build that is in use is retired")
	}
}

func TestReleasedRebuildCanBeClaimed(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	id := domain.ProjectionID{Owner: tablestest.NewTenant(t, s), Name: "same"}
	_, rebuild := tablestest.Projection(t, s, id)
	mine := tablestest.Claim(t, s, rebuild)
	tablestest.Must(t, s.HoldProjection(t.Context(), mine))
	tablestest.Must(t, s.ReleaseRebuild(t.Context(), mine))
	nobody := mine
	nobody.Worker = ""
	for _, stale := range []domain.Rebuild{mine, nobody} {
		tablestest.WantCode(t, s.SwapProjection(t.Context(), stale, nil, time.Now()), domain.CodeConflict)
		_, err := s.SaveRebuild(t.Context(), stale)
		tablestest.WantCode(t, err, domain.CodeConflict)
	}
	next, ok, err := s.ClaimRebuild(t.Context(), id, rebuild.ID, worker(), time.Hour)
	tablestest.Must(t, err)
	if !ok || next.State != domain.RebuildValidating {
		t.Fatalf("claimed %+v, %v", next, ok)
	}
	tablestest.Must(t, s.SwapProjection(t.Context(), next, nil, time.Now()))
}

// A change that was under way during one list is returned by the next.
func TestLateChangesAreListed(t *testing.T) {
	pgtest.NotOnCluster(t, "an open change of a projection keeps all others waiting")
	t.Parallel()
	s, db := tablestest.Open(t)
	owner := tablestest.NewTenant(t, s)
	late, _ := tablestest.Projection(t, s, domain.ProjectionID{Owner: owner, Name: "late"})
	tx, err := db.Pool(t, "postgres", 1).Begin(t.Context())
	tablestest.Must(t, err)
	defer tx.Rollback(t.Context()) // a transaction that is left open would keep its pool from closing
	_, err = tx.Exec(t.Context(), "update manifold.projections set updated_at = now(), revision = 9 where name = 'late'")
	tablestest.Must(t, err)
	tablestest.Projection(t, s, domain.ProjectionID{Owner: owner, Name: "early"})
	seen, err := s.AllProjections(t.Context(), late.UpdatedAt)
	tablestest.Must(t, err)
	newest := time.Time{}
	for _, p := range seen {
		if p.UpdatedAt.After(newest) {
			newest = p.UpdatedAt
		}
	}
	tablestest.Must(t, tx.Commit(t.Context()))
	again, err := s.AllProjections(t.Context(), newest)
	tablestest.Must(t, err)
	if !slices.ContainsFunc(again, func(p domain.Projection) bool { return p.Name == "late" && p.Revision == 9 }) {
		t.Errorf("listed after %s: %+v", newest, again)
	}
	super := db.Pool(t, "postgres", 1)
	_, err = super.Exec(t.Context(), "update manifold.projections set updated_at = (updated_at at time zone 'utc' - interval '1 hour') at time zone 'utc'")
	tablestest.Must(t, err)
	if again, err = s.AllProjections(t.Context(), newest.Add(-time.Hour)); err != nil || len(again) != 0 {
		t.Errorf("an old change is listed again: %+v, %v", again, err)
	}
}
