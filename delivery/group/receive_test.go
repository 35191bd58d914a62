package group

import "testing"

// A receive that does not wait is answered when each of its partitions had nothing for it. A partition that looks again
// meanwhile, because it was woken, does not count for another.
func TestReceiveAsksEachPartition(t *testing.T) {
	t.Parallel()
	one, two := &partition{}, &partition{}
	r := &receive{partitions: []*partition{one, two}, done: make(chan struct{}), looksLeft: 2}
	if !r.claim(one) || r.claim(two) {
		t.Fatal("the first partition that asks has it")
	}
	r.finish(one, nil)
	if r.ended() {
		t.Fatal("it is answered though only one partition was asked")
	}
	if r.claim(one) {
		r.finish(one, nil)
		t.Errorf("a partition looks for it twice; it is answered: %t", r.ended())
	}
	if !r.claim(two) {
		t.Fatal("the second partition does not get it")
	}
	if r.finish(two, nil); !r.ended() {
		t.Fatal("it is not answered though each was asked")
	}
}
