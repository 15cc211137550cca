package testkit

import (
	"os"
	"path/filepath"
	"testing"

	"agentstream/internal/localpg"
)

// StartPostgresTLS starts a server that lets nobody in over TCP, at a loopback address, without TLS. Its certificate is
// of the authority and for the address, its port 5432.
func StartPostgresTLS(t testing.TB, ca *Authority, ip string) *PostgresServer {
	t.Helper()
	skipShort(t)
	dir, err := os.MkdirTemp("", "agentstream-pgtls-") // not t.TempDir: its parents belong to us alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cert, key := ca.Issue(t, dir, ip)
	hba := filepath.Join(dir, "hba.conf")
	user, err := localpg.User()
	if err == nil {
		err = os.WriteFile(hba, []byte("local all all trust\nhostssl all all 0.0.0.0/0 trust\n"), 0o600)
	}
	for _, path := range []string{dir, cert, key, hba} {
		if err == nil && user != nil {
			err = os.Chown(path, int(user.Uid), int(user.Gid))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return StartPostgres(t, "listen_addresses="+ip, "ssl=on", "ssl_cert_file="+cert, "ssl_key_file="+key, "hba_file="+hba)
}
