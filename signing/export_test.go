package signing

import "context"

// Encrypt is what Run repeats.
func Encrypt(ctx context.Context, keys *Keys) error { return keys.encrypt(ctx) }
