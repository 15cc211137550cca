package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/edge/audit"
	"agentstream/internal/natskit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
)

// AuditFlags say who gives a command, for the audit feed of the tenant.
type AuditFlags struct {
	By string `name:"by" help:"Who does this, for the audit feed; default: the user of the operating system." env:"AGENTSTREAM_BY" placeholder:"NAME"`
}

// auditWait bounds how long a command waits for the audit feed.
const auditWait = 10 * time.Second

// Record writes a line about a command of an administrator into the audit feed of a tenant, before the command does
// anything. command is its name.
func (f *AuditFlags) Record(ctx context.Context, to *cli.NATSFlags, tenant, command string, l audit.Line,
	log *slog.Logger) error {
	nc, err := to.Dial("audit", log)
	if err != nil {
		return fmt.Errorf("audit feed: %w", err)
	}
	defer nc.Close()
	return f.RecordOn(ctx, nc, tenant, command, l, log)
}

// RecordOn is Record on a connection.
func (f *AuditFlags) RecordOn(ctx context.Context, nc *nats.Conn, tenant, command string, l audit.Line,
	log *slog.Logger) error {
	l.Via, l.Caller, l.Credential = command, f.by(), "administrator"
	ctx, cancel := context.WithTimeout(ctx, auditWait)
	defer cancel()
	out, err := pubjs.Open(ctx, nc)
	if err != nil {
		return fmt.Errorf("audit feed: %w", err)
	}
	keys, err := pubjs.OpenKeys(ctx, nc)
	if err != nil {
		return fmt.Errorf("audit feed: %w", err)
	}
	appender, err := producers.NewAppender(producers.AppenderConfig{Log: out, Keys: keys, Logger: log})
	if err != nil {
		return err
	}
	return audit.New(audit.Config{Log: appender, Timeout: auditWait, Logger: log}).Record(ctx, tenant, "", l)
}

// RecordIfReachable is Record, but where there is no log that can be reached it prints a notice that there is no line,
// and returns nil.
func (f *AuditFlags) RecordIfReachable(ctx context.Context, to *cli.NATSFlags, out *cli.Streams,
	tenant, command string, l audit.Line, log *slog.Logger) error {
	err := f.Record(ctx, to, tenant, command, l, log)
	if errors.Is(err, natskit.ErrUnreachable) || errors.Is(err, natskit.ErrNotDeclared) {
		out.Notice("not in the audit feed (--nats says where the log is): %v", err)
		return nil
	}
	return err
}

// by returns who gives the command.
func (f *AuditFlags) by() string {
	if name := cleanName(f.By); name != "" {
		return name
	}
	who, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return cmp.Or(cleanName(who.Username), who.Uid)
}

// mostName bounds the name of who gives a command, in characters.
const mostName = 128

// cleanName returns a name as a line of text: what is not printed is a space, and what is too long is cut.
func cleanName(name string) string {
	cleaned := make([]rune, 0, min(len(name), mostName))
	for _, c := range name {
		if len(cleaned) == mostName {
			break
		}
		if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
			c = ' '
		}
		cleaned = append(cleaned, c)
	}
	return strings.TrimSpace(string(cleaned))
}

// SettingFlags are those of commands that change something in the archive alone, and say so in the log where it can be
// reached.
type SettingFlags struct {
	StoreFlags
	cli.NATSFlags
	AuditFlags
}

// Set records a line with RecordIfReachable, and has do change something.
func (f *SettingFlags) Set(ctx context.Context, tenant, command string, l audit.Line, log *slog.Logger,
	do func(*CommandStore) error) error {
	return f.With(ctx, log, func(s *CommandStore) error {
		if err := f.RecordIfReachable(ctx, &f.NATSFlags, &f.Streams, tenant, command, l, log); err != nil {
			return err
		}
		return do(s)
	})
}
