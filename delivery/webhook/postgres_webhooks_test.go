package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// webhookDefinition is one with something in each of its fields that can be there together with others.
func webhookDefinition() webhook.Definition {
	return webhook.Definition{
		Selection: domain.Selection{Categories: []string{"order"}, Types: []string{"Placed"}, Filter: "event.data.n > 1"},
		URL:       "https://example.com/hook", Delay: 1500 * time.Millisecond, DedupeID: "event.data.id", DedupeWindow: time.Minute,
		From: "end", Format: webhook.FormatCloudEvents, Ordering: domain.OrderingStream, Timeout: 3 * time.Second,
	}
}

func newSecret(text string) webhook.Secret {
	return webhook.Secret{ID: webhook.NewSecretID(), Key: []byte(text)}
}

// putWebhook makes a webhook that reads from a position.
func putWebhook(t *testing.T, s *tables.Tables, tenant domain.TenantID, name string, start int64) webhook.Webhook {
	t.Helper()
	webhook, created, err := s.PutWebhook(t.Context(), tenant, name, webhookDefinition(), tablestest.GroupDefinition(0), start, newSecret("first of "+name))
	tablestest.Must(t, err)
	if !created {
		t.Fatalf("webhook %q already exists", name)
	}
	return webhook
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx, tenant := t.Context(), domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 5))
	_, err := s.Webhook(ctx, tenant, "mail")
	tablestest.WantCode(t, err, domain.CodeNotFound)

	made := putWebhook(t, s, tenant, "mail", 4)
	if made.Name != "mail" || made.Stopped() || made.CreatedAt.IsZero() || made.Replay != nil || !reflect.DeepEqual(made.Definition, webhookDefinition()) {
		t.Errorf("made %+v", made)
	}
	if len(made.Secrets) != 1 || string(made.Secrets[0].Key) != "first of mail" || !made.Secrets[0].ExpiresAt.IsZero() {
		t.Errorf("its secrets are %+v", made.Secrets)
	}
	if got, err := s.Webhook(ctx, tenant, "mail"); err != nil || !reflect.DeepEqual(got, made) {
		t.Errorf("read %+v, %v; want %+v", got, err, made)
	}
	if got := tablestest.StatusOf(t, s, tenant, "webhook.mail", 0); got.ReadTo != 3 {
		t.Errorf("its group is at %+v", got)
	}

	put := func(definition webhook.Definition, group domain.GroupDefinition) webhook.Webhook {
		t.Helper()
		webhook, created, err := s.PutWebhook(ctx, tenant, "mail", definition, group, 1, newSecret("not this one"))
		tablestest.Must(t, err)
		if created || len(webhook.Secrets) != 1 || string(webhook.Secrets[0].Key) != "first of mail" {
			t.Errorf("put again: created %v, secrets %+v", created, webhook.Secrets)
		}
		return webhook
	}
	if same := put(webhookDefinition(), tablestest.GroupDefinition(0)); !reflect.DeepEqual(same, made) {
		t.Errorf("the same put again is %+v, want %+v", same, made)
	}
	definition, group := webhookDefinition(), tablestest.GroupDefinition(0)
	definition.URL, group.Types = "https://example.org/", []string{"Paid"}
	changed := put(definition, group)
	if changed.Revision <= made.Revision || !reflect.DeepEqual(changed.Definition, definition) {
		t.Errorf("changed to %+v", changed)
	}
	if got, err := s.Group(ctx, tenant, "webhook.mail"); err != nil || !reflect.DeepEqual(got.Types, group.Types) {
		t.Errorf("its group is %+v, %v", got, err)
	}
	// What the group refuses, changes the webhook neither.
	definition.URL, group.Ordering = "https://example.net/", domain.OrderingNone
	_, _, err = s.PutWebhook(ctx, tenant, "mail", definition, group, 1, newSecret(""))
	tablestest.WantCode(t, err, domain.CodeConflict)
	if got, err := s.Webhook(ctx, tenant, "mail"); err != nil || !reflect.DeepEqual(got, changed) {
		t.Errorf("then it is %+v, %v", got, err)
	}

	tablestest.Must(t, s.DeleteWebhook(ctx, tenant, "mail"))
	for _, err := range []error{
		s.DeleteWebhook(ctx, tenant, "mail"),
		func() error { _, err := s.Group(ctx, tenant, "webhook.mail"); return err }(),
		func() error { _, err := s.PauseWebhook(ctx, tenant, "mail", true); return err }(),
	} {
		tablestest.WantCode(t, err, domain.CodeNotFound)
	}
	again := putWebhook(t, s, tenant, "mail", 1)
	if again.Revision == made.Revision || len(again.Secrets) != 1 {
		t.Errorf("created again: %+v", again)
	}
}

