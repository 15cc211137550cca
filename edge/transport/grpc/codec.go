package grpc

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// encodedMessage is one encoded protobuf message.
type encodedMessage struct {
	data []byte
}

// rawCodec hands messages through as they are. Its name is that of the codec it stands for.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(m any) ([]byte, error) {
	switch m := m.(type) {
	case *encodedMessage:
		return m.data, nil
	case proto.Message: // a status with details, which connect encodes by this codec as well
		return proto.Marshal(m)
	}
	return nil, fmt.Errorf("grpc: %T is not an encoded message", m)
}

// Unmarshal copies: connect uses the bytes again.
func (rawCodec) Unmarshal(data []byte, m any) error {
	if m, ok := m.(*encodedMessage); ok {
		m.data = append([]byte(nil), data...)
		return nil
	}
	return fmt.Errorf("grpc: %T is not an encoded message", m)
}

// bounded decompresses at most so many bytes. Connect's own limit decompresses the rest as well, to
// tell how much it was.
type bounded struct {
	most int
	left int
	zip  gzip.Reader
	open bool
}

func (b *bounded) Reset(r io.Reader) error {
	if b.open = false; r == http.NoBody { // put away into the pool
		return nil
	}
	b.left = b.most
	err := b.zip.Reset(r)
	b.open = err == nil
	return err
}

func (b *bounded) Read(p []byte) (int, error) {
	if !b.open {
		return 0, io.EOF
	}
	if b.left == 0 {
		// A message of exactly the limit ends here.
		var one [1]byte
		n, err := b.zip.Read(one[:])
		if n == 0 {
			return 0, err
		}
		return 0, connect.NewError(connect.CodeResourceExhausted, errors.New("decompressed message is too large"))
	}
	n, err := b.zip.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func (b *bounded) Close() error { return nil }

// newGzipWriter completes the pair that connect wants; responses are below its threshold.
func newGzipWriter() connect.Compressor { return gzip.NewWriter(io.Discard) }
