package cli

import (
	"errors"
	"fmt"
	"time"

	"agentstream/internal/keyservice"
	"agentstream/schema/seal"
)

// KeyFlags say where the keys are that content of tenants is encrypted with.
type KeyFlags struct {
	KeyService      string        `name:"key-service" help:"Where the keys of tenants are that content is encrypted with: file:FOLDER, or vault+https://HOST:8200[/MOUNT] (docs/encryption.md). With it, encrypted content is opened for those who may read it." env:"AGENTSTREAM_KEY_SERVICE" placeholder:"ADDRESS"`
	KeyServiceToken string        `name:"key-service-token" help:"Token for a Vault. That of a file is read again when it changes." env:"AGENTSTREAM_KEY_SERVICE_TOKEN" placeholder:"TOKEN"`
	KeyLife         time.Duration `name:"key-life" help:"How long a key is remembered before the key service is asked again, 1s to 24h: so long content of a key that was deleted can still be read, and so long a key service may be away." default:"5m" env:"AGENTSTREAM_KEY_LIFE"`
}

// KeyService is a key service with all that a command asks of it.
type KeyService interface {
	seal.Deriver
	keyservice.Keeper
}

// ErrNoKeyService reports that no key service is named.
var ErrNoKeyService = errors.New("--key-service: none is given")

// Service opens the key service. It contacts nobody.
func (f *KeyFlags) Service() (KeyService, error) {
	if f.KeyService == "" {
		return nil, ErrNoKeyService
	}
	at, err := keyservice.ParseAddress(f.KeyService)
	if err != nil {
		return nil, fmt.Errorf("--key-service: %w", err)
	}
	if at.Vault != nil {
		if f.KeyServiceToken == "" {
			return nil, errors.New("--key-service-token: a Vault asks for one")
		}
		token := NewSecret(f.KeyServiceToken, "AGENTSTREAM_KEY_SERVICE_TOKEN")
		return keyservice.NewVault(at.Vault, token.Value), nil
	}
	file, err := keyservice.NewFile(at.Folder)
	if err != nil {
		return nil, fmt.Errorf("--key-service: %w", err)
	}
	return file, nil
}

// OpenKeys returns what opens encrypted content, and encrypts nothing; nil where there is no key service.
func (f *KeyFlags) OpenKeys() (*seal.Keys, error) { return f.OpenSealing(nil) }

// OpenSealing returns what opens, and encrypts the content of tenants; * is all. nil where there is no key service.
func (f *KeyFlags) OpenSealing(tenants []string) (*seal.Keys, error) {
	of, err := seal.ParseTenants(tenants)
	if err != nil {
		return nil, fmt.Errorf("--encrypt: %w", err)
	}
	if f.KeyService == "" {
		if !of.IsEmpty() {
			return nil, errors.New("--encrypt: there is no --key-service to encrypt with")
		}
		return nil, nil
	}
	if f.KeyLife < time.Second || f.KeyLife > 24*time.Hour {
		return nil, fmt.Errorf("--key-life %v: 1s to 24h is allowed", f.KeyLife)
	}
	service, err := f.Service()
	if err != nil {
		return nil, err
	}
	return seal.New(seal.Config{Service: service, Tenants: of, Life: f.KeyLife})
}
