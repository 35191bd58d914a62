package api

import (
	"context"
	"maps"
	"slices"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/members"
)

func (s operations) ListEgresses(ctx context.Context, caller access.Caller, _ openapi.ListEgressesRequest) (*openapi.Response, error) {
	declared, err := s.config.Births.Declared(ctx, domain.ServiceEgress)
	if err != nil {
		return nil, err
	}
	processes, err := s.config.Members.Egresses(ctx, members.Dead)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]openapi.Egress)
	removed := make(map[string]int) // in how many processes
	for _, id := range declared {
		byName[id.Name] = openapi.Egress{Name: id.Name, Processes: []openapi.EgressProcess{}}
	}
	for _, process := range processes {
		for i := range process.Reports {
			r := &process.Reports[i]
			if r.Removed {
				removed[r.Name]++
			}
			done := removed[r.Name] == len(processes)
			running := slices.Concat(byName[r.Name].Processes, []openapi.EgressProcess{egressProcess(process, r.EgressState)})
			byName[r.Name] = openapi.Egress{
				Name: r.Name, Removing: r.Remove && !done, Removed: done, Kind: r.Kind, Addresses: r.Addresses, Topic: r.Topic, Tenants: r.Tenants, Categories: r.Categories,
				Types: r.Types, Query: shownQuery(r.Query), Filter: r.Filter, Processes: running,
			}
		}
	}
	answer := openapi.EgressList{Egresses: []openapi.Egress{}}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		answer.Egresses = append(answer.Egresses, byName[name])
	}
	return openapi.OK(answer), nil
}

func egressProcess(process domain.ProcessEgresses, state domain.EgressState) openapi.EgressProcess {
	return openapi.EgressProcess{
		Id: process.Member.String(), Name: process.Name, Up: state.Up, Error: state.Error, ErrorSince: moment(state.ErrorSince),
		ErrorTenant: state.ErrorTenant, Failing: state.Failing, WaitingSince: moment(state.WaitingSince),
	}
}
