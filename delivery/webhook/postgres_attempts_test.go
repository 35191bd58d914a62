package webhook_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestAttemptsOfAWebhook(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx, tenant := t.Context(), domain.NewTenantID()
	putWebhook(t, s, tenant, "mail", 1)
	putWebhook(t, s, tenant, "other", 1)
	began := time.Now().UTC().Truncate(time.Microsecond)
	events := []domain.EventID{domain.NewEventID(), domain.NewEventID(), domain.NewEventID()}
	var made []webhook.Attempt
	for i := range 30 {
		a := webhook.Attempt{
			ID: webhook.NewAttemptID(), EventID: events[i%3], Type: "Placed", Position: int64(i), Attempt: i / 3, Replay: i%2 == 0, URL: "https://example.com/" + strconv.Itoa(i),
			Outcome: webhook.Outcomes[i%len(webhook.Outcomes)], Status: i, Took: time.Duration(i) * time.Millisecond,
			Error: "why", Excerpt: "what\x00", At: began.Add(time.Duration(i) * time.Second),
		}
		if i%2 == 0 {
			a.NextAt = a.At.Add(time.Minute)
		}
		made = append(made, a)
	}
	// Ids of one moment are in no order.
	slices.SortFunc(made, func(a, b webhook.Attempt) int { return slices.Compare(a.ID[:], b.ID[:]) })
	for range 2 { // the second time as after a lost answer
		tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "mail", made[:20]))
	}
	tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "mail", made[20:]))
	tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "other", made[:1]))
	tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "none", made))
	tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "mail", nil))

	for name, q := range map[string]webhook.AttemptQuery{
		"all": {}, "of an event": {EventID: events[1]}, "of an outcome": {Outcome: webhook.OutcomeGone},
		"of both": {EventID: events[2], Outcome: webhook.OutcomeDuplicate}, "of neither": {EventID: domain.NewEventID()},
	} {
		var want, got []webhook.Attempt
		for _, a := range slices.Backward(made) {
			if (q.EventID.IsZero() || a.EventID == q.EventID) && (q.Outcome == "" || a.Outcome == q.Outcome) {
				a.Excerpt = "what"
				want = append(want, a)
			}
		}
		for q.Limit = 4; ; q.Before = got[len(got)-1].ID {
			page, err := s.WebhookAttempts(ctx, tenant, "mail", q)
			tablestest.Must(t, err)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: there are %d, want %d: %+v and so on", name, len(got), len(want), got[:min(1, len(got))])
		}
	}
	_, err := s.WebhookAttempts(ctx, tenant, "none", webhook.AttemptQuery{Limit: 1})
	tablestest.WantCode(t, err, domain.CodeNotFound)
}

// attemptsAt makes attempts at a time, one a millisecond, with the numbers from first on.
func attemptsAt(at time.Time, first, n int) []webhook.Attempt {
	all := make([]webhook.Attempt, n)
	for i := range all {
		moment := at.Add(time.Duration(i) * time.Millisecond)
		all[i] = webhook.Attempt{ID: webhook.FirstAttemptID(moment), EventID: domain.NewEventID(), Attempt: first + i, Outcome: webhook.OutcomeOK, At: moment}
	}
	return all
}

// Sweeping keeps the newest attempts, and claims as long as an event may meet them. It takes moments, also where nobody
// has told the planner how many rows there are.
func TestSweepingAWebhook(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, tenant, super := t.Context(), domain.NewTenantID(), db.Pool(t, "postgres", 1)
	putWebhook(t, s, tenant, "mail", 1)
	putWebhook(t, s, tenant, "other", 1)
	now := time.Now()
	tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "mail", attemptsAt(now.Add(-webhook.AttemptsLife-time.Hour), 1, 5500)))
	tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "mail", attemptsAt(now.Add(-time.Hour), 5501, 9000)))
	tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "other", attemptsAt(now.Add(-time.Hour), 1, 10)))
	_, err := super.Exec(ctx, `
		insert into manifold.webhook_claims (tenant_id, name, claim, position, recorded_at)
		select $1, 'webhook.mail', int4send(n), n, timestamptz '2020-01-01' + n * interval '1 minute' from generate_series(1, 5000) as n`, tenant)
	tablestest.Must(t, err)
	sweep := func() (turns int) {
		for more := true; more; turns++ {
			more, err = s.SweepWebhook(ctx, tenant, "mail")
			tablestest.Must(t, err)
		}
		return turns
	}
	left := func(table, of string) (rows, lowest int64) {
		tablestest.Must(t, super.QueryRow(ctx, "select count(*), coalesce(min("+of+"), 0) from manifold."+table+" where tenant_id = $1 and name <> 'other'", tenant).Scan(&rows, &lowest))
		return rows, lowest
	}
	if turns := sweep(); turns < 3 {
		t.Errorf("it was swept in %d turns: are the slices small?", turns)
	}
	if rows, first := left("webhook_attempts", "attempt"); rows != 9000 || first != 5501 {
		t.Errorf("%d attempts are left, from %d on; want 9000 from 5501 on", rows, first)
	}
	// The window of a minute and an hour behind the newest.
	if rows, first := left("webhook_claims", "position"); rows != 62 || first != 5000-61 {
		t.Errorf("%d claims are left, from %d on", rows, first)
	}
	tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "mail", attemptsAt(now, 14_501, 1500)))
	sweep()
	if rows, first := left("webhook_attempts", "attempt"); rows != webhook.MaxAttempts || first != 14_501+1500-webhook.MaxAttempts {
		t.Errorf("%d attempts are left, from %d on", rows, first)
	}
	if more, err := s.SweepWebhook(ctx, tenant, "none"); more || err != nil {
		t.Errorf("a webhook that does not exist has more: %v, %v", more, err)
	}
	if others, err := s.WebhookAttempts(ctx, tenant, "other", webhook.AttemptQuery{Limit: 100}); err != nil || len(others) != 10 {
		t.Errorf("another webhook has %d attempts left, %v", len(others), err)
	}
	tablestest.Must(t, s.DeleteWebhook(ctx, tenant, "mail"))
	if rows, _ := left("webhook_attempts", "attempt"); rows != 0 {
		t.Errorf("of a deleted webhook %d attempts are left", rows)
	}
}