func TestAWebhookIsPausedDisabledAndResumed(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx, tenant := t.Context(), domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	webhook := putWebhook(t, s, tenant, "mail", 1)
	pause := func(paused bool) {
		t.Helper()
		before := webhook
		var err error
		webhook, err = s.PauseWebhook(ctx, tenant, "mail", paused)
		tablestest.Must(t, err)
		moved := before.Paused != paused || !paused && !before.DisabledAt.IsZero()
		if webhook.Paused != paused || (webhook.Revision > before.Revision) != moved {
			t.Errorf("paused %v: from %+v to %+v", paused, before, webhook)
		}
	}
	disable := func(revision int64, want bool) {
		t.Helper()
		did, err := s.DisableWebhook(ctx, tenant, "mail", revision, "gone \x00")
		tablestest.Must(t, err)
		webhook, err = s.Webhook(ctx, tenant, "mail")
		tablestest.Must(t, err)
		if did != want || webhook.DisabledAt.IsZero() == want || want && webhook.DisabledReason == "" {
			t.Errorf("disabled: %v, %+v; want %v", did, webhook, want)
		}
	}
	for _, paused := range []bool{true, true, false, false} {
		pause(paused)
	}
	disable(webhook.Revision-1, false)
	disable(webhook.Revision, true)
	pause(true)
	if webhook.DisabledAt.IsZero() {
		t.Error("a pause has ended that it is disabled")
	}
	pause(false)
	if webhook.Stopped() || webhook.DisabledReason != "" {
		t.Errorf("resumed it is %+v", webhook)
	}
	disable(webhook.Revision, true)
	webhook, _, err := s.PutWebhook(ctx, tenant, "mail", webhookDefinition(), tablestest.GroupDefinition(0), 1, newSecret(""))
	if err != nil || webhook.Stopped() {
		t.Errorf("put again it is %+v, %v", webhook, err)
	}
	_, err = s.DisableWebhook(ctx, tenant, "none", 1, "")
	tablestest.WantCode(t, err, domain.CodeNotFound)
}

func TestWebhooksAreListedByName(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, tenant, other := t.Context(), domain.NewTenantID(), domain.NewTenantID()
	for _, name := range []string{"c", "a", "b", "d"} {
		putWebhook(t, s, tenant, name, 1)
	}
	putWebhook(t, s, other, "e", 1)
	_, err := s.StartWebhookReplay(ctx, tenant, "b", webhook.Replay{From: 1, To: 2}, tablestest.GroupDefinition(0))
	tablestest.Must(t, err)
	var names []string
	for after := ""; ; after = names[len(names)-1] {
		page, err := s.Webhooks(ctx, tenant, after, 3)
		tablestest.Must(t, err)
		if len(page) == 0 {
			break
		}
		for _, w := range page {
			names = append(names, w.Name)
			if len(w.Secrets) != 1 || string(w.Secrets[0].Key) != "first of "+w.Name || (w.Replay != nil) != (w.Name == "b") {
				t.Errorf("listed is %+v", w)
			}
		}
	}
	if fmt.Sprint(names) != "[a b c d]" {
		t.Errorf("listed are %v", names)
	}
	tenants, err := s.WebhookTenants(ctx)
	if err != nil || len(tenants) != 2 {
		t.Errorf("%v have webhooks, %v", tenants, err)
	}

	_, err = db.Pool(t, "postgres", 1).Exec(ctx, `
		insert into manifold.webhooks (tenant_id, name, definition, revision) select $1, 'h' || n, '{}', 1 from generate_series(5, $2) as n`,
		tenant, webhook.MaxWebhooks)
	tablestest.Must(t, err)
	_, _, err = s.PutWebhook(ctx, tenant, "more", webhookDefinition(), tablestest.GroupDefinition(0), 1, newSecret(""))
	tablestest.WantCode(t, err, domain.CodeQuotaExceeded)
}

