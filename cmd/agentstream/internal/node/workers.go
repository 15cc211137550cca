package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"agentstream/edge/workers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/protocols/langgraph"
	"agentstream/protocols/nimi/answer"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// placeKept is how long NATS remembers how far a tenant's workers over HTTP have come, when there are none.
const placeKept = 30 * 24 * time.Hour

// openWorkers makes what agents over HTTP answer sessions by.
func (n *Node) openWorkers(cfg Config) (*workers.Workers, error) {
	w := worker.Config{Log: n.Log, Waker: n.Log, Attend: n.Log.Attend, Ask: n.Log.Ask, Reasons: answer.Reasons(),
		Outcome: qoder.IsOutcome, Alone: langgraph.Alone, Redact: n.Redact, Seal: n.Keys, Logger: cfg.Logger}
	w.Hooks = cfg.Metrics.ProducerHooks(cfg.Logger)
	if cfg.Archive != nil { // a nil archive in an interface would not be nil
		w.Archive, w.Past = cfg.Archive, n.Archive
		if marks, ok := cfg.Runs.(forgetting); ok {
			w.Archive = GuardArchive(cfg.Archive, marks)
		}
	}
	follow := func(ctx context.Context, tenant string, hand func(schema.Pack, func())) error {
		at := pubjs.FollowConfig{Name: placeName(tenant), Tenant: tenant, Forget: placeKept, Logger: cfg.Logger}
		return n.Log.Follow(ctx, at, hand)
	}
	return workers.New(workers.Config{Worker: w, Follow: follow, Logger: cfg.Logger})
}

// maxPlain is the longest name of a tenant that the name of a consumer has room for.
const maxPlain = 59

// placeName returns the name under which NATS keeps how far a tenant's workers have come.
func placeName(tenant string) string {
	if len(tenant) <= maxPlain {
		return "work_" + tenant
	}
	sum := sha256.Sum256([]byte(tenant))
	return "workh_" + hex.EncodeToString(sum[:16])
}
