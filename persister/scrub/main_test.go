package scrub_test

import (
	"testing"

	"agentstream/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
