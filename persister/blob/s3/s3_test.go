package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/persister/blob"
	"agentstream/persister/blob/s3"
	"agentstream/schema"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var name = blob.Name(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228", 7)

func open(t testing.TB, server *testkit.S3Server) *s3.Bucket {
	t.Helper()
	// The way of operators: a URL, and credentials in the environment.
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	cfg, err := s3.Parse("s3://" + server.Bucket + "/a/b/?endpoint=http://" + server.Endpoint + "&region=" +
		server.Region + "&path-style=true")
	if err != nil {
		t.Fatal(err)
	}
	cfg.PartSize, cfg.Timeout = 5<<20, 2*time.Second
	s, err := s3.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return s
}

// TestStore: objects of one part and of several, ranges, names that are taken.
func TestStore(t *testing.T) {
	s := open(t, testkit.S3(t))
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 1000, 5 << 20, 5<<20 + 1, 13 << 20} {
		want := make([]byte, size)
		r := rand.NewChaCha8([32]byte{1})
		_, _ = r.Read(want)
		if err := s.Put(t.Context(), name, bytes.NewReader(want)); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ offset, length, from, to int }{
			{0, size, 0, size}, {0, 1, 0, 1}, {-1, 64, max(0, size-64), size}, {-1, size + 10, 0, size},
			{size - 1, 1, size - 1, size},
			{size / 2, size, size / 2, size}, {size / 3, 10, size / 3, min(size, size/3+10)},
		} {
			got, total, err := s.Read(t.Context(), name, int64(c.offset), int64(c.length))
			if err != nil || total != int64(size) || !bytes.Equal(got, want[c.from:c.to]) {
				t.Errorf("%d bytes: %+v: %d bytes of %d, %v", size, c, len(got), total, err)
			}
		}
		if err := s.Put(t.Context(), name, strings.NewReader("other")); !errors.Is(err, blob.ErrExists) {
			t.Errorf("%d bytes: put again: %v", size, err)
		}
		var listed []blob.Object
		for o, err := range s.List(t.Context(), "acme/") {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, o)
		}
		if len(listed) != 1 || listed[0].Name != name || listed[0].Size != int64(size) ||
			time.Since(listed[0].Modified) > time.Hour {
			t.Errorf("%+v", listed)
		}
		for range 2 {
			if err := s.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.Read(t.Context(), name, -1, 10); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("read of nothing: %v", err)
		}
	}
	if s.Base() != "s3://archive/a/b/" {
		t.Error(s.Base())
	}
}

// TestBroken: a body that fails makes no object.
func TestBroken(t *testing.T) {
	s := open(t, testkit.S3(t))
	broken := errors.New("broken")
	for _, size := range []int64{10, 11 << 20} {
		body := io.MultiReader(io.LimitReader(rand.NewChaCha8([32]byte{}), size), errReader{broken})
		if err := s.Put(t.Context(), name, body); !errors.Is(err, broken) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if _, _, err := s.Read(t.Context(), name, -1, 10); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("%d bytes: there is an object: %v", size, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, name, strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// TestAway: an outage and a wrong key are errors that are no ErrNotFound and hold no secret.
func TestAway(t *testing.T) {
	server := testkit.S3(t)
	s := open(t, server)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret-0815")
	wrong, err := s3.Open(s3.Config{Bucket: server.Bucket, Endpoint: "http://" + server.Endpoint, Region: server.Region,
		PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	check := func(s *s3.Bucket) {
		t.Helper()
		_, _, err := s.Read(t.Context(), name, -1, 10)
		if err == nil || errors.Is(err, blob.ErrNotFound) || strings.Contains(err.Error(), "0815") ||
			strings.Contains(err.Error(), server.SecretKey) {
			t.Errorf("%v", err)
		}
		if err := s.Ping(t.Context()); err == nil {
			t.Error("it answers")
		}
	}
	check(wrong)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	check(s)
}

func TestParse(t *testing.T) {
	cfg, err := s3.Parse("s3://bucket/some/where?endpoint=https://host:9000&region=eu&path-style=true")
	if err != nil || cfg != (s3.Config{Bucket: "bucket", Prefix: "some/where", Endpoint: "https://host:9000",
		Region: "eu", PathStyle: true}) {
		t.Fatalf("%+v, %v", cfg, err)
	}
	for _, bad := range []string{"", "s3://", "http://bucket", "s3://id:hush@bucket/x", "s3://hush@bucket",
		"s3://bucket?secret=hush", "s3://bucket?access-key=hush",
		"s3://bucket?endpoint=https://id:hush@host", "s3://bucket?endpoint=host",
		"s3://bucket?endpoint=https://host/hush", "s3://bucket?path-style=hush", "s3://bucket/../x",
		"s3://bucket/a//b", "s3://buck et\x00hush", "s3://bucket#hush", "s3://bucket?%zz=hush"} {
		if _, err := s3.Parse(bad); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := s3.Open(s3.Config{Bucket: "b", AccessKey: "a"}); err == nil {
		t.Error("half a credential is taken")
	}
	if os.Getenv("AWS_ACCESS_KEY_ID") != "" {
		t.Log("the environment holds credentials")
	}
}
