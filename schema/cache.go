package schema

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/upcasting"
)

const (
	// maxIndexBytes and maxCompiledBytes limit the memory of the two caches.
	maxIndexBytes    = 32 << 20
	maxCompiledBytes = 64 << 20
	// indexTTL is how long an index is used without asking the database. Notices of changes arrive sooner, unless the
	// connection for them is broken without anyone having noticed.
	indexTTL = 30 * time.Second
	// loadTimeout limits one load. A load may serve several requests, and therefore outlives each of them.
	loadTimeout = 10 * time.Second
	// upcastersTTL is likewise how long the upcasters that apply before tags are derived are used.
	upcastersTTL = time.Second
	// compiledPerSource is how much memory a compiled expression takes for a byte of its text.
	compiledPerSource = 10
)

// index is what a process knows of a tenant's schemas without their texts. It is immutable, except for until, warnedAt
// and upcasters, which the cache's mutex guards.
type index struct {
	revision int64
	types    map[string]*typeIndex
	rules    map[string]Rule // by category
	derives  bool            // any of the types does
	bytes    int
	until    time.Time // ask the database for the revision after that
	warnedAt time.Time // when the last warning was logged

	upcasters      *upcasting.Set // for derived tags
	upcastersUntil time.Time      // ask the database for newer ones after that
}

type typeIndex struct {
	versions  []versionIndex // number 1 is the first
	byDefault int64          // the version for events that name none
	derives   *derivation    // nil: no tags
}

type versionIndex struct {
	breaking bool
	revision int64
}

// schemaKey identifies a version of a tenant's schema forever: no two versions have the same revision.
type schemaKey struct {
	tenant   domain.TenantID
	revision int64
}

// cache keeps indexes and compiled schemas.
type cache struct {
	store   *Postgres
	flights singleflight.Group
	now     func() time.Time // the clock, replaced in tests

	mu            sync.Mutex
	generation    uint64 // counts forget: what was loaded before the last one is not kept
	indexes       *simplelru.LRU[domain.TenantID, *index]
	indexBytes    int
	compiled      *simplelru.LRU[schemaKey, *Schema]
	compiledBytes int
}

func newCache(store *Postgres) (*cache, error) {
	c := &cache{store: store, now: time.Now}
	var err error
	// The limits in bytes are reached first.
	if c.indexes, err = simplelru.NewLRU(1<<20, func(_ domain.TenantID, gone *index) { c.indexBytes -= gone.bytes }); err != nil {
		return nil, err
	}
	c.compiled, err = simplelru.NewLRU(1<<20, func(_ schemaKey, gone *Schema) { c.compiledBytes -= gone.bytes })
	return c, err
}

// forget makes later calls ask the database for a tenant's index, or for that of every tenant with domain.Everyone. A
// load that is already running is not used for them.
func (c *cache) forget(tenant domain.TenantID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	if tenant == domain.Everyone {
		c.indexes.Purge()
	} else {
		c.indexes.Remove(tenant)
	}
}

// index returns a tenant's index. Usually it needs no query.
func (c *cache) index(ctx context.Context, tenant domain.TenantID) (*index, error) {
	c.mu.Lock()
	known, _ := c.indexes.Get(tenant)
	generation := c.generation
	if known != nil && c.now().Before(known.until) {
		c.mu.Unlock()
		return known, nil
	}
	c.mu.Unlock()
	loaded, err := share(ctx, &c.flights, fmt.Sprintf("%s %d", tenant, generation), func(ctx context.Context) (*index, error) {
		return c.loadIndex(ctx, tenant, known, generation)
	})
	return loaded, err
}

// share runs load once for all concurrent callers with a key.
func share[T any](ctx context.Context, flights *singleflight.Group, key string, load func(ctx context.Context) (T, error)) (T, error) {
	answer := flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		return load(ctx)
	})
	var none T
	select {
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case result := <-answer:
		if result.Err != nil {
			return none, result.Err
		}
		return result.Val.(T), nil
	}
}

func (c *cache) loadIndex(ctx context.Context, tenant domain.TenantID, known *index, generation uint64) (*index, error) {
	asked := c.now()
	if known != nil {
		revision, err := c.store.SchemaRevision(ctx, tenant)
		if err != nil {
			return nil, err
		}
		if revision == known.revision {
			c.mu.Lock()
			defer c.mu.Unlock()
			known.until = asked.Add(indexTTL)
			return known, nil
		}
	}
	loaded, err := c.store.loadIndex(ctx, tenant)
	if err != nil {
		return nil, err
	}
	loaded.until = asked.Add(indexTTL)
	loaded.bytes = 300 + 200*len(loaded.rules)
	for name, of := range loaded.types {
		loaded.bytes += 200 + len(name) + 16*len(of.versions)
		if of.derives != nil {
			loaded.bytes += compiledPerSource * len(of.derives.expression)
		}
		of.byDefault = int64(len(of.versions))
		for i, version := range of.versions {
			if version.breaking {
				of.byDefault = int64(i)
				break
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return loaded, nil // it is new enough for its callers, who asked before the change was noticed
	}
	c.indexes.Remove(tenant)
	c.indexes.Add(tenant, loaded)
	for c.indexBytes += loaded.bytes; c.indexBytes > maxIndexBytes && c.indexes.Len() > 1; {
		c.indexes.RemoveOldest()
	}
	return loaded, nil
}

// schema returns a compiled version. Usually it needs no query. It returns nil if the version was removed meanwhile.
func (c *cache) schema(ctx context.Context, tenant domain.TenantID, eventType string, number int64, revision int64) (*Schema, error) {
	key := schemaKey{tenant, revision}
	c.mu.Lock()
	known, _ := c.compiled.Get(key)
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	return share(ctx, &c.flights, fmt.Sprintf("%s schema %d", tenant, revision), func(ctx context.Context) (*Schema, error) {
		version, err := c.store.SchemaVersion(ctx, tenant, eventType, number)
		if domain.IsCode(err, domain.CodeNotFound) || err == nil && version.revision != revision {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		compiled, err := Compile(version.Schema)
		if err != nil {
			return nil, fmt.Errorf("compile version %d of the schema of %s: %w", number, eventType, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.compiled.Remove(key)
		c.compiled.Add(key, compiled)
		for c.compiledBytes += compiled.bytes; c.compiledBytes > maxCompiledBytes && c.compiled.Len() > 1; {
			c.compiled.RemoveOldest()
		}
		return compiled, nil
	})
}

// mayWarn reports whether a warning about a tenant may be logged, at most one per warnEvery.
func (c *cache) mayWarn(x *index) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(x.warnedAt) < warnEvery {
		return false
	}
	x.warnedAt = now
	return true
}
