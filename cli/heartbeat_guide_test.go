package cli_test

import (
	"os"
	"os/exec"
	"testing"
)

// The commands of docs/guides/heartbeat.md lead from messages to a pager that is out of order at first.
func TestGuideToHeartbeats(t *testing.T) {
	t.Parallel()
	needCurl(t, "heartbeat.md")
	runGuide(t, "heartbeat.md", 12)
}

// The commands of docs/guides/commands.md lead from a definition to a workflow.
func TestGuideToCommands(t *testing.T) {
	t.Parallel()
	needCurl(t, "commands.md")
	runGuide(t, "commands.md", 15)
}

func needCurl(t *testing.T, guide string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("MANIFOLD_TEST_CLIENTS") == "required" {
			t.Fatal("there is no curl")
		}
		t.Skip("there is no curl: the commands of docs/guides/" + guide + " were not run")
	}
}
