// Package auth authenticates callers. It reads the token of a request, finds the key that the token belongs to, and
// returns a Credential: the tenant of the key and what it may do. Keys does the look-up and caches the result.
//
// A tenant's token is "mfk_" followed by the tenant's id, the key's id and a secret of 256 bits, in base64url. The
// store keeps only the SHA-256 of the secret. A fast hash is right here: the secret is random and as long as the hash,
// so a slow hash would not make it harder to guess. Operator keys come from the configuration, either in plain text or
// as their SHA-256.
//
// A ticket has the form of a token, begins with "mft_", and replaces its key for a short time. It is not a key: the
// service accepts it only where a request cannot have a header. A ticket grants what its key grants at the time of use.
package auth
