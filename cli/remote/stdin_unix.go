//go:build unix

package remote

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inputWait is how long a command waits for a writer that has not written yet, in milliseconds.
const inputWait = 100

// hasInput reports whether a file or pipe has data to read. It reads none: the data may be for another program, such as
// the shell that runs this one.
func hasInput(file any) bool {
	f, ok := file.(*os.File)
	if !ok || isTerminal(f) {
		return false
	}
	readable := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(readable, inputWait); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	request := uint(0x541b) // FIONREAD of Linux
	if runtime.GOOS == "darwin" {
		request = 0x4004667f
	}
	size, err := unix.IoctlGetInt(int(f.Fd()), request)
	return err == nil && size > 0
}
