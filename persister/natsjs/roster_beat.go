package natsjs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
)

// beat shows this member, renews its leases, sees who is there, and takes or hands over partitions.
// When it fails, everything stays as it is. It may take longer than from one beat to the next, where each
// of many leases takes its time; but not so long that the leases end meanwhile.
func (r *Roster) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(r.cfg.TTL-r.cfg.Beat, time.Second))
	defer cancel()
	if r.kv == nil {
		kv, err := r.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: RosterBucket, Description: "agentstream: who persists which partition", TTL: r.cfg.TTL, History: 1,
			Storage: jetstream.MemoryStorage, Replicas: r.replicas, // a lease that outlives NATS says nothing
		})
		if err != nil {
			return fmt.Errorf("open bucket %s: %w", RosterBucket, err)
		}
		r.kv = kv
	}
	if _, err := r.kv.Put(ctx, memberKey+r.me, nil); err != nil {
		return fmt.Errorf("show up: %w", err)
	}
	for p := range r.seats {
		if err := r.renew(ctx, p); err != nil {
			return fmt.Errorf("renew lease %d: %w", p, err)
		}
	}
	members, taken, err := r.read(ctx)
	if err != nil {
		return err
	}
	for p, who := range assign(len(r.seats), members) {
		if err := r.settle(ctx, p, who == r.me, taken[p]); err != nil {
			return err
		}
	}
	return nil
}

// renew shows that a lease of ours is still used, or notes that it is another's now.
func (r *Roster) renew(ctx context.Context, p int) error {
	r.mu.Lock()
	held, revision := r.seats[p].lease != nil, r.seats[p].revision
	r.mu.Unlock()
	if !held {
		return nil
	}
	rev, err := r.kv.Update(ctx, leaseOf(p), []byte(r.me), revision)
	if overtaken(err) { // or an earlier answer of ours was lost
		var e jetstream.KeyValueEntry
		if e, err = r.kv.Get(ctx, leaseOf(p)); errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && string(e.Value()) != r.me {
			r.cfg.Logger.Warn("persister: a partition is another's now", "stream", natskit.StreamName(p))
			r.drop(p)
			return nil
		}
		if err == nil {
			rev = e.Revision()
		}
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.seats[p].revision = rev
	r.mu.Unlock()
	return nil
}

// overtaken says that a compare-and-set has found another revision. Replicated buckets have a code of
// their own for it.
func overtaken(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == 10164)
}

