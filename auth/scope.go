package auth

import (
	"slices"
	"strings"
)

// Scope is one kind of action that a key may perform. A Grant says for which categories.
type Scope string

// The scopes. A tenant's key never has those of operators: see Role.
const (
	ScopeEventsAppend       Scope = "events:append"
	ScopeEventsRead         Scope = "events:read"
	ScopeEventsConsume      Scope = "events:consume" // receive from groups, and acknowledge
	ScopeCommandsSend       Scope = "commands:send"
	ScopeDocumentsRead      Scope = "documents:read"
	ScopeProjectionsWrite   Scope = "projections:write"
	ScopeSubscriptionsWrite Scope = "subscriptions:write" // create, seek and delete groups; replay and discard dead letters
	ScopeTenantAdmin        Scope = "tenant:admin"
	ScopeAuditRead          Scope = "audit:read" // read the tenant's audit log; see Credential.ForAudit
	ScopeSubjectsErase      Scope = "subjects:erase"
	ScopeSubjectsRead       Scope = "subjects:read" // export a person's data
	ScopeOperator           Scope = "operator"      // what destroys tenants' data, or gives access to it
	ScopeOperatorOperate    Scope = "operator:operate"
	ScopeOperatorRead       Scope = "operator:read"
)

// TenantScopes are the scopes that a tenant's key can have, in display order.
var TenantScopes = [...]Scope{
	ScopeEventsAppend, ScopeEventsRead, ScopeEventsConsume, ScopeCommandsSend, ScopeDocumentsRead, ScopeProjectionsWrite, ScopeSubscriptionsWrite, ScopeTenantAdmin, ScopeAuditRead, ScopeSubjectsErase, ScopeSubjectsRead,
}

// categoryScopes are the scopes that can be granted for some categories only. They concern events, which have a
// category. Documents and projections have none.
var categoryScopes = [...]Scope{ScopeEventsAppend, ScopeEventsRead, ScopeEventsConsume, ScopeCommandsSend, ScopeSubscriptionsWrite}

// ByCategory reports whether the scope can be granted for some categories only.
func (s Scope) ByCategory() bool { return slices.Contains(categoryScopes[:], s) }

func (s Scope) ofTenants() bool { return slices.Contains(TenantScopes[:], s) }

// scopeList lists scopes for use in a sentence.
func scopeList(scopes []Scope) string {
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = string(scope)
	}
	return strings.Join(texts, ", ")
}
