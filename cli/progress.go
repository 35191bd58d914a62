package cli

import (
	"os"

	"github.com/schollz/progressbar/v3"
)

// newProgress returns a progress bar on standard error, which prints nothing if that is not a terminal. total is -1
// if it is unknown.
func newProgress(total int64, what string, bytes bool) *progressbar.ProgressBar {
	visible := false
	if info, err := os.Stderr.Stat(); err == nil {
		visible = info.Mode()&os.ModeCharDevice != 0
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetVisibility(visible),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(30),
	)
}