// read gives who is there, and the partitions that have a holder.
func (r *Roster) read(ctx context.Context) (members []string, taken map[int]string, err error) {
	prefix := "$KV." + RosterBucket + "."
	page, err := natskit.ReadBatch(ctx, r.nc, "KV_"+RosterBucket, natskit.BatchRequest{MultiLast: []string{prefix + ">"}}, max(r.cfg.Beat, time.Second))
	if err != nil {
		return nil, nil, fmt.Errorf("read members: %w", err)
	}
	known := map[string]bool{r.me: true} // a copy of the bucket that lags may not know us yet
	taken = make(map[int]string)
	for _, m := range page.Msgs {
		if len(m.Header[kvOperation]) > 0 { // gone
			continue
		}
		key := strings.TrimPrefix(m.Subject, prefix)
		if id, ok := strings.CutPrefix(key, memberKey); ok {
			known[id] = true
		} else if text, ok := strings.CutPrefix(key, leaseKey); ok {
			if p, err := strconv.Atoi(text); err == nil {
				taken[p] = string(m.Data)
			}
		}
	}
	for id := range known {
		members = append(members, id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = known
	return members, taken, nil
}

// settle brings one partition nearer to where it belongs.
func (r *Roster) settle(ctx context.Context, p int, mine bool, holder string) error {
	r.mu.Lock()
	s := &r.seats[p]
	held, revision := s.lease != nil, s.revision
	var give bool
	switch {
	case held && mine && !s.leaving.IsZero(): // it comes back before it was handed over
		s.lease, s.leaving = newLease(), time.Time{}
	case held && !mine && s.leaving.IsZero():
		s.leaving = time.Now()
		s.lease.end() // no fetch goes on
	}
	if held && !mine {
		// What has been fetched is stored first, so that the next one goes on in order; but not for long.
		give = s.out == 0 || time.Since(s.leaving) > r.cfg.TTL
	}
	r.mu.Unlock()
	switch {
	case give:
		if err := r.kv.Delete(ctx, leaseOf(p), jetstream.LastRevision(revision)); err != nil && !overtaken(err) {
			return fmt.Errorf("hand over lease %d: %w", p, err)
		}
		r.drop(p)
	case !held && mine && (holder == "" || holder == r.me):
		return r.claim(ctx, p)
	}
	return nil
}

func (r *Roster) claim(ctx context.Context, p int) error {
	rev, err := r.kv.Create(ctx, leaseOf(p), []byte(r.me))
	if errors.Is(err, jetstream.ErrKeyExists) || overtaken(err) {
		e, err := r.kv.Get(ctx, leaseOf(p))
		if err != nil || string(e.Value()) != r.me {
			return nil // another was first; the next beat sees more
		}
		rev = e.Revision()
	} else if err != nil {
		return fmt.Errorf("take lease %d: %w", p, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.seats[p]
	s.lease, s.revision, s.leaving = newLease(), rev, time.Time{}
	r.checked = time.Now()
	r.tell()
	return nil
}

func (r *Roster) drop(p int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.seats[p]
	if s.lease != nil {
		s.lease.end()
	}
	s.lease, s.revision, s.leaving = nil, 0, time.Time{}
	r.tell()
}

// leave hands over what we hold, at the end.
func (r *Roster) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	if r.kv != nil {
		_ = r.kv.Delete(ctx, memberKey+r.me) // first: who sees a lease end knows then who is left
	}
	for p := range r.seats {
		if r.kv != nil && ctx.Err() == nil {
			r.release(ctx, p) // else it ends by itself
		}
		r.drop(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open != nil {
		r.open.end()
		r.open = nil
	}
}

// release gives a lease back. The last beat may have been cut off: then the log knows a newer revision of it than
// we do, or one that we never heard of.
func (r *Roster) release(ctx context.Context, p int) {
	r.mu.Lock()
	held, revision := r.seats[p].lease != nil, r.seats[p].revision
	r.mu.Unlock()
	if held {
		if err := r.kv.Delete(ctx, leaseOf(p), jetstream.LastRevision(revision)); !overtaken(err) {
			return
		}
	}
	if e, err := r.kv.Get(ctx, leaseOf(p)); err == nil && string(e.Value()) == r.me {
		_ = r.kv.Delete(ctx, leaseOf(p), jetstream.LastRevision(e.Revision()))
	}
}

// leaveWait bounds the farewell.
const leaveWait = 2 * time.Second

// assign gives each partition a member. All who see the same members come to the same answer, loads
// differ by one at most, and few partitions move when a member comes or goes: a partition goes to the
// member with the highest score for it that has room.
func assign(partitions int, members []string) []string {
	type pair struct {
		partition, member int
		score             uint64
	}
	slices.Sort(members)
	pairs := make([]pair, 0, partitions*len(members))
	for p := range partitions {
		for m, id := range members {
			h := fnv.New64a()
			_, _ = io.WriteString(h, id+"/"+strconv.Itoa(p))
			pairs = append(pairs, pair{p, m, mix(h.Sum64())})
		}
	}
	slices.SortFunc(pairs, func(x, y pair) int {
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.partition, y.partition), cmp.Compare(x.member, y.member))
	})
	out, load := make([]string, partitions), make([]int, len(members))
	for room := partitions / len(members); slices.Contains(out, ""); room++ { // what is left over goes one by one
		for _, c := range pairs {
			if out[c.partition] == "" && load[c.member] < room {
				out[c.partition] = members[c.member]
				load[c.member]++
			}
		}
	}
	return out
}

// mix spreads a hash whose inputs differ in their last bytes only.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}
