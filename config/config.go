// Package config reads Manifold's settings from a YAML file and from environment variables, which take precedence.
// Start with Load, which returns a checked Config.
//
// The package is strict. An unknown setting is an error that names its place and the settings there. A value
// that cannot work is refused here, before anything is started. Secrets may be in separate files (passwordFile,
// operatorKeyFile), as orchestrators mount them.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Role is what a process does.
type Role string

// The roles of a process.
const (
	RoleAll    Role = "all"    // both of the others
	RoleWeb    Role = "web"    // answers requests
	RoleWorker Role = "worker" // runs projections, rebuilds and erasures; answers only probes and metrics
)

// Web reports whether the role answers requests.
func (r Role) Web() bool { return r != RoleWorker }

// Worker reports whether the role works in the background.
func (r Role) Worker() bool { return r != RoleWeb }

// Config contains every setting. Each setting also has an environment variable: MANIFOLD_ and the names on the path
// to the setting. For example, database.app.passwordFile is MANIFOLD_DATABASE_APP_PASSWORD_FILE. Default returns the
// values of settings that are not given.
type Config struct {
	Listen           string                       `yaml:"listen" env:"LISTEN"`
	TLS              TLS                          `yaml:"tls" envPrefix:"TLS_"`
	Admin            Admin                        `yaml:"admin" envPrefix:"ADMIN_"`
	Proxies          Proxies                      `yaml:"proxies" envPrefix:"PROXIES_"`
	PublicURL        string                       `yaml:"publicUrl" env:"PUBLIC_URL"` // under which others reach the API: https://host; empty: unknown
	Role             Role                         `yaml:"role" env:"ROLE"`
	Database         Database                     `yaml:"database" envPrefix:"DATABASE_"`
	Databases        map[string]DocumentsDatabase `yaml:"databases" env:"DATABASES"` // by their names in definitions
	Egress           map[string]Egress            `yaml:"egress" env:"EGRESS"`       // which events are published to message brokers, by names that the operator chooses
	Projections      []string                     `yaml:"projections" env:"PROJECTIONS"`
	Usage            bool                         `yaml:"usage" env:"USAGE"` // count each tenant's events and bytes per day
	OperatorKey      Secret                       `yaml:"operatorKey" env:"OPERATOR_KEY"`
	OperatorKeyFile  string                       `yaml:"operatorKeyFile" env:"OPERATOR_KEY_FILE"`
	Issuers          map[string]Issuer            `yaml:"issuers" env:"ISSUERS"` // of tokens, by names that the operator chooses
	Encryption       Encryption                   `yaml:"encryption" envPrefix:"ENCRYPTION_"`
	Limits           Limits                       `yaml:"limits" envPrefix:"LIMITS_"`
	Webhooks         Webhooks                     `yaml:"webhooks" envPrefix:"WEBHOOKS_"`
	Retention        Retention                    `yaml:"retention" envPrefix:"RETENTION_"`
	Erasure          Erasure                      `yaml:"erasure" envPrefix:"ERASURE_"`
	Log              Log                          `yaml:"log" envPrefix:"LOG_"`
	ShutdownDeadline time.Duration                `yaml:"shutdownDeadline" env:"SHUTDOWN_DEADLINE"`
	RebuildKeep      time.Duration                `yaml:"rebuildKeep" env:"REBUILD_KEEP"`

	// OperatorKeys are OperatorKey and the lines of OperatorKeyFile. Load sets it.
	OperatorKeys []string `yaml:"-" env:"-"`
}

