// Package remote has the commands that call a service over HTTP. They work with every service, whatever its program has
// added. A file's name begins with its command.
//
// A command takes its connection from flags, and runs with connection.run, which gives it a call: the client, the
// arguments and the output. read, done and pages interpret the service's answers; show and list are whole commands.
package remote

import "github.com/spf13/cobra"

// Commands returns all commands of the package.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		tenantCommand(), planCommand(), keyCommand(), projectionCommand(), diffCommand(), applyCommand(), rebuildCommand(), publishCommand(),
		eventsCommand(), tailCommand(), auditCommand(), groupCommand(), webhookCommand(), lagCommand(), egressCommand(), usageCommand(), totalsCommand(), upcasterCommand(), schemaCommand(), typesCommand(), retentionCommand(), subjectCommand(),
		outboxCommand(), reportsCommand(), redactCommand(), importCommand(), exportCommand(), aggregateCommand(), commandCommand(),
		appendCommand(), getCommand(), snapshotCommand(), topCommand(), verifyCommand(), signingKeysCommand(), whoamiCommand(), loginCommand(), logoutCommand(), profileCommand(),
	}
}