// For a suspended tenant nothing is sent, and the senders are notified.
func TestNothingIsSentForASuspendedTenant(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx, tenant := t.Context(), tablestest.NewTenant(t, s)
	putWebhook(t, s, tenant, "mail", 1)
	heard := make(chan domain.TenantID, 100)
	listening, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.ListenWebhooks(listening, func(tenant domain.TenantID) { heard <- tenant }) }()
	tablestest.Receive(t, heard, "the start")
	for _, state := range []domain.TenantState{domain.TenantSuspended, domain.TenantActive, domain.TenantDeleting} {
		tablestest.Must(t, s.SetTenantState(ctx, tenant, state))
		if got := tablestest.Receive(t, heard, "the state"); got != tenant {
			t.Errorf("the notice is of %s", got)
		}
		sending, err := s.SendingWebhooks(ctx, tenant)
		if err != nil || (len(sending) == 1) != (state == domain.TenantActive) {
			t.Errorf("of a tenant that is %s %+v are sent, %v", state, sending, err)
		}
	}
	stop()
	tablestest.Must(t, tablestest.Receive(t, ended, "the end of listening"))
}

func TestSecretsOfAWebhook(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, tenant := t.Context(), domain.NewTenantID()
	made := putWebhook(t, s, tenant, "mail", 1)
	add := func(text string, expireOld time.Duration) webhook.Webhook {
		t.Helper()
		webhook, err := s.AddWebhookSecret(ctx, tenant, "mail", newSecret(text), expireOld)
		tablestest.Must(t, err)
		return webhook
	}
	if two := add("second", -1); len(two.Secrets) != 2 || string(two.Secrets[1].Key) != "second" || !two.Secrets[0].ExpiresAt.IsZero() || two.Revision <= made.Revision {
		t.Errorf("with a second it is %+v", two)
	}
	three := add("third", time.Hour)
	sooner := add("fourth", 10*time.Hour)
	for i, secret := range sooner.Secrets {
		switch {
		case i < 2 && !secret.ExpiresAt.Equal(three.Secrets[i].ExpiresAt):
			t.Errorf("secret %d expires at %s, and was to at %s", i, secret.ExpiresAt, three.Secrets[i].ExpiresAt)
		case i == 2 && secret.ExpiresAt.Sub(secret.CreatedAt) < 9*time.Hour, i == 3 && !secret.ExpiresAt.IsZero():
			t.Errorf("secret %d expires at %s", i, secret.ExpiresAt)
		}
	}
	add("fifth", -1)
	_, err := s.AddWebhookSecret(ctx, tenant, "mail", newSecret("sixth"), -1)
	tablestest.WantCode(t, err, domain.CodeConflict)

	_, err = db.Pool(t, "postgres", 1).Exec(ctx, "update manifold.webhook_secrets set expires_at = now() where tenant_id = $1 and expires_at is not null", tenant)
	tablestest.Must(t, err)
	left, err := s.Webhook(ctx, tenant, "mail")
	tablestest.Must(t, err)
	if len(left.Secrets) != 2 || string(left.Secrets[0].Key) != "fourth" || string(left.Secrets[1].Key) != "fifth" {
		t.Fatalf("when the old ones have expired there are %+v", left.Secrets)
	}
	_, err = s.RemoveWebhookSecret(ctx, tenant, "mail", made.Secrets[0].ID)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	one, err := s.RemoveWebhookSecret(ctx, tenant, "mail", left.Secrets[0].ID)
	tablestest.Must(t, err)
	if len(one.Secrets) != 1 || string(one.Secrets[0].Key) != "fifth" {
		t.Errorf("left is %+v", one.Secrets)
	}
	_, err = s.RemoveWebhookSecret(ctx, tenant, "mail", one.Secrets[0].ID)
	tablestest.WantCode(t, err, domain.CodeConflict)
	if last := add("the only one", 0); len(last.Secrets) != 1 || string(last.Secrets[0].Key) != "the only one" {
		t.Errorf("with one in place of all others there are %+v", last.Secrets)
	}
	_, err = s.AddWebhookSecret(ctx, tenant, "none", newSecret("x"), -1)
	tablestest.WantCode(t, err, domain.CodeNotFound)
}

