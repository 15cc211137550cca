package natskit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/backoff"
)

// Snapshot is what a server says of a stream of which it has made a snapshot, as the server writes it.
type Snapshot struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

// StreamRange is what a stream holds.
type StreamRange struct {
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	First    uint64 `json:"first_seq"`
	Last     uint64 `json:"last_seq"`
}

// Range returns what the stream held.
func (s *Snapshot) Range() (r StreamRange, err error) {
	err = json.Unmarshal(s.State, &r)
	return r, err
}

const (
	// snapshotChunk is how many bytes one message of a snapshot has, below every max_payload that the log allows.
	snapshotChunk = 512 << 10
	// snapshotWindow is how many bytes may be on their way: below what a connection holds for a slow reader.
	snapshotWindow = 8 << 20
	// snapshotRest is how long the server may rest between two messages of a snapshot.
	snapshotRest = time.Minute
	// restoreWithin is how long a server may take to put a stream together when all of it has arrived.
	restoreWithin = 30 * time.Minute
	// interestWithin is how long a server may take to hear that another one waits for a restore, asked every interestRest.
	interestWithin = 10 * time.Second
	interestRest   = 50 * time.Millisecond
)

// ErrStreamExists reports that a stream cannot be restored because there is one of its name.
var ErrStreamExists = errors.New("there is a stream of this name")

// Codes of the server for it: the second one is of restores.
const (
	streamExists  = 10058
	restoreExists = 10130
)

// apiAnswer is what the API answers.
type apiAnswer struct {
	Snapshot
	DeliverSubject string `json:"deliver_subject"`
	Error          *struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

// askAPI asks for one thing of the stream API.
func askAPI(ctx context.Context, nc *nats.Conn, subject string, request any) (a apiAnswer, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotRest)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return a, err
	}
	return a, readAnswer(m.Data, &a)
}

func readAnswer(data []byte, a *apiAnswer) error {
	if err := json.Unmarshal(data, a); err != nil {
		return err
	}
	switch {
	case a.Error == nil:
		return nil
	case a.Error.Code == streamExists || a.Error.Code == restoreExists:
		return ErrStreamExists
	}
	return fmt.Errorf("%s (%d)", a.Error.Description, a.Error.Code)
}

// WriteSnapshot writes a snapshot of a stream to w, without its consumers: they are of processes that run now. The
// server checks the sums of all messages before. The bytes mean something to RestoreSnapshot alone.
func WriteSnapshot(ctx context.Context, nc *nats.Conn, name string, w io.Writer) (Snapshot, error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot of %s: %w", name, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	a, err := askAPI(ctx, nc, "$JS.API.STREAM.SNAPSHOT."+name, map[string]any{"deliver_subject": inbox, "no_consumers": true,
		"chunk_size": snapshotChunk, "window_size": snapshotWindow, "jsck": true})
	if err == nil {
		err = receiveSnapshot(ctx, sub, w)
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot of %s: %w", name, err)
	}
	return a.Snapshot, nil
}

// receiveSnapshot writes what comes until the server says that it was all.
func receiveSnapshot(ctx context.Context, sub *nats.Subscription, w io.Writer) error {
	for {
		wait, cancel := context.WithTimeout(ctx, snapshotRest)
		m, err := sub.NextMsgWithContext(wait)
		cancel()
		switch {
		case err != nil:
			return err
		case len(m.Data) == 0 && m.Header.Get("Status") == "204", len(m.Data) == 0 && len(m.Header) == 0:
			return nil
		case len(m.Data) == 0:
			return fmt.Errorf("the server has given up: %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
		}
		if _, err := w.Write(m.Data); err != nil {
			return err
		}
		if m.Reply == "" { // the last piece
			continue
		}
		if err := m.Respond(nil); err != nil {
			return err
		}
	}
}

// RestoreSnapshot makes a stream again of what WriteSnapshot has written, with its numbers, its times and its settings,
// but with the number of replicas that is given (0: as it was), wherever the servers want it. It wraps ErrStreamExists
// when there is a stream of this name.
func RestoreSnapshot(ctx context.Context, nc *nats.Conn, name string, s Snapshot, replicas int, r io.Reader) error {
	config, err := configElsewhere(s.Config, replicas)
	if err != nil {
		return fmt.Errorf("restore %s: %w", name, err)
	}
	a, err := askAPI(ctx, nc, "$JS.API.STREAM.RESTORE."+name, map[string]any{"config": config, "state": s.State})
	if err == nil {
		err = sendSnapshot(ctx, nc, a.DeliverSubject, r)
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", name, err)
	}
	return nil
}

// configElsewhere is a stream's configuration for other servers.
func configElsewhere(config json.RawMessage, replicas int) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, err
	}
	delete(fields, "placement")
	if replicas > 0 {
		fields["num_replicas"] = json.RawMessage(fmt.Sprint(replicas))
	}
	return fields, nil
}

// sendSnapshot sends a snapshot in pieces, each after the one before was taken.
func sendSnapshot(ctx context.Context, nc *nats.Conn, to string, r io.Reader) error {
	buf := make([]byte, snapshotChunk)
	for {
		n, err := io.ReadFull(r, buf)
		if n == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if err := sendPiece(ctx, nc, to, buf[:n], snapshotRest); err != nil {
			return err
		}
	}
	return sendPiece(ctx, nc, to, nil, restoreWithin)
}

// sendPiece sends one piece and reads what the server says of it. An empty one is the end.
func sendPiece(ctx context.Context, nc *nats.Conn, to string, piece []byte, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, to, piece)
	// In a cluster another server than ours may wait for the pieces, and ours may not have heard of it yet.
	for end := time.Now().Add(interestWithin); errors.Is(err, nats.ErrNoResponders) && time.Now().Before(end); {
		if err := backoff.Sleep(ctx, interestRest); err != nil {
			return err
		}
		m, err = nc.RequestWithContext(ctx, to, piece)
	}
	if err != nil || len(m.Data) == 0 {
		return err
	}
	return readAnswer(m.Data, new(apiAnswer))
}

// BackupStreams returns the streams of which a backup is made: those of the log, of blobs and of the buckets that are on
// disk, as far as they exist.
func BackupStreams(ctx context.Context, nc *nats.Conn, l Layout) (names []string, err error) {
	for p := range l.Partitions {
		names = append(names, StreamName(p))
	}
	for _, name := range []string{BlobStream, bucketStream(KeysBucket), bucketStream(TapsBucket)} {
		if !Missing(ctx, nc, name) {
			names = append(names, name)
		}
	}
	return names, ctx.Err()
}

// PutLastBackup stores when the last backup began.
func PutLastBackup(ctx context.Context, nc *nats.Conn, at time.Time) error {
	bucket, err := OpenBucket(ctx, nc, TapsBucket)
	if err != nil {
		return err
	}
	return bucket.Put(ctx, BackupKey, []byte(at.Format(time.RFC3339Nano)))
}

// LastBackup returns when the last backup began; the zero time when none was made.
func LastBackup(ctx context.Context, nc *nats.Conn) (at time.Time, err error) {
	bucket, err := OpenBucket(ctx, nc, TapsBucket)
	if err != nil {
		return at, err
	}
	v, err := bucket.Read(ctx, BackupKey)
	if err != nil || len(v.Data) == 0 {
		return at, err
	}
	return time.Parse(time.RFC3339Nano, string(v.Data))
}
