package sqlstore

import (
	"context"

	"agentstream/persister/prices"
)

const (
	deletePrices = `delete from agent_model_prices where source is not null`
	insertPrice  = `insert into agent_model_prices (model, valid_from, input, output, cache_read, cache_write, source)
		values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing`
)

// SetPrices replaces the prices of earlier lists by those of one. Prices that somebody has entered stay, and count instead of
// those of the list for the same name and day.
func (s *Store) SetPrices(ctx context.Context, list prices.List) error {
	err := s.db.Within(ctx, EveryTenant, func(tx Tx) error {
		if _, err := tx.Exec(ctx, deletePrices); err != nil {
			return err
		}
		for _, p := range list.Prices {
			from, err := s.d.Date(p.From)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, insertPrice, p.Model, from, p.Input, p.Output, p.CacheRead, p.CacheWrite, list.Source); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.wrap(err, "prices of %s", list.Source)
	}
	return nil
}
