package subscription

import (
	"context"
	"errors"
	"hash/fnv"

	"github.com/manifold-es/manifold/domain"
)

// partitionOf is the partition that a stream is in, of n; 0 where there are none. It is the same in every release.
func partitionOf(stream string, n int) int {
	if n <= 1 {
		return 0
	}
	hash := fnv.New64a()
	hash.Write([]byte(stream))
	// FNV's high bits differ little for names that differ at their end: the finalizer of splitmix64 spreads them.
	h := hash.Sum64()
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return int(h % uint64(n))
}

// partitionsOf are the partitions of a group that a member receives from.
func (g *Groups) partitionsOf(_ context.Context, _ domain.TenantID, group domain.Group, _ domain.GroupMemberID) ([]int, error) {
	all := make([]int, max(1, group.Partitions))
	for i := range all {
		all[i] = i
	}
	return all, nil
}

// answerPartitions has each partition of a group apply its part of what a consumer says. Which that is is found by the event's
// stream.
func (g *Groups) answerPartitions(
	ctx context.Context, gr *group, attempts []domain.Attempt, newAnswer func([]domain.Attempt) *answer,
) ([]domain.Outcome, error) {
	known := gr.known.Load()
	of := make(map[int][]int) // indexes of attempts, by partition
	outcomes := make([]domain.Outcome, len(attempts))
	for i, attempt := range attempts {
		outcomes[i] = domain.OutcomeNotInFlight
		position, err := g.config.Store.EventPosition(ctx, gr.tenant, attempt.EventID)
		if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		events, err := g.config.Store.ReadPositions(ctx, gr.tenant, []int64{position})
		if err != nil {
			return nil, err
		}
		for j := range events {
			number := partitionOf(events[j].Stream, known.Partitions)
			of[number] = append(of[number], i)
		}
	}
	for number, indexes := range of {
		part := make([]domain.Attempt, len(indexes))
		for i, index := range indexes {
			part[i] = attempts[index]
		}
		found, err := g.partition(gr, number).ask(ctx, newAnswer(part))
		if err != nil {
			return nil, err
		}
		for i, index := range indexes {
			outcomes[index] = found[i]
		}
	}
	return outcomes, nil
}
