package export

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"agentstream/schema"
)

// ManifestName is the file in a folder that lists the complete files and their contents.
const ManifestName = "manifest.jsonl"

// partSuffix is the suffix of a file that is being written.
const partSuffix = ".part"

// question is the first line of a manifest: the selection, to which all files of the folder belong.
type question struct {
	Format      string `json:"format"`
	Table       string `json:"table,omitempty"`
	Compression string `json:"compression,omitempty"`
}

// completeFile is a line of a manifest: one complete file.
type completeFile struct {
	File  string `json:"file"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
	Runs  []held `json:"runs"`
}

// held records that a file has rows of a run, and the event up to which the run is exported.
type held struct {
	Tenant  string     `json:"tenant"`
	Run     string     `json:"run"`
	Through schema.Seq `json:"through"`
}

// output creates files, one at a time.
type output struct {
	dir      string    // "" for one file or stream
	file     string    // path of the one file
	stream   io.Writer // nil: files
	manifest *os.File
	done     map[schema.RunKey]schema.Seq // exported by an earlier Run
	known    int                          // files that the manifest has

	part  *partialFile
	files int
	bytes int64
}

// partialFile is a file that is not complete.
type partialFile struct {
	name string
	f    *os.File // nil: a stream
	w    *bufio.Writer
	n    int64
}

// Write counts the bytes of the file.
func (p *partialFile) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.n += int64(n)
	return n, err
}

func openOutput(t Target, q question, resume bool) (*output, error) {
	o := &output{dir: t.Dir, file: t.File, stream: t.Stream}
	if o.dir == "" {
		return o, nil
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := o.openManifest(q, resume); err != nil {
		if o.manifest != nil {
			err = errors.Join(err, o.manifest.Close())
		}
		return nil, fmt.Errorf("%s: %w", filepath.Join(o.dir, ManifestName), err)
	}
	return o, nil
}

func (o *output) openManifest(q question, resume bool) (err error) {
	path := filepath.Join(o.dir, ManifestName)
	if o.manifest, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	dec := json.NewDecoder(bufio.NewReader(o.manifest))
	var was question
	switch err := dec.Decode(&was); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // new, or interrupted before its first line
		if err := o.manifest.Truncate(0); err != nil {
			return err
		}
		_, err := o.manifest.Seek(0, io.SeekStart)
		return errors.Join(err, o.note(q))
	case err != nil:
		return fmt.Errorf("%w: %w", ErrManifest, err)
	case !resume:
		return fmt.Errorf("the folder holds an export already: %w", ErrManifest)
	case was != q:
		return fmt.Errorf("the folder holds %+v, not %+v: %w", was, q, ErrManifest)
	}
	return o.readManifest(dec)
}

// readManifest reads the list of complete files. It ignores a last line that was cut.
func (o *output) readManifest(dec *json.Decoder) error {
	good := dec.InputOffset()
	files := make(map[string]completeFile) // a file of a run with newer events is written again
	for {
		var a completeFile
		err := dec.Decode(&a)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrManifest, err)
		}
		good = dec.InputOffset()
		o.known++
		files[a.File] = a
	}
	o.done = make(map[schema.RunKey]schema.Seq)
	for _, a := range files {
		if err := o.takeUp(a); err != nil {
			return err
		}
	}
	if err := o.manifest.Truncate(good); err != nil {
		return err
	}
	if _, err := o.manifest.Seek(good, io.SeekStart); err != nil {
		return err
	}
	_, err := o.manifest.WriteString("\n")
	return err
}

// takeUp counts the runs of a file as exported. A file of one run whose size differs from the manifest is written
// again: a crash may have come between its rename and the manifest. A file of a table cannot be written again by
// itself.
func (o *output) takeUp(a completeFile) error {
	info, err := os.Stat(filepath.Join(o.dir, filepath.FromSlash(a.File)))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && info.Size() == a.Bytes:
	case strings.HasSuffix(a.File, ".parquet"):
		return fmt.Errorf("file %s is not there with its %d bytes: %w", a.File, a.Bytes, ErrManifest)
	default:
		return nil
	}
	for _, h := range a.Runs {
		key := schema.RunKey{Tenant: h.Tenant, Run: h.Run}
		o.done[key] = max(o.done[key], h.Through)
	}
	return nil
}

func (o *output) note(v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = o.manifest.Write(append(line, '\n'))
	}
	return err
}

// create creates a file. name is its path in the folder, with slashes; a single file has its own.
func (o *output) create(name string) (*partialFile, error) {
	p := &partialFile{name: name}
	switch {
	case o.stream != nil:
		p.w = bufio.NewWriterSize(o.stream, 64<<10)
		o.part = p
		return p, nil
	case o.dir == "":
		p.name = o.file
	default:
		p.name = filepath.Join(o.dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p.name), 0o700); err != nil {
			return nil, fmt.Errorf("make folder: %w", err)
		}
	}
	f, err := os.OpenFile(p.name+partSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make file: %w", err)
	}
	p.f, p.w = f, bufio.NewWriterSize(f, 256<<10)
	o.part = p
	return p, nil
}

// syncAbove is the size from which a file is synced before it is renamed. Of smaller files, which may be many, the
// size in the manifest shows whether they survived a power cut.
const syncAbove = 1 << 20

// commit renames the file to its name and records its contents.
func (o *output) commit(name string, rows int64, runs []held) error {
	p := o.part
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", p.name, err)
	}
	if p.f != nil {
		err := error(nil)
		if p.n >= syncAbove {
			err = p.f.Sync()
		}
		if err = errors.Join(err, p.f.Close()); err == nil {
			err = os.Rename(p.name+partSuffix, p.name)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", p.name, err)
		}
	}
	o.part = nil
	o.files++
	o.bytes += p.n
	if o.manifest == nil {
		return nil
	}
	o.known++
	if err := o.note(completeFile{File: name, Rows: rows, Bytes: p.n, Runs: runs}); err != nil {
		return fmt.Errorf("write %s: %w", ManifestName, err)
	}
	return nil
}

// close ends the output and removes an incomplete file.
func (o *output) close() (err error) {
	if p := o.part; p != nil && p.f != nil {
		_ = p.f.Close() // it is removed
		err = os.Remove(p.name + partSuffix)
	}
	o.part = nil
	if o.manifest != nil {
		err = errors.Join(err, o.manifest.Close())
	}
	return err
}