func TestReplaysOfAWebhook(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, tenant := t.Context(), domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 5))
	made := putWebhook(t, s, tenant, "mail", 6)
	group := tablestest.GroupDefinition(0)
	group.To = 4
	replaying, err := s.StartWebhookReplay(ctx, tenant, "mail", webhook.Replay{From: 2, To: 4}, group)
	tablestest.Must(t, err)
	if r := replaying.Replay; r == nil || r.From != 2 || r.To != 4 || r.StartedAt.IsZero() || !r.DoneAt.IsZero() || replaying.Revision <= made.Revision {
		t.Fatalf("the replay is %+v", r)
	}
	if got := tablestest.StatusOf(t, s, tenant, "replay.mail", 0); got.ReadTo != 1 {
		t.Errorf("its group is at %+v", got)
	}
	claim := webhook.Claim{ID: webhook.ClaimID("a"), Position: 2, RecordedAt: time.Now()}
	_, err = s.ClaimEvents(ctx, tenant, "replay.mail", time.Minute, []webhook.Claim{claim})
	tablestest.Must(t, err)
	_, err = s.StartWebhookReplay(ctx, tenant, "mail", webhook.Replay{From: 1, To: 1}, group)
	tablestest.WantCode(t, err, domain.CodeConflict)

	tablestest.Must(t, s.EndWebhookReplay(ctx, tenant, "mail", replaying.Replay.StartedAt.Add(-time.Second)))
	if got, err := s.Webhook(ctx, tenant, "mail"); err != nil || !got.Replay.DoneAt.IsZero() {
		t.Errorf("another one's end has ended %+v, %v", got.Replay, err)
	}
	tablestest.Must(t, s.EndWebhookReplay(ctx, tenant, "mail", replaying.Replay.StartedAt))
	tablestest.Must(t, s.EndWebhookReplay(ctx, tenant, "mail", replaying.Replay.StartedAt))
	done, err := s.Webhook(ctx, tenant, "mail")
	if err != nil || done.Replay.DoneAt.IsZero() {
		t.Errorf("done is %+v, %v", done.Replay, err)
	}
	again, err := s.StartWebhookReplay(ctx, tenant, "mail", webhook.Replay{From: 1, To: 4}, group)
	tablestest.Must(t, err)
	if got := tablestest.StatusOf(t, s, tenant, "replay.mail", 0); got.ReadTo != 0 || again.Replay.From != 1 {
		t.Errorf("the next replay is %+v, at %+v", again.Replay, got)
	}
	var claims int
	tablestest.Must(t, db.Pool(t, "postgres", 1).QueryRow(ctx, "select count(*) from manifold.webhook_claims where tenant_id = $1", tenant).Scan(&claims))
	if claims != 0 {
		t.Errorf("%d claims of the last replay are left", claims)
	}
	cancelled, err := s.CancelWebhookReplay(ctx, tenant, "mail")
	if err != nil || cancelled.Replay != nil {
		t.Errorf("cancelled is %+v, %v", cancelled.Replay, err)
	}
	_, err = s.Group(ctx, tenant, "replay.mail")
	tablestest.WantCode(t, err, domain.CodeNotFound)
	_, err = s.CancelWebhookReplay(ctx, tenant, "mail")
	tablestest.WantCode(t, err, domain.CodeNotFound)
	_, err = s.StartWebhookReplay(ctx, tenant, "none", webhook.Replay{From: 1, To: 4}, group)
	tablestest.WantCode(t, err, domain.CodeNotFound)
}

