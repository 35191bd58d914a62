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
	checkReplicas(d.Replicas, "the app login", func(setting, format string, args ...any) { refuse("database."+setting, format, args...) })
	if len(d.Replicas) > 0 && d.Distributed == DistributedTrue {
		refuse("database.replicas", "a distributed database has no replicas that Manifold can read; remove them")
	}
	if d.ReplicaLag < minReplicaLag || d.ReplicaLag > maxReplicaLag {
		refuse("database.replicaLag", "%s is not between %s and %s", d.ReplicaLag, minReplicaLag, maxReplicaLag)
	}
}

// checkReplicas refuses URLs of replicas that are not of one host, without a user, or listed twice.
func checkReplicas(replicas []string, login string, refuse func(setting, format string, args ...any)) {
	names := make(map[string]bool)
	for i, replica := range replicas {
		if err := checkReplica(replica, login); err != nil {
			refuse(fmt.Sprintf("replicas[%d]", i), "%s", err)
		} else if parsed, err := url.Parse(replica); err == nil {
			if names[parsed.Host] {
				refuse(fmt.Sprintf("replicas[%d]", i), "%s is listed twice", parsed.Host)
			}
			names[parsed.Host] = true
		}
	}
}

// checkReplica returns an error unless text is the URL of one host without a user. login connects to it.
func checkReplica(text, login string) error {
	parsed, err := url.Parse(text)
	// The error of url.Parse repeats the URL, which may contain a password.
	switch {
	case err != nil || parsed.Scheme != "postgres" && parsed.Scheme != "postgresql":
		return errors.New("it is not a URL such as postgres://replica:5432/manifold")
	case parsed.User != nil || parsed.Query().Has("user") || parsed.Query().Has("password") || parsed.Query().Has("passfile"):
		return errors.New("it has a user; remove it: " + login + " connects to replicas")
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
	urls, err := replicaURLs(app, d.Replicas)
	if err != nil {
		return nil, fmt.Errorf("database.replicas: %w", err)
	}
	return urls, nil
}

// ReplicaURLs returns the connection URLs of the replicas, with the user and the password of the database's URL.
func (d *DocumentsDatabase) ReplicaURLs() ([]string, error) {
	if len(d.Replicas) == 0 {
		return nil, nil
	}
	address, err := d.Address()
	if err != nil {
		return nil, err
	}
	return replicaURLs(address, d.Replicas)
}

// replicaURLs adds the user and the password of a primary's URL to those of replicas. Its errors do not repeat the
// URLs.
func replicaURLs(primary string, replicas []string) ([]string, error) {
	login, err := url.Parse(primary)
	if err != nil {
		return nil, errors.New("the login's URL is not one such as postgres://user@host:5432/name")
	}
	urls := make([]string, len(replicas))
	for i, replica := range replicas {
		parsed, err := url.Parse(replica)
		if err != nil {
			return nil, fmt.Errorf("replica %d has no URL such as postgres://replica:5432/manifold", i+1)
		}
		parsed.User = login.User
		query := parsed.Query()
		for _, name := range []string{"user", "password", "passfile"} {
			if value := login.Query().Get(name); value != "" {
				query.Set(name, value)
			}
		}
		parsed.RawQuery = query.Encode()
		urls[i] = parsed.String()
	}
	return urls, nil
}
