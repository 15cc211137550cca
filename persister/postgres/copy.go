package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"agentstream/persister"
)

// copyLeast is the least number of rows for which a COPY is worth its round trip.
const copyLeast = 10

// copyColumns are the columns of a COPY, in the order of copyNames.
var copyColumns = [...]column{colTenant, colDay, colRun, colSeq, colID, colChild, colType, colTS, colLine, colPayload}

const copyNames = "koder_user_id, run_day, run_id, seq, id, child_id, type, ts, line, payload"

// partition returns the name of a day's table. day has digits only: callers parse it.
func partition(day string) string { return "agent_run_events_" + day }

// errDetached reports that a day's table is not a partition of agent_run_events any more.
var errDetached = errors.New("partition is detached")

// copyDay copies a day's rows directly into its partition: PostgreSQL refuses COPY into a table with row security, and
// to find the partition of each row takes time. The second statement checks that the table is still a partition,
// because readers would not see the rows otherwise. It cannot be detached until the transaction ends, because COPY has
// locked it.
func copyDay(ctx context.Context, tx pgx.Tx, rows *copyRows) error {
	table := partition(rows.day)
	tag, err := tx.Conn().PgConn().CopyFrom(ctx, rows, "copy "+table+" ("+copyNames+") from stdin binary; "+
		"select from pg_inherits where inhrelid = '"+table+
		"'::regclass and inhparent = 'agent_run_events'::regclass and not inhdetachpending")
	if err == nil && tag.RowsAffected() != 1 {
		err = errDetached
	}
	if err != nil {
		return fmt.Errorf("copy into %s: %w", table, err)
	}
	return nil
}

// copyRows is an io.Reader of a day's rows of a batch in PostgreSQL's binary COPY format
// (https://www.postgresql.org/docs/15/sql-copy.html). It encodes them as it is read.
type copyRows struct {
	rows  []persister.BatchRow
	ways  []way // of the rows; those with wayCopy are encoded
	day   string
	value packed

	next  int    // row
	buf   []byte // encoded; not yet read from off on
	off   int
	ended bool
}

const copyHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // signature, flags, no extension

// Read implements io.Reader.
func (c *copyRows) Read(p []byte) (int, error) {
	if c.buf == nil {
		c.buf = append(make([]byte, 0, 2*len(p)), copyHeader...)
	}
	c.buf = c.buf[:copy(c.buf, c.buf[c.off:])]
	for !c.ended && len(c.buf) < len(p) {
		c.write()
	}
	if len(c.buf) == 0 {
		return 0, io.EOF
	}
	c.off = copy(p, c.buf)
	return c.off, nil
}

// write appends the next row, or the end.
func (c *copyRows) write() {
	for ; c.next < len(c.rows); c.next++ {
		if r := &c.rows[c.next]; c.ways[c.next] == wayCopy && r.Chunk.Head.Day == c.day {
			c.next++
			c.writeRow(r)
			return
		}
	}
	c.buf = binary.BigEndian.AppendUint16(c.buf, 0xffff)
	c.ended = true
}

func (c *copyRows) writeRow(r *persister.BatchRow) {
	const jsonbVersion = 1 // src/backend/utils/adt/jsonb.c, jsonb_recv
	buf := binary.BigEndian.AppendUint16(c.buf, uint16(len(copyColumns)))
	for _, col := range copyColumns {
		at := len(buf)
		buf = append(buf, 0, 0, 0, 0)
		if col == colPayload {
			buf = append(buf, jsonbVersion)
		}
		c.value.column = col
		var isNull bool
		if buf, isNull = c.value.value(buf, r); isNull || col == colChild && r.Chunk.Child == "" {
			buf = buf[:at+4]
			binary.BigEndian.PutUint32(buf[at:], 0xffffffff)
			continue
		}
		binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-4))
	}
	c.buf = buf
}

// copyRefused reports whether the database does not allow this role to COPY into partitions. Then rows are inserted.
func copyRefused(err error) bool {
	return IsDenied(err) || sqlState(err) == "0A000" // COPY FROM with row security
}

// IsDenied reports whether the database has refused what its role may not do.
func IsDenied(err error) bool { return sqlState(err) == "42501" }

// sqlState returns the SQLSTATE of an error, "" when it is not an error of the database.
func sqlState(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}
