//go:build !unix

package listen

// MaxFiles returns how many files and connections the process may have open; 0 means unknown.
func MaxFiles() int { return 0 }
