package pgtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// Lasting returns a T for a fixture that several tests share. Its cleanups run after the last test, before the server
// stops, and its context does not end. An error panics, because the test that made the fixture may be over.
func Lasting(t testing.TB) testing.TB { return lasting{t} }

type lasting struct{ testing.TB }

// afterTests are the cleanups of lasting fixtures.
var afterTests struct {
	mu       sync.Mutex
	cleanups []func()
}

func (lasting) Cleanup(f func()) {
	afterTests.mu.Lock()
	defer afterTests.mu.Unlock()
	afterTests.cleanups = append(afterTests.cleanups, f)
}

func (lasting) Context() context.Context { return context.Background() }

func (lasting) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (l lasting) Error(args ...any)               { l.Errorf("%s", fmt.Sprintln(args...)) }

// cleanUp runs the cleanups, the newest first.
func cleanUp() {
	for i := len(afterTests.cleanups) - 1; i >= 0; i-- {
		afterTests.cleanups[i]()
	}
}
