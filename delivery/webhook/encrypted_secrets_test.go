package webhook_test

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/atrest"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// keysOf returns keys of these names, the first of which encrypts.
func keysOf(t testing.TB, names ...string) *atrest.Keys {
	t.Helper()
	var text strings.Builder
	for _, name := range names {
		if name == "plain" {
			text.WriteString("plain\n")
			continue
		}
		text.WriteString(name + " " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name), 32)[:32]) + "\n")
	}
	keys, err := atrest.Parse(text.String())
	tablestest.Must(t, err)
	return keys
}

// Secrets are encrypted when there is a key, and encrypted again when there is a new one, while they sign as before.
// Without their key, they do not sign at all.
func TestSecretsAreEncryptedAtRest(t *testing.T) {
	t.Parallel()
	plain, db := tablestest.Open(t)
	ctx, tenant, other := t.Context(), domain.NewTenantID(), domain.NewTenantID()
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	with := func(names ...string) *tables.Tables {
		return tablestest.OpenWith(t, db, func(c *tables.Config) { c.Secrets = keysOf(t, names...) })
	}
	first, second, both := with("first"), with("second"), with("second", "first")

	made := putWebhook(t, plain, tenant, "mail", 1)
	want := []string{string(made.Secrets[0].Key), "added"}
	_, err := first.AddWebhookSecret(ctx, tenant, "mail", newSecret("added"), -1)
	tablestest.Must(t, err)
	reads := func(s *tables.Tables) {
		t.Helper()
		webhook, err := s.Webhook(ctx, tenant, "mail")
		tablestest.Must(t, err)
		var got []string
		for _, secret := range webhook.Secrets {
			got = append(got, string(secret.Key))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the secrets are %q, want %q", got, want)
		}
	}
	// unusable checks how many secrets cannot be decrypted.
	unusable := func(s *tables.Tables, tenant domain.TenantID, want int) {
		t.Helper()
		webhook, err := s.Webhook(ctx, tenant, "mail")
		tablestest.Must(t, err)
		got := 0
		for _, secret := range webhook.Secrets {
			if secret.Unusable != nil && secret.Key == nil {
				got++
			}
		}
		if got != want {
			t.Errorf("%d secrets cannot be decrypted, want %d: %+v", got, want, webhook.Secrets)
		}
	}
	// stored checks the names of the keys in the rows, and that no secret is readable there.
	stored := func(keys ...string) {
		t.Helper()
		var got []string
		var rows string
		err := super.QueryRow(ctx, `
			select array_agg(coalesce(s.key_id, '') order by s.created_at), string_agg(encode(s.secret, 'escape'), ' ' order by s.created_at)
			from manifold.webhook_secrets s where s.tenant_id = $1`, tenant).Scan(&got, &rows)
		tablestest.Must(t, err)
		if !slices.Equal(got, keys) {
			t.Errorf("the rows have the keys %q, want %q", got, keys)
		}
		for i, secret := range want {
			if strings.Contains(rows, secret) != (got[i] == "") {
				t.Errorf("the row with the key %q is among %q", got[i], rows)
			}
		}
	}
	stored("", "first")
	reads(first)
	unusable(plain, tenant, 1)
	if _, err := second.EncryptSecrets(ctx, tenant); err == nil || !strings.Contains(err.Error(), `"first" is missing from encryption.keys`) {
		t.Errorf("without the first key the error is %v", err)
	}
	stored("second", "first") // what was possible is done

	var processes sync.WaitGroup
	for range 4 {
		processes.Go(func() {
			if _, err := both.EncryptSecrets(ctx, tenant); err != nil {
				t.Error(err)
			}
		})
	}
	processes.Wait()
	stored("second", "second")
	reads(both)
	reads(second)
	unusable(first, tenant, 2)
	if n, err := plain.EncryptSecrets(ctx, tenant); n != 0 || err != nil {
		t.Errorf("without keys, %d are encrypted, %v", n, err)
	}

	// A secret works in its own place only.
	putWebhook(t, second, other, "mail", 1)
	_, err = super.Exec(ctx, `
		update manifold.webhook_secrets set secret = (select s.secret from manifold.webhook_secrets s where s.tenant_id = $1 order by s.created_at limit 1)
		where tenant_id = $2`, tenant, other)
	tablestest.Must(t, err)
	unusable(second, other, 1)

	// Without the key, the secrets can be replaced, and the webhook can be deleted.
	renewed, err := plain.AddWebhookSecret(ctx, other, "mail", newSecret("renewed"), 0)
	tablestest.Must(t, err)
	if len(renewed.Secrets) != 1 || string(renewed.Secrets[0].Key) != "renewed" {
		t.Errorf("the secrets are %+v", renewed.Secrets)
	}
	tablestest.Must(t, first.DeleteWebhook(ctx, other, "mail"))

	// Encrypting ends with plain.
	if n, err := with("plain", "second").EncryptSecrets(ctx, tenant); n != 2 || err != nil {
		t.Errorf("%d are stored plainly, %v", n, err)
	}
	stored("", "")
	reads(plain)
}

