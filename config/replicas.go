package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// The bounds of database.replicaLag. The service measures lags to about a second.
const (
	minReplicaLag = 2 * time.Second
	maxReplicaLag = time.Minute
)

func (d *Database) checkReplicas(refuse func(setting, format string, args ...any)) {
	names := make(map[string]bool)
	for i, replica := range d.Replicas {
		if err := checkReplica(replica); err != nil {
			refuse(fmt.Sprintf("database.replicas[%d]", i), "%s", err)
		} else if parsed, err := url.Parse(replica); err == nil {
			if names[parsed.Host] {
				refuse(fmt.Sprintf("database.replicas[%d]", i), "%s is listed twice", parsed.Host)
			}
			names[parsed.Host] = true
		}
	}
	if len(d.Replicas) > 0 && d.Distributed == DistributedTrue {
		refuse("database.replicas", "a distributed database has no replicas that Manifold can read; remove them")
	}
	if d.ReplicaLag < minReplicaLag || d.ReplicaLag > maxReplicaLag {
		refuse("database.replicaLag", "%s is not between %s and %s", d.ReplicaLag, minReplicaLag, maxReplicaLag)
	}
}

// checkReplica returns an error unless text is the URL of one host without a user.
func checkReplica(text string) error {
	parsed, err := url.Parse(text)
	// The error of url.Parse repeats the URL, which may contain a password.
	switch {
	case err != nil || parsed.Scheme != "postgres" && parsed.Scheme != "postgresql":
		return errors.New("it is not a URL such as postgres://replica:5432/manifold")
	case parsed.User != nil || parsed.Query().Has("user") || parsed.Query().Has("password") || parsed.Query().Has("passfile"):
		return errors.New("it has a user; remove it: the app login connects to replicas")
	case strings.Contains(parsed.Host+parsed.Query().Get("host"), ","):
		return errors.New("it names several hosts; list each replica separately")
	}
	return nil
}

// ReplicaURLs returns the connection URLs of the replicas, with the user and the password of the app login.
func (d *Database) ReplicaURLs() ([]string, error) {
	if len(d.Replicas) == 0 {
		return nil, nil
	}
	app, err := d.URLFor(d.App)
	if err != nil {
		return nil, err
	}
	login, err := url.Parse(app)
	if err != nil {
		return nil, errors.New("database.app.url is not a URL such as postgres://user@host:5432/name")
	}
	urls := make([]string, len(d.Replicas))
	for i, replica := range d.Replicas {
		parsed, err := url.Parse(replica)
		if err != nil {
			return nil, fmt.Errorf("database.replicas[%d] is not a URL such as postgres://replica:5432/manifold", i)
		}
		parsed.User = login.User
		urls[i] = parsed.String()
	}
	return urls, nil
}
