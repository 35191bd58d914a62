package cli_test

import "testing"

// The commands of docs/guides/heartbeat.md lead from messages to a pager that is out of order at first.
func TestGuideToHeartbeats(t *testing.T) {
	t.Parallel()
	runGuide(t, "heartbeat.md", 12)
}

// The commands of docs/guides/commands.md lead from a definition to a workflow.
func TestGuideToCommands(t *testing.T) {
	t.Parallel()
	runGuide(t, "commands.md", 15)
}
