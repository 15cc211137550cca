package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// isSigningKey reports whether a key is public, strong enough, of a kind whose algorithms are accepted, and
// meant for signatures.
func isSigningKey(key *jose.JSONWebKey) bool {
	if !key.Valid() || key.Use != "" && key.Use != "sig" {
		return false
	}
	if key.Algorithm != "" && !slices.Contains(publicAlgorithms, key.Algorithm) {
		return false
	}
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() >= minRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false // private and symmetric keys do not belong into a public set
}
