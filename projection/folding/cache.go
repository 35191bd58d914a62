package folding

import (
	"crypto/sha256"
	"encoding/json"

	lru "github.com/hashicorp/golang-lru/v2"

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
type Cache = lru.Cache[Sum, *Fold]

// NewCache returns a cache of at most that many folds, at least one.
func NewCache(most int) *Cache {
	kept, err := lru.New[Sum, *Fold](max(1, most))
	if err != nil {
		panic(err) // impossible: the size is positive
	}
	return kept
}
