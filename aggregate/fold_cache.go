package aggregate

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// maxFolds is how many compiled definitions are kept.
	maxFolds = 1000
	// maxFoldBytes limits the texts of these definitions; compiled ones take about ten times as much.
	maxFoldBytes = 8 << 20
)

// foldCache keeps the folds that were used most recently. It is safe for concurrent use.
type foldCache struct {
	mu    sync.Mutex
	kept  *simplelru.LRU[categoryKey, *fold]
	bytes int // of the texts of kept
}

func newFoldCache() (*foldCache, error) {
	c := &foldCache{}
	var err error
	c.kept, err = simplelru.NewLRU(maxFolds, func(_ categoryKey, gone *fold) { c.bytes -= gone.stored.bytes() })
	return c, err
}

// Get returns a category's fold.
func (c *foldCache) Get(key categoryKey) (*fold, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Get(key)
}

// Add keeps a category's fold instead of a previous one.
func (c *foldCache) Add(key categoryKey, f *fold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Remove(key)
	c.kept.Add(key, f)
	for c.bytes += f.stored.bytes(); c.bytes > maxFoldBytes; {
		c.kept.RemoveOldest()
	}
}

// Remove forgets a category's fold.
func (c *foldCache) Remove(key categoryKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Remove(key)
}