// A replay that is to begin, or to be cancelled, takes nothing from one that somebody else has begun meanwhile.
func TestConcurrentReplays(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, tenant := t.Context(), domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 5))
	putWebhook(t, s, tenant, "mail", 6)
	pool := db.Pool(t, pgtest.RoleSuperuser, 2)
	for what, do := range map[string]func() error{
		"starting": func() error {
			_, err := s.StartWebhookReplay(ctx, tenant, "mail", webhook.Replay{From: 1, To: 5}, tablestest.GroupDefinition(0))
			return err
		},
		"cancelling": func() error { _, err := s.CancelWebhookReplay(ctx, tenant, "mail"); return err },
	} {
		webhook, err := s.StartWebhookReplay(ctx, tenant, "mail", webhook.Replay{From: 1, To: 5}, tablestest.GroupDefinition(0))
		tablestest.Must(t, err)
		tablestest.Must(t, s.EndWebhookReplay(ctx, tenant, "mail", webhook.Replay.StartedAt))
		// The other one has the webhook's row, and what it changes shows when it has committed.
		other, err := pool.Begin(ctx)
		tablestest.Must(t, err)
		_, err = other.Exec(ctx, "select from manifold.webhooks where tenant_id = $1 for update", tenant)
		tablestest.Must(t, err)
		outcome := make(chan error, 1)
		go func() { outcome <- do() }()
		db.WaitForLock(t)
		_, err = other.Exec(ctx, "update manifold.replays set started_at = statement_timestamp(), done_at = null where tenant_id = $1", tenant)
		tablestest.Must(t, err)
		_, err = other.Exec(ctx, "insert into manifold.webhook_claims values ($1, 'replay.mail', 'a', 1, now())", tenant)
		tablestest.Must(t, err)
		tablestest.Must(t, other.Commit(ctx))
		tablestest.WantCode(t, <-outcome, domain.CodeConflict)
		var claims int
		tablestest.Must(t, pool.QueryRow(ctx, "select count(*) from manifold.webhook_claims where tenant_id = $1", tenant).Scan(&claims))
		if claims != 1 {
			t.Errorf("%s has left %d claims of the other replay", what, claims)
		}
		_, err = s.CancelWebhookReplay(ctx, tenant, "mail")
		tablestest.Must(t, err)
	}
}

// Every process hears which tenant's webhooks have changed, and whichever way.
func TestChangesOfWebhooksAreReported(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	far := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	heard := make(chan domain.TenantID, 100)
	listening, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- far.ListenWebhooks(listening, func(tenant domain.TenantID) { heard <- tenant })
	}()
	if first := tablestest.Receive(t, heard, "the start"); first != domain.Everyone {
		t.Fatalf("the first notice is of %s", first)
	}
	putWebhook(t, s, tenant, "mail", 1)
	for what, change := range map[string]func() error{
		"put":   func() error { return nil },
		"pause": func() error { _, err := s.PauseWebhook(t.Context(), tenant, "mail", true); return err },
		"secret": func() error {
			_, err := s.AddWebhookSecret(t.Context(), tenant, "mail", newSecret("x"), -1)
			return err
		},
		"replay": func() error {
			_, err := s.StartWebhookReplay(t.Context(), tenant, "mail", webhook.Replay{From: 1, To: 1}, tablestest.GroupDefinition(0))
			return err
		},
	} {
		tablestest.Must(t, change())
		if got := tablestest.Receive(t, heard, what); got != tenant {
			t.Errorf("%s: the notice is of %s", what, got)
		}
	}
	tablestest.Must(t, s.DeleteWebhook(t.Context(), tenant, "mail"))
	if got := tablestest.Receive(t, heard, "the removal"); got != tenant {
		t.Errorf("the notice is of %s", got)
	}
	stop()
	tablestest.Must(t, tablestest.Receive(t, ended, "the end of listening"))
}

