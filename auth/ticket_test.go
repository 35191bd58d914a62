package auth

import (
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// newTicket creates a ticket for a credential, with the given lifetime.
func newTicket(t *testing.T, s *counted, of Credential, life time.Duration) string {
	t.Helper()
	ticket, token := NewTicket(of)
	_, err := s.CreateTicket(t.Context(), ticket, life)
	must(t, err)
	return token
}

func TestATicketReplacesItsKey(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{})
	tenant := newTenant(t, s)
	key, token := newToken(t, s, tenant, ScopeEventsRead)
	holder, err := k.Authenticate(t.Context(), token)
	must(t, err)
	ticket := newTicket(t, s, holder, TicketLife)
	if !strings.HasPrefix(ticket, "mft_") {
		t.Errorf("a ticket begins %.4s", ticket)
	}
	for range 2 { // a ticket may be used again until it expires
		got, err := k.AuthenticateTicket(t.Context(), ticket)
		must(t, err)
		if got.Tenant != tenant || got.KeyID != key.ID || got.Name != key.Name || got.Operator {
			t.Errorf("got %+v", got)
		}
		must(t, got.Require(ScopeEventsRead))
	}

	if _, err := k.Authenticate(t.Context(), ticket); code(err) != domain.CodeUnauthenticated {
		t.Errorf("a ticket in place of a key: %v", err)
	}
	if _, err := k.AuthenticateTicket(t.Context(), token); code(err) != domain.CodeUnauthenticated {
		t.Errorf("a key in place of a ticket: %v", err)
	}
	expired := newTicket(t, s, holder, 0)
	if _, err := k.AuthenticateTicket(t.Context(), expired); code(err) != domain.CodeUnauthenticated {
		t.Errorf("an expired ticket: %v", err)
	}

	must(t, s.RevokeKey(t.Context(), tenant, key.ID))
	k.Forget(tenant)
	if _, err := k.AuthenticateTicket(t.Context(), ticket); code(err) != domain.CodeUnauthenticated || !strings.Contains(err.Error(), "ticket") {
		t.Errorf("a ticket whose key was revoked: %v", err)
	}
}

func TestATicketOfASuspendedTenant(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{})
	tenant := newTenant(t, s)
	_, token := newToken(t, s, tenant, ScopeEventsRead)
	holder, err := k.Authenticate(t.Context(), token)
	must(t, err)
	ticket := newTicket(t, s, holder, TicketLife)
	must(t, s.SetTenantState(t.Context(), tenant, domain.TenantSuspended))
	k.Forget(tenant)
	if _, err := k.AuthenticateTicket(t.Context(), ticket); code(err) != domain.CodeTenantSuspended {
		t.Errorf("got %v", err)
	}
}

// A changed ticket does not work, and neither does one tenant's secret with another tenant's ids.
func TestOtherTicketsAreRefused(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{})
	var tickets []string
	for range 2 {
		tenant := newTenant(t, s)
		_, token := newToken(t, s, tenant, ScopeEventsRead)
		holder, err := k.Authenticate(t.Context(), token)
		must(t, err)
		tickets = append(tickets, newTicket(t, s, holder, TicketLife))
	}
	one, two := tickets[0], tickets[1]
	names := len(TicketPrefix) + 43 // up to and including most of both ids
	last := byte('A')
	if one[len(one)-1] == last {
		last = 'Q'
	}
	for what, ticket := range map[string]string{
		"no ticket":               "",
		"a prefix alone":          TicketPrefix,
		"a shorter one":           one[:len(one)-1],
		"a longer one":            one + "A",
		"another secret":          one[:len(one)-1] + string(last),
		"another tenant's secret": one[:names] + two[names:],
		"another prefix":          TokenPrefix + one[len(TicketPrefix):],
		"the ids of nothing":      TicketPrefix + strings.Repeat("A", len(one)-len(TicketPrefix)),
	} {
		if _, err := k.AuthenticateTicket(t.Context(), ticket); code(err) != domain.CodeUnauthenticated {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRefreshReadsTheCurrentKey(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{Operators: []OperatorKey{{1}}})
	tenant := newTenant(t, s)
	key, token := newToken(t, s, tenant, ScopeEventsRead)
	holder, err := k.Authenticate(t.Context(), token)
	must(t, err)
	again, err := k.Refresh(t.Context(), holder)
	must(t, err)
	must(t, again.Require(ScopeEventsRead))
	must(t, s.RevokeKey(t.Context(), tenant, key.ID))
	k.Forget(tenant)
	if _, err := k.Refresh(t.Context(), holder); code(err) != domain.CodeUnauthenticated {
		t.Errorf("a revoked key: %v", err)
	}
	if _, err := k.Refresh(t.Context(), Credential{Operator: true}); err != nil {
		t.Errorf("the operator: %v", err)
	}
}
