package natskit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/schema"
)

// BlobStream holds the blobs of all runs. They have no age: they go with their run.
const BlobStream = "AGENT_BLOBS"

// blobPrefix begins the subjects of blobs. No partition is called so.
//
//	agent.blob.<tenant>.<run>.mark                   the run has something here
//	agent.blob.<tenant>.<run>.part.<upload>.<n>      a whole piece of a blob, from 0
//	agent.blob.<tenant>.<run>.whole.<ref>.<size>     a blob that is complete: where its pieces are, and what is left
const blobPrefix = schema.StorePrefix + ".blob."

// Headers of a blob that is complete.
const (
	blobType   = "Agent-Blob-Type"
	blobUpload = "Agent-Blob-Upload"
)

func (l Layout) blobs() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        BlobStream,
		Description: "agentstream: blobs of runs",
		Subjects:    []string{blobPrefix + ">"},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		MaxBytes:    l.BlobBytes,
		Discard:     jetstream.DiscardNew, // a blob that is there stays
		Replicas:    l.Replicas,
		AllowDirect: true,
		Duplicates:  100 * time.Millisecond,
	}
}

// BlobFilter matches all that is kept of a run's blobs, or of a tenant's where Run is "".
func BlobFilter(key schema.RunKey) string { return blobSubject(key) + ">" }

// BlobMark is the subject that has a message while a run has anything among the blobs; of all runs of a tenant where
// Run is "".
func BlobMark(key schema.RunKey) string { return blobSubject(withWildcard(key)) + "mark" }

// RunOfMark is the run of a BlobMark. The error wraps schema.ErrBadPack.
func RunOfMark(subject string) (schema.RunKey, error) {
	rest, ok := strings.CutPrefix(subject, blobPrefix)
	tenant, rest, _ := strings.Cut(rest, ".")
	run, rest, _ := strings.Cut(rest, ".")
	key := schema.RunKey{Tenant: tenant, Run: run}
	if err := key.Validate(); !ok || rest != "mark" || err != nil {
		return schema.RunKey{}, fmt.Errorf("natskit: subject %q is no mark of a run: %w", subject, schema.ErrBadPack)
	}
	return key, nil
}

// withWildcard is key with a wildcard in place of a run that is not named.
func withWildcard(key schema.RunKey) schema.RunKey {
	if key.Run == "" {
		key.Run = "*"
	}
	return key
}

func blobSubject(key schema.RunKey) string {
	if key.Run == "" {
		return blobPrefix + key.Tenant + "."
	}
	return blobPrefix + key.Tenant + "." + key.Run + "."
}

// Blobs keeps blobs of runs in JetStream. What it has acknowledged every node reads at once. It is safe for
// concurrent use.
type Blobs struct {
	nc *nats.Conn
	js jetstream.JetStream
}

// NewBlobs makes no request.
func NewBlobs(nc *nats.Conn) (*Blobs, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("natskit: blobs: %w", err)
	}
	return &Blobs{nc, js}, nil
}

// Put stores what pieces yield as a blob of a run: each of schema.BlobPiece bytes, but for the last, which is shorter
// and may be empty. A piece is used until the next one is asked for. One that the run has already is kept once, with
// the type that it had; stored is false then. Nothing is kept when pieces fail, or the error wraps schema.ErrFull.
func (b *Blobs) Put(ctx context.Context, key schema.RunKey, mediaType string,
	pieces iter.Seq2[[]byte, error]) (blob schema.Blob, stored bool, err error) {
	u := &upload{b: b, key: key, id: rand.Text(), sum: schema.NewBlobSum(mediaType)}
	blob, stored, err = u.run(ctx, mediaType, pieces)
	if !stored && u.parts > 0 && !u.doubt {
		u.undo(ctx)
	}
	if err != nil {
		return schema.Blob{}, false, fmt.Errorf("natskit: keep a blob of %s: %w", key, blobError(err))
	}
	return blob, stored, nil
}

// Get finds a blob, and walks its pieces. The error wraps schema.ErrNoBlob when the run has no such blob.
func (b *Blobs) Get(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error], error) {
	m, err := LastFromLeader(ctx, b.nc, BlobStream, blobSubject(key)+"whole."+ref+".*")
	if errors.Is(err, ErrNoMessage) {
		err = schema.ErrNoBlob
	}
	var blob schema.Blob
	if err == nil {
		blob, err = blobOf(m)
	}
	if err != nil {
		return schema.Blob{}, nil, fmt.Errorf("natskit: blob %s of %s: %w", ref, key, blobError(err))
	}
	return blob, func(yield func([]byte, error) bool) {
		part := blobSubject(key) + "part." + m.header(blobUpload) + "."
		for n := range blob.Size / schema.BlobPiece {
			p, err := LastFromLeader(ctx, b.nc, BlobStream, part+strconv.FormatInt(n, 10))
			if err != nil {
				yield(nil, fmt.Errorf("natskit: piece %d of blob %s of %s: %w", n, ref, key, blobError(err)))
				return
			}
			if !yield(p.Data, nil) {
				return
			}
		}
		if len(m.Data) > 0 {
			yield(m.Data, nil)
		}
	}, nil
}

// blobOf reads what the message of a whole blob says.
func blobOf(m Msg) (schema.Blob, error) {
	rest := m.Subject[strings.LastIndexByte(m.Subject[:max(0, strings.LastIndexByte(m.Subject, '.'))], '.')+1:]
	ref, digits, _ := strings.Cut(rest, ".")
	size, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || schema.ValidBlobRef(ref) != nil || int64(len(m.Data)) != size%schema.BlobPiece {
		return schema.Blob{}, fmt.Errorf("subject %q with %d bytes: %w", m.Subject, len(m.Data), schema.ErrBadPack)
	}
	return schema.Blob{Ref: ref, Type: m.header(blobType), Size: size}, nil
}

