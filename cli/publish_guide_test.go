package cli_test

import "testing"

func TestGuideToPublishing(t *testing.T) {
	t.Parallel()
	runPage(t, "guides/publish.md", 5)
}

func TestGuideToCloudEvents(t *testing.T) {
	t.Parallel()
	runPage(t, "reference/cloudevents.md", 5)
}

func TestGuideToReports(t *testing.T) {
	t.Parallel()
	runPage(t, "guides/reports.md", 5)
}
