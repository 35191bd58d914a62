package auth

import (
	"errors"

	"github.com/manifold-es/manifold/domain"
)

// DenialError is the error of a refused caller whose identity is certain: its key's secret is right, or its token is
// valid. Callers without a DenialError may be anybody. It wraps the error for the client.
type DenialError struct {
	Credential Credential // without grants
	Inactive   bool       // its tenant is suspended or being deleted
	Err        error
}

func (e *DenialError) Error() string { return e.Err.Error() }

// Unwrap returns the error for the client.
func (e *DenialError) Unwrap() error { return e.Err }

// asDenial adds the caller, whose tenant is in a state, to an error for clients. Other errors stay as they are.
func asDenial(err error, of Credential, state domain.TenantState) error {
	if _, refused := errors.AsType[*domain.Error](err); refused {
		return &DenialError{Credential: of, Inactive: state != domain.TenantActive, Err: err}
	}
	return err
}

// ForAudit returns the credential with the grants that it has in its audit log: those of its tenant or, for an
// operator, that of operators. It returns domain.CodeForbidden for a tenant's credential without ScopeAuditRead.
// Nothing grants ScopeEventsAppend there.
func (c Credential) ForAudit() (Credential, error) {
	read, subscribe, retain := ScopeAuditRead, ScopeSubscriptionsWrite, ScopeTenantAdmin
	if c.Operator {
		read, subscribe, retain = ScopeOperatorRead, ScopeOperatorOperate, ScopeOperator
	}
	if err := c.Require(read); err != nil {
		return Credential{}, err
	}
	granted := []Scope{ScopeEventsRead, ScopeEventsConsume}
	if c.Grants.AllowAll(subscribe) {
		granted = append(granted, ScopeSubscriptionsWrite)
	}
	if c.Grants.AllowAll(retain) {
		granted = append(granted, ScopeTenantAdmin)
	}
	c.Grants = GrantsOf(granted...)
	return c, nil
}
