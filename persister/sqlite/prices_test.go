package sqlite

import (
	"testing"

	"agentstream/persister/persistertest"
)

func TestPrices(t *testing.T) {
	s := temp(t)
	persistertest.CheckPrices(t, s, s, func(query string) (text string) {
		if err := s.read.QueryRowContext(t.Context(), query).Scan(&text); err != nil {
			t.Error(err)
		}
		return text
	}, func(model, from string, price float64) {
		if _, err := s.write.ExecContext(t.Context(), `insert into agent_model_prices (model, valid_from, input, output) values (?, ?, ?, ?)`, model, from, price, price); err != nil {
			t.Error(err)
		}
	})
}
