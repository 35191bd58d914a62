//go:build !unix

package remote

// hasInput reports false: this system cannot tell without reading.
func hasInput(any) bool { return false }
