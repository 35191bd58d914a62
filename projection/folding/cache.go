package folding

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// Sum identifies a definition by its hash. No definition has the zero value.
type Sum [16]byte

// SumOf returns the definition's hash.
func SumOf(definition *domain.Definition) Sum {
	text, err := json.Marshal(definition)
	if err != nil {
		return Sum{} // impossible: it was read as JSON
	}
	sum := sha256.Sum256(text)
	return Sum(sum[:16])
}

// Cache keeps the most recently used folds, by definition, since compiling one takes milliseconds. It is safe for
// concurrent use.
type Cache struct {
	most int

	mu    sync.Mutex
	order list.List // of *compiled, the last used in front
	bySum map[Sum]*list.Element
}

type compiled struct {
	sum  Sum
	fold *Fold
}

// NewCache returns a cache of at most that many folds.
func NewCache(most int) *Cache {
	return &Cache{most: most, bySum: make(map[Sum]*list.Element)}
}

// Get returns the fold of a definition; nil if it is not kept.
func (m *Cache) Get(sum Sum) *Fold {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.bySum[sum]
	if e == nil {
		return nil
	}
	m.order.MoveToFront(e)
	return e.Value.(*compiled).fold
}

// Put keeps a fold. If there are too many, it drops the least recently used.
func (m *Cache) Put(sum Sum, fold *Fold) {
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
