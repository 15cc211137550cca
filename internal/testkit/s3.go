package testkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// gateway is the program that [S3] starts. tools/needs builds it, and says the version a second time.
const gateway = "versitygw-v1.8.0"

// S3Server is a private server that speaks S3, versitygw over a temporary directory, on a loopback
// port. The kernel stops it when the test process dies, however it dies.
type S3Server struct {
	Endpoint  string // host:port, plain HTTP, path-style addresses
	Bucket    string // exists, and is empty
	AccessKey string
	SecretKey string
	Region    string

	bin string
	dir string

	mu   sync.Mutex
	proc *process
}

// S3 starts a server of the test's own with one empty bucket. It ends with the test. Where the
// program is missing (tools/needs versitygw builds it) the test fails if CI is set, and is skipped
// elsewhere. It is skipped with -short, too.
func S3(t testing.TB) *S3Server {
	t.Helper()
	skipShort(t)
	bin, err := findGateway()
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("SKIPPED, NOTHING WAS TESTED: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &S3Server{
		Endpoint: FreeAddr(t),
		Bucket:   "archive", AccessKey: "testkit", SecretKey: "testkit-secret", Region: "us-east-1",
		bin: bin, dir: t.TempDir(),
	}
	// A folder below the root is a bucket. What belongs to an object lies beside, not in extended
	// attributes: not every temporary directory has those.
	for _, dir := range []string{s.bucket(), s.sidecar()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *S3Server) root() string    { return filepath.Join(s.dir, "root") }
func (s *S3Server) bucket() string  { return filepath.Join(s.root(), s.Bucket) }
func (s *S3Server) sidecar() string { return filepath.Join(s.dir, "sidecar") }

// findGateway looks in bin/ at the root of the module that the test belongs to.
func findGateway() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("testkit: find %s: %w", gateway, err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("testkit: find %s: no go.mod above the test", gateway)
		}
	}
	bin := filepath.Join(dir, "bin", gateway)
	if _, err := os.Stat(bin); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no S3 server: bin/%s does not exist; `tools/needs versitygw` builds it", gateway)
	} else if err != nil {
		return "", fmt.Errorf("testkit: find %s: %w", gateway, err)
	}
	return bin, nil
}

// Start starts the server again after Stop, at the same address with what it held, and returns when
// it answers.
func (s *S3Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return errors.New("testkit: start s3: it runs")
	}
	cmd := exec.Command(s.bin, "--port", s.Endpoint, "--region", s.Region, "--quiet",
		"posix", "--sidecar", s.sidecar(), s.root())
	cmd.Dir = s.dir
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey}
	p, err := startProcess(cmd)
	if err == nil {
		s.proc = p
		err = p.await(func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Endpoint)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
	if err != nil {
		if p.over() {
			s.proc = nil
		}
		return fmt.Errorf("testkit: start s3: %w", err)
	}
	return nil
}

// Stop kills the server: connections are cut in the middle of whatever they carry. It returns when
// the process is gone. Stopping a server that is stopped does nothing.
func (s *S3Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proc
	if p == nil {
		return nil
	}
	s.proc = nil
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("testkit: stop s3: %w", err)
	}
	<-p.done
	return nil
}
