package blob

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/klauspost/compress/zstd"

	"agentstream/schema"
)

// ErrCorrupt reports that an object is not as it was written. Nothing of the damaged part is returned.
var ErrCorrupt = errors.New("object is damaged")

// version is the version of the format, in the index and in the footer's magic.
const version = 1

// FrameBytes is the approximate number of bytes of lines in a frame. A pack is not divided, so a frame has at most
// schema.MaxPackBytes more.
const FrameBytes = 512 << 10

// Bounds of what a reader accepts, whatever the sizes in an object.
const (
	maxFrame      = 16 << 20  // bytes of lines in a frame
	maxIndex      = 256 << 20 // bytes of an index before it is compressed
	maxIndexCoded = 64 << 20
)

// Sizes and magic numbers of the object's end: the skippable frame with the compressed index, and the footer.
const (
	skippableMagic  = 0x184D2A5A // one of the sixteen that zstd reserves for others
	skippableHeader = 8
	footerSize      = 64
	footerMagic     = "AGNTRUN1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Index describes where the events of a run are in its object.
type Index struct {
	Version int        `json:"version"`
	Tenant  string     `json:"tenant"`
	Run     string     `json:"run"`
	Day     string     `json:"day"` // on which the run's first pack was written, YYYYMMDD
	First   schema.Seq `json:"first"`
	Last    schema.Seq `json:"last"`
	Events  int64      `json:"events"`
	Bytes   int64      `json:"bytes"`  // of all lines, each with its line feed
	SHA256  string     `json:"sha256"` // of all lines, each with its line feed; hexadecimal
	Frames  []Frame    `json:"frames"`
	End     Point      `json:"end"` // the run after Last
}

// Frame describes one of the zstd frames.
type Frame struct {
	First schema.Seq `json:"first"`
	Last  schema.Seq `json:"last"`
	At    int64      `json:"at"`    // offset in the object
	Size  int64      `json:"size"`  // bytes in the object
	Bytes int64      `json:"bytes"` // of the lines
	CRC   uint32     `json:"crc"`   // CRC-32C of the bytes in the object
	Head  Point      `json:"head"`  // the run before First
}

// Point is the state of the run between two events, from which a walk can begin.
type Point struct {
	State  schema.RunState `json:"state,omitempty"`
	LastID string          `json:"last_id,omitempty"`
}

func pointOf(h schema.Head) Point {
	return Point{State: h.State, LastID: h.LastID}
}

// head returns the point as the head after the event last.
func (p Point) head(day string, last schema.Seq) schema.Head {
	return schema.Head{Last: last, LastID: p.LastID, Day: day, State: p.State}
}

// Key returns the run that the object holds.
func (ix *Index) Key() schema.RunKey { return schema.RunKey{Tenant: ix.Tenant, Run: ix.Run} }

// find returns the number of the frame with seq, which must be one of the object's.
func (ix *Index) find(seq schema.Seq) int {
	return sort.Search(len(ix.Frames), func(i int) bool { return ix.Frames[i].Last >= seq })
}

// before returns the newest head in the index at or before the event after, which must be at least First-1 and at
// most Last.
func (ix *Index) before(after schema.Seq) schema.Head {
	if after >= ix.Last {
		return ix.End.head(ix.Day, ix.Last)
	}
	f := &ix.Frames[ix.find(after+1)]
	return f.Head.head(ix.Day, f.First-1)
}

// data returns the number of bytes of the frames.
func (ix *Index) data() int64 {
	f := &ix.Frames[len(ix.Frames)-1]
	return f.At + f.Size
}

// check verifies that the frames cover the events and the object without a gap. The bounds of each frame are checked
// first, so that the sums of a hostile index cannot overflow.
func (ix *Index) check(data int64) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("index: "+format+": %w", append(args, ErrCorrupt)...)
	}
	if ix.Version != version {
		return bad("version %d, %d is known", ix.Version, version)
	}
	if schema.ValidTenant(ix.Tenant) != nil || schema.ValidRunID(ix.Run) != nil || !validDay(ix.Day) {
		return bad("names no run")
	}
	if ix.First < 1 || ix.Last < ix.First || ix.Last > schema.MaxSeq || ix.Events != int64(ix.Last-ix.First)+1 ||
		len(ix.Frames) == 0 {
		return bad("%d events, %d to %d, in %d frames", ix.Events, ix.First, ix.Last, len(ix.Frames))
	}
	if sum, err := hex.DecodeString(ix.SHA256); err != nil || len(sum) != sha256.Size {
		return bad("digest is no SHA-256")
	}
	next, at, size := ix.First, int64(0), int64(0)
	for i := range ix.Frames {
		f := &ix.Frames[i]
		if f.First != next || f.Last < f.First || f.Last > ix.Last || f.At != at || f.Size < 1 || f.Size > data-at ||
			f.Bytes < 1 || f.Bytes > maxFrame {
			return bad("frame %d does not follow", i)
		}
		next, at, size = f.Last+1, at+f.Size, size+f.Bytes
	}
	if next != ix.Last+1 || at != data || size != ix.Bytes {
		return bad("frames end at event %d, %d bytes, %d bytes of lines", next-1, at, size)
	}
	return nil
}

