package floor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite" // the driver

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// eventLog is an embedded server, the streams in it, and the connection that appends.
type eventLog struct {
	server     *natsserver.Server
	conn       *nats.Conn
	js         jetstream.JetStream
	partitions int
}

func openLog(ctx context.Context, dir string) (l *eventLog, err error) {
	l = &eventLog{}
	if l.server, err = natskit.Serve(natskit.Embedded{StoreDir: dir}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.conn, l.js, err = l.connect("append"); err != nil {
		return nil, err
	}
	if err = natskit.Declare(ctx, l.js, natskit.Layout{Alone: true}); err != nil {
		return nil, err
	}
	l.partitions, err = natskit.Partitions(ctx, l.js)
	return l, err
}

func (l *eventLog) connect(name string) (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect("", nats.Name(name), nats.InProcessServer(l.server))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn)
	return conn, js, err
}

func (l *eventLog) close() {
	if l.conn != nil {
		l.conn.Close()
	}
	l.server.Shutdown()
	l.server.WaitForShutdown()
}

// tenant is whose runs all are.
const tenant = "default"

func (l *eventLog) subject(run string) string {
	return schema.Subject(schema.RunKey{Tenant: tenant, Run: run}, "", l.partitions)
}

// append stores an event of a run whose last one lies at a position, and returns the new one's, or that one.
func (l *eventLog) append(subject string, line []byte, last uint64) (uint64, error) {
	ack, err := l.js.PublishMsg(context.Background(), &nats.Msg{Subject: subject, Data: line},
		jetstream.WithExpectLastSequencePerSubject(last))
	if err != nil {
		return last, err
	}
	return ack.Sequence, nil
}

const (
	pause = 2 * time.Second // of the archive, as the product has it at such rates
	page  = 2500            // events that are asked for at once
	rows  = 32              // of a statement
)

const tables = `create table events (run text not null, seq integer not null, line text not null, primary key (run, seq));
create table positions (partition integer primary key, position integer not null)`

const insert = `insert into events (run, seq, line) values (?, ?, ?)`

// archive copies the log into SQLite.
type archive struct {
	conn      *nats.Conn
	consumers []jetstream.Consumer // by partition
	db        *sql.DB
	many, one *sql.Stmt
	seqs      map[string]int64 // of the last event of each run
	args      []any            // of rows that have not been inserted
}

func openArchive(ctx context.Context, l *eventLog, file string) (a *archive, err error) {
	a = &archive{seqs: map[string]int64{}}
	// What the product's writer has, but for temporary tables, which are not needed.
	a.db, err = sql.Open("sqlite", "file:"+file+
		"?_pragma=page_size(8192)&_journal_mode=WAL&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)"+
		"&_pragma=cache_size(-16000)&_pragma=wal_autocheckpoint(4000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	a.db.SetMaxOpenConns(1)
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if _, err = a.db.ExecContext(ctx, tables); err != nil {
		return nil, err
	}
	if a.one, err = a.db.PrepareContext(ctx, insert); err != nil {
		return nil, err
	}
	if a.many, err = a.db.PrepareContext(ctx, insert+strings.Repeat(", (?, ?, ?)", rows-1)); err != nil {
		return nil, err
	}
	var js jetstream.JetStream
	if a.conn, js, err = l.connect("archive"); err != nil {
		return nil, err
	}
	for p := range l.partitions {
		c, err := js.CreateConsumer(ctx, natskit.StreamName(p), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy,
			DeliverPolicy: jetstream.DeliverAllPolicy, MemoryStorage: true, Replicas: 1})
		if err != nil {
			return nil, err
		}
		a.consumers = append(a.consumers, c)
	}
	return a, nil
}

func (a *archive) close() error {
	if a.conn != nil {
		a.conn.Close()
	}
	return a.db.Close() // and its statements
}

// run copies until nobody publishes any more, and then the rest.
func (a *archive) run(over context.Context) (err error) {
	defer func() { err = errors.Join(err, a.close()) }()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			err = a.copy()
		case <-over.Done():
			return a.copy()
		}
		if err != nil {
			return fmt.Errorf("floor: archive: %w", err)
		}
	}
}

// copy stores what is new in one transaction.
func (a *archive) copy() error {
	tx, err := a.db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing once it is committed
	for p, c := range a.consumers {
		if err := a.readNew(tx, p, c); err != nil {
			return err
		}
	}
	for ; len(a.args) > 0; a.args = a.args[3:] {
		if _, err := tx.Stmt(a.one).Exec(a.args[:3]...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// readNew reads what is new in a partition. Up to rows-1 events wait for those of the next.
func (a *archive) readNew(tx *sql.Tx, partition int, c jetstream.Consumer) error {
	var last jetstream.Msg
	many := tx.Stmt(a.many)
	for n := page; n == page; {
		batch, err := c.FetchNoWait(page)
		if err != nil {
			return err
		}
		n = 0
		for m := range batch.Messages() {
			key, _, err := schema.ParseSubject(m.Subject())
			if err != nil {
				return err
			}
			a.seqs[key.Run]++
			a.args = append(a.args, key.Run, a.seqs[key.Run], string(m.Data()))
			if len(a.args) == 3*rows {
				if _, err := many.Exec(a.args...); err != nil {
					return err
				}
				a.args = a.args[:0]
			}
			last = m
			n++
		}
		if err := batch.Error(); err != nil && !errors.Is(err, jetstream.ErrNoMessages) {
			return err
		}
	}
	if last == nil {
		return nil
	}
	at, err := last.Metadata()
	if err == nil {
		_, err = tx.Exec("insert into positions values (?, ?) on conflict do update set position = excluded.position",
			partition, at.Sequence.Stream)
	}
	return err
}