// Two tenants with webhooks of one name do not see one another, and what a tenant has had is gone when it is erased.
func TestWebhooksOfTenantsAreSeparate(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, super := t.Context(), db.Pool(t, "postgres", 1)
	one, two, none := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	at := time.Now()
	claims := []webhook.Claim{{ID: webhook.ClaimID("same"), Position: 1, RecordedAt: at}}
	attempt := webhook.Attempt{ID: webhook.NewAttemptID(), EventID: domain.NewEventID(), Position: 1, Outcome: webhook.OutcomeOK, At: at}
	for _, tenant := range []domain.TenantID{one, two} {
		putWebhook(t, s, tenant, "mail", 1)
		duplicates, err := s.ClaimEvents(ctx, tenant, "webhook.mail", time.Hour, claims)
		if err != nil || duplicates[0] {
			t.Errorf("a claim is a duplicate of another tenant's: %v, %v", duplicates, err)
		}
		tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "mail", []webhook.Attempt{attempt}))
		_, err = s.StartWebhookReplay(ctx, tenant, "mail", webhook.Replay{From: 1, To: 2}, tablestest.GroupDefinition(0))
		tablestest.Must(t, err)
	}
	tablestest.Must(t, s.DeleteWebhook(ctx, two, "mail"))
	if got, err := s.Webhook(ctx, one, "mail"); err != nil || len(got.Secrets) != 1 || got.Replay == nil {
		t.Errorf("the first tenant's webhook is %+v, %v", got, err)
	}
	if got, err := s.WebhookAttempts(ctx, one, "mail", webhook.AttemptQuery{Limit: 5}); err != nil || len(got) != 1 {
		t.Errorf("the first tenant's attempts are %+v, %v", got, err)
	}
	if got, err := s.Webhooks(ctx, none, "", 10); err != nil || got != nil {
		t.Errorf("a third tenant has %+v, %v", got, err)
	}
	_, err := s.WebhookAttempts(ctx, none, "mail", webhook.AttemptQuery{Limit: 5})
	tablestest.WantCode(t, err, domain.CodeNotFound)
	_, err = s.AddWebhookSecret(ctx, none, "mail", newSecret("x"), -1)
	tablestest.WantCode(t, err, domain.CodeNotFound)

	rows := func(tenant domain.TenantID) (found []string) {
		for _, table := range []string{"webhooks", "webhook_secrets", "replays", "webhook_attempts", "webhook_claims"} {
			var there bool
			tablestest.Must(t, super.QueryRow(ctx, "select exists (select from manifold."+table+" where tenant_id = $1)", tenant).Scan(&there))
			if there {
				found = append(found, table)
			}
		}
		return found
	}
	if len(rows(one)) != 5 || rows(two) != nil {
		t.Fatalf("there are rows in %v, of the deleted webhook in %v", rows(one), rows(two))
	}
	heard := make(chan domain.TenantID, 100)
	far := tablestest.OpenAgain(t, db)
	listening, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- far.ListenWebhooks(listening, func(tenant domain.TenantID) { heard <- tenant }) }()
	tablestest.Receive(t, heard, "the start")
	tablestest.Must(t, s.SetTenantState(ctx, one, domain.TenantDeleting))
	tablestest.Must(t, s.EraseLog(ctx, one))
	if left := rows(one); left != nil {
		t.Errorf("with the log erased there are rows in %v", left)
	}
	if got := tablestest.Receive(t, heard, "the erasure"); got != one {
		t.Errorf("the notice is of %s", got)
	}
	tablestest.Must(t, s.EraseTenant(ctx, one))
	stop()
	tablestest.Must(t, tablestest.Receive(t, ended, "the end of listening"))
}

