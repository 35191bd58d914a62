package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/service"
)

// replicaTimeout bounds the wait for a replica to catch up, beyond the configured lag.
const replicaTimeout = 5 * time.Second

// replicas checks the replicas of Manifold's own database, and of the databases of documents. The service works without
// them.
func (d *doctor) replicas(ctx context.Context) {
	database := &d.config.Database
	if len(database.Replicas) > 0 {
		app, err := database.URLFor(database.App)
		replicas, replicasErr := database.ReplicaURLs()
		d.eachReplica(ctx, "replica", app, replicas, errors.Join(err, replicasErr))
	}
	own, err := database.URLFor(database.Documents)
	if err != nil {
		return // the check of the logins says so
	}
	all, _ := service.DocumentsDatabases(d.config, own)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if of := all[name]; len(of.Replicas) > 0 {
			primary, err := of.Address()
			replicas, replicasErr := of.ReplicaURLs()
			d.eachReplica(ctx, "documents: "+name+": replica", primary, replicas, errors.Join(err, replicasErr))
		}
	}
}

// eachReplica checks the replicas of a primary, unless their configuration has an error.
func (d *doctor) eachReplica(ctx context.Context, check, primary string, replicas []string, err error) {
	if err != nil {
		d.fail(check, err.Error(), "fix the configuration")
		return
	}
	for _, replica := range replicas {
		d.replica(ctx, check, primary, replica)
	}
}

func (d *doctor) replica(ctx context.Context, check, primary, replica string) {
	if parsed, err := url.Parse(replica); err == nil {
		check += " " + parsed.Host
	}
	lag := d.config.Database.ReplicaLag
	ctx, cancel := context.WithTimeoutCause(ctx, lag+replicaTimeout, errors.New("no answer"))
	defer cancel()
	began := time.Now()
	found, err := pg.CheckReplica(ctx, primary, replica)
	took := time.Since(began)
	switch {
	case err != nil:
		d.warn(check, "it cannot be read: "+config.WithoutSecrets(config.WithoutSecrets(err, replica), primary).Error(),
			"check that it is up and streams from the primary; until then the primary answers all reads")
	case !found.Replays:
		d.warn(check, "it is not a replica: it was promoted, or it is the primary", "remove it from the configuration, or make it a replica again")
	case !found.CaughtUp || took > lag:
		d.warn(check, fmt.Sprintf("it did not replay within %s what the primary had written", lag), "check its load and its network; the primary answers while it is behind")
	default:
		d.ok(check, "%s connects, and the replica had replayed everything within %s", found.User, took.Round(time.Millisecond))
	}
}
