package problem

import (
	"fmt"
	"runtime/debug"
)

// Guarded calls run outside of the request's goroutine, where a panic would end the process.
func Guarded(run func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return run()
}
