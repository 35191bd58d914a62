package service

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/members"
	"github.com/manifold-es/manifold/tables"
)

// memberName returns the process's name for people: its host and the address on which it listens.
func (p *Process) memberName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if _, port, err := net.SplitHostPort(p.Address()); err == nil {
		return net.JoinHostPort(host, port)
	}
	return host
}

// memberList lists the members for the API, whatever the process's role.
type memberList struct{ store *tables.Tables }

func (l memberList) Members(ctx context.Context) ([]api.Member, error) {
	alive, err := l.store.Members(ctx, members.Dead)
	if err != nil {
		return nil, err
	}
	var heads []domain.Head
	if len(alive) > 0 {
		if heads, err = l.store.Heads(ctx, time.Time{}); err != nil {
			return nil, err
		}
	}
	ids := make([]domain.MemberID, len(alive))
	for i := range alive {
		ids[i] = alive[i].ID
	}
	owned := members.Count(func(yield func(domain.TenantID) bool) {
		for i := range heads {
			if !yield(heads[i].Tenant) {
				return
			}
		}
	}, ids)
	all := make([]api.Member, len(alive))
	for i := range alive {
		all[i] = api.Member{Member: alive[i], Tenants: owned[i]}
	}
	return all, nil
}
