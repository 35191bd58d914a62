//go:build !unix

package listen

// MaxFiles is how many files and connections the process may have open; 0: not known.
func MaxFiles() int { return 0 }
