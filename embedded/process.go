package embedded

import (
	"os/exec"
	"syscall"
)

// process is a running postmaster.
type process struct {
	command *exec.Cmd
	pid     int
	exited  chan struct{} // closed when its end was waited for
	err     error         // why it ended; to be read after exited is closed
}

// signal sends sig to the postmaster. If the postmaster has already ended, nothing is left to do. No other error is
// possible: the signal never reaches another process that got its number.
func (p *process) signal(sig syscall.Signal) {
	_ = p.command.Process.Signal(sig)
}