// Database is Manifold's own PostgreSQL database: the log, tenants, keys and definitions.
type Database struct {
	URL       string `yaml:"url" env:"URL"` // postgres://host:port/database?...; each login's name and password are added
	App       Login  `yaml:"app" envPrefix:"APP_"`
	System    Login  `yaml:"system" envPrefix:"SYSTEM_"`
	Documents Login  `yaml:"documents" envPrefix:"DOCUMENTS_"`
	Retention Login  `yaml:"retention" envPrefix:"RETENTION_"`
	Migrator  Login  `yaml:"migrator" envPrefix:"MIGRATOR_"` // for `manifold migrate` only
	MaxConns  int    `yaml:"maxConns" env:"MAX_CONNS"`       // of the app login; the other logins have a share of it
	// Replicas are URLs of streaming replicas, each with one host, without a user: the app login connects to them. They
	// answer reads of old events.
	Replicas []string `yaml:"replicas" env:"REPLICAS"`
	// ReplicaLag is how far a replica may be behind to be read.
	ReplicaLag time.Duration `yaml:"replicaLag" env:"REPLICA_LAG"`
	// ReplicaDocuments says whether the replicas also answer queries for documents in this database. The documents
	// login connects to them for that.
	ReplicaDocuments bool `yaml:"replicaDocuments" env:"REPLICA_DOCUMENTS"`
	// Distributed says whether the database must be distributed over a Citus cluster. `manifold migrate up` distributes
	// it for DistributedTrue. DistributedAuto accepts what it finds.
	Distributed Distributed `yaml:"distributed" env:"DISTRIBUTED"`
}

// Distributed says whether Manifold's own database must be distributed.
type Distributed string

// These are the values of Distributed.
const (
	DistributedAuto  Distributed = "auto"
	DistributedTrue  Distributed = "true"
	DistributedFalse Distributed = "false"
)

// Login is one login of the database. If URL is given, it contains everything, including user and password. Without a
// password, the server's other ways to authenticate apply (pg_hba's trust, certificates in the URL, ~/.pgpass).
type Login struct {
	URL          string `yaml:"url" env:"URL"` // only if this login connects elsewhere, for example through a pooler
	User         string `yaml:"user" env:"USER"`
	Password     Secret `yaml:"password" env:"PASSWORD"`
	PasswordFile string `yaml:"passwordFile" env:"PASSWORD_FILE"`
}

// DocumentsDatabase is a database in which projections store their documents.
type DocumentsDatabase struct {
	Driver       string `yaml:"driver" json:"driver"`
	URL          string `yaml:"url" json:"url"`
	Password     Secret `yaml:"password" json:"password"` // added to the URL, which must have a user
	PasswordFile string `yaml:"passwordFile" json:"passwordFile"`
	MaxConns     int    `yaml:"maxConns" json:"maxConns"` // 0: the driver's own default
	// Replicas are URLs of streaming replicas that answer queries, each with one host, without a user: the login of URL
	// connects to them. For the driver postgres only.
	Replicas   []string      `yaml:"replicas" json:"replicas"`
	ReplicaLag time.Duration `yaml:"-" json:"-"`         // that of Database
	Mongo      Mongo         `yaml:"mongo" json:"mongo"` // for the driver mongo only
}

// Mongo configures how documents are stored in MongoDB.
type Mongo struct {
	Transactions  bool  `yaml:"transactions" json:"transactions"`   // save in transactions, so that no reader sees part of a batch
	WildcardIndex *bool `yaml:"wildcardIndex" json:"wildcardIndex"` // index every field in the documents of tenants' own projections; nil: true
	ShardBuilds   bool  `yaml:"shardBuilds" json:"shardBuilds"`     // shard the collection of a shared projection's build when it is created
	Layout        int   `yaml:"layout" json:"layout"`               // of the collections of new builds of shared projections: 1 or 2; 0: 1
}

