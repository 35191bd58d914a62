package cli_test

import (
	"path/filepath"
	"testing"
)

// The commands of docs/guides/heartbeat.md lead from messages to a pager that is out of order at first.
func TestGuideToHeartbeats(t *testing.T) {
	t.Parallel()
	runGuide(t, "heartbeat.md", 12)
}

// The commands of docs/guides/commands.md lead from a definition to a workflow, also in the tenant of `make dev`, which
// has other orders.
func TestGuideToCommands(t *testing.T) {
	t.Parallel()
	needCurl(t, "guides/commands.md")
	tenant := sharedTenant(t, "guide")
	must(t, tenant, "import", "--name", "demo", filepath.Join("..", "service", "demo.ndjson"))
	runCommands(t, "guides/commands.md", 15, tenant)
}
