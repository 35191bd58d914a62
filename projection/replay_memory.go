package projection

import (
	"encoding/json"
	"hash/maphash"
	"iter"
	"slices"

	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
)

// cachedDocument is a document in a worker's memory. With neither value nor data, it does not exist or was removed.
type cachedDocument struct {
	version int64           // the position of the last applied event; 0: none
	value   folding.Value   // in the handler's form, if the handler never changes its input
	data    json.RawMessage // as stored
	exists  bool            // the database has, or had, something by this id; a new document is cheaper to save
	save    int64           // the save that it is part of, see pendingSave; 0: loaded and not changed since
}

// What a document costs in memory: a fixed part, and how many times larger its values are than their JSON.
const (
	cachedBytes = 250
	valueFactor = 4
)

func (h *cachedDocument) weight(id string) int {
	if h.value == nil {
		return cachedBytes + len(id) + len(h.data)
	}
	return cachedBytes + len(id) + valueFactor*h.size()
}

// size returns about how many bytes the document has as JSON.
func (h *cachedDocument) size() int {
	if object, ok := h.value.(*expr.Object); ok {
		return expr.Size(object)
	}
	return len(h.data)
}

// documentMemory is what a Replay knows of a build's documents without asking the database: those that it has loaded or
// folded recently. It is valid as long as only this Replay saves, which the compare-and-set on the checkpoint ensures.
// A Replay that finds that another worker has saved forgets all of it.
type documentMemory struct {
	documents map[string]*cachedDocument
	weight    int // of all of them

	// complete means that the database contains only documents that this Replay has saved, since it began without a
	// checkpoint. In a database without transactions, an interrupted batch may have left others. But those are what
	// folding the log from its beginning gives, which is what this Replay does, too.
	complete bool
	dropped  *idFilter // the ids of the documents dropped since; nil: none
}

// get returns the document; ok is false if the database must be asked for it.
func (k *documentMemory) get(id string) (h cachedDocument, ok bool) {
	if h := k.documents[id]; h != nil {
		return *h, true
	}
	return cachedDocument{}, k.complete && (k.dropped == nil || !k.dropped.mayHave(id))
}

// unsaved returns the document if it is part of the save with that number.
func (k *documentMemory) unsaved(id string, number int64) (h cachedDocument, ok bool) {
	if h := k.documents[id]; h != nil && h.save == number {
		return *h, true
	}
	return cachedDocument{}, false
}

func (k *documentMemory) put(id string, h cachedDocument) {
	if k.documents == nil {
		k.documents = make(map[string]*cachedDocument)
	}
	if old := k.documents[id]; old != nil {
		k.weight -= old.weight(id)
		*old = h
	} else {
		k.documents[id] = &h
	}
	k.weight += h.weight(id)
}

// recomputeWeight recomputes the weight.
func (k *documentMemory) recomputeWeight() {
	k.weight = 0
	for id, h := range k.documents {
		k.weight += h.weight(id)
	}
}

// shrink drops documents in no particular order until they weigh no more than most. It keeps those that are not saved
// yet.
func (k *documentMemory) shrink(most int, saved int64) {
	for id, h := range k.documents {
		if k.weight <= most {
			return
		}
		if h.save > saved {
			continue
		}
		if k.complete && h.exists {
			if k.dropped == nil {
				k.dropped = newIDFilter()
			}
			k.dropped.add(id)
		}
		k.weight -= h.weight(id)
		delete(k.documents, id)
	}
}

// idFilter remembers ids in two bytes each. It is a Bloom filter (Bloom, "Space/time trade-offs in hash coding with
// allowable errors", 1970) that grows by a layer for each million ids. It may mistake an id that was never added for
// one that was, which costs a useless lookup. Each layer does so for one id in four hundred.
type idFilter struct {
	seed   maphash.Seed
	ids    int
	layers [][]uint64
}

const (
	layerIDs     = 1_000_000
	layerBits    = 1 << 24
	filterProbes = 4
)

func newIDFilter() *idFilter { return &idFilter{seed: maphash.MakeSeed()} }

func (f *idFilter) add(id string) {
	if f.ids%layerIDs == 0 {
		f.layers = append(f.layers, make([]uint64, layerBits/64))
	}
	f.ids++
	layer := f.layers[len(f.layers)-1]
	for bit := range f.bits(id) {
		layer[bit/64] |= 1 << (bit % 64)
	}
}

func (f *idFilter) mayHave(id string) bool {
	return slices.ContainsFunc(f.layers, func(layer []uint64) bool {
		for bit := range f.bits(id) {
			if layer[bit/64]&(1<<(bit%64)) == 0 {
				return false
			}
		}
		return true
	})
}

// bits yields the bits of an id in every layer.
func (f *idFilter) bits(id string) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		hash := maphash.String(f.seed, id)
		step := hash>>32 | 1
		for range filterProbes {
			if !yield(hash % layerBits) {
				return
			}
			hash += step
		}
	}
}
