package bench

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/config"
)

// defaultDatabase is the name of the log's own database in definitions.
const defaultDatabase = "default"

func databaseFlags(f *flags, command *cobra.Command) {
	command.Flags().StringVar(&f.config, "config", "", "a configuration file, whose database --database is to be measured")
	command.Flags().StringVar(&f.database, "database", "", `where documents are to be kept: one of the file's databases, or "default", the benchmark's own`)
}

func (f *flags) databaseName() string {
	if f.database == "" {
		return defaultDatabase
	}
	return f.database
}

// documentsDatabase returns the settings of the database for the documents, or none for the benchmark's own database.
func (f *flags) documentsDatabase() (map[string]config.DocumentsDatabase, error) {
	if f.config == "" {
		if f.databaseName() != defaultDatabase {
			return nil, fmt.Errorf("--database %s needs --config, the file that says where it is", f.database)
		}
		return nil, nil
	}
	c, err := config.Load(f.config, os.Environ())
	if err != nil {
		return nil, err
	}
	database, ok := c.Databases[f.database]
	if !ok {
		return nil, fmt.Errorf("%s has no database %q; it has %s", f.config, f.database, strings.Join(slices.Sorted(maps.Keys(c.Databases)), ", "))
	}
	url, err := database.Address()
	if err != nil {
		return nil, fmt.Errorf("databases.%s.url: %w", f.database, err)
	}
	return map[string]config.DocumentsDatabase{f.database: {Driver: database.Driver, URL: url, MaxConns: database.MaxConns}}, nil
}
