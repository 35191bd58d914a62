package service

import (
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/erasure/subjects"
)

// wireSubjects creates the part that erases people's data.
func (p *Process) wireSubjects() {
	p.subjects = subjects.New(subjects.Config{
		Store: p.store.SubjectTables, Events: p.store.Log, Registry: p.store.Registry, Catalog: p.catalog, Rebuilds: p.rebuilds, Drivers: p.drivers,
		Owners: p.store.SubjectOwners(), Personal: p.store.Personal, Keys: p.store.SigningKeys, ForgetSalts: p.store.ForgetSalts, Owns: p.members.Owns,
		Approval: p.config.Erasure.Approval, Backups: p.config.Erasure.BackupsKept,
		Settle: time.Minute + p.config.Database.ReplicaLag, Log: p.log, // a replica may show the data for as long
	})
}

// noticeErasures is called when an erasure has changed a tenant's stored events.
func (p *Process) noticeErasures(tenant domain.TenantID) {
	p.tails.Forget(tenant)
	p.groups.Forget(tenant)
	p.states.Forget(tenant)
}
