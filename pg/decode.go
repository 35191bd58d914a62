package pg

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// DecodeStrictly decodes a definition stored as jsonb. A field unknown to this release is an error: ignoring it would
// run a different definition from the stored one.
func DecodeStrictly(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("decode a stored definition: %w", err)
	}
	return nil
}
