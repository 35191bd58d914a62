package group

import (
	"fmt"
	"math"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// A partition that lags behind finds its part of a shared read, also when the others have taken theirs, whose memory was
// needed. It is read again only for a partition that has taken it.
func TestSharedReadsKeepPartsForPartitionsBehind(t *testing.T) {
	t.Parallel()
	const events, partitions = 60, 3
	log, tenant := openLog(t), domain.NewTenantID()
	var request domain.Append
	of := make(map[int]int) // partition: number of events
	for i := range events {
		stream := fmt.Sprintf("a-%d", i)
		of[partitionOf(stream, partitions)]++
		request.Streams = append(request.Streams, domain.StreamAppend{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{{Type: "T", Data: []byte("1")}}})
	}
	if _, err := log.Append(t.Context(), tenant, request); err != nil {
		t.Fatal(err)
	}
	shared := &sharedReads{log: log, groups: func() int { return 1 }, memory: &memoryBudget{bound: 1 << 20}, events: 10, held: math.MaxInt}
	read := func(partition int) (found int) {
		for from := int64(1); from <= events; {
			slice, upTo, err := shared.read(t.Context(), tenant, domain.LogQuery{From: from, To: events, Limit: 1000, MaxBytes: 1 << 20}, partition, partitions, events)
			if err != nil {
				t.Fatal(err)
			}
			found += len(slice.Events)
			from = upTo + 1
		}
		return found
	}
	mine := func(partition int) (reads int) {
		for from := int64(1); from <= events; from += 10 {
			before := len(shared.reads)
			if _, mine := shared.findOrAdd(readKind{partitions: partitions}, domain.LogQuery{From: from, To: events}, partition); mine {
				reads++
				shared.reads = shared.reads[:before]
			}
		}
		return reads
	}
	for partition := range partitions {
		if partition > 0 {
			if n := mine(partition); n > 0 {
				t.Errorf("partition %d, of which nothing was taken, must make %d reads", partition, n)
			}
		}
		if n := read(partition); n != of[partition] {
			t.Fatalf("partition %d has %d events; want %d", partition, n, of[partition])
		}
		if n := mine(partition); partition == 0 && n == 0 {
			t.Error("nothing of what was taken is dropped")
		}
	}
	if n := read(0); n != of[0] {
		t.Errorf("partition 0 has %d events when it reads again; want %d", n, of[0])
	}
}
