package seal

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash"
	"iter"
	"mime"

	"agentstream/schema"
)

// A sealed blob is its content in chunks, each with AES-256-GCM, and at the end the two sums of schema.BlobSum. The nonce of
// a chunk is its number, and whether it is the last. The media type is sealed as well, and stands with the key's name in the
// parameters of the media type of what is stored.
const (
	chunkBytes = 64 << 10
	lastChunk  = 1 << 63 // set in the number of the last chunk
	typeChunk  = 1<<63 - 1
)

// blobSealer seals one blob.
type blobSealer struct {
	gcm   cipher.AEAD
	aad   []byte
	n     uint64
	plain []byte    // up to a chunk
	out   []byte    // up to a piece
	clear hash.Hash // of the content
	all   hash.Hash // of what is stored
}

// SealBlob returns the media type under which a blob of a run is stored, and its pieces, as those who keep blobs want them. Of
// a tenant whose events are not sealed both are as given.
func (k *Keys) SealBlob(ctx context.Context, key schema.RunKey, mediaType string,
	pieces iter.Seq2[[]byte, error]) (string, iter.Seq2[[]byte, error], error) {
	if !k.Has(key.Tenant) {
		return mediaType, pieces, nil
	}
	name := k.current(key.Tenant)
	data, err := k.get(ctx, name)
	if err != nil {
		return "", nil, fmt.Errorf("seal: %w", err)
	}
	var salt [saltBytes]byte
	rand.Read(salt[:]) // never fails
	gcm, err := newGCM(data.sub(forBlob, salt[:]))
	if err != nil {
		return "", nil, err
	}
	head := format + keyText(data.version, name.month) + "." + data.check() + "." + encoding.EncodeToString(salt[:]) + "."
	aad := blobAAD(key, head)
	number := nonce(typeChunk)
	sealedType := gcm.Seal(nil, number[:], []byte(mediaType), aad)
	stored := mime.FormatMediaType(schema.SealedBlobType, map[string]string{"k": head,
		"t": encoding.EncodeToString(sealedType)})
	return stored, func(yield func([]byte, error) bool) {
		s := &blobSealer{gcm: gcm, aad: aad, clear: sha256.New(), all: sha256.New()}
		s.run(pieces, yield)
	}, nil
}

func blobAAD(key schema.RunKey, head string) []byte {
	return []byte(key.Tenant + "\x00" + key.Run + "\x00" + head)
}

// run yields the pieces of what is stored.
func (s *blobSealer) run(pieces iter.Seq2[[]byte, error], yield func([]byte, error) bool) {
	for piece, err := range pieces {
		if err != nil {
			yield(nil, err)
			return
		}
		s.clear.Write(piece)
		for len(piece) > 0 {
			if len(s.plain) == chunkBytes { // more follows: it is not the last
				s.seal(0)
			}
			n := min(chunkBytes-len(s.plain), len(piece))
			s.plain, piece = append(s.plain, piece[:n]...), piece[n:]
			if !s.give(yield) {
				return
			}
		}
	}
	s.seal(lastChunk)
	s.out = append(s.out, s.all.Sum(nil)...)
	s.out = append(s.out, s.clear.Sum(nil)...)
	if s.give(yield) {
		yield(s.out, nil)
	}
}

// seal seals the chunk at hand.
func (s *blobSealer) seal(flag uint64) {
	number := nonce(s.n | flag)
	begin := len(s.out)
	s.out = s.gcm.Seal(s.out, number[:], s.plain, s.aad)
	s.all.Write(s.out[begin:])
	s.plain = s.plain[:0]
	s.n++
}

// give yields whole pieces.
func (s *blobSealer) give(yield func([]byte, error) bool) bool {
	for len(s.out) >= schema.BlobPiece {
		if !yield(s.out[:schema.BlobPiece], nil) {
			return false
		}
		s.out = append(s.out[:0], s.out[schema.BlobPiece:]...)
	}
	return true
}

