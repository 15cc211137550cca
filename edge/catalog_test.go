package edge_test

import (
	"context"

	"agentstream/fanout"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// family knows whose child the children of the scenarios are: run's, in tenant acme.
type family struct{}

func (family) Parent(_ context.Context, tenant, child string) (string, error) {
	switch child {
	case schematest.ChildA, schematest.ChildB, schematest.Grandchild:
		if tenant == "acme" {
			return "run", nil
		}
	}
	return "", fanout.ErrNotFound
}

func (family) Runs(context.Context, string, schema.RunsQuery) ([]schema.RunInfo, error) {
	return nil, nil
}
