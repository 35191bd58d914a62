package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// The engine's model test draws projections at random. Tenants' clients append, and other tenants are created and
// deleted. Rebuilds of all kinds are started, held, paused, cancelled and rolled back, until a number of them has
// ended.
//
// One tenant has events that cannot be folded, and skips and discards them. This must not delay any other tenant.
// Meanwhile readers page through the documents, and must never see documents of two editions together. In the end the
// documents must equal those of a fold from scratch.

func TestEngine(t *testing.T) {
	t.Parallel()
	r := chance(t)
	c := configuration(pgtest.Database(t))
	engineModel(t, inside(t, c), r, engineOptions{modes: []string{"async", "inline", "live"}, places: []string{"default"}, deeds: 4}, nil)
}

// Documents in a database without transactions, and moved there and back.
func TestEngineWithoutTransactions(t *testing.T) {
	t.Parallel()
	r := chance(t)
	c := configuration(pgtest.Database(t))
	c.Databases = map[string]config.DocumentsDatabase{"elsewhere": otherDatabases[ferretDB](t)}
	// Only private projections: FerretDB 1.24 hangs permanently if collections are created and dropped during many
	// writes.
	engineModel(t, inside(t, c), r, engineOptions{modes: []string{"async"}, places: []string{"elsewhere", "default"}, own: true, deeds: 2}, nil)
}

// Two processes share the work; one or the other is killed again and again.
func TestEngineKilled(t *testing.T) {
	t.Parallel()
	r := chance(t)
	db := pgtest.Database(t)
	both := serveTwo(t, db)
	engineModel(t, both, r, engineOptions{modes: []string{"async", "inline", "live"}, places: []string{"default"}, deeds: 2}, func() {
		one := both[r.IntN(2)]
		one.kill()
		one.start()
	})
}

