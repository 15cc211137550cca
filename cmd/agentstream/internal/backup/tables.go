package backup

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// tablesFile is where the dump of the tables is.
const tablesFile = "tables.dump"

// pooled are parameters of a connection string that libpq does not know.
var pooled = regexp.MustCompile(`\bpool_[a-z_]+=\S*`)

// password is the password in a connection string of words.
var password = regexp.MustCompile(`\bpassword\s*=\s*('(?:[^'\\]|\\.)*'|\S*)`)

// splitPassword returns a connection string without its password, which every user of the machine could see in the
// list of processes, and the password.
func splitPassword(dsn string) (bare, secret string) {
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" {
		secret, _ = u.User.Password()
		if secret != "" {
			u.User = url.User(u.User.Username())
		}
		q := u.Query()
		secret = cmp.Or(q.Get("password"), secret) // libpq takes that of the query too, and first
		q.Del("password")
		for name := range q {
			if strings.HasPrefix(name, "pool_") {
				q.Del(name)
			}
		}
		u.RawQuery = q.Encode()
		return u.String(), secret
	}
	if m := password.FindStringSubmatch(dsn); m != nil {
		secret = strings.NewReplacer(`\'`, `'`, `\\`, `\`).Replace(strings.Trim(m[1], "'"))
		dsn = password.ReplaceAllString(dsn, "")
	}
	return pooled.ReplaceAllString(dsn, ""), secret
}

// runTool runs a program of PostgreSQL on a database.
func runTool(ctx context.Context, program, dsn string, stdin io.Reader, stdout io.Writer, args ...string) error {
	bare, secret := splitPassword(dsn)
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append(args, "--dbname", bare)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &said
	cmd.Env = os.Environ()
	if secret != "" {
		cmd.Env = append(cmd.Env, "PGPASSWORD="+secret)
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// dumpTables writes all tables as they are at one moment. Row security refuses it to the tables' owner: the connection
// is an administrator's.
func dumpTables(ctx context.Context, program, dsn string, w io.Writer) error {
	return runTool(ctx, program, dsn, nil, w, "--format=custom", "--no-owner")
}

// restoreTables restores a dump into an empty database, whose owner the connection is.
func restoreTables(ctx context.Context, program, dsn string, r io.Reader) error {
	return runTool(ctx, program, dsn, r, io.Discard, "--no-owner", "--exit-on-error", "--single-transaction")
}
