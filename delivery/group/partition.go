package group

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// partitionOf returns the partition of a stream, of n, or 0 if there are none. It is the same in every release.
func partitionOf(stream string, n int) int {
	if n <= 1 {
		return 0
	}
	hash := fnv.New64a()
	hash.Write([]byte(stream))
	// FNV's high bits differ little for names that differ only at the end. The finalizer of splitmix64 spreads them.
	h := hash.Sum64()
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return int(h % uint64(n))
}

// placesKept limits how many recently delivered events are remembered with their partitions, in each of two
// generations.
const placesKept = 16_384

// partitionCache remembers the partitions of events that were delivered here, so that an answer finds its partition
// without asking the database. It forgets the oldest. The zero value is ready for use. Methods may be called
// concurrently.
type partitionCache struct {
	mu            sync.Mutex
	newer, before map[domain.EventID]int
}

func (k *partitionCache) note(deliveries []domain.Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range deliveries {
		if k.newer == nil || len(k.newer) >= placesKept {
			k.newer, k.before = make(map[domain.EventID]int), k.newer
		}
		k.newer[deliveries[i].Event.ID] = deliveries[i].Partition
	}
}

func (k *partitionCache) find(id domain.EventID) (partition int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if partition, ok = k.newer[id]; !ok {
		partition, ok = k.before[id]
	}
	return partition, ok
}

// byPartition groups the indexes of attempts by the partition of their events. It omits events that do not exist.
func (g *Groups) byPartition(ctx context.Context, gr *group, attempts []domain.Attempt) (map[int][]int, error) {
	of := make(map[int][]int)
	var unknown []domain.EventID
	var looked []int // the indexes of unknown
	for i, attempt := range attempts {
		if partition, ok := gr.placed.find(attempt.EventID); ok {
			of[partition] = append(of[partition], i)
		} else {
			unknown, looked = append(unknown, attempt.EventID), append(looked, i)
		}
	}
	if len(unknown) == 0 {
		return of, nil
	}
	streams, err := g.config.Events.StreamsOf(ctx, gr.tenant, unknown)
	if err != nil {
		return nil, err
	}
	partitions := gr.known.Load().Partitions
	for n, i := range looked {
		if stream, there := streams[unknown[n]]; there {
			partition := partitionOf(stream, partitions)
			of[partition] = append(of[partition], i)
		}
	}
	return of, nil
}

// answerPartitions has each partition of a group apply its part of a consumer's answer.
func (g *Groups) answerPartitions(
	ctx context.Context, gr *group, attempts []domain.Attempt, newAnswer func([]domain.Attempt) *answer,
) ([]domain.Outcome, error) {
	of, err := g.byPartition(ctx, gr, attempts)
	if err != nil {
		return nil, err
	}
	outcomes := make([]domain.Outcome, len(attempts))
	for i := range outcomes {
		outcomes[i] = domain.OutcomeNotInFlight
	}
	// Ask concurrently, because each is a separate round trip. Wait for all of them, whatever becomes of one.
	failed := make([]error, 0, len(of))
	var mu sync.Mutex
	var asking sync.WaitGroup
	for number, indexes := range of {
		asking.Go(func() {
			part := make([]domain.Attempt, len(indexes))
			for i, index := range indexes {
				part[i] = attempts[index]
			}
			found, err := g.submitTo(ctx, gr, number, func() *answer { return newAnswer(part) })
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return
			}
			for i := range found {
				outcomes[indexes[i]] = found[i]
			}
		})
	}
	asking.Wait()
	if len(failed) > 0 {
		return nil, failed[0]
	}
	return outcomes, nil
}

// submitTo has one partition apply an answer. If the partition was dropped from memory meanwhile, the answer was
// not applied. Then submitTo looks the group up again and repeats only this part, because other parts may have been
// applied.
func (g *Groups) submitTo(ctx context.Context, gr *group, number int, newAnswer func() *answer) ([]domain.Outcome, error) {
	for {
		found, err := g.partition(gr, number).submit(ctx, newAnswer())
		if !errors.Is(err, errDropped) {
			return found, err
		}
		if gr, err = g.use(ctx, gr.tenant, gr.name); err != nil {
			return nil, err
		}
		if number >= gr.known.Load().Partitions {
			return nil, nil // another group with this name, which has delivered none of these
		}
	}
}
