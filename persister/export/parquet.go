package export

import (
	"fmt"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"agentstream/schema"
)

// Bounds of the memory for a file that is being written.
const (
	bufferRows  = 1024
	bufferBytes = 1 << 20
	groupRows   = 256 << 10
	groupBytes  = 32 << 20 // before compression
)

// parquetFiles writes rows into Parquet files of a bounded number of rows.
type parquetFiles[T any] struct {
	out     *output
	table   string
	perFile int64

	w       *parquet.GenericWriter[T]
	buf     []T
	bufSize int
	group   int64 // bytes in the row group
	inGroup int64 // rows in it
	inFile  int64 // rows written to w or in buf
	rows    int64 // in complete files
	runs    []held
	current held       // the run whose rows are being added; Through is the last event in them
	noted   schema.Seq // event of it up to which rows are in complete files
}

func newParquet[T any](out *output, cfg Config) *parquetFiles[T] {
	f := &parquetFiles[T]{out: out, table: cfg.Table, perFile: cfg.RowsPerFile}
	if out.dir == "" {
		f.perFile = 1 << 62
	}
	return f
}

func (f *parquetFiles[T]) open() error {
	p, err := f.out.create(f.name())
	if err != nil {
		return err
	}
	f.w = parquet.NewGenericWriter[T](p,
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest, Concurrency: 1}),
		parquet.PageBufferSize(128<<10),
		parquet.DictionaryMaxBytes(1<<20), // a column with many values has none
		parquet.DataPageStatistics(true),
		parquet.CreatedBy("agentstream", "1", ""),
	)
	return nil
}

func (f *parquetFiles[T]) name() string {
	if f.out.dir == "" {
		return ""
	}
	return fmt.Sprintf("%s-%06d.parquet", f.table, f.out.known+1)
}

// add adds a row of about size bytes. The memory that it refers to must not change before the next flush.
func (f *parquetFiles[T]) add(row T, size int) error {
	f.buf = append(f.buf, row)
	f.bufSize += size
	f.inFile++
	if len(f.buf) >= bufferRows || f.bufSize >= bufferBytes {
		return f.flush()
	}
	return nil
}

func (f *parquetFiles[T]) flush() error {
	if len(f.buf) == 0 {
		return nil
	}
	if f.w == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if _, err := f.w.Write(f.buf); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	f.group += int64(f.bufSize)
	f.inGroup += int64(len(f.buf))
	clear(f.buf)
	f.buf, f.bufSize = f.buf[:0], 0
	if f.group < groupBytes && f.inGroup < groupRows {
		return nil
	}
	f.group, f.inGroup = 0, 0
	if err := f.w.Flush(); err != nil {
		return fmt.Errorf("write row group: %w", err)
	}
	return nil
}

// openRun sets the run of the next rows.
func (f *parquetFiles[T]) openRun(key schema.RunKey) {
	f.current, f.noted = held{Tenant: key.Tenant, Run: key.Run}, 0
}

// closeRun records that all rows of the run are added, up to through.
func (f *parquetFiles[T]) closeRun(through schema.Seq) error {
	if f.noted == through {
		return nil // the last row filled a file
	}
	f.current.Through = through
	f.runs = append(f.runs, f.current)
	// A file has few rows of a table without rows for most runs. The number of recorded runs is bounded too.
	if f.inFile < f.perFile && len(f.runs) < batchRuns {
		return nil
	}
	return f.commit()
}

// markReached records that rows up to this event are added, and that the file may be cut here.
func (f *parquetFiles[T]) markReached(seq schema.Seq) error {
	f.current.Through = seq
	if f.inFile < f.perFile {
		return nil
	}
	f.runs = append(f.runs, f.current)
	f.noted = seq
	return f.commit()
}

func (f *parquetFiles[T]) commit() error {
	if err := f.flush(); err != nil {
		return err
	}
	if f.w == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if err := f.w.Close(); err != nil {
		return fmt.Errorf("write footer: %w", err)
	}
	if err := f.out.commit(f.name(), f.inFile, f.runs); err != nil {
		return err
	}
	f.rows += f.inFile
	f.w, f.group, f.inGroup, f.inFile, f.runs = nil, 0, 0, 0, f.runs[:0]
	return nil
}

// finish ends the last file. One file, or a stream, is written even without rows.
func (f *parquetFiles[T]) finish() (int64, error) {
	if f.out.dir != "" && len(f.runs) == 0 {
		return f.rows, nil
	}
	err := f.commit()
	return f.rows, err
}

// dayNumber converts YYYYMMDD to days since 1970.
func dayNumber(day string) int32 {
	t, err := time.Parse("20060102", day)
	if err != nil {
		return 0
	}
	return int32(t.Unix() / 86400)
}

// micros returns the time of an event.
func micros(ts []byte) int64 {
	t, err := time.Parse(time.RFC3339Nano, string(ts))
	if err != nil {
		return 0
	}
	return t.UnixMicro()
}
