package natsjs

import (
	"testing"

	"go.uber.org/goleak"

	"agentstream/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m,
		// The embedded server leaves these two running after Shutdown.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}
