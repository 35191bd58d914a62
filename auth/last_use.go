package auth

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"
)

const (
	// usePrecision is how old the stored last use of a key is when it is updated. It limits how often a key's row is
	// written.
	usePrecision = 10 * time.Minute
	// recordEvery is the time between statements that store the last use of keys.
	recordEvery = time.Minute
	// maxUses limits how many used keys are kept in memory until they are recorded. Further ones are noted at a later
	// use.
	maxUses = 10_000
)

// noteUse notes that a key is used, for Run.
func (k *Keys) noteUse(key *APIKey) {
	if k.config.now().Sub(key.LastUsedAt) < usePrecision {
		return
	}
	k.usesMu.Lock()
	defer k.usesMu.Unlock()
	if len(k.uses) < maxUses {
		k.uses[keyName{key.Tenant, key.ID}] = struct{}{}
	}
}

// Run stores once a minute which keys were used, until ctx ends, and then returns nil. What was noted in the last
// minute is lost. If the store fails, Run logs that and continues.
func (k *Keys) Run(ctx context.Context) error {
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := k.recordUses(ctx); err != nil && ctx.Err() == nil {
			k.config.Log.Warn("the last use of keys could not be stored; it is tried again in a minute", "error", err)
		}
	}
}

// usesAtOnce is how many uses a statement stores. It looks for each of its keys in each of its tenants.
const usesAtOnce = 100

// recordUses stores the noted uses. After an error those that are not stored stay noted.
func (k *Keys) recordUses(ctx context.Context) error {
	k.usesMu.Lock()
	used := make([]keyName, 0, len(k.uses))
	for name := range k.uses {
		used = append(used, name)
	}
	k.usesMu.Unlock()
	if len(used) == 0 {
		return nil
	}
	slices.SortFunc(used, func(a, b keyName) int { // the keys of a tenant together
		return cmp.Or(bytes.Compare(a.tenant[:], b.tenant[:]), bytes.Compare(a.id[:], b.id[:]))
	})
	for some := range slices.Chunk(used, usesAtOnce) {
		if err := k.recordSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keys) recordSome(ctx context.Context, used []keyName) error {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	if err := k.config.Store.recordUses(ctx, used); err != nil {
		return err
	}
	k.usesMu.Lock()
	defer k.usesMu.Unlock()
	for _, name := range used {
		delete(k.uses, name)
	}
	return nil
}
