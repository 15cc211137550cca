package natsjs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// Purger removes runs from the log, with their blobs, and from the bucket of idempotency keys.
type Purger struct {
	nc         *nats.Conn
	js         jetstream.JetStream
	blobs      *natskit.Blobs
	partitions int
	bucket     string
	erase      bool // overwrite messages before they are removed
}

// EraseFirst has every message overwritten in the server's files before it is removed: what is purged by its subject
// alone stays readable in the blocks that hold younger messages, also after a restart. It costs a request and the
// writing of a block of at most 8 MiB for each message. Call it before the Purger is used.
func (p *Purger) EraseFirst() { p.erase = true }

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
	blobs, err := natskit.NewBlobs(nc)
	if err != nil {
		return nil, fmt.Errorf("natsjs: purger: %w", err)
	}
	return &Purger{nc: nc, js: js, blobs: blobs, partitions: n, bucket: keys}, nil
}

func (p *Purger) run(key schema.RunKey) natskit.RunAddress {
	return natskit.RunAddress{Key: key, Partitions: p.partitions}
}

// Head returns a run's head from the leader, the zero Head when the log has none.
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

// Holding returns the runs of which the log has messages or blobs, with one request for hundreds of them. The answer
// may come from a replica, which may lag.
func (p *Purger) Holding(ctx context.Context, keys []schema.RunKey) ([]schema.RunKey, error) {
	holding, err := p.findInLog(ctx, keys)
	if err != nil {
		return nil, err
	}
	have := make(map[schema.RunKey]bool, len(holding))
	for _, key := range holding {
		have[key] = true
	}
	for group := range slices.Chunk(keys, holdingGroup) {
		req := natskit.BatchRequest{MultiLast: make([]string, len(group))}
		for i, key := range group {
			req.MultiLast[i] = natskit.BlobMark(key)
		}
		page, err := natskit.ReadBatch(ctx, p.nc, natskit.BlobStream, req, purgeIdle)
		if err != nil && natskit.Missing(ctx, p.nc, natskit.BlobStream) { // the log is of an older release, which has none
			return holding, nil
		}
		if err != nil {
			return nil, fmt.Errorf("natsjs: look for blobs of %d runs: %w", len(group), err)
		}
		for _, m := range page.Msgs {
			if key, err := natskit.RunOfMark(m.Subject); err == nil && !have[key] {
				have[key] = true
				holding = append(holding, key)
			}
		}
	}
	return holding, nil
}

