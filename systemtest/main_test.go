package systemtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
)

// binaries is the folder of the program that the tests run; TestMain makes and removes it.
var binaries string

func TestMain(m *testing.M) {
	if os.Getenv(drainerDatabase) != "" {
		fmt.Fprintln(os.Stderr, drain())
		os.Exit(1)
	}
	if os.Getenv(stuckProgram) != "" {
		serveStuck()
		os.Exit(0)
	}
	if name := os.Getenv(attackerProgram); name != "" {
		if err := attack(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	folder, err := os.MkdirTemp("", "manifold-systemtest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = folder
	code := mongotest.Run(m)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// built builds the program when the first test asks for it: a fuzz run, which starts this binary again and again, does
// without.
var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binaries, "manifold")
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", path, "github.com/manifold-es/manifold/cmd/manifold").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

func program(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// chance is a test's source of random choices. Its seed is printed with the test's output.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("MANIFOLD_TEST_SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal("MANIFOLD_TEST_SEED:", err)
		}
		seed = given
	}
	t.Logf("MANIFOLD_TEST_SEED=%d repeats the choices", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