// Limits bound the load of one process.
type Limits struct {
	QueueBytes        Size `yaml:"queueBytes" env:"QUEUE_BYTES"`                // requests being received or waiting, of all tenants together
	TenantQueueBytes  Size `yaml:"tenantQueueBytes" env:"TENANT_QUEUE_BYTES"`   // requests being received or waiting, of one tenant
	AnswerBytes       Size `yaml:"answerBytes" env:"ANSWER_BYTES"`              // large answers being built or sent, of all tenants together
	TenantAnswerBytes Size `yaml:"tenantAnswerBytes" env:"TENANT_ANSWER_BYTES"` // the same, of one tenant
	ProjectionWorkers int  `yaml:"projectionWorkers" env:"PROJECTION_WORKERS"`  // concurrent batches of projections for each database; 0: depends on the processors
	ProjectionCeiling int  `yaml:"projectionCeiling" env:"PROJECTION_CEILING"`  // of these batches, for one tenant; 0: all but one, if there are two or more
	RebuildWorkers    int  `yaml:"rebuildWorkers" env:"REBUILD_WORKERS"`        // tenants that a rebuild replays concurrently; 0: depends on the processors
	TailBytes         Size `yaml:"tailBytes" env:"TAIL_BYTES"`                  // of a tenant's newest events, cached for followers of its log
	TenantFollowers   int  `yaml:"tenantFollowers" env:"TENANT_FOLLOWERS"`      // of one tenant's log, at the same time
	GroupBytes        Size `yaml:"groupBytes" env:"GROUP_BYTES"`                // of events that all groups together read ahead of delivery
	Connections       int  `yaml:"connections" env:"CONNECTIONS"`               // concurrent HTTP connections
	// TenantRequests is the largest number of concurrent requests, followers and WebSockets of one tenant.
	TenantRequests int `yaml:"tenantRequests" env:"TENANT_REQUESTS"`
	// AddressConnections is how many of the connections one client address may have.
	AddressConnections int `yaml:"addressConnections" env:"ADDRESS_CONNECTIONS"`

	// The following settings limit requests that fold events: states, snapshots, live projections, previews and
	// plans.
	Folds       int           `yaml:"folds" env:"FOLDS"`              // such requests at the same time
	TenantFolds int           `yaml:"tenantFolds" env:"TENANT_FOLDS"` // of these, for one tenant
	FoldSteps   int64         `yaml:"foldSteps" env:"FOLD_STEPS"`     // for one such request
	FoldTime    time.Duration `yaml:"foldTime" env:"FOLD_TIME"`       // for one such request
}

// minAnswerBytes is the room for the largest answer that waits before it is built (answerRoom in package api). With
// less, the service would always refuse that answer.
const minAnswerBytes = 24 << 20

// minTailBytes is the size of the largest event. With less, a tail could not keep even one such event.
const minTailBytes = domain.MaxEventBytes

// minFoldSteps is the number of steps that one expression may take. With a lower limit, a request could not fold
// everything that a worker can.
const minFoldSteps = 1_000_000

// Log configures the program's log.
type Log struct {
	Level  slog.Level `yaml:"level" env:"LEVEL"`
	Format string     `yaml:"format" env:"FORMAT"` // text or json
}

// Default returns the default settings. Database.URL has no default.
func Default() Config {
	return Config{
		Listen:  "127.0.0.1:8080",
		Role:    RoleAll,
		Proxies: Proxies{Header: HeaderForwardedFor},
		Database: Database{
			App:       Login{User: "manifold_app"},
			System:    Login{User: "manifold_system"},
			Documents: Login{User: "manifold_documents"},
			Retention: Login{User: "manifold_retention"},
			Migrator:  Login{User: "manifold_migrator"},
			MaxConns:  16, ReplicaLag: 5 * time.Second, Distributed: DistributedAuto,
		},
		Usage:            true,
		Limits:           Limits{QueueBytes: 256 << 20, TenantQueueBytes: 32 << 20, AnswerBytes: 256 << 20, TenantAnswerBytes: 64 << 20, TailBytes: 8 << 20, TenantFollowers: 5000, GroupBytes: 128 << 20, Connections: 10_000, AddressConnections: 2000, TenantRequests: 6000, Folds: 8, TenantFolds: 2, FoldSteps: 100_000_000, FoldTime: 10 * time.Second},
		Retention:        Retention{Grace: time.Minute, Every: time.Minute, Share: 0.1},
		Erasure:          Erasure{BackupsKept: 30 * 24 * time.Hour},
		Log:              Log{Level: slog.LevelInfo, Format: "text"},
		ShutdownDeadline: 30 * time.Second,
		RebuildKeep:      time.Hour,
	}
}

