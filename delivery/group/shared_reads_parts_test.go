package group

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// A partition that lags finds its part of a shared read after the parts of the others were taken and dropped, even if
// its own part is empty. Only a partition whose part was dropped reads again.
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
	for _, each := range []int{1, 2, 10} { // events of a read
		kind, behind := readKind{partitions: partitions}, readPlace{1, time.Now().Add(time.Hour)}
		shared := &sharedReads{
			log: log, groups: func() int { return 1 }, memory: &memoryBudget{bound: 1 << 20}, events: each, held: math.MaxInt,
			places: map[readKind][]readPlace{kind: {{}, behind, behind}},
		}
		read := func(partition int) (found int) {
			for from := int64(1); from <= events; {
				slice, upTo, err := shared.read(t.Context(), tenant, domain.LogQuery{From: from, To: events, Limit: 3, MaxBytes: 1 << 20}, partition, partitions, events)
				if err != nil {
					t.Fatal(err)
				}
				found += len(slice.Events)
				from = upTo + 1
			}
			return found
		}
		again := func(partition int) (reads int) {
			for from := int64(1); from <= events; from += int64(each) {
				before := len(shared.reads)
				if _, mine := shared.findOrAdd(kind, domain.LogQuery{From: from, To: events}, partition, 1); mine {
					reads++
					shared.reads = shared.reads[:before]
				}
			}
			return reads
		}
		for partition := range partitions {
			if n := again(partition); partition > 0 && n > 0 {
				t.Errorf("with %d events in each read, partition %d must read %d times, though it has taken nothing", each, partition, n)
			}
			if n := read(partition); n != of[partition] {
				t.Fatalf("with %d events in each read, partition %d has %d events; want %d", each, partition, n, of[partition])
			}
			if n := again(partition); partition == 0 && n == 0 {
				t.Errorf("with %d events in each read, nothing of what was taken is dropped", each)
			}
		}
		if n := read(0); n != of[0] {
			t.Errorf("with %d events in each read, partition 0 has %d events when it reads again; want %d", each, n, of[0])
		}
	}
}
