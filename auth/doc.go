// Package auth says who is calling: it reads the token of a request, finds the key that it is of, and tells what the key
// may do and for which tenant.
//
// A tenant's token is "mfk_" and, in base64url, the tenant's id, the key's id and a secret of 256 bits. The store keeps
// the secret's SHA-256 only. A fast hash is right here: the secret is random and as long as the hash, so that there is
// nothing that a slow one would keep from being guessed. The operator's keys come from the configuration, as such
// secrets or as their SHA-256.
//
// A ticket is made like a key's token, begins with "mft_", and stands in for its key for a short time. It is no key: it is
// taken only where a request cannot have a header, and what it may do is what its key may do when it is used.
package auth
