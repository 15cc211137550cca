package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"agentstream/persister"
)

// statement is the number of a prepared statement.
type statement int

const (
	stAdvanceRun statement = iota
	stAdvancing
	stAdvanceFramed
	stUpsertRun
	stUpsertLane
	stCountRow
	stUpdateUsage
	stStoredLine
	stSession
	stUpdateSession
	stSessionEvents
	stAskEvents
	stNaming
	stUpdateNaming
	stLaterStarts
	stUpdateAsks
	stNamed
	stTurn
	stMessage
	stAnyRepeats
	stLaterRepeats
	stFrames
	stFramesAfter
	stDataVersion
	stIsStored
	stBeginOffset
	stMoveOffset
	stInsertDeadLetter
	stInsert                                                // the first of those in insertSizes
	stInsertIDs    = stInsert + statement(len(insertSizes)) // the first of those in keepSizes
	stInsertModels = stInsertIDs + statement(len(keepSizes))
	stInsertUsage  = stInsertModels + statement(len(keepSizes))
	statementCount = stInsertUsage + statement(len(keepSizes))
)

// insertSizes are numbers of rows that one statement inserts. A statement shares its own cost among its rows, and the
// columns of a run. When many runs go on, each has a dozen or two rows in a transaction. More than 128 rows do not help
// (BenchmarkBare).
var insertSizes = [...]int{128, 64, 32, 28, 24, 20, 18, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}

// keepSizes are numbers of rows of what is kept of frames that one statement inserts.
var keepSizes = [...]int{32, 16, 8, 4, 2, 1}

var statementTexts = func() (texts [statementCount]string) {
	texts[stAdvanceRun], texts[stAdvancing], texts[stAdvanceFramed] = advanceRun, selectAdvancing, advanceFramed
	texts[stUpsertRun], texts[stUpsertLane] = upsertRun, upsertLane
	texts[stCountRow], texts[stUpdateUsage], texts[stStoredLine] = countRow, updateUsage, storedLine
	texts[stSession], texts[stUpdateSession], texts[stSessionEvents] = selectSession, updateSession, selectSessionEvents
	texts[stAskEvents], texts[stUpdateAsks] = selectAskEvents, updateAsks
	texts[stNaming], texts[stUpdateNaming], texts[stLaterStarts] = selectNaming, updateNaming, selectLaterStarts
	texts[stNamed], texts[stTurn], texts[stMessage] = selectNamed, selectTurn, selectMessage
	texts[stAnyRepeats], texts[stLaterRepeats], texts[stFrames] = anyRepeats, laterRepeats, insertFrames
	texts[stDataVersion], texts[stIsStored], texts[stFramesAfter] = dataVersion, isStored, selectFramesAfter
	texts[stBeginOffset], texts[stMoveOffset], texts[stInsertDeadLetter] = beginOffset, moveOffset, insertDeadLetter
	for i, n := range insertSizes {
		texts[int(stInsert)+i] = insertRows(n)
	}
	for i, n := range keepSizes {
		at := statement(i)
		texts[stInsertIDs+at], texts[stInsertModels+at] = severalRows(insertID, n), severalRows(insertModel, n)
		texts[stInsertUsage+at] = severalRows(insertFrameUsage, n)
	}
	return texts
}()

// transaction is a transaction of the writer, with its statements.
type transaction struct {
	*sql.Tx
	now   time.Time // UTC
	store *Store
	mine  [statementCount]*sql.Stmt
	runs  []movedRun // those of the batch
}

// movedRun is what a transaction knows of a run of its batch.
type movedRun struct {
	seen  *seenRun
	named persister.Naming // before this batch, where the batch names something
	asks  string           // before this batch, where it asks or answers
}

// begin begins a transaction. It waits for the one connection that writes.
func (s *Store) begin(ctx context.Context) (*transaction, error) {
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	begun := &transaction{Tx: tx, now: time.Now().UTC(), store: s}
	var version int64
	if err := begun.queryRow(ctx, stDataVersion).Scan(&version); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	s.seen.expectVersion(version)
	return begun, nil
}

// prepare prepares the statements at the first use and keeps them: to parse a statement costs as much as to run it.
// It does so before a transaction holds the connection, because a statement that a transaction prepares ends with it.
func (s *Store) prepare(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, text := range statementTexts {
		if s.statements[i] != nil {
			continue
		}
		stmt, err := s.write.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		s.statements[i] = stmt
	}
	return nil
}

func (s *Store) closeStatements() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, stmt := range s.statements {
		if stmt != nil {
			err = errors.Join(err, stmt.Close())
			s.statements[i] = nil
		}
	}
	return err
}

func (tx *transaction) statement(ctx context.Context, which statement) *sql.Stmt {
	if tx.mine[which] == nil {
		tx.mine[which] = tx.StmtContext(ctx, tx.store.statements[which])
	}
	return tx.mine[which]
}

// exec returns the number of rows changed. A context that may end costs a goroutine for each statement, which takes
// less time than that: only between them is it asked.
func (tx *transaction) exec(ctx context.Context, which statement, args ...any) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	done, err := tx.statement(ctx, which).ExecContext(context.WithoutCancel(ctx), args...)
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	return int(n), err
}

func (tx *transaction) queryRow(ctx context.Context, which statement, args ...any) *sql.Row {
	return tx.statement(ctx, which).QueryRowContext(ctx, args...)
}
