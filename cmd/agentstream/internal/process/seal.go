package process

import (
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/schema/seal"
)

// SealFlags say what is encrypted before it is stored.
type SealFlags struct {
	Encrypt []string `help:"Tenants whose events and blobs are encrypted, each under a key of its own, before they are stored; * is all. Needs --key-service, and a key for each (agentstream keys create)." env:"AGENTSTREAM_ENCRYPT" placeholder:"TENANT,…"`
	cli.KeyFlags
}

// OpenSealing returns what encrypts and opens; nil where there is no key service.
func (f *SealFlags) OpenSealing() (*seal.Keys, error) { return f.KeyFlags.OpenSealing(f.Encrypt) }