// A process that starts with a key encrypts all secrets with it. One without the key keeps the events of these webhooks
// for a process that has it, and sends those of others.
func TestProcessesEncryptSecrets(t *testing.T) {
	t.Parallel()
	_, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	key := keysOf(t, "first")
	closed, open := newEndpoint(t, always(200)), newEndpoint(t, always(200))
	without := start(t, db, options{})
	tenant := without.tenant(t)
	without.put(t, tenant, "closed", webhook.Definition{URL: closed.url})
	without.stop()
	with := start(t, db, options{secrets: key, idle: true})
	await(t, "the secret is encrypted", func() bool {
		var encrypted bool
		tablestest.Must(t, super.QueryRow(t.Context(), "select coalesce(key_id, '') = 'first' from manifold.webhook_secrets where tenant_id = $1", tenant).Scan(&encrypted))
		return encrypted
	})
	with.stop()

	without = start(t, db, options{})
	without.put(t, tenant, "open", webhook.Definition{URL: open.url})
	event := without.add(t, tenant, "order-1", "OrderPlaced", `{}`)[0]
	if r := open.next(t); r.id() != event.ID.String() {
		t.Errorf("it comes as %s, not %s", r.id(), event.ID)
	}
	if got := without.attempts(t, tenant, "closed"); len(got) != 0 {
		t.Errorf("without the key it attempts %+v", got)
	}
	without.stop()
	with = start(t, db, options{secrets: key})
	if r := closed.next(t); r.id() != event.ID.String() {
		t.Errorf("it comes as %s, not %s", r.id(), event.ID)
	}
	with.stop()

	// Without the key, it sends again when the secret has expired, and another one signs.
	without = start(t, db, options{})
	if _, err := without.webhooks.AddSecret(t.Context(), tenant, "closed", time.Hour); err != nil {
		t.Fatal(err)
	}
	later := newEndpoint(t, always(200))
	without.put(t, tenant, "later", webhook.Definition{URL: later.url})
	event = without.add(t, tenant, "order-1", "OrderPlaced", `{}`)[0]
	later.next(t)
	if got := without.attempts(t, tenant, "closed"); len(got) != 1 {
		t.Errorf("before the secret has expired, it attempts %+v", got)
	}
	_, err := super.Exec(t.Context(), "update manifold.webhook_secrets set expires_at = now() where tenant_id = $1 and name = 'closed' and expires_at is not null", tenant)
	tablestest.Must(t, err)
	webhook.RetryUnusable(t.Context(), without.webhooks)
	if r := closed.next(t); r.id() != event.ID.String() {
		t.Errorf("it comes as %s, not %s", r.id(), event.ID)
	}
}