// Check reports every setting that cannot work, by name.
func (c *Config) Check() error {
	var wrong []error
	refuse := func(setting, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%s: %s", setting, fmt.Sprintf(format, args...)))
	}
	c.checkListeners(refuse)
	if err := checkPublicURL(c.PublicURL); err != nil {
		refuse("publicUrl", "%s", err)
	}
	if !slices.Contains([]Role{RoleAll, RoleWeb, RoleWorker}, c.Role) {
		refuse("role", "%q is not a role; write all, web or worker", string(c.Role))
	}
	if c.Database.URL == "" {
		refuse("database.url", "missing; write postgres://host:5432/manifold, or set MANIFOLD_DATABASE_URL")
	} else if err := checkURL(c.Database.URL, "postgres", "postgresql"); err != nil {
		refuse("database.url", "%s", err)
	}
	c.Database.checkReplicas(refuse)
	if _, err := c.Encryption.Parsed(); err != nil {
		wrong = append(wrong, err)
	}
	if !slices.Contains([]Distributed{DistributedAuto, DistributedTrue, DistributedFalse}, c.Database.Distributed) {
		refuse("database.distributed", "invalid value %q; write auto, true or false", string(c.Database.Distributed))
	}
	switch _, elsewhere := c.Databases["default"]; {
	case !c.Database.ReplicaDocuments:
	case len(c.Database.Replicas) == 0:
		refuse("database.replicaDocuments", "there are no database.replicas; list them, or remove this setting")
	case elsewhere:
		refuse("database.replicaDocuments", "the documents are in databases.default; list its replicas there, and remove this setting")
	}
	for name, login := range c.Database.logins() {
		if login.User == "" {
			refuse("database."+name+".user", "must not be empty")
		}
		if login.URL == "" {
			continue
		}
		if err := checkURL(login.URL, "postgres", "postgresql"); err != nil {
			refuse("database."+name+".url", "%s", err)
		}
		if login.Password != "" {
			refuse("database."+name+".url", "a password is given separately; write it into the URL, or remove the URL")
		}
	}
	for name, database := range c.Databases {
		if err := domain.CheckName("databases", name); err != nil {
			refuse("databases."+name, "%s", err)
		}
		if database.Driver == "" {
			refuse("databases."+name+".driver", "missing; write postgres, mongo or sqlserver, or the name of a custom driver")
		} else if database.Driver != "mongo" && database.Mongo != (Mongo{}) {
			refuse("databases."+name+".mongo", "these settings are for the driver mongo, and the database's is %s; remove them", database.Driver)
		}
		if layout := database.Mongo.Layout; layout < 0 || layout > 2 {
			refuse("databases."+name+".mongo.layout", "there is no layout %d; write 1 or 2", layout)
		}
		if _, err := database.Address(); err != nil {
			refuse("databases."+name+".url", "%s", err)
		} else if parsed, err := url.Parse(database.URL); err == nil && database.Driver == "postgres" {
			if err := checkHosts(parsed); err != nil {
				refuse("databases."+name+".url", "%s", err)
			}
		}
		if len(database.Replicas) > 0 && database.Driver != "postgres" {
			refuse("databases."+name+".replicas", "replicas are for the driver postgres, and the database's is %s; remove them", database.Driver)
		}
		checkReplicas(database.Replicas, "the login of the URL", func(setting, format string, args ...any) { refuse("databases."+name+"."+setting, format, args...) })
		if database.MaxConns < 0 {
			refuse("databases."+name+".maxConns", "%d is negative", database.MaxConns)
		}
	}
	for name, egress := range c.Egress {
		if err := domain.CheckName("egress", name); err != nil {
			refuse("egress."+name, "%s", err)
		}
		egress.check(func(setting, format string, args ...any) { refuse("egress."+name+"."+setting, format, args...) })
	}
	c.checkIssuers(refuse)
	for setting, count := range map[string]int{
		"database.maxConns":         c.Database.MaxConns,
		"limits.connections":        c.Limits.Connections,
		"limits.addressConnections": c.Limits.AddressConnections,
		"limits.folds":              c.Limits.Folds,
		"limits.tenantFolds":        c.Limits.TenantFolds,
	} {
		if count < 1 {
			refuse(setting, "%d is too low; the minimum is 1", count)
		}
	}
	for setting, count := range map[string]int{
		"limits.projectionWorkers": c.Limits.ProjectionWorkers,
		"limits.rebuildWorkers":    c.Limits.RebuildWorkers,
	} {
		if count < 0 {
			refuse(setting, "%d is negative; 0 chooses by the number of processors", count)
		}
	}
	if c.Limits.ProjectionCeiling < 0 {
		refuse("limits.projectionCeiling", "%d is negative; 0 leaves one worker to the other tenants", c.Limits.ProjectionCeiling)
	}
	// A request may be that large, so a smaller limit would always refuse it.
	for setting, size := range map[string]Size{
		"limits.queueBytes":       c.Limits.QueueBytes,
		"limits.tenantQueueBytes": c.Limits.TenantQueueBytes,
	} {
		if size < domain.MaxRequestBytes {
			refuse(setting, "%s is less than the largest request, %s", size, Size(domain.MaxRequestBytes))
		}
	}
	for setting, size := range map[string]Size{
		"limits.answerBytes":       c.Limits.AnswerBytes,
		"limits.tenantAnswerBytes": c.Limits.TenantAnswerBytes,
	} {
		if size < minAnswerBytes {
			refuse(setting, "%s is too low; the minimum is %s", size, Size(minAnswerBytes))
		}
	}
	if c.Limits.TailBytes < minTailBytes {
		refuse("limits.tailBytes", "%s is too low; the minimum is %s", c.Limits.TailBytes, Size(minTailBytes))
	}
	if c.Limits.TenantFollowers < 1 {
		refuse("limits.tenantFollowers", "%d allows no followers; write 5000", c.Limits.TenantFollowers)
	}
	if c.Limits.GroupBytes <= 0 {
		refuse("limits.groupBytes", "%s leaves no memory; write 128MiB", c.Limits.GroupBytes)
	}
	if c.Limits.FoldSteps < minFoldSteps {
		refuse("limits.foldSteps", "%d is not enough; one expression alone may take %d", c.Limits.FoldSteps, minFoldSteps)
	}
	if c.Limits.FoldTime <= 0 {
		refuse("limits.foldTime", "%s leaves no time to fold; write 10s", c.Limits.FoldTime)
	}
	if _, err := c.Webhooks.Allowed(); err != nil {
		refuse("webhooks", "%s", err)
	}
	c.Retention.check(refuse)
	c.Erasure.check(refuse)
	if c.Log.Format != "text" && c.Log.Format != "json" {
		refuse("log.format", "%q is not a format; write text or json", c.Log.Format)
	}
	if c.ShutdownDeadline <= 0 {
		refuse("shutdownDeadline", "%s is too short; write 30s", c.ShutdownDeadline)
	}
	if c.RebuildKeep < 0 {
		refuse("rebuildKeep", "%s is negative", c.RebuildKeep)
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(wrong...)
}

// checkPublicURL returns an error unless text is empty or an address to which paths can be appended.
func checkPublicURL(text string) error {
	if text == "" {
		return nil
	}
	parsed, err := url.Parse(text)
	// The error of url.Parse repeats the URL, which may contain a password.
	switch {
	case err != nil || parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Host == "":
		return errors.New("it is not a URL such as https://events.example.com")
	case parsed.User != nil || strings.ContainsAny(text, "?#"):
		return errors.New("it has a user, a query or a fragment; remove it")
	case strings.HasSuffix(text, "/"):
		return errors.New("it ends with a slash; remove it")
	}
	return nil
}

func checkURL(text string, schemes ...string) error {
	parsed, err := url.Parse(text)
	// The error of url.Parse repeats the URL, which may contain a password.
	if err != nil || parsed.Scheme == "" {
		return errors.New("it is not a URL such as postgres://host:5432/name")
	}
	if len(schemes) > 0 && !slices.Contains(schemes, parsed.Scheme) {
		return fmt.Errorf("its scheme is %q; it begins with postgres://", parsed.Scheme)
	}
	if slices.Contains(schemes, "postgres") {
		return checkHosts(parsed)
	}
	return nil
}

// checkHosts returns an error if a URL of PostgreSQL names several hosts, and does not say that connections go to the
// primary. Otherwise they would stay with the first host that answers, even if that is a standby.
func checkHosts(parsed *url.URL) error {
	settings := parsed.Query()
	if !strings.Contains(parsed.Host+settings.Get("host"), ",") {
		return nil
	}
	switch attribute := settings.Get("target_session_attrs"); attribute {
	case "read-write", "primary":
		return nil
	case "":
		return errors.New("it names several hosts: add target_session_attrs=read-write, so that connections go to the primary")
	default:
		return fmt.Errorf("it names several hosts with target_session_attrs=%q; write read-write, because connections must go to the primary", attribute)
	}
}

// resolve reads the secrets from their files.
func (c *Config) resolve() error {
	var wrong []error
	read := func(setting, file string, secret *Secret) {
		if file == "" {
			return
		}
		if *secret != "" {
			wrong = append(wrong, fmt.Errorf("%s: both this and %sFile are given; keep one", setting, setting))
			return
		}
		text, err := os.ReadFile(file)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%sFile: %w", setting, err))
			return
		}
		*secret = Secret(strings.TrimRight(string(text), "\r\n"))
		if *secret == "" {
			wrong = append(wrong, fmt.Errorf("%sFile: %s is empty", setting, file))
		}
	}
	for name, login := range c.Database.logins() {
		read("database."+name+".password", login.PasswordFile, &login.Password)
	}
	for name, database := range c.Databases {
		read("databases."+name+".password", database.PasswordFile, &database.Password)
		c.Databases[name] = database
	}
	for name, egress := range c.Egress {
		read("egress."+name+".password", egress.PasswordFile, &egress.Password)
		read("egress."+name+".token", egress.TokenFile, &egress.Token)
		c.Egress[name] = egress
	}
	read("encryption.keys", c.Encryption.KeysFile, &c.Encryption.Keys)
	if err := c.Encryption.runCommand(); err != nil {
		wrong = append(wrong, err)
	}
	keys := c.OperatorKey
	read("operatorKey", c.OperatorKeyFile, &keys)
	c.OperatorKeys = nil
	for line := range strings.Lines(string(keys)) {
		if key := strings.TrimSpace(line); key != "" {
			c.OperatorKeys = append(c.OperatorKeys, key)
		}
	}
	return errors.Join(wrong...)
}

func (d *Database) logins() map[string]*Login {
	return map[string]*Login{"app": &d.App, "system": &d.System, "documents": &d.Documents, "retention": &d.Retention, "migrator": &d.Migrator}
}

// URLFor returns the connection URL of one of the database's logins.
func (d *Database) URLFor(login Login) (string, error) {
	if login.URL != "" {
		return login.URL, nil
	}
	parsed, err := url.Parse(d.URL)
	if err != nil {
		return "", errors.New("database.url is not a URL such as postgres://host:5432/name")
	}
	parsed.User = url.User(login.User)
	if login.Password != "" {
		parsed.User = url.UserPassword(login.User, string(login.Password))
	}
	return parsed.String(), nil
}
