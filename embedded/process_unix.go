//go:build unix && !linux

package embedded

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// launch starts cmd in a new process group, so that a terminal's Ctrl-C does not reach it. A guard sends it onDeath
// when this process ends, in whatever way. The guard is a shell that reads from a pipe which only this process holds
// open.
func launch(cmd *exec.Cmd, onDeath syscall.Signal) (*process, error) {
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{command: cmd, pid: cmd.Process.Pid, exited: make(chan struct{})}
	guard := exec.Command("/bin/sh", "-c", `cat >/dev/null; kill -"$1" "$2"`, "sh", strconv.Itoa(int(onDeath)), strconv.Itoa(p.pid))
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	_, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		err = fmt.Errorf("start the guard: %w", err)
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	go func() {
		p.err = cmd.Wait()
		// The whole group: the shell must not outlive its `cat` and signal a number that by now belongs to another
		// process.
		if syscall.Kill(-guard.Process.Pid, syscall.SIGKILL) == nil {
			_ = guard.Wait() // it was killed, and reports that
		}
		close(p.exited)
	}()
	return p, nil
}

// children lists the processes whose parent is pid.
func children(pid int) []int {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	var found []int
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil && parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// alive reports whether a process runs; a process that ended and was not waited for does not.
func alive(pid int) bool {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

// isPostgres reports whether the process is a PostgreSQL server, and not another program that got its number later.
func isPostgres(pid int) bool {
	out, err := exec.Command("ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), "postgres")
}
