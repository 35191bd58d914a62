package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// filler is a replay of a new build that fills it, as soon as some documents have changed.
func (b bench) filler(t *testing.T, driver drivers.Driver, tenant domain.TenantID, number int64, definition domain.Definition) *projection.Replay {
	t.Helper()
	fold, err := folding.Compile(folding.WithDefaults(definition))
	if err != nil {
		t.Fatal(err)
	}
	return &projection.Replay{
		Driver: driver, Build: domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: number, Database: "default"},
		Tenant: tenant, Fold: fold, Unread: true, Limits: projection.Limits{Events: 20, Bytes: 1 << 20, DocumentBytes: 10_000},
	}
}

// A worker continues a fill after the last document that it knows to be saved. If the documents' database no longer has
// that document, it begins again.
func TestAFillContinues(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const streams = 200
	b.appendMany(t, tenant, streams)
	b.appendMany(t, tenant, streams)
	want := fromScratch(t, tallied, b.log(t, tenant))
	for number, restored := range []bool{false, true} {
		var last domain.Fill
		fill := func() (*projection.Replay, *faulty, *tallying) {
			counting := &tallying{Driver: b.driver}
			driver := &faulty{Driver: counting}
			replay := b.filler(t, driver, tenant, int64(number+1), tallied)
			replay.Fill, replay.Filled = last, func(_ context.Context, fill domain.Fill) error { last = fill; return nil }
			return replay, driver, counting
		}
		replay, driver, counting := fill()
		saves := 0
		driver.rule(func(call string) verdict {
			if call == "save" {
				if saves++; saves > 10 {
					return failsBefore
				}
			}
			return works
		})
		if err := replay.Run(t.Context(), b.store, 2*streams); !errors.Is(err, errInjected) {
			t.Fatalf("%v", err)
		}
		saved := counting.written.Load()
		if last.To != 2*streams || last.Document == "" || last.Events < 2*saved || saved < 20 || saved > streams*3/4 {
			t.Fatalf("after ten saves the fill is %+v, and %d documents are saved", last, saved)
		}
		if restored {
			if err := b.driver.DropTenant(t.Context(), replay.Build, tenant); err != nil {
				t.Fatal(err)
			}
			saved = 0
		}
		replay, _, counting = fill()
		var counted int
		replay.Counted = func(events int) { counted += events }
		if err := replay.Run(t.Context(), b.store, 2*streams); err != nil {
			t.Fatal(err)
		}
		if n := counting.written.Load(); n != streams-saved {
			t.Errorf("restored %t: %d documents are written, want %d", restored, n, streams-saved)
		}
		if last.To != 2*streams || last.Events != 2*streams || replay.Position() != 2*streams || counted != 2*streams {
			t.Errorf("in the end the fill is %+v, the position %d, and %d events count", last, replay.Position(), counted)
		}
		mustEqual(t, stored(t, t, b, replay.Build, tenant), want)
	}
}

// A fill that meets an event that cannot be folded leaves it to the replay in the order of the log, which stops before
// the first such event of the log.
func TestAFillStopsBeforeTheLogsFirstFault(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.appendMany(t, tenant, 200)
	first := b.append(t, tenant, "x-7", "Wrong", `{}`)
	b.append(t, tenant, "x-50", "Wrong", `{}`) // comes first in the order of streams
	b.appendMany(t, tenant, 200)
	log := b.log(t, tenant)
	definition := tallied
	definition.On = map[string]string{"A": tallied.On["A"], "Wrong": "doc.missing"}
	var fills []domain.Fill
	replay := b.filler(t, b.driver, tenant, 1, definition)
	replay.Filled = func(_ context.Context, fill domain.Fill) error { fills = append(fills, fill); return nil }
	counted := 0
	replay.Counted = func(events int) { counted += events }
	err := replay.Run(t.Context(), b.store, int64(len(log)))
	fault, ok := errors.AsType[*folding.EventError](err)
	if !ok || fault.Event.Position != first || !strings.Contains(err.Error(), "missing") {
		t.Fatalf("the replay ends with %v", err)
	}
	if replay.Position() != first-1 || int64(counted) != first-1 {
		t.Errorf("it is at %d, and %d events count; the fault is at %d", replay.Position(), counted, first)
	}
	if len(fills) < 3 || fills[0] != (domain.Fill{To: int64(len(log))}) || fills[len(fills)-1] != (domain.Fill{To: int64(len(log)), Abandoned: true}) {
		t.Errorf("the fills were %+v", fills)
	}
}

// Few events among many of other types are folded in the order of the log, whose index finds them.
func TestFewEventsAmongManyAreNotFilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.appendMany(t, tenant, 300)
	for i := range 100 {
		b.append(t, tenant, "x-"+strings.Repeat("y", i+1), "Rare", `{"n": 1}`)
	}
	definition := tallied
	definition.On = map[string]string{"Rare": tallied.On["A"]}
	replay := b.filler(t, b.driver, tenant, 1, definition)
	replay.Filled = func(_ context.Context, fill domain.Fill) error { return fmt.Errorf("there is a fill: %+v", fill) }
	if err := replay.Run(t.Context(), b.store, 400); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, stored(t, t, b, replay.Build, tenant), fromScratch(t, definition, b.log(t, tenant)))
}

