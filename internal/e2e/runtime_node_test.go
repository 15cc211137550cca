package e2e_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRuntimeOnNode: a client of the runtime protocol on Node's gRPC library, of all modes, with the metadata of SDKs
// and their reading of errors, against dev with a token.
func TestRuntimeOnNode(t *testing.T) {
	beside(t)
	node := program(t, "node")
	for _, p := range []string{"@grpc/grpc-js", "@grpc/proto-loader"} {
		if _, err := os.Stat(filepath.Join(jsDir, "node_modules", p)); err != nil {
			missing(t, "the npm package "+p+" is not installed in "+jsDir)
		}
	}
	contract, err := filepath.Abs("../../protocols/nimi/contract")
	if err != nil {
		t.Fatal(err)
	}
	contracts := t.TempDir() // the files import each other by the published path, nimi/runtime/v1
	if err := os.Symlink(contract, filepath.Join(contracts, "nimi")); err != nil {
		t.Fatal(err)
	}
	p := newProc(t, "dev", "--data", t.TempDir(), "--demo-script", "quick", "--auth-token", edgeToken)
	p.start()
	script(t, node, "runtime.mjs", "ADDRESS="+p.addr, "TOKEN="+edgeToken, "CONTRACTS="+contracts)
}
