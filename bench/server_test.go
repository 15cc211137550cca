package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/bench/child"
	"agentstream/internal/natskit"
)

// serverEnv turns the test binary into the NATS server; its value is the store's folder.
const serverEnv = "AGENTSTREAM_BENCH_NATS_STORE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := serveNATS(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serveNATS is the child: it says its URL and serves until its standard input ends, which it does
// when the parent closes it or is gone.
func serveNATS(dir string) error {
	s, err := natskit.Serve(natskit.Embedded{StoreDir: dir, Listen: "127.0.0.1", Port: -1})
	if err != nil {
		return err
	}
	fmt.Println(s.ClientURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	s.WaitForShutdown()
	return err
}

// natsServer is a NATS server with a file store in a process of its own, so that its CPU time and
// its garbage are its own.
type natsServer struct {
	url string
	pid int
}

func startNATS(t testing.TB) natsServer {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serverEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	child.EndWithParent(cmd) // a sibling may hold this process' end of the pipe
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		kill := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("nats server: %v", err)
		}
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("nats server said no address: %v", err)
	}
	return natsServer{url: strings.TrimSpace(url), pid: cmd.Process.Pid}
}
