package doctor

import (
	"context"
	"errors"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/schema"
)

// sealing asks the key service for the keys of the tenants that are encrypted; of all where the name is *. Without a
// key service there is nothing to ask.
func (x *examination) sealing(ctx context.Context, tenants []string, f *cli.KeyFlags) {
	service, err := f.Service()
	if errors.Is(err, cli.ErrNoKeyService) {
		if len(tenants) > 0 {
			x.find("content is to be encrypted, and there are no keys; mend: --key-service")
		}
		return
	}
	if err != nil {
		x.find("the key service cannot be used: %v; mend: --key-service, --key-service-token", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, tenant := range tenants {
		if tenant = strings.TrimSpace(tenant); tenant == "" {
			continue
		}
		if tenant == "*" {
			_, err = service.List(ctx)
		} else {
			_, _, err = service.Derive(ctx, tenant, 0, "agentstream doctor")
		}
		switch {
		case errors.Is(err, schema.ErrKeyGone):
			x.find("tenant %s has no key: nothing of it is stored or read; mend: agentstream keys create --tenant %s",
				tenant, tenant)
		case err != nil:
			x.find("the key service does not answer for tenant %s: %v; mend: --key-service, --key-service-token",
				tenant, err)
		}
	}
}
