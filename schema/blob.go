package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
)

// BlobPrefix begins the blob_ref of a blob that is kept with a run (native §3.4).
const BlobPrefix = "blob_"

// BlobPiece is how much of a blob is stored and read at once, in bytes.
const BlobPiece = 512 << 10

// BlobPieces cuts content that is in memory as those who keep blobs want it: pieces of BlobPiece bytes and a last one,
// which is shorter and may be empty. The pieces are parts of b.
func BlobPieces(b []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for len(b) >= BlobPiece {
			if !yield(b[:BlobPiece], nil) {
				return
			}
			b = b[BlobPiece:]
		}
		yield(b, nil)
	}
}

// Blob is what is known of large content that is kept with a run. Ref is the same for the same bytes.
type Blob struct {
	Ref  string
	Type string // media type, as it was sent first
	Size int64  // bytes
}

// ErrNoBlob reports that a run has no such blob.
var ErrNoBlob = errors.New("no such blob")

// BlobRef names content by its SHA-256 sum.
func BlobRef(sum [sha256.Size]byte) string { return BlobPrefix + hex.EncodeToString(sum[:]) }

// SealedBlobType is the media type of content that is stored encrypted. Parameters follow it.
const SealedBlobType = "application/vnd.agentstream.sealed"

// IsSealedBlob reports whether content of a media type is stored encrypted.
func IsSealedBlob(mediaType string) bool {
	n := len(SealedBlobType)
	return len(mediaType) >= n && strings.EqualFold(mediaType[:n], SealedBlobType)
}

// BlobSum finds out by which ref content is kept, while it passes: by the SHA-256 sum of it. Content that is stored
// encrypted ends with the sum of what is before it, and with the sum of what it is without encryption, which is its ref.
type BlobSum struct {
	sum    hash.Hash
	sealed bool
	tail   []byte // of what is sealed, what may be the two sums
}

// SealedTail is the length of the two sums, in bytes.
const SealedTail = 2 * sha256.Size

// NewBlobSum begins the sum of content of a media type.
func NewBlobSum(mediaType string) *BlobSum {
	return &BlobSum{sum: sha256.New(), sealed: IsSealedBlob(mediaType)}
}

// Write adds to the content. It never fails.
func (s *BlobSum) Write(p []byte) (int, error) {
	if !s.sealed {
		return s.sum.Write(p)
	}
	s.tail = append(s.tail, p...)
	if n := len(s.tail) - SealedTail; n > 0 {
		s.sum.Write(s.tail[:n])
		s.tail = append(s.tail[:0], s.tail[n:]...)
	}
	return len(p), nil
}

// Ref returns the ref of all that was written; "" for sealed content that is not whole.
func (s *BlobSum) Ref() string {
	sum := [sha256.Size]byte(s.sum.Sum(nil))
	if !s.sealed {
		return BlobRef(sum)
	}
	if len(s.tail) != SealedTail || !bytes.Equal(s.tail[:sha256.Size], sum[:]) {
		return ""
	}
	return BlobRef([sha256.Size]byte(s.tail[sha256.Size:]))
}

// ValidBlobRef reports whether ref is one that BlobRef makes. The error wraps ErrNoBlob.
func ValidBlobRef(ref string) error {
	digits, ok := strings.CutPrefix(ref, BlobPrefix)
	var sum [sha256.Size]byte
	if n, err := hex.Decode(sum[:], []byte(digits[:min(len(digits), 2*len(sum))])); !ok || err != nil ||
		n != len(sum) || BlobRef(sum) != ref {
		return fmt.Errorf("blob_ref %s: %w", quote(ref), ErrNoBlob)
	}
	return nil
}

// Moved is the output of a tool that was taken out of its event, to be kept as a blob. Data is the value as it
// stood, a part of the body that it was taken from.
type Moved struct {
	Ref  string
	Data []byte
}

// maxPreview bounds what an event keeps of an output that was taken out of it, in bytes of JSON.
const maxPreview = 2 << 10

// Move takes the outputs out of those tool.end events of a body that are over MaxEventBytes. In their place stand
// blob_ref, output_bytes, and the beginning as output_preview. The same body always becomes the same. All else is
// left as it is, also what is no event: DecodeBatch refuses it. A body without such events is given
// back itself.
func Move(body []byte) (slim []byte, moved []Moved) { return MoveClean(body, nil) }

// MoveClean is Move for outputs of which something is hidden before they are kept: clean returns what is kept in the
// place of an output, and a field that the event gets for it (`"name":value`), or nil. A nil clean keeps outputs as they
// are.
func MoveClean(body []byte, clean func(output []byte) (kept, field []byte)) (slim []byte, moved []Moved) {
	if len(body) <= MaxEventBytes {
		return body, nil
	}
	done := 0 // of body, that slim holds
	_ = eachDocument(body, func(_ int, raw []byte) error {
		if len(raw) <= MaxEventBytes {
			return nil
		}
		from, value := outputOf(raw)
		if value == nil {
			return nil
		}
		kept := value
		if clean != nil {
			var field []byte
			kept, field = clean(value)
			if len(field) > 0 {
				begin := cap(body) - cap(raw) + bytes.IndexByte(raw, '{') + 1
				slim = append(append(append(slim, body[done:begin]...), field...), ',')
				done = begin
			}
		}
		m := Moved{Ref: BlobRef(sha256.Sum256(kept)), Data: kept}
		at := cap(body) - cap(from) // raw is a part of body, and all of them end where it ends
		slim = append(slim, body[done:at]...)
		slim = append(slim, `"blob_ref":"`...)
		slim = append(append(slim, m.Ref...), `","output_bytes":`...)
		slim = strconv.AppendInt(slim, int64(len(kept)), 10)
		slim = jsonscan.AppendString(append(slim, `,"output_preview":`...), preview(kept))
		done = cap(body) - cap(value) + len(value)
		moved = append(moved, m)
		return nil
	})
	if moved == nil {
		return body, nil
	}
	return append(slim, body[done:]...), moved
}

// outputOf returns the output of a tool.end event, from its name on and its value, both parts of raw; nil for all
// else, for an event that names a blob already, and for one that is not well formed.
func outputOf(raw []byte) (from, value []byte) {
	if checkJSON(raw) != nil {
		return nil, nil
	}
	var typ string
	var payload []byte
	err := eachField(raw, func(name string, v []byte) (err error) {
		switch name {
		case "type":
			typ, err = unquote(v)
		case "payload":
			payload = v
		}
		return err
	})
	if err != nil || typ != TypeToolEnd {
		return nil, nil
	}
	outputs := 0
	err = eachRawField(payload, func(raw, v []byte) error {
		name, err := unquote(raw)
		switch {
		case err != nil:
			return err
		case name == "output":
			outputs++
			from, value = raw, v
		case name == "blob_ref" || name == "output_bytes" || name == "output_preview":
			return ErrMalformed // the output came already
		}
		return nil
	})
	if err != nil || outputs != 1 {
		return nil, nil
	}
	return from, value
}

// preview returns the beginning of a JSON value: of a string its text, of all else the JSON.
func preview(value []byte) string {
	head := value[:min(len(value), maxPreview)]
	if value[0] == '"' {
		for n := len(head); n > 0 && n > len(head)-utf8.UTFMax-len(`\uD83D\uDE00`); n-- {
			var text string
			if utf8.Valid(head[:n]) && json.Unmarshal(append(bytes.Clone(head[:n]), '"'), &text) == nil {
				return strings.TrimRight(text, "\uFFFD") // half of a pair
			}
		}
	}
	return strings.ToValidUTF8(string(head), "")
}
