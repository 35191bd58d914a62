package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

const (
	groupStreams     = 12
	groupConsumers   = 4 // of each group
	groupMaxAttempts = 4
	groupTimeout     = time.Second // the shortest that there is

	sharedOut = "shared-out" // the group with partitions, whose consumers are members
)

// groupWorkload appends events, and has random consumers of several groups.
type groupWorkload struct {
	t      *testing.T
	user   user
	groups []*groupRule
	paths  []string // of the groups
	// define sets the definitions of all groups, with this time for an answer.
	define func(status int, ackTimeout time.Duration)
	// silence makes a member of the group with partitions look silent for a long time. Without a member it does so
	// for all of them; those that still run join again. It does nothing while the database is down.
	silence func(member string)
	seed    atomic.Uint64

	appended atomic.Int64
	head     atomic.Int64
	good     atomic.Bool // consumers acknowledge everything, so that it comes to an end
	late     sync.WaitGroup
}

func newGroupWorkload(t *testing.T, db pgtest.DB, at site, r *rand.Rand) *groupWorkload {
	_, u := newTenant(t, newUser(t, at, operatorKey), "acme")
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	w := &groupWorkload{t: t, user: u}
	w.silence = func(member string) {
		err := pgx.BeginFunc(context.Background(), super, func(tx pgx.Tx) error {
			rows, _ := tx.Query(context.Background(), `update manifold.subscription_members m set alive_at = now() - interval '1 hour'
				where m.member_id::text = $1 or $1 = '' returning m.member_id::text`, member)
			silent, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for _, one := range silent { // before anybody sees it
				w.groups[len(w.groups)-1].leaving(one)
			}
			return err
		})
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code[:2] != "57" {
			t.Error(err)
		}
	}
	w.seed.Store(r.Uint64())
	everything := func(client.Event) bool { return true }
	even := func(event client.Event) bool {
		var data struct{ N int64 }
		return event.Type == "Counted" && json.Unmarshal(event.Data, &data) == nil && data.N%2 == 0
	}
	groups := []struct {
		name, definition string
		ordered          bool
		wants            func(client.Event) bool
	}{
		{"any-order", `"ordering": "none"`, false, everything},
		{"in-order", `"ordering": "stream"`, true, everything},
		{"some", `"ordering": "stream", "source": {"categories": ["a", "b"]}, "types": ["Counted"], "filter": "event.data.n % 2 == 0"`, true, even},
		{sharedOut, `"ordering": "stream", "partitions": 6`, true, everything},
	}
	for _, group := range groups {
		w.groups = append(w.groups, newGroupRule(group.name, group.ordered, groupMaxAttempts, group.wants))
		w.paths = append(w.paths, "/v1/subscriptions/"+group.name)
	}
	w.define = func(status int, ackTimeout time.Duration) {
		for i, group := range groups {
			u.must(t, status, nil, "PUT", w.paths[i], []byte(fmt.Sprintf(
				`{%s, "maxInFlight": 40, "batchSize": 10, "ackTimeout": %v, "maxAttempts": %d, "backoff": {"min": 0.05, "max": 0.2}}`,
				group.definition, ackTimeout.Seconds(), groupMaxAttempts)))
		}
	}
	w.define(http.StatusCreated, groupTimeout)
	return w
}

func (w *groupWorkload) chance() *rand.Rand { return rand.New(rand.NewPCG(w.seed.Add(1), 0)) }

