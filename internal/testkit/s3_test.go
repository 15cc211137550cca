package testkit_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"agentstream/internal/testkit"
)

func dialS3(t *testing.T, s *testkit.S3Server, secret string) *minio.Core {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := minio.NewCore(s.Endpoint, &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, secret, ""), Region: s.Region, Transport: transport,
		BucketLookup: minio.BucketLookupPath, MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func putS3(t *testing.T, c *minio.Core, bucket, key string, body []byte) {
	t.Helper()
	if _, err := c.Client.PutObject(t.Context(), bucket, key, bytes.NewReader(body), int64(len(body)),
		minio.PutObjectOptions{ContentType: "application/octet-stream"}); err != nil {
		t.Fatal(err)
	}
}

func getS3(t *testing.T, c *minio.Core, bucket, key string, from, to int64) []byte {
	t.Helper()
	var o minio.GetObjectOptions
	if to > 0 {
		if err := o.SetRange(from, to); err != nil {
			t.Fatal(err)
		}
	}
	body, _, _, err := c.GetObject(t.Context(), bucket, key, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	got, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func listS3(t *testing.T, c *minio.Core, bucket, prefix string) (keys []string) {
	t.Helper()
	for o := range c.Client.ListObjects(t.Context(), bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

func TestS3HoldsObjects(t *testing.T) {
	s := testkit.S3(t)
	c := dialS3(t, s, s.SecretKey)
	putS3(t, c, s.Bucket, "a/b/one", []byte("hello, object"))
	putS3(t, c, s.Bucket, "a/two", []byte("2"))
	putS3(t, c, s.Bucket, "b/three", nil)
	if got := getS3(t, c, s.Bucket, "a/b/one", 7, 9); string(got) != "obj" {
		t.Errorf("a range gave %q", got)
	}
	if got := fmt.Sprint(listS3(t, c, s.Bucket, "a/")); got != "[a/b/one a/two]" {
		t.Errorf("a listing gave %s", got)
	}
	if err := c.Client.RemoveObject(t.Context(), s.Bucket, "a/two", minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(listS3(t, c, s.Bucket, "")); got != "[a/b/one b/three]" {
		t.Errorf("after a deletion a listing gave %s", got)
	}
	_, _, _, err := c.GetObject(t.Context(), s.Bucket, "a/two", minio.GetObjectOptions{})
	if code := minio.ToErrorResponse(err).Code; code != "NoSuchKey" {
		t.Errorf("an object that is gone: %v", err)
	}
	_, _, _, err = dialS3(t, s, "wrong").GetObject(t.Context(), s.Bucket, "b/three", minio.GetObjectOptions{})
	if code := minio.ToErrorResponse(err).Code; code != "SignatureDoesNotMatch" {
		t.Errorf("with a wrong secret: %v", err)
	}
}

func TestS3TakesUploadsInParts(t *testing.T) {
	s := testkit.S3(t)
	c := dialS3(t, s, s.SecretKey)
	body := make([]byte, 5<<20+12345)
	_, _ = rand.Read(body)
	// Of unknown length, hence in parts.
	info, err := c.Client.PutObject(t.Context(), s.Bucket, "big", io.MultiReader(bytes.NewReader(body)), -1,
		minio.PutObjectOptions{PartSize: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(info.ETag, "-2") {
		t.Errorf("the upload was not made in two parts: %s", info.ETag)
	}
	if got := getS3(t, c, s.Bucket, "big", 0, 0); !bytes.Equal(got, body) {
		t.Errorf("%d bytes came back from %d, or others", len(got), len(body))
	}
	id, err := c.NewMultipartUpload(t.Context(), s.Bucket, "half", minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutObjectPart(t.Context(), s.Bucket, "half", id, 1, strings.NewReader("half"), 4,
		minio.PutObjectPartOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(listS3(t, c, s.Bucket, "")); got != "[big]" {
		t.Errorf("an upload that is not complete is listed: %s", got)
	}
	if err := c.AbortMultipartUpload(t.Context(), s.Bucket, "half", id); err != nil {
		t.Fatal(err)
	}
}

func TestS3KeepsObjectsOverStop(t *testing.T) {
	s := testkit.S3(t)
	c := dialS3(t, s, s.SecretKey)
	putS3(t, c, s.Bucket, "kept", []byte("kept"))
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := c.GetObject(t.Context(), s.Bucket, "kept", minio.GetObjectOptions{}); err == nil {
		t.Fatal("a stopped server answers")
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if got := getS3(t, c, s.Bucket, "kept", 0, 0); string(got) != "kept" {
		t.Fatalf("after a new start: %q", got)
	}
}

// A test process that is killed must not leave a server behind.
func TestS3DiesWithItsProcess(t *testing.T) {
	s := testkit.S3(t) // skips where there is none
	if os.Getenv("TESTKIT_CHILD") != "" {
		fmt.Println("S3", s.Endpoint)
		select {} // killed by the parent
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestS3DiesWithItsProcess$")
	cmd.Env = append(os.Environ(), "TESTKIT_CHILD=1", "TMPDIR="+t.TempDir()) // the child cannot clean up: it is killed
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	endpoint := ""
	for lines := bufio.NewScanner(out); endpoint == "" && lines.Scan(); {
		endpoint, _ = strings.CutPrefix(lines.Text(), "S3 ")
		if endpoint == lines.Text() {
			endpoint = ""
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if endpoint == "" {
		t.Fatal("the child has not started a server")
	}
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", endpoint)
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server outlives the process that started it")
		}
	}
}
