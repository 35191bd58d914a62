package egress_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/egress/egresstest"
	"github.com/manifold-es/manifold/domain"
)

// An egress begins where it was first declared, by whichever process, also for tenants created later.
func TestAnEgressBeginsWhenItWasDeclared(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 2)
	b.Append(t, b.Tenants[0], "order-1")
	s := &script{}
	config := of(s)
	config.Start = false
	first := b.Start(t, config)
	first.Stop()
	b.Append(t, b.Tenants[0], "order-2")
	b.Append(t, b.Tenants[1], "order-3")
	b.Start(t, config)
	egresstest.Until(t, "both are stored", func() bool { return s.count() == 2 })
	for _, place := range s.places() {
		if place == "order-1@1" {
			t.Error("an event from before was published")
		}
	}
	at := &script{}
	config = of(at)
	config.Name, config.Start, config.From = "at", false, time.Now().Add(-time.Hour)
	b.Start(t, config)
	egresstest.Until(t, "the events since a time are stored", func() bool { return at.count() == 3 })
}

func TestEgressesIgnoreAuditLogs(t *testing.T) {
	t.Parallel()
	e, err := egress.New(of(&script{}))
	if err != nil {
		t.Fatal(err)
	}
	tenant := domain.NewTenantID()
	for id, want := range map[domain.TenantID]int{tenant: 1, tenant.AuditLog(): 0, domain.Everyone.AuditLog(): 0} {
		if consumers, err := e.Consumers(t.Context(), id); err != nil || len(consumers) != want {
			t.Errorf("%s has %d consumers, want %d: %v", id, len(consumers), want, err)
		}
	}
}

func TestTenantsOfAnEgress(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 3)
	s := &script{}
	config := of(s)
	config.Tenants = b.Tenants[:2]
	gone := b.Tenants[1]
	config.Active = func(_ context.Context, tenant domain.TenantID) (bool, error) { return tenant != gone, nil }
	b.Start(t, config)
	for _, tenant := range b.Tenants {
		b.Append(t, tenant, "order-1")
	}
	egresstest.Until(t, "the one is stored", func() bool { return s.count() == 1 })
	if got := attribute(&s.stored[0], "manifoldtenant"); got != b.Tenants[0].String() {
		t.Errorf("published was an event of %s", got)
	}
	for _, tenant := range b.Tenants[1:] {
		if groups, err := b.Store.Groups(t.Context(), tenant, "", 10); err != nil || len(groups) != 0 {
			t.Errorf("%s has the groups %+v, %v", tenant, groups, err)
		}
	}
}

// The selection of an egress may change between starts. Its groups keep their positions.
func TestChangedEgress(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 1)
	b.Append(t, b.Tenants[0], "order-1", "other-1")
	s := &script{}
	config := of(s)
	config.Selection.Categories = []string{"order"}
	first := b.Start(t, config)
	s.expect(t, "order-1@1")
	first.Stop()
	config.Selection.Categories = []string{"order", "other"}
	config.Start = false // which only affects new groups
	b.Append(t, b.Tenants[0], "other-1", "order-1")
	b.Start(t, config)
	s.expect(t, "order-1@1", "other-1@2", "order-1@2")
	// A group that was removed is created again, and begins where the egress does.
	s2 := &script{}
	again := of(s2)
	again.Name = "again"
	p := b.Start(t, again)
	egresstest.Until(t, "all are stored", func() bool { return s2.count() == 4 })
	if err := p.Groups.Delete(t.Context(), b.Tenants[0], egresstest.Group("again")); err != nil {
		t.Fatal(err)
	}
	b.Append(t, b.Tenants[0], "order-5")
	egresstest.Until(t, "all are stored once more", func() bool { return s2.count() == 9 })
}

func TestRemovedEgress(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 2)
	for _, tenant := range b.Tenants {
		b.Append(t, tenant, "order-1")
	}
	s := &script{}
	p := b.Start(t, of(s))
	egresstest.Until(t, "both are stored", func() bool { return s.count() == 2 })
	born, err := b.Store.Declare(t.Context(), domain.Everyone, domain.ServiceEgress, "out", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	p.Stop()
	owned := append(slices.Clone(b.Tenants), domain.NewTenantID()) // the last one's log does not exist yet
	var known atomic.Int64
	p = b.Start(t, egress.Config{Name: "out", Remove: true, Owned: func() ([]domain.TenantID, bool) {
		n := known.Load()
		return owned[:n], n > 0
	}})
	for _, tenant := range b.Tenants {
		egresstest.Until(t, "its group is gone", func() bool {
			_, err := b.Store.GroupStatus(t.Context(), tenant, egresstest.Group("out"))
			failure, ok := errors.AsType[*domain.Error](err)
			return ok && failure.Code == domain.CodeNotFound
		})
	}
	if p.Egress.Report().Removed {
		t.Error("it reports that all groups are removed before it knows its tenants")
	}
	known.Store(2)
	egresstest.Until(t, "it reports that all groups are removed", func() bool { return p.Egress.Report().Removed })
	known.Store(3)
	if p.Egress.Report().Removed {
		t.Error("it reports that all groups are removed before it has seen to all tenants")
	}
	if again, err := b.Store.Declare(t.Context(), domain.Everyone, domain.ServiceEgress, "out", time.Time{}); err != nil || !again.After(born) {
		t.Errorf("it was declared at %s, and then at %s, %v", born, again, err)
	}
}

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*egress.Config){
		"no topic":      func(c *egress.Config) { c.Topic = "" },
		"unknown place": func(c *egress.Config) { c.Topic = "a.{stream}" },
		"no end":        func(c *egress.Config) { c.Topic = "a.{key" },
		"no beginning":  func(c *egress.Config) { c.Topic = "a.key}" },
		"query.items":   func(c *egress.Config) { c.Selection.Query = domain.Query{{Tags: []string{""}}} },
		"filter":        func(c *egress.Config) { c.Selection.Filter = "event.data." },
		"category":      func(c *egress.Config) { c.Selection.Categories = []string{"a-b"} },
	} {
		config := of(&script{})
		change(&config)
		if _, err := egress.New(config); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}
