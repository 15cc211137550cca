package sqlite

import (
	"context"
	"fmt"
)

// NextTenant returns the first tenant after after, in the order of their names, that has a run; "" when there is
// none. It costs one index lookup.
func (s *Store) NextTenant(ctx context.Context, after string) (string, error) {
	var tenant string
	err := s.read.QueryRowContext(ctx, `select coalesce(min(koder_user_id), '') from agent_runs where koder_user_id > ?`, after).Scan(&tenant)
	if err != nil {
		return "", fmt.Errorf("sqlite: tenant behind %q: %w", after, err)
	}
	return tenant, nil
}
