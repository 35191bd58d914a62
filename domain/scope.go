package domain

import (
	"slices"
	"strings"
)

// Scope is one kind of thing that a key may do. For which categories it may do it, a Grant says.
type Scope string

// The scopes. ScopeOperator is never a tenant key's: the operator's key comes from the configuration.
const (
	ScopeEventsAppend       Scope = "events:append"
	ScopeEventsRead         Scope = "events:read"
	ScopeEventsConsume      Scope = "events:consume" // receive from groups, and answer
	ScopeDocumentsRead      Scope = "documents:read"
	ScopeProjectionsWrite   Scope = "projections:write"
	ScopeSubscriptionsWrite Scope = "subscriptions:write" // make, move and remove groups; replay and discard dead letters
	ScopeTenantAdmin        Scope = "tenant:admin"
	ScopeOperator           Scope = "operator"
)

// TenantScopes are the scopes that a tenant's key can have, in the order in which they are shown.
var TenantScopes = [...]Scope{
	ScopeEventsAppend, ScopeEventsRead, ScopeEventsConsume, ScopeDocumentsRead, ScopeProjectionsWrite, ScopeSubscriptionsWrite, ScopeTenantAdmin,
}

// categoryScopes are the scopes that can be granted for some categories only: what they allow is about events, and an
// event is of one category. A document or a projection is of none.
var categoryScopes = [...]Scope{ScopeEventsAppend, ScopeEventsRead, ScopeEventsConsume, ScopeSubscriptionsWrite}

// ByCategory reports whether the scope can be granted for some categories only.
func (s Scope) ByCategory() bool { return slices.Contains(categoryScopes[:], s) }

func (s Scope) ofTenants() bool { return slices.Contains(TenantScopes[:], s) }

// scopeList names scopes in a sentence.
func scopeList(scopes []Scope) string {
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = string(scope)
	}
	return strings.Join(texts, ", ")
}
