package webhook_test

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/atrest"
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
	_, err = plain.Webhook(ctx, tenant, "mail")
	tablestest.WantCode(t, err, domain.CodeUnavailable)
	if _, err := second.EncryptSecrets(ctx, tenant); err == nil || !strings.Contains(err.Error(), `"first", which encryption.keys does not have`) {
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
	_, err = first.Webhook(ctx, tenant, "mail")
	tablestest.WantCode(t, err, domain.CodeUnavailable)
	if n, err := plain.EncryptSecrets(ctx, tenant); n != 0 || err != nil {
		t.Errorf("without keys, %d are encrypted, %v", n, err)
	}

	// A secret works in its own place only.
	putWebhook(t, second, other, "mail", 1)
	_, err = super.Exec(ctx, `
		update manifold.webhook_secrets set secret = (select s.secret from manifold.webhook_secrets s where s.tenant_id = $1 order by s.created_at limit 1)
		where tenant_id = $2`, tenant, other)
	tablestest.Must(t, err)
	_, err = second.Webhook(ctx, other, "mail")
	tablestest.WantCode(t, err, domain.CodeUnavailable)
}

// A process that starts with a new key encrypts all secrets with it.
func TestProcessesEncryptSecrets(t *testing.T) {
	t.Parallel()
	plain, db := tablestest.Open(t)
	for range 3 {
		putWebhook(t, plain, domain.NewTenantID(), "mail", 1)
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	start(t, db, options{secrets: keysOf(t, "first")})
	await(t, "all secrets are encrypted", func() bool {
		var encrypted int
		tablestest.Must(t, super.QueryRow(t.Context(), "select count(*) from manifold.webhook_secrets s where s.key_id = 'first'").Scan(&encrypted))
		return encrypted == 3
	})
}