// Skipped events take no effect, even where a reading consists of nothing else and cuts their stream off.
func TestAFillSkipsEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.appendMany(t, tenant, 200)
	long := domain.StreamAppend{Stream: "x-5", Expected: domain.Any}
	for range 99 {
		long.Events = append(long.Events, domain.NewEvent{Type: "A", Data: json.RawMessage(`{"n": 1}`)})
	}
	appended, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{long}})
	if err != nil {
		t.Fatal(err)
	}
	b.appendMany(t, tenant, 200)
	from, to := appended.Position-80, appended.Position-20
	replay := b.filler(t, b.driver, tenant, 1, tallied)
	super := b.db.Pool(t, pgtest.RoleSuperuser, 1)
	_, err = super.Exec(t.Context(), `
		insert into manifold.skipped_events (tenant_id, owner, name, version, position, event_id, message, reason, by)
		select $1, $1, 'p', 1, position, gen_random_uuid(), '', '', '' from generate_series($2::bigint, $3::bigint) as position`, tenant.String(), from, to)
	if err != nil {
		t.Fatal(err)
	}
	replay.Registry, replay.Version = b.store.Registry, 1
	filled := false
	replay.Filled = func(_ context.Context, fill domain.Fill) error { filled = filled || fill.Document != ""; return nil }
	log := b.log(t, tenant)
	if err := replay.Run(t.Context(), b.store, int64(len(log))); err != nil {
		t.Fatal(err)
	}
	if !filled {
		t.Error("the build was not filled")
	}
	log = slices.DeleteFunc(log, func(e domain.Event) bool { return e.Position >= from && e.Position <= to })
	mustEqual(t, stored(t, t, b, replay.Build, tenant), fromScratch(t, tallied, log))
}

// Before a fill saves its first document, the position up to which all workers fill the build is stored: otherwise a
// late worker could bring a document back that a later event has removed.
func TestAFillSavesNothingBeforeItsPositionIsStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.appendMany(t, tenant, 200)
	driver := &tallying{Driver: b.driver}
	replay := b.filler(t, driver, tenant, 1, tallied)
	replay.Filled = func(context.Context, domain.Fill) error { return errInjected }
	if err := replay.Run(t.Context(), b.store, 200); !errors.Is(err, errInjected) || driver.saves.Load() > 0 {
		t.Errorf("%d saves, %v", driver.saves.Load(), err)
	}
}

// If the documents' database loses saves while a fill runs, as when it fails over, the fill begins again.
func TestAFillNoticesLostSaves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const streams = 200
	b.appendMany(t, tenant, streams)
	saves := 0
	driver := &faulty{Driver: b.driver}
	replay := b.filler(t, driver, tenant, 1, tallied)
	driver.rule(func(call string) verdict {
		if call == "save" {
			if saves++; saves == 5 {
				if err := b.driver.DropTenant(t.Context(), replay.Build, tenant); err != nil {
					t.Error(err)
				}
			}
		}
		return works
	})
	if err := replay.Run(t.Context(), b.store, streams); err != nil {
		t.Fatal(err)
	}
	if saves < 10 {
		t.Errorf("only %d saves", saves)
	}
	mustEqual(t, stored(t, t, b, replay.Build, tenant), fromScratch(t, tallied, b.log(t, tenant)))
}

// A driver of the contract before fills refuses their saves. The documents are then made in the order of the log.
func TestAFillThatTheDriverRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const streams = 200
	b.appendMany(t, tenant, streams)
	for number, refusal := range []error{drivers.ErrStale, domain.Errorf(domain.CodeInvalidRequest, "batch", "it stays at 0")} {
		replay := b.filler(t, earlier{b.driver, refusal}, tenant, int64(number+1), tallied)
		if err := replay.Run(t.Context(), b.store, streams); err != nil {
			t.Fatal(err)
		}
		mustEqual(t, stored(t, t, b, replay.Build, tenant), fromScratch(t, tallied, b.log(t, tenant)))
	}
}

// earlier is a driver that refuses repairs at checkpoint 0.
type earlier struct {
	drivers.Driver
	refusal error
}

func (e earlier) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if batch.To == 0 {
		return e.refusal
	}
	return e.Driver.Save(ctx, build, tenant, batch)
}

// A fill saves in parts, however many documents a reading has.
func TestAFillsSavesAreLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const streams = 400
	b.appendMany(t, tenant, streams)
	largest := 0
	driver := &faulty{Driver: b.driver, check: func(batch drivers.Batch) { largest = max(largest, len(batch.Upserts)) }}
	replay := b.filler(t, driver, tenant, 1, tallied)
	replay.Limits.Events = streams / 2
	replay.Limits.DocumentBytes = 40_000 // of some 400 bytes each while values are in memory
	if err := replay.Run(t.Context(), b.store, streams); err != nil {
		t.Fatal(err)
	}
	if largest == 0 || largest > streams/4 {
		t.Errorf("the largest save has %d documents", largest)
	}
	mustEqual(t, stored(t, t, b, replay.Build, tenant), fromScratch(t, tallied, b.log(t, tenant)))
}
