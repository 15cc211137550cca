package postgres

import (
	"context"
	"fmt"
)

// NextTenant returns the first tenant behind after, in the order of their names, that has a run; "" when
// there is none. It costs one look into an index.
func (s *Store) NextTenant(ctx context.Context, after string) (string, error) {
	var tenant string
	err := s.queryRow(ctx, everyTenant, []any{&tenant}, `select coalesce(min(koder_user_id), '') from agent_runs where koder_user_id > $1`, after)
	if err != nil {
		return "", fmt.Errorf("postgres: tenant behind %q: %w", after, err)
	}
	return tenant, nil
}