// List returns the blobs of a run, or of a tenant where Run is "", without their types.
func (b *Blobs) List(ctx context.Context, key schema.RunKey) (list []schema.Blob, err error) {
	for offset := 0; ; {
		state, err := b.state(ctx, blobSubject(withWildcard(key))+"whole.*.*", offset)
		if err != nil {
			return nil, fmt.Errorf("natskit: list blobs of %s: %w", key, blobError(err))
		}
		for subject := range state.Subjects {
			parts := strings.Split(subject, ".")
			if size, err := strconv.ParseInt(parts[len(parts)-1], 10, 64); err == nil {
				list = append(list, schema.Blob{Ref: parts[len(parts)-2], Size: size})
			}
		}
		if offset += len(state.Subjects); len(state.Subjects) == 0 || offset >= state.total {
			return list, nil
		}
	}
}

// ListRuns returns the runs of a tenant that have anything here.
func (b *Blobs) ListRuns(ctx context.Context, tenant string) (ids []string, err error) {
	for offset := 0; ; {
		state, err := b.state(ctx, BlobMark(schema.RunKey{Tenant: tenant}), offset)
		if api := new(jetstream.APIError); errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound {
			return nil, nil // of a log of before
		}
		if err != nil {
			return nil, fmt.Errorf("natskit: runs of %s with blobs: %w", tenant, blobError(err))
		}
		for subject := range state.Subjects {
			if key, err := RunOfMark(subject); err == nil {
				ids = append(ids, key.Run)
			}
		}
		if offset += len(state.Subjects); len(state.Subjects) == 0 || offset >= state.total {
			return ids, nil
		}
	}
}

// subjects is one page of what a stream says about its subjects.
type subjects struct {
	Subjects map[string]uint64 `json:"subjects"`
	total    int
}

func (b *Blobs) state(ctx context.Context, filter string, offset int) (s subjects, err error) {
	body, err := json.Marshal(map[string]any{"subjects_filter": filter, "offset": offset})
	if err != nil {
		return s, err
	}
	err = Repeat(ctx, b.nc, func(ctx context.Context, wait time.Duration) error {
		once, cancel := context.WithTimeout(ctx, 4*wait)
		defer cancel()
		reply, err := b.nc.RequestWithContext(once, "$JS.API.STREAM.INFO."+BlobStream, body)
		if err != nil {
			return err
		}
		var answer struct {
			Total int                 `json:"total"`
			State subjects            `json:"state"`
			Error *jetstream.APIError `json:"error"`
		}
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			return err
		}
		if answer.Error != nil {
			return answer.Error
		}
		s, s.total = answer.State, answer.Total
		return nil
	})
	return s, err
}

// Drop removes one blob of a run. One that is not there is removed.
func (b *Blobs) Drop(ctx context.Context, key schema.RunKey, ref string) error {
	filter := blobSubject(key) + "whole." + ref + ".*"
	m, err := LastFromLeader(ctx, b.nc, BlobStream, filter)
	if err == nil {
		_, err = b.purge(ctx, filter) // first: what is not whole is not read
	}
	if err == nil {
		_, err = b.purge(ctx, blobSubject(key)+"part."+m.header(blobUpload)+".>")
	}
	if err != nil && !errors.Is(err, ErrNoMessage) {
		return fmt.Errorf("natskit: remove blob %s of %s: %w", ref, key, blobError(err))
	}
	return nil
}

// Filters returns what matches the messages of one blob of a run: its pieces, and last what names them, without which they
// are not found again. It returns none for a blob that is not there.
func (b *Blobs) Filters(ctx context.Context, key schema.RunKey, ref string) ([]string, error) {
	whole := blobSubject(key) + "whole." + ref + ".*"
	m, err := LastFromLeader(ctx, b.nc, BlobStream, whole)
	if errors.Is(err, ErrNoMessage) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("natskit: blob %s of %s: %w", ref, key, blobError(err))
	}
	return []string{blobSubject(key) + "part." + m.header(blobUpload) + ".>", whole}, nil
}

// Remove removes all blobs of a run, and returns the number of messages that went.
func (b *Blobs) Remove(ctx context.Context, key schema.RunKey) (int, error) {
	n, err := b.purge(ctx, BlobFilter(key))
	if err != nil {
		return n, fmt.Errorf("natskit: remove blobs of %s: %w", key, blobError(err))
	}
	return n, nil
}

func (b *Blobs) purge(ctx context.Context, filter string) (n int, err error) {
	err = Repeat(ctx, b.nc, func(ctx context.Context, wait time.Duration) (err error) {
		n, err = PurgeOnce(ctx, b.nc, BlobStream, filter, 0, 4*wait)
		return err
	})
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound {
		return 0, nil // of a log of before
	}
	return n, err
}

// PurgeOnce asks once to remove the messages of a subject below a position, all of them when it is 0.
func PurgeOnce(ctx context.Context, nc *nats.Conn, stream, subject string, below uint64, wait time.Duration) (int,
	error) {
	body, err := json.Marshal(struct {
		Filter string `json:"filter"`
		Seq    uint64 `json:"seq,omitempty"`
	}{subject, below})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	reply, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+stream, body)
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
		return 0, answer.Error
	}
	return answer.Purged, nil
}

// blobError turns an error of the server into a decision.
func blobError(err error) error {
	var api *jetstream.APIError
	switch {
	case NoRoom(err):
		return fmt.Errorf("%w: %w", schema.ErrFull, err)
	case Passing(err), errors.As(err, &api):
		return fmt.Errorf("%w: %w", schema.ErrUnavailable, err)
	}
	return err
}
