// Package access decides what a request's caller may do. Caller has the tenant and its key's grants; its methods check
// them for categories, streams, selections and groups.
package access

import (
	"fmt"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// Caller identifies the client for which a request acts.
type Caller struct {
	Tenant     domain.TenantID // domain.Everyone for the operator; an audit log's id for requests about that
	Credential auth.Credential
}

// By returns the caller's name for records of its actions. A token's parts are quoted, because its holder may have
// chosen them: they must not look like another caller's.
func (c Caller) By() string {
	switch credential := c.Credential; {
	case credential.IsToken() && credential.Operator:
		return fmt.Sprintf("operator %q (%q of %s)", credential.Name, credential.Subject, credential.Issuer)
	case credential.IsToken():
		return fmt.Sprintf("token %q (%q of %s)", credential.Name, credential.Subject, credential.Issuer)
	case credential.Operator:
		return "operator"
	}
	return fmt.Sprintf("key %s (%s)", c.Credential.KeyID, c.Credential.Name)
}

// Known reports whether the caller was authenticated. Callers of operations without scopes are not.
func (c Caller) Known() bool { return c.Credential.Known() }

// ShareOf returns the tenant whose share of the budgets a request uses.
func (c Caller) ShareOf() domain.TenantID {
	if !c.Known() {
		return nobody
	}
	return c.Credential.Tenant
}

// Allow returns nil if the caller has one of scopes for the events of a category, and otherwise the error for the
// client. An empty category means all categories. A handler whose operation has x-categories in the contract must call
// it for every category of the request, before it does anything.
func (c Caller) Allow(category string, scopes ...auth.Scope) error {
	return c.Credential.RequireFor(category, scopes...)
}

// AllowEach is allow for several categories; none means all.
func (c Caller) AllowEach(categories []string, scopes ...auth.Scope) error {
	if len(categories) == 0 {
		return c.Allow("", scopes...)
	}
	for _, category := range categories {
		if err := c.Allow(category, scopes...); err != nil {
			return err
		}
	}
	return nil
}

// AllowStream is allow for the stream that the path names. It also checks the name.
func (c Caller) AllowStream(stream string, scopes ...auth.Scope) error {
	const where = "path streamId"
	if err := domain.CheckStream(where, stream); err != nil {
		return err
	}
	return problem.At(where, c.Allow(domain.Category(stream), scopes...))
}

// AllowSelection returns nil if the caller has one of scopes for all events of a selection: for its stream's category,
// each of its categories, or the whole log.
func (c Caller) AllowSelection(of domain.Selection, scopes ...auth.Scope) error {
	if of.Stream != "" {
		return c.Allow(domain.Category(of.Stream), scopes...)
	}
	return c.AllowEach(of.Categories, scopes...)
}

// AllowDeliveries returns an error for events that the caller may not consume. The group's selection may have changed
// since it was checked.
func (c Caller) AllowDeliveries(deliveries []domain.Delivery) error {
	if c.Allow("", auth.ScopeEventsConsume) == nil {
		return nil
	}
	for i := range deliveries {
		if err := c.Allow(domain.Category(deliveries[i].Event.Stream), auth.ScopeEventsConsume); err != nil {
			return err
		}
	}
	return nil
}

// nobody represents the tenant in the budgets of requests without a key.
var nobody = domain.TenantID{0xff}