// findInLog returns those of the runs of which the log holds something.
func (p *Purger) findInLog(ctx context.Context, keys []schema.RunKey) (holding []schema.RunKey, err error) {
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

// RunsOf returns the ids of a tenant's runs that have messages or blobs in the log, and of the children that it has
// records of.
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
			} else if child, _, ok := schema.ParseChildSubject(subject); ok {
				ids[child.Run] = true
			}
		}
	}
	marked, err := p.blobs.ListRuns(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("natsjs: runs of %s with blobs: %w", tenant, err)
	}
	for _, id := range marked {
		ids[id] = true
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

func tenantFilter(tenant string, part int) string {
	return strings.TrimSuffix(schema.PartitionFilter(part), ">") + tenant + ".>"
}

// Purge removes a run's packs up to a seq from the log, the idempotency keys in them, and the run's blobs unless it
// has newer packs. With schema.MaxSeq it removes all of the run, also the records of its children. It returns the
// number of messages, blobs included, and the number of keys.
func (p *Purger) Purge(ctx context.Context, key schema.RunKey, through schema.Seq) (messages, keys int, err error) {
	below, over, named, err := p.survey(ctx, key, through)
	if err == nil && below > 0 {
		for id := range named.keys {
			if p.bucket == "" {
				break
			}
			// Not overwritten: servers erase no message of a bucket, and one of keys holds sums, no words of anybody.
			n, err := p.remove(ctx, "KV_"+p.bucket, "$KV."+p.bucket+"."+id, 0)
			if err != nil {
				return 0, keys, fmt.Errorf("natsjs: purge keys of %s: %w", key, err)
			}
			keys += n
		}
		if through == schema.MaxSeq {
			below = 0 // also packs that were written since
			messages, err = p.release(ctx, key, named.children)
		}
		if err == nil {
			var n int
			n, err = p.purge(ctx, p.run(key).Stream(), p.run(key).Filter(), below)
			messages += n
		}
	}
	if err == nil && (over || through == schema.MaxSeq) {
		n := 0
		if p.erase {
			messages, err = p.overwriteBlobs(ctx, key, messages)
		}
		if err != nil {
			return messages, keys, fmt.Errorf("natsjs: purge %s: %w", key, err)
		}
		n, err = p.blobs.Remove(ctx, key)
		messages += n
	}
	if err != nil {
		return messages, keys, fmt.Errorf("natsjs: purge %s: %w", key, err)
	}
	return messages, keys, nil
}

// release removes the records of a run's children, so that their ids can be used again.
func (p *Purger) release(ctx context.Context, key schema.RunKey, children map[string]bool) (messages int, err error) {
	for child := range children {
		of := p.run(schema.RunKey{Tenant: key.Tenant, Run: child})
		n, err := p.purge(ctx, of.Stream(), schema.ChildSubject(of.Key, key.Run, p.partitions), 0)
		if messages += n; err != nil {
			return messages, fmt.Errorf("child %s: %w", child, err)
		}
	}
	return messages, nil
}

// names are the keys and children named in a run's packs.
type names struct {
	keys     map[string]bool // idempotency keys
	children map[string]bool // with packs in it, or spawned by it
}

// add adds the names in a pack.
func (n names) add(p *schema.Pack) {
	if p.Batch != "" && schema.ValidTenant(p.Batch) == nil {
		n.keys[p.Batch] = true
	}
	if p.Child != "" {
		n.children[p.Child] = true
	}
	if !bytes.Contains(p.Body, []byte(`"`+schema.TypeChildSpawn+`"`)) {
		return
	}
	for r, err := range p.Records(0) {
		if err != nil {
			return
		}
		if string(r.Type) != schema.TypeChildSpawn {
			continue
		}
		if child := schema.ChildOfSpawn(r.Payload()); child != "" {
			n.children[child] = true
		}
	}
}

// survey returns the position below which the run's packs are to be removed, 0 when there are none, reports whether
// the run has no newer packs, and returns the names in the packs.
func (p *Purger) survey(ctx context.Context, key schema.RunKey, through schema.Seq) (below uint64, over bool,
	named names, err error) {
	named = names{make(map[string]bool), make(map[string]bool)}
	run := p.run(key)
	last, err := natskit.LastFromLeader(ctx, p.nc, run.Stream(), run.Filter())
	if errors.Is(err, natskit.ErrNoMessage) {
		return 0, true, named, nil
	}
	if err != nil {
		return 0, false, named, err
	}
	for m, err := range messagesOf(ctx, p.nc, run) {
		if err != nil {
			return 0, false, named, err
		}
		pack, err := natskit.ParsePack(m)
		if err == nil && pack.Last() > through {
			return below, false, named, nil
		}
		if m.Seq > last.Seq {
			break // a writer must not keep it from ending
		}
		below = m.Seq + 1
		if err == nil {
			named.add(&pack)
		}
	}
	return below, true, named, nil
}

// messagesOf iterates over the messages of a run in the log, in order. It ends with the first error.
func messagesOf(ctx context.Context, nc *nats.Conn, run natskit.RunAddress) iter.Seq2[natskit.Msg, error] {
	return func(yield func(natskit.Msg, error) bool) {
		for next := uint64(1); ; {
			page, err := natskit.ReadBatch(ctx, nc, run.Stream(), natskit.BatchRequest{
				Seq: next, NextBy: run.Filter(), Batch: purgePage, MaxBytes: purgePageSize}, purgeIdle)
			if err != nil {
				yield(natskit.Msg{}, err)
				return
			}
			for _, m := range page.Msgs {
				if !yield(m, nil) {
					return
				}
				next = m.Seq + 1
			}
			if !page.More || len(page.Msgs) == 0 {
				return
			}
		}
	}
}

// purge removes the messages of a subject below a position, all of them when it is 0.
func (p *Purger) purge(ctx context.Context, stream, subject string, below uint64) (int, error) {
	erased := 0
	if p.erase {
		n, err := p.overwrite(ctx, stream, subject, below)
		if err != nil {
			return n, err
		}
		erased = n
	}
	n, err := p.remove(ctx, stream, subject, below)
	return erased + n, err
}

func (p *Purger) remove(ctx context.Context, stream, subject string, below uint64) (int, error) {
	n, err := natskit.PurgeOnce(ctx, p.nc, stream, subject, below, purgeIdle)
	if api := new(jetstream.APIError); errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound &&
		strings.HasPrefix(stream, "KV_") {
		return 0, nil // no key was ever kept
	}
	return n, err
}