// The test kills PostgreSQL itself, which has the log and the documents.
func TestEngineDatabaseKilled(t *testing.T) {
	t.Parallel()
	r := chance(t)
	server := pgtest.Private(t, pgtest.Options{})
	s := serve(t, pgtest.Migrated(t, server))
	engineModel(t, services{s}, r, engineOptions{modes: []string{"async", "inline", "live"}, places: []string{"default"}, deeds: 1}, func() {
		server.Kill()
		if err := server.Restart(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

type engineOptions struct {
	modes  []string
	places []string // databases that documents are in; with several, changes of the definition move them
	own    bool     // no shared projections
	deeds  int      // things done to each projection
}

// subject is a projection of the model.
type subject struct {
	engineOptions
	rule
	*target        // by, name, tenants
	last    int64  // the edition that was put last
	was     string // the rule, for people
	shared  bool
	trouble *troubled // nil: there is none
	chance  *rand.Rand
	ended   map[string]int // rebuilds, by state
}

func engineModel(t *testing.T, at site, r *rand.Rand, o engineOptions, kill func()) {
	w := &workload{t: t, operator: newUser(t, at, operatorKey), rest: 50 * time.Millisecond}
	w.quit, w.end = context.WithCancel(t.Context())
	w.calm.Store(true) // the test is about the engine, not about its load limits
	t.Cleanup(func() {
		w.end()
		w.all.Wait()
	})
	for _, name := range []string{"acme", "umbrella"} {
		_, u := newTenant(t, w.operator, name)
		p := &tenantLoad{user: u, name: name, history: newHistory()}
		w.tenants = append(w.tenants, p)
		p.fill(t)
	}
	var trouble *troubled
	if !o.own {
		id, u := newTenant(t, w.operator, "troubled")
		trouble = &troubled{u, id, rand.New(rand.NewPCG(r.Uint64(), 0))}
	}
	var subjects []*subject
	for n := range 4 {
		drawn := drawRule(r, o.modes...)
		if n == 3 { // parked documents among several of an event, in every run
			drawn.maps, drawn.spreads, drawn.parks, drawn.mode = false, true, true, "async"
		}
		s := &subject{engineOptions: o, rule: drawn, shared: n%2 == 0 && !o.own, chance: rand.New(rand.NewPCG(r.Uint64(), 0)), ended: make(map[string]int), trouble: trouble}
		s.target, s.was = &target{by: w.operator, name: fmt.Sprint("subject-", n), tenants: w.tenants}, s.rule.String()
		if !s.shared {
			p := w.tenants[r.IntN(len(w.tenants))]
			s.by, s.tenants = p.user, []*tenantLoad{p}
		}
		t.Logf("%s: %s", s.name, s.rule)
		s.by.must(t, 201, nil, "PUT", "/v1/projections/"+s.name, s.next())
		for _, p := range s.tenants {
			if _, err := p.documents(t.Context(), s.name, 1000, p.filled); err != nil {
				t.Fatal(err)
			}
		}
		subjects = append(subjects, s)
	}
	w.load(2, r.Uint64())
	var left atomic.Int64 // subjects that deeds are done to
	done := make(chan struct{})
	for _, s := range subjects {
		left.Add(1)
		w.run(func() error {
			for range s.deeds {
				err := s.deed(t.Context(), w.quit)
				if err == nil {
					err = s.settle(t.Context())
				}
				if err != nil {
					return fmt.Errorf("%s (%s): %w", s.name, s.rule, err)
				}
			}
			if left.Add(-1) == 0 {
				close(done)
			}
			return nil
		})
		for _, p := range s.tenants {
			w.run(func() error { return s.walk(t.Context(), w.quit, p) })
		}
	}
	w.run(func() error { return w.comeAndGo(t.Context(), subjects) })
	if trouble != nil {
		w.run(func() error { return trouble.trouble(t.Context(), w.quit, subjects) })
	}
	// Every five kills, the number of appends between two kills doubles, up to sixteen times. A rebuild saves its
	// progress every second, and on a busy machine the database would never run for so long.
	kills := 0
	for working := true; working; {
		select {
		case <-done:
			working = false
		case <-w.quit.Done(): // something failed
			working = false
		default:
			if kill == nil {
				select {
				case <-done:
				case <-w.quit.Done():
				}
				continue
			}
			w.await(r.IntN(len(w.tenants)), (5+r.IntN(40))<<min(kills/5, 4))
			if w.quit.Err() == nil {
				kill()
				kills++
			}
		}
	}
	if kill != nil {
		t.Logf("%d kills", kills)
	}
	w.finish() // the log against what was acknowledged
	if t.Failed() {
		return
	}
	for _, p := range w.tenants {
		log, err := p.log(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range subjects {
			for _, has := range s.tenants {
				if has == p {
					s.holdAgainst(t, p, log)
				}
			}
		}
	}
	for _, s := range subjects {
		t.Logf("%s: edition %d, rebuilds %v", s.name, s.edition, s.ended)
	}
}

// next is the definition's next edition.
func (s *subject) next() map[string]any {
	s.last++
	database := "default"
	if s.mode == "async" {
		database = s.places[int(s.last)%len(s.places)]
	}
	return s.rule.definition(s.name, database, s.last)
}

// settle finds the projection's current edition, since the latest definition may have been cancelled or rolled back.
func (s *subject) settle(ctx context.Context) error {
	a, err := s.by.call(ctx, 0, "GET", "/v1/projections/"+s.name, nil)
	if err != nil {
		return err
	}
	var now client.Projection
	if err := a.decode(http.StatusOK, &now); err != nil {
		return err
	}
	if s.mode = now.Definition.Mode; s.mode == "" {
		s.mode = "async"
	}
	s.edition, err = editionOf(now.Definition)
	return err
}

// holdAgainst compares a tenant's documents with a fold from scratch, in the edition that the service reports as
// current.
func (s *subject) holdAgainst(t *testing.T, p *tenantLoad, log []client.Event) {
	t.Helper()
	if err := s.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	documents, err := p.documents(t.Context(), s.name, 1000, int64(len(log)))
	if err != nil {
		t.Errorf("%s, %s: %v", p.name, s.name, err)
		return
	}
	got, err := readMade(documents)
	if err != nil {
		t.Errorf("%s, %s: %v", p.name, s.name, err)
		return
	}
	compareMade(t, fmt.Sprintf("%s, %s (%s), edition %d", p.name, s.name, s.rule, s.edition), got, s.fold(t, log, s.edition))
}

// walk repeatedly reads a tenant's documents page by page. The documents of one walk must be of one edition. If
// another build goes live, the answer says so, and the walk starts again.
func (s *subject) walk(ctx, quit context.Context, p *tenantLoad) error {
	for quit.Err() == nil {
		pauseBriefly(quit)
		path, edition, pages := "/v1/projections/"+s.name+"/documents?pageSize=7", 0.0, 0
		for path != "" && pages < 20 && quit.Err() == nil {
			a, err := p.call(ctx, 0, "GET", path, nil)
			if err != nil {
				return err
			}
			if a.status == http.StatusGone && pages > 0 || a.code() == "too-costly" {
				break // another build, or a machine with so much else to do that a page has taken 10 s
			}
			var page client.DocumentList
			if err := a.decode(http.StatusOK, &page); err != nil {
				return fmt.Errorf("%s, %s: %w", p.name, path, err)
			}
			documents, err := readMade(page.Documents)
			if err != nil {
				return err
			}
			for id, document := range documents {
				now, _ := document.Document["edition"].(float64)
				if edition != 0 && now != edition {
					return fmt.Errorf("%s, %s (%s): beside documents of edition %v there is %s of edition %v", p.name, s.name, s.was, edition, id, now)
				}
				edition = now
			}
			path = a.next()
			pages++
		}
	}
	return nil
}

// deed does something to the projection, and waits until it ends.
func (s *subject) deed(ctx, quit context.Context) error {
	path := "/v1/projections/" + s.name
	deed := s.chance.IntN(10)
	switch {
	case s.mode == "live" || deed < 4:
		if s.chance.IntN(3) == 0 && !s.parks {
			s.mode = s.modes[s.chance.IntN(len(s.modes))]
		}
		return s.through(ctx, quit, "PUT", path, s.next(), false)
	case deed < 6:
		return s.rollback(ctx, quit)
	}
	body := map[string]any{}
	if s.chance.IntN(3) == 0 {
		body["maxEventsPerSecond"] = 20_000
	}
	switch s.chance.IntN(4) {
	case 0:
		body["dryRun"] = true
	case 1:
		body["approve"] = "manual"
	case 2:
		if s.shared {
			p := s.tenants[s.chance.IntN(len(s.tenants))]
			var list client.TenantList
			a, err := s.by.call(ctx, 0, "GET", "/v1/tenants?pageSize=1000", nil)
			if err == nil {
				err = a.decode(http.StatusOK, &list)
			}
			if err != nil {
				return err
			}
			for _, tenant := range list.Tenants {
				if tenant.Name == p.name {
					body["tenants"] = []string{tenant.Id}
				}
			}
		}
	}
	return s.through(ctx, quit, "POST", path+"/rebuilds", body, true)
}

// through starts a rebuild, and follows it to its end, whatever that is. With the same definition it must find no
// difference.
func (s *subject) through(ctx, quit context.Context, method, path string, body any, same bool) error {
	a, err := s.by.call(ctx, 0, method, path, body)
	if err != nil {
		return err
	}
	var r client.Rebuild
	switch {
	case a.status == http.StatusAccepted:
		if err := json.Unmarshal(a.body, &r); err != nil {
			return err
		}
	case a.status == http.StatusOK:
		return nil // nothing to rebuild
	case a.status == http.StatusConflict && a.code() == "rebuild-running":
		// The answer was lost, and the request came twice: it is the newest.
		if r, err = s.newest(ctx); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s %s: %s", method, path, a)
	}
	return s.see(ctx, quit, r, same)
}

// see gives a rebuild random orders until it ends.
func (s *subject) see(ctx, quit context.Context, r client.Rebuild, same bool) error {
	cancelled := false
	order := func(verb string) error {
		a, err := s.by.call(ctx, 0, "POST", "/v1/projections/"+s.name+"/rebuilds/"+r.Id+"/"+verb, nil)
		if err == nil && a.status != http.StatusAccepted && a.status != http.StatusConflict { // it may have ended
			err = fmt.Errorf("%s: %s", verb, a)
		}
		return err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it does not end"))
	defer cancel()
	for r.EndedAt == nil {
		paused, waits := r.Paused, r.State == "awaiting-approval"
		var err error
		switch chance := s.chance.IntN(40); {
		case quit.Err() != nil && !cancelled, chance == 0:
			cancelled = true
			err = order("cancel")
		case paused:
			err = order("resume")
		case chance < 3:
			err = order("pause")
		case waits && chance < 20:
			err = order("approve")
		}
		if err != nil {
			return err
		}
		a, err := s.by.call(waiting, 0, "GET", "/v1/projections/"+s.name+"/rebuilds/"+r.Id, nil)
		if err == nil {
			err = a.decode(http.StatusOK, &r)
		}
		if err != nil {
			return fmt.Errorf("%w; at last it was %+v", err, r)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-waiting.Done():
			return fmt.Errorf("%w: %+v", context.Cause(waiting), r)
		}
	}
	s.ended[r.State]++
	switch r.State {
	case "swapped", "reported":
	case "cancelled":
		if !cancelled {
			return fmt.Errorf("nobody has cancelled it: %+v", r)
		}
	default:
		// A document that only the new build must park does not permit a swap; the live build may lag for a moment.
		// In a shared projection this affects one tenant.
		if s.shared || !s.parks || !strings.Contains(r.Error, "park") {
			return fmt.Errorf("it ended so: %+v", r)
		}
	}
	if r.FaultedTenants != nil {
		s.ended["with a tenant left behind"]++
		for _, fault := range r.FaultedTenants.First {
			if fault.Tenant != s.trouble.id {
				return fmt.Errorf("it leaves a tenant behind whose events can be folded: %+v", fault)
			}
		}
	}
	if d := r.Difference; same && d != nil && !s.parks && d.New+d.Gone+d.Changed > 0 {
		return fmt.Errorf("by the same definition there are differences: %+v", *d)
	}
	return nil
}

// rollback reverts the last rebuild that was swapped in, if that is possible.
func (s *subject) rollback(ctx, quit context.Context) error {
	rebuilds, err := s.list(ctx)
	if err != nil {
		return err
	}
	for _, r := range rebuilds {
		if r.State != "swapped" {
			continue
		}
		a, err := s.by.call(ctx, 0, "POST", "/v1/projections/"+s.name+"/rebuilds/"+r.Id+"/rollback", nil)
		if err != nil {
			return err
		}
		switch {
		case a.status == http.StatusAccepted:
			var back client.Rebuild
			if err := json.Unmarshal(a.body, &back); err != nil {
				return err
			}
			return s.see(ctx, quit, back, false)
		case a.status == http.StatusConflict && a.code() == "rebuild-running":
			back, err := s.newest(ctx) // the answer was lost, and the request came twice
			if err != nil {
				return err
			}
			return s.see(ctx, quit, back, false)
		case a.status == http.StatusConflict, a.status == http.StatusGone:
			return nil // another build has gone live since
		}
		return fmt.Errorf("roll %s back: %s", r.Id, a)
	}
	return nil
}

func (s *subject) list(ctx context.Context) ([]client.Rebuild, error) {
	var list client.RebuildList
	a, err := s.by.call(ctx, 0, "GET", "/v1/projections/"+s.name+"/rebuilds", nil)
	if err == nil {
		err = a.decode(http.StatusOK, &list)
	}
	return list.Rebuilds, err
}

func (s *subject) newest(ctx context.Context) (client.Rebuild, error) {
	rebuilds, err := s.list(ctx)
	if err == nil && len(rebuilds) == 0 {
		err = errors.New("no rebuild is listed")
	}
	if err != nil {
		return client.Rebuild{}, err
	}
	return rebuilds[0], nil
}

// comeAndGo creates tenants that append a little and are deleted.
func (w *workload) comeAndGo(ctx context.Context, subjects []*subject) error {
	for n := 0; w.quit.Err() == nil; n++ {
		name := fmt.Sprint("temporary-", n)
		a, err := w.operator.call(ctx, 0, "POST", "/v1/tenants", client.NewTenant{Name: name})
		if err != nil {
			return err
		}
		var tenant client.Tenant
		if a.status == http.StatusConflict {
			continue // the answer was lost; the next one has another name
		}
		if err := a.decode(http.StatusCreated, &tenant); err != nil {
			return err
		}
		a, err = w.operator.call(ctx, 0, "POST", "/v1/tenants/"+tenant.Id+"/keys", client.NewKey{Name: "all", Scopes: []string{"events:append", "documents:read"}})
		if err != nil {
			return err
		}
		var key client.CreatedKey
		if err := a.decode(http.StatusCreated, &key); err != nil {
			return err
		}
		u := w.operator
		u.key = key.Key
		for i := range 3 {
			event := newEvent(eventID("temporary", n, i), "Added", fmt.Sprint("key-", i), int64(i))
			a, err := u.call(ctx, 0, "POST", "/v1/streams/account-1/events", []client.NewEvent{event})
			if err != nil {
				return err
			}
			if a.status != http.StatusCreated && a.status != http.StatusOK {
				return fmt.Errorf("%s: %s", name, a)
			}
		}
		for _, s := range subjects {
			if !s.shared {
				continue
			}
			documents, err := u.documents(ctx, s.name, 100, 3)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, s.name, err)
			}
			if len(documents) == 0 {
				return fmt.Errorf("%s, %s (%s): there are no documents", name, s.name, s.was)
			}
		}
		a, err = w.operator.call(ctx, 0, "DELETE", "/v1/tenants/"+tenant.Id+"?confirm="+name, nil)
		if err != nil {
			return err
		}
		if a.status != http.StatusAccepted {
			return fmt.Errorf("delete %s: %s", name, a)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-w.quit.Done():
		}
	}
	return nil
}
