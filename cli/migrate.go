package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/migrations"
)

func migrateCommand() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the database's schema",
		Long: `Migrate the database's schema with the migrator's login.

manifold migrate up also creates missing logins, which needs CREATEROLE, and sets their configured passwords.`,
		Args: cobra.NoArgs,
	}
	command.PersistentFlags().StringVar(&file, "config", os.Getenv("MANIFOLD_CONFIG"), "the configuration file (MANIFOLD_CONFIG)")
	command.AddCommand(migrateUp(&file), migrateDown(&file), migrateVersion(&file))
	return command
}

// migrator returns the configuration and the URL of the migrator's login.
func migrator(file string) (config.Config, string, error) {
	c, err := config.Load(file, os.Environ())
	if err != nil {
		return config.Config{}, "", err
	}
	url, err := c.Database.URLFor(c.Database.Migrator)
	return c, url, err
}

func migrateUp(file *string) *cobra.Command {
	var distribute bool
	command := &cobra.Command{
		Use:   "up",
		Short: "Migrate the schema to this program's version",
		Long: `Migrate the schema to this program's version.

With --distribute, or with database.distributed: true in the configuration, the tables are then distributed by tenant over the
nodes of a Citus cluster. Their rows are copied, so stop the service first. Later migrations keep the database distributed.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, url, err := migrator(*file)
			if err != nil {
				return err
			}
			if err := migrations.Up(command.Context(), url, passwords(c.Database)); err != nil {
				return err
			}
			if distribute || c.Database.Distributed == config.DistributedTrue {
				if err := migrations.Distribute(command.Context(), url); err != nil {
					return err
				}
			}
			version, _, err := migrations.Version(command.Context(), url)
			if err != nil {
				return err
			}
			newer := ""
			if version > migrations.Latest() {
				newer = fmt.Sprintf(", which is newer than this program's %d: nothing to do", migrations.Latest())
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "the schema is at version %d%s\n", version, newer)
			return err
		},
	}
	command.Flags().BoolVar(&distribute, "distribute", false, "distribute the tables over the nodes of a Citus cluster")
	return command
}

// passwords returns the passwords of the configured logins that have the roles' default names. A login with another
// name is managed elsewhere.
func passwords(database config.Database) map[migrations.Role]string {
	set := make(map[migrations.Role]string)
	for role, login := range map[migrations.Role]config.Login{
		migrations.RoleApp: database.App, migrations.RoleSystem: database.System,
		migrations.RoleDocuments: database.Documents, migrations.RoleRetention: database.Retention,
	} {
		if login.User == string(role) && login.Password != "" {
			set[role] = string(login.Password)
		}
	}
	return set
}

func migrateDown(file *string) *cobra.Command {
	var yes bool
	command := &cobra.Command{
		Use:   "down",
		Short: "Remove the schema with everything in it",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if !yes {
				return errors.New("this removes every event, document and tenant for good; re-run with --yes-remove-everything to confirm")
			}
			_, url, err := migrator(*file)
			if err != nil {
				return err
			}
			if err := migrations.Down(command.Context(), url); err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), "the schema was removed")
			return err
		},
	}
	command.Flags().BoolVar(&yes, "yes-remove-everything", false, "confirm that all data is removed")
	return command
}

func migrateVersion(file *string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the schema's version and the version that this program needs",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, url, err := migrator(*file)
			if err != nil {
				return err
			}
			version, dirty, err := migrations.Version(command.Context(), url)
			if err != nil {
				return err
			}
			state := ""
			if dirty {
				state = ", and a migration was interrupted: run manifold migrate up for instructions"
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "the schema is at version %d; this program needs %d%s\n", version, migrations.Latest(), state)
			return err
		},
	}
}
