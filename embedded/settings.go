package embedded

// Settings are PostgreSQL's own settings by name, such as "shared_buffers": "512MB".
type Settings map[string]string

// DurableSettings returns the settings of a server whose data must last: every commit is on disk before it is
// acknowledged. The sizes suit a developer's machine and the benchmarks.
func DurableSettings() Settings {
	return Settings{
		"fsync":                        "on",
		"synchronous_commit":           "on",
		"full_page_writes":             "on",
		"max_connections":              "200",
		"shared_buffers":               "512MB", // memory is allocated when it is used
		"wal_buffers":                  "32MB",
		"max_wal_size":                 "4GB",
		"min_wal_size":                 "256MB",
		"checkpoint_timeout":           "15min",
		"checkpoint_completion_target": "0.9",
		"wal_level":                    "replica",
		"jit":                          "off", // statements are short: compilation would take longer than execution
		"random_page_cost":             "1.1",
	}
}

// DisposableSettings returns the settings of a server that lives for a test. Nothing is synced, so its data would not
// survive a power failure. But the operating system has a commit before it is acknowledged, so the commit survives
// `kill -9` of the server, which tests use.
func DisposableSettings() Settings {
	return Settings{
		"fsync":                      "off",
		"synchronous_commit":         "on",
		"full_page_writes":           "off",
		"max_connections":            "300",
		"shared_buffers":             "128MB",
		"wal_level":                  "minimal",
		"max_wal_senders":            "0",
		"max_wal_size":               "1GB",
		"min_wal_size":               "32MB",
		"checkpoint_timeout":         "30min",
		"autovacuum_naptime":         "5s", // tables grow from nothing within seconds, and their statistics must follow
		"jit":                        "off",
		"max_locks_per_transaction":  "256",
		"dynamic_shared_memory_type": "mmap", // in the data folder, and removed with it
		"random_page_cost":           "1.1",
	}
}
