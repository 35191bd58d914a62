package store

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// decodeStrictly reads a definition that is kept as jsonb. A field that this release does not know is an error: to
// leave it out would be to run another definition than the one that was kept.
func decodeStrictly(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("a definition that is kept cannot be read: %w", err)
	}
	return nil
}
