package auth

import (
	"fmt"
	"slices"
)

// Role says what an operator may do. Each role may do what those before it may.
type Role string

// The roles. Which operations need which one is in openapi.yaml, as x-scopes.
const (
	RoleRead    Role = "read"    // look at tenants, projections and processes
	RoleOperate Role = "operate" // and change what can be changed back: definitions, rebuilds without loss, faults, plans, tenants' states and shares
	RoleAdmin   Role = "admin"   // and everything else: create and delete tenants, manage keys, redact events, read all documents, delete and lose documents
)

// roles are the roles in order, with the scope that each adds.
var roles = [...]struct {
	role  Role
	scope Scope
}{{RoleRead, ScopeOperatorRead}, {RoleOperate, ScopeOperatorOperate}, {RoleAdmin, ScopeOperator}}

// ParseRole parses a role.
func ParseRole(text string) (Role, error) {
	if roleRank(Role(text)) < 0 {
		return "", fmt.Errorf("%q is not a role; write read, operate or admin", text)
	}
	return Role(text), nil
}

// roleRank returns the place of a role among roles, or -1.
func roleRank(role Role) int {
	for i, each := range roles {
		if each.role == role {
			return i
		}
	}
	return -1
}

// grants returns the grants of a role, the highest scope first.
func (r Role) grants() Grants {
	var scopes []Scope
	for _, each := range roles[:roleRank(r)+1] {
		scopes = append(scopes, each.scope)
	}
	slices.Reverse(scopes)
	return GrantsOf(scopes...)
}

// roleFor returns the lowest role that has one of the scopes, or "" if none has.
func roleFor(scopes []Scope) Role {
	for _, each := range roles {
		if slices.Contains(scopes, each.scope) {
			return each.role
		}
	}
	return ""
}

// operatorCredential returns the credential of an operator.
func operatorCredential(name string, role Role) Credential {
	return Credential{Name: name, Grants: role.grants(), Operator: true, Role: role}
}
