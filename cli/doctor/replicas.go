package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/pg"
)

// replicaTimeout bounds the wait for a replica to catch up, beyond the configured lag.
const replicaTimeout = 5 * time.Second

// replicas checks the replicas of Manifold's own database. The service works without them.
func (d *doctor) replicas(ctx context.Context) {
	database := &d.config.Database
	if len(database.Replicas) == 0 {
		return
	}
	app, err := database.URLFor(database.App)
	var replicas []string
	if err == nil {
		replicas, err = database.ReplicaURLs()
	}
	if err != nil {
		d.fail("replicas", err.Error(), "fix the configuration")
		return
	}
	for _, replica := range replicas {
		d.replica(ctx, app, replica)
	}
}

func (d *doctor) replica(ctx context.Context, app, replica string) {
	check := "replica"
	if parsed, err := url.Parse(replica); err == nil {
		check += " " + parsed.Host
	}
	lag := d.config.Database.ReplicaLag
	ctx, cancel := context.WithTimeoutCause(ctx, lag+replicaTimeout, errors.New("no answer"))
	defer cancel()
	began := time.Now()
	found, err := pg.CheckReplica(ctx, app, replica)
	took := time.Since(began)
	switch {
	case err != nil:
		d.warn(check, "it cannot be read: "+config.WithoutSecrets(config.WithoutSecrets(err, replica), app).Error(),
			"check that it is up and streams from the primary; until then the primary answers all reads")
	case !found.Replays:
		d.warn(check, "it is not a replica: it was promoted, or it is the primary", "remove it from database.replicas, or make it a replica again")
	case !found.CaughtUp || took > lag:
		d.warn(check, fmt.Sprintf("it did not replay within %s what the primary had written", lag), "check its load and its network; the primary answers while it is behind")
	default:
		d.ok(check, "%s connects, and the replica had replayed everything within %s", found.User, took.Round(time.Millisecond))
	}
}