// tailOf returns the object's end: the skippable frame with the compressed index, and the footer.
func tailOf(ix *Index, c *codec) ([]byte, error) {
	text, err := json.Marshal(ix)
	if err != nil {
		return nil, err
	}
	b := sealIndex(c, text, ix.data())
	if len(text) > maxIndex || len(b) > maxIndexCoded {
		return nil, fmt.Errorf("index of %d frames is larger than %d bytes", len(ix.Frames), maxIndex)
	}
	return b, nil
}

// sealIndex returns the end of an object whose index is text, after data bytes of frames.
func sealIndex(c *codec, text []byte, data int64) []byte {
	coded := c.enc.EncodeAll(text, nil)
	b := make([]byte, 0, skippableHeader+len(coded)+footerSize)
	b = binary.LittleEndian.AppendUint32(b, skippableMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(coded)+footerSize))
	b = append(b, coded...)
	foot := len(b)
	b = append(b, footerMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(data))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(coded)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	sum := sha256.Sum256(coded)
	b = append(b, sum[:]...)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[foot:], castagnoli))
}

// footer holds the object's last bytes, decoded.
type footer struct {
	data  int64 // offset of the skippable frame: the bytes before it are the frames
	coded int   // bytes of the compressed index
	text  int   // bytes of the index
	sum   [sha256.Size]byte
}

// parseFooter decodes the last bytes of an object of size bytes.
func parseFooter(b []byte, size int64) (footer, error) {
	if len(b) < footerSize || size < skippableHeader+footerSize {
		return footer{}, fmt.Errorf("%d bytes are no run: %w", size, ErrCorrupt)
	}
	b = b[len(b)-footerSize:]
	if string(b[:8]) != footerMagic {
		return footer{}, fmt.Errorf("no footer of a run at the end: %w", ErrCorrupt)
	}
	if crc32.Checksum(b[:60], castagnoli) != binary.LittleEndian.Uint32(b[60:]) ||
		binary.LittleEndian.Uint32(b[56:]) != 0 {
		return footer{}, fmt.Errorf("footer: check sum differs: %w", ErrCorrupt)
	}
	data, coded, text := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:])
	if coded > maxIndexCoded || text > maxIndex || data > uint64(size) ||
		int64(data)+skippableHeader+int64(coded)+footerSize != size {
		return footer{}, fmt.Errorf("footer: %d bytes of frames, %d of index, in an object of %d: %w", data, coded,
			size, ErrCorrupt)
	}
	f := footer{data: int64(data), coded: int(coded), text: int(text)}
	copy(f.sum[:], b[24:])
	return f, nil
}

// parseIndex decodes the skippable frame: its header, the compressed index and the footer.
func parseIndex(b []byte, f footer, c *codec) (*Index, error) {
	if len(b) != skippableHeader+f.coded+footerSize || binary.LittleEndian.Uint32(b) != skippableMagic ||
		binary.LittleEndian.Uint32(b[4:]) != uint32(f.coded+footerSize) {
		return nil, fmt.Errorf("index: header differs: %w", ErrCorrupt)
	}
	coded := b[skippableHeader : skippableHeader+f.coded]
	if sha256.Sum256(coded) != f.sum {
		return nil, fmt.Errorf("index: digest differs: %w", ErrCorrupt)
	}
	text, err := c.decode(coded, f.text)
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	var ix Index
	if err := json.Unmarshal(text, &ix); err != nil {
		return nil, fmt.Errorf("index: %w: %w", err, ErrCorrupt)
	}
	if err := ix.check(f.data); err != nil {
		return nil, err
	}
	return &ix, nil
}

// codec is zstd, created once: its tables are larger than most runs.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) { return newCodecOf(zstd.SpeedDefault) }

func newCodecOf(level zstd.EncoderLevel) (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, fmt.Errorf("blob: zstd: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxIndex))
	if err != nil {
		return nil, fmt.Errorf("blob: zstd: %w", err)
	}
	return &codec{enc, dec}, nil
}

// decode returns exactly size bytes. Memory grows with the decoded bytes, not with the size that the object claims.
func (c *codec) decode(coded []byte, size int) ([]byte, error) {
	// Text compresses far less than this. When an object claims more, the buffer grows as bytes are decoded.
	out, err := c.dec.DecodeAll(coded, make([]byte, 0, min(size, 64*len(coded)+1024)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	if len(out) != size {
		return nil, fmt.Errorf("%d bytes where %d were said: %w", len(out), size, ErrCorrupt)
	}
	return out, nil
}

// lines decodes a frame and checks it.
func (c *codec) lines(f *Frame, coded []byte) ([]byte, error) {
	if int64(len(coded)) != f.Size || crc32.Checksum(coded, castagnoli) != f.CRC {
		return nil, fmt.Errorf("events %d to %d: check sum differs: %w", f.First, f.Last, ErrCorrupt)
	}
	out, err := c.decode(coded, int(f.Bytes))
	if err != nil {
		return nil, fmt.Errorf("events %d to %d: %w", f.First, f.Last, err)
	}
	if n := bytes.Count(out, []byte{'\n'}); int64(n) != int64(f.Last-f.First)+1 || out[len(out)-1] != '\n' {
		return nil, fmt.Errorf("events %d to %d are %d lines: %w", f.First, f.Last, n, ErrCorrupt)
	}
	return out, nil
}

func validDay(s string) bool {
	if len(s) != 8 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