// appendSome appends until quit ends, to streams that only it uses, so that it knows their order.
func (w *groupWorkload) appendSome(ctx context.Context, quit context.Context, n int) error {
	r := w.chance()
	versions := make([]int64, groupStreams)
	for i := int64(0); quit.Err() == nil; i++ {
		k := r.IntN(groupStreams)
		if r.IntN(3) == 0 {
			k = 0 // one stream has many
		}
		stream := fmt.Sprintf("%c-%d-%d", 'a'+rune(k%2), n, k)
		body := client.StreamAppend{Stream: stream}
		for range 1 + r.IntN(3) {
			versions[k]++
			id := *eventID(fmt.Sprintf("%s, version %d", stream, versions[k]))
			event := client.Event{Id: id, Stream: stream, Version: versions[k], Type: []string{"Counted", "Noted"}[r.IntN(2)], Data: []byte(fmt.Sprintf(`{"n":%d}`, i))}
			for _, g := range w.groups {
				g.appending(event)
			}
			body.Events = append(body.Events, client.NewEvent{Id: &id, Type: event.Type, Data: event.Data})
		}
		a, err := w.user.call(ctx, n, "POST", "/v1/append", client.AppendRequest{Streams: []client.StreamAppend{body}})
		if err != nil {
			return err
		}
		if a.status/100 != 2 {
			return fmt.Errorf("append: %s", a)
		}
		var appended client.Appended
		if err := json.Unmarshal(a.body, &appended); err != nil {
			return err
		}
		for head := w.head.Load(); head < appended.Position && !w.head.CompareAndSwap(head, appended.Position); head = w.head.Load() {
		}
		w.appended.Add(int64(len(body.Events)))
		if err := w.pause(quit, time.Duration(r.IntN(60))*time.Millisecond); err != nil {
			return nil
		}
	}
	return nil
}

// pause lets time go by, as a consumer's work does.
func (w *groupWorkload) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// consume is one consumer of a group. It receives, and answers correctly, wrongly, late or never.
func (w *groupWorkload) consume(ctx context.Context, g int, n int) error {
	r, rule, path := w.chance(), w.groups[g], w.paths[g]
	member := ""
	for ctx.Err() == nil {
		body := map[string]any{"batch": 1 + r.IntN(15), "wait": r.Float64()}
		if rule.name == sharedOut {
			var err error
			if member, err = w.membership(ctx, r, rule, path, member); err != nil || member == "" {
				return err
			}
			body["memberId"] = member
		}
		asked := time.Now()
		a, err := w.user.once(ctx, n+r.IntN(2), "POST", path+"/receive", body)
		if err != nil || a.status == http.StatusServiceUnavailable {
			continue // the delivery is lost, and is redelivered
		}
		if member != "" && a.status == http.StatusNotFound {
			rule.leaving(member) // it was silent for too long
			member = ""
			continue
		}
		var received client.Deliveries
		if err := a.decode(http.StatusOK, &received); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		rule.delivered(asked, member, received.Deliveries)
		if err := w.handle(ctx, r, rule, path, n, received.Deliveries); err != nil {
			return err
		}
	}
	return nil
}

// membership joins a group with partitions if a consumer is not a member. Some members leave or are swept, and join
// again.
func (w *groupWorkload) membership(ctx context.Context, r *rand.Rand, rule *groupRule, path, member string) (string, error) {
	if chance := r.IntN(40); member != "" && chance < 2 && !w.good.Load() {
		rule.leaving(member)
		if chance == 0 {
			w.silence(member)
		} else if _, err := w.user.call(ctx, 0, "DELETE", path+"/members/"+member, nil); err != nil {
			return "", ended(ctx, err)
		}
		member = ""
	}
	if member != "" {
		return member, nil
	}
	a, err := w.user.call(ctx, 0, "POST", path+"/members", nil)
	if err != nil {
		return "", ended(ctx, err)
	}
	var joined client.SubscriptionMember
	if err := a.decode(http.StatusCreated, &joined); err != nil {
		return "", fmt.Errorf("join: %w", err)
	}
	return joined.MemberId, nil
}

