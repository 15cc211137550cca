package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// Purger removes runs from the log, and from the bucket of idempotency keys.
type Purger struct {
	nc         *nats.Conn
	js         jetstream.JetStream
	partitions int
	bucket     string
}

// NewPurger reads the layout of the log. keys is the bucket of idempotency keys, "" for none. It wraps
// natskit.ErrNotDeclared when there is no log.
func NewPurger(ctx context.Context, nc *nats.Conn, keys string) (*Purger, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("natsjs: purger: %w", err)
	}
	n, err := natskit.Partitions(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("natsjs: purger: %w", err)
	}
	return &Purger{nc: nc, js: js, partitions: n, bucket: keys}, nil
}

func (p *Purger) run(key schema.RunKey) natskit.Run {
	return natskit.Run{Key: key, Partitions: p.partitions}
}

// Head reads a run's head from the leader, the zero Head when the log has none.
func (p *Purger) Head(ctx context.Context, key schema.RunKey) (schema.Head, error) {
	head, err := natskit.ReadHead(ctx, p.nc, p.run(key), "")
	if err != nil {
		return schema.Head{}, fmt.Errorf("natsjs: head of %s: %w", key, err)
	}
	return head, nil
}

// Bounds of one request.
const (
	holdingGroup  = 400 // runs; see fanout/natsjs
	purgePage     = 200 // packs
	purgePageSize = 1 << 20
	purgeIdle     = 5 * time.Second
)

// Holding gives those of the runs of which the log has something, with one request for hundreds of them. A
// replica may answer, which may lag.
func (p *Purger) Holding(ctx context.Context, keys []schema.RunKey) (holding []schema.RunKey, err error) {
	byPartition := make(map[int][]schema.RunKey)
	for _, key := range keys {
		part := schema.Partition(key.Run, p.partitions)
		byPartition[part] = append(byPartition[part], key)
	}
	for _, part := range slices.Sorted(maps.Keys(byPartition)) {
		for group := range slices.Chunk(byPartition[part], holdingGroup) {
			found, err := p.holding(ctx, natskit.StreamName(part), group)
			if err != nil {
				return nil, fmt.Errorf("natsjs: look for %d runs: %w", len(group), err)
			}
			holding = append(holding, found...)
		}
	}
	return holding, nil
}

func (p *Purger) holding(ctx context.Context, stream string, keys []schema.RunKey) ([]schema.RunKey, error) {
	req := natskit.BatchRequest{MultiLast: make([]string, len(keys))}
	for i, key := range keys {
		req.MultiLast[i] = schema.RunFilter(key, p.partitions)
	}
	page, err := natskit.ReadBatch(ctx, p.nc, stream, req, purgeIdle)
	if errors.Is(err, natskit.ErrTooManySubjects) {
		if len(keys) == 1 {
			return keys, nil
		}
		first, err := p.holding(ctx, stream, keys[:len(keys)/2])
		if err != nil {
			return nil, err
		}
		second, err := p.holding(ctx, stream, keys[len(keys)/2:])
		return append(first, second...), err
	}
	if err != nil {
		return nil, err
	}
	found := make(map[schema.RunKey]bool)
	for _, m := range page.Msgs {
		if key, _, err := schema.ParseSubject(m.Subject); err == nil {
			found[key] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k schema.RunKey) bool { return !found[k] }), nil
}

// RunsOf gives the ids of a tenant's runs that the log has.
func (p *Purger) RunsOf(ctx context.Context, tenant string) ([]string, error) {
	ids := make(map[string]bool)
	for part := range p.partitions {
		stream, err := p.js.Stream(ctx, natskit.StreamName(part))
		var info *jetstream.StreamInfo
		if err == nil {
			info, err = stream.Info(ctx, jetstream.WithSubjectFilter(tenantFilter(tenant, part)))
		}
		if err != nil {
			return nil, fmt.Errorf("natsjs: runs of %s in %s: %w", tenant, natskit.StreamName(part), err)
		}
		for subject := range info.State.Subjects {
			if key, _, err := schema.ParseSubject(subject); err == nil {
				ids[key.Run] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

func tenantFilter(tenant string, part int) string {
	return strings.TrimSuffix(schema.PartitionFilter(part), ">") + tenant + ".>"
}

// Purge removes a run's packs up to a seq from the log, and those idempotency keys that they name; with
// schema.MaxSeq, all that the run has. It gives the number of messages and of keys.
func (p *Purger) Purge(ctx context.Context, key schema.RunKey, through schema.Seq) (messages, keys int, err error) {
	below, ids, err := p.survey(ctx, key, through)
	if err == nil && below > 0 {
		for _, id := range ids {
			n, err := p.purge(ctx, "KV_"+p.bucket, "$KV."+p.bucket+"."+id, 0)
			if err != nil {
				return 0, keys, fmt.Errorf("natsjs: purge keys of %s: %w", key, err)
			}
			keys += n
		}
		if through == schema.MaxSeq {
			below = 0 // what has come since as well
		}
		messages, err = p.purge(ctx, p.run(key).Stream(), p.run(key).Filter(), below)
	}
	if err != nil {
		return messages, keys, fmt.Errorf("natsjs: purge %s: %w", key, err)
	}
	return messages, keys, nil
}

// survey gives the position below which the run's packs are to go, 0 when there are none, and the
// idempotency keys that they name.
func (p *Purger) survey(ctx context.Context, key schema.RunKey, through schema.Seq) (below uint64, ids []string, err error) {
	run := p.run(key)
	last, err := natskit.LastFromLeader(ctx, p.nc, run.Stream(), run.Filter())
	if errors.Is(err, natskit.ErrNoMessage) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	seen := make(map[string]bool)
	for next := uint64(1); next <= last.Seq; {
		page, err := natskit.ReadBatch(ctx, p.nc, run.Stream(), natskit.BatchRequest{
			Seq: next, NextBy: run.Filter(), Batch: purgePage, MaxBytes: purgePageSize}, purgeIdle)
		if err != nil {
			return 0, nil, err
		}
		for _, m := range page.Msgs {
			pack, err := natskit.ParsePack(m)
			if err == nil && pack.Last() > through {
				return below, ids, nil
			}
			below, next = m.Seq+1, m.Seq+1
			if err == nil && pack.Batch != "" && p.bucket != "" && !seen[pack.Batch] && schema.ValidTenant(pack.Batch) == nil {
				seen[pack.Batch] = true
				ids = append(ids, pack.Batch)
			}
		}
		if !page.More || len(page.Msgs) == 0 {
			break
		}
	}
	return below, ids, nil
}

// purge removes the messages of a subject below a position, all of them when it is 0.
func (p *Purger) purge(ctx context.Context, stream, subject string, below uint64) (int, error) {
	body, err := json.Marshal(struct {
		Filter string `json:"filter"`
		Seq    uint64 `json:"seq,omitempty"`
	}{subject, below})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, purgeIdle)
	defer cancel()
	reply, err := p.nc.RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+stream, body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Purged int                 `json:"purged"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, err
	}
	if answer.Error != nil {
		if answer.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound && strings.HasPrefix(stream, "KV_") {
			return 0, nil // no key was ever kept
		}
		return 0, answer.Error
	}
	return answer.Purged, nil
}
