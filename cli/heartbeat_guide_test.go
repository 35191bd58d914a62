package cli_test

import (
	"os"
	"os/exec"
	"testing"
)

// The commands of docs/guides/heartbeat.md lead from messages to a pager that is out of order at first.
func TestGuideToHeartbeats(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("MANIFOLD_TEST_CLIENTS") == "required" {
			t.Fatal("there is no curl")
		}
		t.Skip("there is no curl: the commands of docs/guides/heartbeat.md were not run")
	}
	runGuide(t, "heartbeat.md", 12)
}