// ended is an error, unless it is that the test goes to its end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// handle answers deliveries.
func (w *groupWorkload) handle(ctx context.Context, r *rand.Rand, rule *groupRule, path string, n int, deliveries []client.Delivery) error {
	good := w.good.Load()
	if !good && r.IntN(20) == 0 {
		return nil // it dies with all of them
	}
	answers := make(map[string][]client.Attempt)
	for _, d := range deliveries {
		kind := "ack"
		if !good {
			kind = []string{"ack", "ack", "ack", "ack", "ack", "ack", "ack", "ack", "ack", "ack", "ack", "ack",
				"retry", "retry", "retry", "park", "skip", "extend", "late", "never"}[r.IntN(20)]
		}
		answers[kind] = append(answers[kind], client.Attempt{Id: d.Event.Id, Attempt: d.Attempt})
	}
	for kind, attempts := range answers {
		var err error
		switch kind {
		case "never":
		case "late":
			how := []string{"ack", "retry", "skip", "extend"}[r.IntN(4)]
			w.late.Go(func() {
				if w.pause(ctx, groupTimeout+time.Duration(100+r.IntN(1000))*time.Millisecond) == nil {
					if err := w.answer(ctx, rule, path, n, how, attempts); err != nil {
						w.t.Error(err)
					}
				}
			})
		case "extend":
			if err = w.answer(ctx, rule, path, n, "extend", attempts); err == nil {
				err = w.answer(ctx, rule, path, n, "ack", attempts)
			}
		default:
			err = w.answer(ctx, rule, path, n, kind, attempts)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// answer sends one answer. If no result comes back, the outcome is unknown.
func (w *groupWorkload) answer(ctx context.Context, rule *groupRule, path string, n int, kind string, attempts []client.Attempt) error {
	body := map[string]any{"ids": attempts}
	switch kind {
	case "ack":
		path += "/ack"
	case "extend":
		path += "/extend"
		body["by"] = extendBy.Seconds()
	default:
		path += "/nack"
		body["action"], body["reason"] = kind, "by chance"
	}
	answered := rule.answering(kind, attempts)
	a, err := w.user.once(ctx, n, "POST", path, body)
	if err != nil || a.status == http.StatusServiceUnavailable {
		return nil
	}
	var results client.Answers
	if err := a.decode(http.StatusOK, &results); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	answered(results.Results)
	return nil
}

// run runs appenders and consumers, with disturb running concurrently. Then everything ends and is checked.
func (w *groupWorkload) run(disturb func(await func(events int64))) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	quit, calm := context.WithCancel(ctx)
	var appenders, consumers errgroup.Group
	watched := func(err error) error {
		if err != nil {
			cancel() // so that nobody waits in vain
		}
		return err
	}
	for n := range 2 {
		appenders.Go(func() error { return watched(w.appendSome(ctx, quit, n)) })
	}
	consuming, enough := context.WithCancel(ctx)
	for g := range w.groups {
		for n := range groupConsumers {
			consumers.Go(func() error { return watched(w.consume(consuming, g, n)) })
		}
	}
	disturb(func(events int64) {
		for before := w.appended.Load(); w.appended.Load() < before+events && ctx.Err() == nil; {
			_ = w.pause(ctx, 10*time.Millisecond)
		}
	})
	calm()
	if err := appenders.Wait(); err != nil {
		w.t.Error("an appender: ", err)
	}
	w.late.Wait()
	if ctx.Err() != nil {
		w.t.Fatal(appenders.Wait(), consumers.Wait())
	}
	// On a busy machine an acknowledgement takes longer than a second, and then nothing comes to its end.
	w.define(http.StatusOK, 20*groupTimeout)
	w.good.Store(true)
	// The answers to some joins may have been lost. All members are swept, and those that still run join again.
	w.silence("")
	w.drained(ctx)
	dead := make([]map[client.UUID]client.DeadLetter, len(w.groups))
	for g, rule := range w.groups {
		dead[g] = w.deadLetters(g)
		for _, violation := range rule.end(dead[g]) {
			w.t.Error(violation)
		}
	}
	if w.t.Failed() {
		enough()
		_ = consumers.Wait()
		return
	}
	// Everything that failed is redelivered, and is acknowledged now.
	for g, rule := range w.groups {
		rule.replay()
		w.user.must(w.t, http.StatusAccepted, nil, "POST", w.paths[g]+"/dead-letters/replay", nil)
	}
	for g := range w.groups {
		w.until(ctx, func() bool { return len(w.deadLetters(g)) == 0 })
	}
	w.drained(ctx)
	for g, rule := range w.groups {
		for _, violation := range rule.end(w.deadLetters(g)) {
			w.t.Error("replayed: ", violation)
		}
		w.t.Logf("%s: %d events, %d of them were dead letters", rule.name, len(rule.events), len(dead[g]))
		if len(dead[g]) == 0 {
			w.t.Errorf("%s: no event has failed: nothing was tried", rule.name)
		}
	}
	enough()
	if err := consumers.Wait(); err != nil {
		w.t.Error(err)
	}
}

// until waits for something that can only be looked at.
func (w *groupWorkload) until(ctx context.Context, holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience) // a stream is drained event by event
	defer cancel()
	for !holds() {
		if w.pause(ctx, 50*time.Millisecond) != nil {
			w.t.Fatal("it does not come to an end")
		}
	}
}

// drained waits until every group has read the whole log, and nothing is in flight or waiting.
func (w *groupWorkload) drained(ctx context.Context) {
	w.t.Helper()
	for _, path := range w.paths {
		var status client.Subscription
		defer func() {
			if w.t.Failed() {
				w.t.Logf("%s: %+v of %d", path, status.Progress, status.Head)
			}
		}()
		w.until(ctx, func() bool {
			status = client.Subscription{}
			w.user.must(w.t, http.StatusOK, &status, "GET", path, nil)
			for _, p := range status.Progress {
				if p.ReadTo < w.head.Load() || p.InFlight > 0 || p.Retrying > 0 || p.Oldest != nil {
					return false
				}
			}
			return true
		})
	}
}

func (w *groupWorkload) deadLetters(g int) map[client.UUID]client.DeadLetter {
	w.t.Helper()
	all := make(map[client.UUID]client.DeadLetter)
	for path := w.paths[g] + "/dead-letters?pageSize=50"; path != ""; {
		a, err := w.user.call(w.t.Context(), 0, "GET", path, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		var page client.DeadLetterList
		if err := a.decode(http.StatusOK, &page); err != nil {
			w.t.Fatal(err)
		}
		for _, letter := range page.DeadLetters {
			if _, twice := all[letter.Event.Id]; twice {
				w.t.Errorf("dead letter %s is listed twice", letter.Event.Id)
			}
			all[letter.Event.Id] = letter
		}
		path = a.next()
	}
	return all
}

func TestGroups(t *testing.T) {
	t.Parallel()
	r := chance(t)
	db := pgtest.Database(t)
	w := newGroupWorkload(t, db, inside(t, configuration(db)), r)
	w.run(func(await func(int64)) { await(500) })
}

// Two processes serve the same groups, and are killed again and again.
func TestGroupsSurviveKilledProcesses(t *testing.T) {
	t.Parallel()
	r := chance(t)
	db := pgtest.Database(t)
	both := serveTwo(t, db)
	w := newGroupWorkload(t, db, both, r)
	w.run(func(await func(int64)) {
		for range 6 {
			await(int64(20 + r.IntN(150)))
			one := both[r.IntN(2)]
			one.kill()
			await(int64(r.IntN(60)))
			one.start()
		}
	})
}

func TestGroupsSurviveKilledPostgreSQL(t *testing.T) {
	t.Parallel()
	r := chance(t)
	server := pgtest.Private(t, pgtest.Options{})
	db := pgtest.Migrated(t, server)
	both := serveTwo(t, db)
	w := newGroupWorkload(t, db, both, r)
	w.run(func(await func(int64)) {
		for range 3 {
			await(int64(50 + r.IntN(150)))
			server.Kill()
			if err := server.Restart(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
