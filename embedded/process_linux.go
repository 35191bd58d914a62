package embedded

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// launch starts cmd in a new process group, so that a terminal's Ctrl-C does not reach it. It makes the kernel send
// onDeath to the process when this process ends, in whatever way.
func launch(cmd *exec.Cmd, onDeath syscall.Signal) (*process, error) {
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = onDeath
	p := &process{command: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the *thread* that started the child ends. So this goroutine keeps its thread
		// for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// children lists the processes whose parent is pid.
func children(pid int) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var found []int
	for _, path := range stats {
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if _, parent := stat(child); parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// alive reports whether a process runs; a process that ended and was not waited for does not.
func alive(pid int) bool {
	state, _ := stat(pid)
	return state != 0 && state != 'Z' && state != 'X'
}

// isPostgres reports whether the process is a PostgreSQL server, and not another program that got its number later.
func isPostgres(pid int) bool {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return err == nil && bytes.HasPrefix(name, []byte("postgres"))
}

// stat reads a process's state and parent from /proc/PID/stat, whose second field is a name in parentheses that may
// contain blanks and parentheses. It returns zeros if there is no such process.
func stat(pid int) (state byte, parent int) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 2 {
		return 0, 0
	}
	parent, err = strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0, 0
	}
	return fields[0][0], parent
}
