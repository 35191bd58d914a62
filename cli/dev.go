//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/console"
	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/listen"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/service"
	"github.com/manifold-es/manifold/telemetry"
)

func devCommand(extensions service.Extensions, hard context.Context) *cobra.Command {
	var address, dir string
	var verbose bool
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run a complete service for development, without configuration",
		Long: `Run a complete service for development: a private PostgreSQL, the schema, and a demo tenant with a key and sample events.
Everything is kept in a folder for the next start. Ctrl-C stops it in order; acknowledged events are kept, however often it is
pressed.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelDebug
			}
			log := telemetry.NewLogger(command.ErrOrStderr(), level, "text")
			return runDev(command.Context(), hard, dir, address, command.OutOrStdout(), log, extensions)
		},
	}
	command.Flags().StringVar(&address, "listen", "127.0.0.1:8080", "the address to listen on, as host:port; port 0 takes a free port")
	command.Flags().StringVar(&dir, "dir", ".manifold", "the folder for all data")
	command.Flags().BoolVarP(&verbose, "verbose", "v", false, "log everything")
	return command
}

// devDatabase is the name of the database on the server of `manifold dev`.
const devDatabase = "manifold"

func runDev(soft, hard context.Context, dir, address string, out io.Writer, log *slog.Logger, extensions service.Extensions) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	// Check for typing errors and a second start before anything is created or started.
	if embedded.InUse(filepath.Join(dir, "postgres")) {
		return fmt.Errorf("another manifold dev uses %s: stop it, or choose another folder with --dir (and another port with --listen)", dir)
	}
	if err := tryListen(address); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "postgres"), 0o755); err != nil {
		return err
	}
	// Keep the folder from being committed by accident.
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*\n"), 0o644); err != nil {
		return err
	}
	secrets, err := loadDevSecrets(dir)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "starting PostgreSQL ...")
	server, err := embedded.Start(soft, embedded.Config{Dir: filepath.Join(dir, "postgres"), Log: log})
	if errors.Is(err, embedded.ErrAlreadyRunning) {
		return fmt.Errorf("another manifold dev uses %s: %w", dir, err)
	}
	if err != nil {
		return err
	}
	defer func() {
		// A second Ctrl-C stops the server at once. It recovers at the next start.
		if stopErr := server.Stop(hard); stopErr != nil {
			err = errors.Join(err, stopErr)
		} else if err == nil {
			fmt.Fprintln(out, "stopped; all data is kept in", dir)
		}
	}()
	if err := server.CreateDatabase(soft, devDatabase); err != nil {
		return err
	}
	if err := migrations.Up(soft, server.URL(devDatabase), secrets.passwords()); err != nil {
		return err
	}
	process, err := service.Start(soft, devConfig(server, secrets, address), log, extensions)
	if err != nil {
		return err
	}
	err = process.PrepareDemo(soft, &secrets.Demo, func() error { return secrets.save(dir) })
	if err != nil {
		return errors.Join(err, process.Stop(hard))
	}
	if _, err := io.WriteString(out, devGuide(process.Address(), secrets)); err != nil {
		return errors.Join(err, process.Stop(hard))
	}
	soft, cancel := context.WithCancelCause(soft)
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-server.Exited():
			cancel(errors.New("PostgreSQL stopped"))
		case <-over:
		}
	}()
	err = waitForEnd(process, soft, hard, log)
	select {
	case <-server.Exited():
		return errors.Join(err, fmt.Errorf("PostgreSQL stopped unexpectedly; see its log, %s", filepath.Join(server.Dir, "server.log")))
	default:
		return err
	}
}

// tryListen reports an error if the process cannot listen on the address.
func tryListen(address string) error {
	if err := listen.Try(address); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}

func devConfig(server *embedded.Server, secrets *devSecrets, address string) config.Config {
	c := config.Default()
	c.Listen = address
	// One address is enough, since only its user connects to it.
	c.Admin.Listen = config.NoListener
	c.Limits.AddressConnections = c.Limits.Connections
	c.Database.URL = server.URL(devDatabase)
	for role, login := range map[migrations.Role]*config.Login{
		migrations.RoleApp: &c.Database.App, migrations.RoleSystem: &c.Database.System,
		migrations.RoleDocuments: &c.Database.Documents, migrations.RoleRetention: &c.Database.Retention,
	} {
		login.User, login.Password = string(role), config.Secret(secrets.Passwords[string(role)])
	}
	c.OperatorKeys = []string{secrets.OperatorKey}
	c.ShutdownDeadline = 10 * time.Second
	// Receivers that a developer tries out run on this machine.
	c.Webhooks = config.Webhooks{Allow: []string{"127.0.0.0/8", "::1"}, AllowHTTP: true}
	return c
}

func devGuide(address string, secrets *devSecrets) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	url := "http://" + net.JoinHostPort(host, port)
	header := fmt.Sprintf("-H 'Authorization: Bearer %s'", secrets.Key)
	return fmt.Sprintf(`
Manifold is ready.

  URL           %[1]s        (documentation: %[1]s/docs)
  console       %[1]s%[7]s#key=%[2]s
  key           %[2]s
  operator key  %[3]s

Try it:

  # append an event
  curl -s %[1]s/v1/streams/%[4]s/events %[5]s -H 'Content-Type: application/json' -d '[{"type":"ItemAdded","data":{"sku":"C-9","price":4.5,"qty":2}}]'

  # read the order's document, which a projection keeps
  curl -s %[1]s/v1/projections/%[6]s/documents/%[4]s %[5]s

  # read the whole log
  curl -s '%[1]s/v1/streams/$all' %[5]s -H 'Accept: application/x-ndjson'

For the other commands of manifold, in another terminal:

  export MANIFOLD_URL=%[1]s MANIFOLD_KEY=%[2]s
  export MANIFOLD_OPERATOR_KEY=%[3]s    # for tenants, keys and usage

Ctrl-C stops it; all data is kept.
`, url, secrets.Key, secrets.OperatorKey, service.DemoStream, header, service.DemoProjection, console.Path)
}