// Whatever the events, and however they come, in whichever order, together with which others, how often and to whom: of
// those of one id no two within the window are sent, each that is not sent has one nearby that is, and the answer to a
// question stays. In the log's order it is the first that is sent.
func TestClaims(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	stores := []*tables.Tables{s, tablestest.OpenAgain(t, db)}
	claim := func(t rapid.TB, process int, tenant domain.TenantID, window time.Duration, claims []webhook.Claim) []bool {
		duplicate, err := stores[process].ClaimEvents(ctx, tenant, "webhook.mail", window, claims)
		if err != nil {
			t.Fatal(err)
		}
		return duplicate
	}
	const window = 10 * time.Second
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		tenant := domain.NewTenantID()
		if _, _, err := s.PutWebhook(t.Context(), tenant, "mail", webhookDefinition(), tablestest.GroupDefinition(0), 1, newSecret("x")); err != nil {
			rt.Fatal(err)
		}
		n := rapid.IntRange(1, 25).Draw(rt, "events")
		claims := make([]webhook.Claim, n)
		at := start
		for i := range claims {
			at = at.Add(time.Duration(rapid.IntRange(0, 8).Draw(rt, "pause")) * time.Second)
			claims[i] = webhook.Claim{ID: webhook.ClaimID(fmt.Sprint(rapid.IntRange(0, 2).Draw(rt, "id"))), Position: int64(i + 1), RecordedAt: at}
		}
		inOrder := rapid.Bool().Draw(rt, "in order")
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		if !inOrder {
			order = rapid.Permutation(order).Draw(rt, "order")
		}
		answers := map[int]bool{}
		ask := func(places []int) {
			asked := make([]webhook.Claim, len(places))
			for i, place := range places {
				asked[i] = claims[place]
			}
			got := claim(rt, rapid.IntRange(0, 1).Draw(rt, "process"), tenant, window, asked)
			for i, place := range places {
				if before, asked := answers[place]; asked && before != got[i] {
					rt.Fatalf("event %d was a duplicate: %v, and then: %v", place+1, before, got[i])
				}
				answers[place] = got[i]
			}
		}
		for rest := order; len(rest) > 0; {
			k := rapid.IntRange(1, len(rest)).Draw(rt, "batch")
			ask(rest[:k])
			if rapid.Bool().Draw(rt, "once more") {
				ask(order[:n-len(rest)+k])
			}
			rest = rest[k:]
		}
		near := func(a, b int) bool {
			return a != b && claims[a].ID == claims[b].ID && claims[a].RecordedAt.Sub(claims[b].RecordedAt).Abs() < window
		}
		for i := range claims {
			sentNear := false
			for j := range claims {
				if near(i, j) && !answers[j] {
					sentNear = true
					if inOrder && answers[i] && j > i && !slices.ContainsFunc(order[:i], func(k int) bool { return near(i, k) && !answers[k] }) {
						rt.Fatalf("event %d was held back for the later %d", i+1, j+1)
					}
				}
			}
			if sentNear != answers[i] {
				rt.Fatalf("event %d is a duplicate: %v, and one nearby is sent: %v", i+1, answers[i], sentNear)
			}
		}
	})

	// Several at once.
	tenant := domain.NewTenantID()
	putWebhook(t, s, tenant, "mail", 1)
	var sent sync.Map
	var claiming sync.WaitGroup
	for i := range 8 {
		claiming.Go(func() {
			same := webhook.Claim{ID: webhook.ClaimID("same"), Position: int64(i + 1), RecordedAt: start}
			if duplicate := claim(t, i%2, tenant, window, []webhook.Claim{same}); !duplicate[0] {
				sent.Store(i, true)
			}
		})
	}
	claiming.Wait()
	n := 0
	sent.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d of eight at once are sent", n)
	}
}
