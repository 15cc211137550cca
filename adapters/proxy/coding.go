package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// errCoding reports that a body has a coding that is not read here.
var errCoding = errors.New("content coding is not known")

// codings that the copies of bodies are read in.
var codings = []string{"gzip", "x-gzip", "deflate", "zstd", "identity"}

// maxCodings bounds how often a body may be packed.
const maxCodings = 2

// maxWindow bounds the memory of a zstd stream; it is what browsers must support (RFC 9659).
const maxWindow = 8 << 20

// acceptable takes out of Accept-Encoding what could not be read here. Without one the upstream may
// send whatever it likes, so one is always set.
func acceptable(h http.Header) {
	var keep []string
	for _, line := range h.Values("Accept-Encoding") {
		for item := range strings.SplitSeq(line, ",") {
			item = strings.TrimSpace(item)
			name, _, _ := strings.Cut(item, ";")
			for _, c := range codings {
				if strings.EqualFold(strings.TrimSpace(name), c) {
					keep = append(keep, item)
				}
			}
		}
	}
	if keep == nil {
		keep = []string{"identity"}
	}
	h.Set("Accept-Encoding", strings.Join(keep, ", "))
}

// decodeBody undoes the Content-Encoding. It reads no more ahead than it must, so that events come out as soon
// as they can. Close it when done.
func decodeBody(body io.Reader, h http.Header) (io.ReadCloser, error) {
	var names []string
	for _, line := range h.Values("Content-Encoding") {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "identity" {
				names = append(names, name)
			}
		}
	}
	if len(names) > maxCodings {
		return nil, errCoding
	}
	out := io.NopCloser(body)
	for i := len(names) - 1; i >= 0; i-- {
		next, err := unpack(out, names[i])
		if err != nil {
			return nil, fmt.Errorf("content coding %.20q: %w", names[i], err)
		}
		out = next
	}
	return out, nil
}

func unpack(in io.ReadCloser, name string) (io.ReadCloser, error) {
	switch name {
	case "gzip", "x-gzip":
		return gzip.NewReader(in)
	case "deflate":
		// The name means zlib (RFC 9110 §8.4.1.2); some servers send the bare stream.
		ahead := bufio.NewReader(in)
		head, err := ahead.Peek(2)
		if err != nil {
			return nil, err
		}
		if head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
			return zlib.NewReader(ahead)
		}
		return flate.NewReader(ahead), nil
	case "zstd":
		d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return nil, errCoding
}