// The login that reads across tenants sees which webhooks there are, and neither where they send to nor their secrets;
// the one that removes sees no secrets.
func TestLoginsThatCannotReadSecrets(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	putWebhook(t, s, tenant, "mail", 1)
	for _, c := range []struct {
		role      migrations.Role
		statement string
		allowed   bool
	}{
		{migrations.RoleSystem, "select tenant_id, name, revision, paused, disabled_at from manifold.webhooks", true},
		{migrations.RoleSystem, "select definition from manifold.webhooks", false},
		{migrations.RoleSystem, "select tenant_id from manifold.webhook_secrets", false},
		{migrations.RoleSystem, "select tenant_id from manifold.webhook_attempts", false},
		{migrations.RoleSystem, "update manifold.webhooks set paused = true", false},
		{migrations.RoleRetention, "select tenant_id from manifold.webhook_secrets", true},
		{migrations.RoleRetention, "select secret from manifold.webhook_secrets", false},
		{migrations.RoleDocuments, "select name from manifold.webhooks", false},
	} {
		_, err := db.Pool(t, c.role, 1).Exec(t.Context(), c.statement)
		if (err == nil) != c.allowed {
			t.Errorf("%s: %s: %v", c.role, c.statement, err)
		}
	}
	if !bytes.Equal(putWebhook(t, s, tenant, "other", 1).Secrets[0].Key, []byte("first of other")) {
		t.Error("the app login does not see the secret")
	}
}

// What is noted, claimed and changed while a webhook is removed is removed with it, or finds it gone.
func TestWebhookRemovedMeanwhileLeavesNothing(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, tenant, super := t.Context(), domain.NewTenantID(), db.Pool(t, "postgres", 1)
	for round := range 10 {
		putWebhook(t, s, tenant, "mail", 1)
		var at sync.WaitGroup
		for i := range 4 {
			at.Go(func() {
				for n := range 5 {
					now := time.Now()
					attempt := webhook.Attempt{ID: webhook.NewAttemptID(), EventID: domain.NewEventID(), Outcome: webhook.OutcomeOK, At: now}
					claim := webhook.Claim{ID: webhook.ClaimID(fmt.Sprint(n)), Position: int64(i + 1), RecordedAt: now}
					for _, err := range []error{
						s.AddWebhookAttempts(ctx, tenant, "mail", []webhook.Attempt{attempt}),
						func() error {
							_, err := s.ClaimEvents(ctx, tenant, "webhook.mail", time.Minute, []webhook.Claim{claim})
							return err
						}(),
						func() error { _, err := s.PauseWebhook(ctx, tenant, "mail", n%2 == 0); return err }(),
						func() error { _, err := s.AddWebhookSecret(ctx, tenant, "mail", newSecret("x"), 0); return err }(),
					} {
						if err != nil && tablestest.CodeOf(err) != domain.CodeNotFound {
							t.Error(err)
						}
					}
				}
			})
		}
		tablestest.Must(t, s.DeleteWebhook(ctx, tenant, "mail"))
		at.Wait()
		for _, table := range []string{"webhooks", "webhook_secrets", "replays", "webhook_attempts", "webhook_claims", "subscriptions", "subscription_ledgers"} {
			var left int
			tablestest.Must(t, super.QueryRow(ctx, "select count(*) from manifold."+table+" where tenant_id = $1", tenant).Scan(&left))
			if left > 0 {
				t.Fatalf("round %d: %d rows are left in %s", round, left, table)
			}
		}
	}
}