// OpenBlob returns a blob of a run and its pieces as they were before SealBlob. What is not sealed is returned as it is. The
// error wraps what that of Open does.
func (k *Keys) OpenBlob(ctx context.Context, key schema.RunKey, blob schema.Blob,
	pieces iter.Seq2[[]byte, error]) (schema.Blob, iter.Seq2[[]byte, error], error) {
	if k == nil || !schema.IsSealedBlob(blob.Type) {
		return blob, pieces, nil
	}
	bad := func() (schema.Blob, iter.Seq2[[]byte, error], error) {
		return schema.Blob{}, nil, fmt.Errorf("seal: blob %s of run %s is not what was sealed: %w", blob.Ref, key, schema.ErrBadPack)
	}
	_, params, err := mime.ParseMediaType(blob.Type)
	if err != nil {
		return bad()
	}
	name, check, salt, ok := parseHead(key.Tenant, []byte(params["k"]))
	sealedType, err := encoding.DecodeString(params["t"])
	if !ok || err != nil {
		return bad()
	}
	data, err := k.open(ctx, name, check)
	if err != nil {
		return schema.Blob{}, nil, fmt.Errorf("seal: blob %s of run %s: %w", blob.Ref, key, err)
	}
	gcm, err := newGCM(data.sub(forBlob, salt))
	if err != nil {
		return schema.Blob{}, nil, err
	}
	o := &blobOpener{gcm: gcm, aad: blobAAD(key, params["k"]), left: blob.Size - schema.SealedTail}
	number := nonce(typeChunk)
	mediaType, err := gcm.Open(nil, number[:], sealedType, o.aad)
	if err != nil || o.left < tagBytes {
		return bad()
	}
	chunks := (o.left + chunkBytes + tagBytes - 1) / (chunkBytes + tagBytes)
	clear := schema.Blob{Ref: blob.Ref, Type: string(mediaType), Size: o.left - chunks*tagBytes}
	if clear.Size < 0 {
		return bad()
	}
	return clear, func(yield func([]byte, error) bool) {
		if err := o.run(pieces, yield); err != nil {
			yield(nil, fmt.Errorf("seal: blob %s of run %s: %w", blob.Ref, key, err))
		}
	}, nil
}

// blobOpener opens one blob.
type blobOpener struct {
	gcm  cipher.AEAD
	aad  []byte
	left int64 // bytes of chunks that have not come yet
	n    uint64
	in   []byte
	out  []byte
}

// run yields the pieces of the content. The error is of what was stored.
func (o *blobOpener) run(pieces iter.Seq2[[]byte, error], yield func([]byte, error) bool) error {
	o.n, o.in, o.out = 0, nil, nil
	left := o.left
	for piece, err := range pieces {
		if err != nil {
			return err
		}
		o.in = append(o.in, piece[:min(int64(len(piece)), left)]...)
		left -= min(int64(len(piece)), left)
		for len(o.in) > chunkBytes+tagBytes || left == 0 && len(o.in) > 0 {
			n := min(len(o.in), chunkBytes+tagBytes)
			if err := o.chunk(o.in[:n], left == 0 && n == len(o.in)); err != nil {
				return err
			}
			o.in = append(o.in[:0], o.in[n:]...)
		}
		for len(o.out) >= schema.BlobPiece {
			if !yield(o.out[:schema.BlobPiece], nil) {
				return nil
			}
			o.out = append(o.out[:0], o.out[schema.BlobPiece:]...)
		}
		if left == 0 {
			break
		}
	}
	if left > 0 {
		return fmt.Errorf("%d bytes are missing: %w", left, schema.ErrBadPack)
	}
	if len(o.out) > 0 {
		yield(o.out, nil)
	}
	return nil
}

// chunk opens one chunk.
func (o *blobOpener) chunk(sealed []byte, last bool) (err error) {
	n := o.n
	if last {
		n |= lastChunk
	}
	number := nonce(n)
	o.out, err = o.gcm.Open(o.out, number[:], sealed, o.aad)
	if err != nil {
		return fmt.Errorf("chunk %d is not what was sealed: %w", o.n, schema.ErrBadPack)
	}
	o.n++
	return nil
}
