package export

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"agentstream/schema"
)

// lines writes JSONL: in a folder one file per run, <tenant>/<run>.jsonl, else all runs one after another.
type lines struct {
	out         *output
	compression string

	run    *run
	w      io.Writer
	zip    io.WriteCloser // compresses into the file; nil: no compression
	inFile int64
	rows   int64
}

func (l *lines) openRun(r *run) error {
	l.run = r
	if l.w != nil {
		return nil
	}
	p, err := l.out.create(l.name())
	if err != nil {
		return err
	}
	l.w, l.zip = p, nil
	switch l.compression {
	case CompressGzip:
		l.zip = gzip.NewWriter(p)
	case CompressZstd:
		if l.zip, err = zstd.NewWriter(p, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true)); err != nil {
			return fmt.Errorf("compress: %w", err)
		}
	}
	if l.zip != nil {
		l.w = l.zip
	}
	return nil
}

// name returns the name of the run's file. Tenants and runs contain no characters that are special in paths.
func (l *lines) name() string {
	if l.out.dir == "" {
		return ""
	}
	name := l.run.key.Tenant + "/" + l.run.key.Run + ".jsonl"
	if l.compression != CompressNone {
		name += "." + l.compression
	}
	return name
}

func (l *lines) pack(p *schema.Pack) error {
	if _, err := l.w.Write(p.Body); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	l.inFile += int64(p.Count)
	return nil
}

func (l *lines) closeRun(through schema.Seq) error {
	if l.out.dir == "" {
		return nil
	}
	return l.commit([]held{{l.run.key.Tenant, l.run.key.Run, through}})
}

func (l *lines) commit(runs []held) error {
	if l.zip != nil {
		if err := l.zip.Close(); err != nil {
			return fmt.Errorf("compress: %w", err)
		}
	}
	if err := l.out.commit(l.name(), l.inFile, runs); err != nil {
		return err
	}
	l.rows += l.inFile
	l.w, l.zip, l.inFile = nil, nil, 0
	return nil
}

// finish ends the one file, which is created even when it is empty.
func (l *lines) finish() (int64, error) {
	if l.out.dir != "" {
		return l.rows, nil
	}
	if l.w == nil {
		if err := l.openRun(nil); err != nil {
			return l.rows, err
		}
	}
	return l.rows, l.commit(nil)
}
