package embedded

import (
	"os/exec"
	"syscall"
)

// process is a running postmaster.
type process struct {
	command *exec.Cmd
	pid     int
	exited  chan struct{} // closed when it has been waited for
	err     error         // why it ended; to be read after exited
}

// signal sends sig to the postmaster. Where that has ended already nothing is left to be done, and nothing else can go
// wrong: the signal never reaches another process that got its number.
func (p *process) signal(sig syscall.Signal) {
	_ = p.command.Process.Signal(sig)
}
