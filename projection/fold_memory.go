package projection

import (
	"container/list"
	"sync"
)

// foldMemory keeps the most recently used folds, by definition. It is safe for concurrent use.
type foldMemory struct {
	most int

	mu    sync.Mutex
	order list.List // of *compiled, the last used in front
	bySum map[definitionSum]*list.Element
}

type compiled struct {
	sum  definitionSum
	fold *Fold
}

func newFoldMemory(most int) *foldMemory {
	return &foldMemory{most: most, bySum: make(map[definitionSum]*list.Element)}
}

// get returns the fold of a definition; nil if it is not kept.
func (m *foldMemory) get(sum definitionSum) *Fold {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.bySum[sum]
	if e == nil {
		return nil
	}
	m.order.MoveToFront(e)
	return e.Value.(*compiled).fold
}

// put keeps a fold. If there are too many, it drops the least recently used.
func (m *foldMemory) put(sum definitionSum, fold *Fold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.bySum[sum]; e != nil {
		m.order.Remove(e)
	}
	m.bySum[sum] = m.order.PushFront(&compiled{sum, fold})
	for m.order.Len() > m.most {
		oldest := m.order.Back()
		m.order.Remove(oldest)
		delete(m.bySum, oldest.Value.(*compiled).sum)
	}
}
