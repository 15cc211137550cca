package deadletters

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/archivetest"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestHeadersNobodyReads: headers that a NATS server takes and no client library does become letters, with
// the body. What could not be read of the headers is not there.
func TestHeadersNobodyReads(t *testing.T) {
	f, log := archivetest.SQLiteStore(t), testkit.NATS(t)
	pack := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228").Texts("", 2)
	hostile := []string{"NATS/1.0\r\nbad\x00 \xff: v\r\n\r\n", "NATS/1.0\r\nno colon here\r\n\r\n", "NATS/1.0\r\nA: 1",
		"NATS/1.0 99x\r\n: \r\n\r\n",
		"garbage!!!!!!!!\r\n\r\n", "NATS/1.0\r\nA:\r\n  folded\r\n\r\n"}
	persistAll(t, log, f.Store, func() int {
		u, err := url.Parse(log.Server.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		text := "CONNECT {\"headers\":true,\"verbose\":false}\r\n"
		for _, h := range hostile {
			text += fmt.Sprintf("HPUB %s %d %d\r\n%s%s\r\n", schema.Subject(pack.Key, "", log.Partitions), len(h),
				len(h)+len(pack.Body), h, pack.Body)
		}
		if _, err := c.Write([]byte(text + "PING\r\n")); err != nil {
			t.Fatal(err)
		}
		for answers := bufio.NewScanner(c); answers.Scan() && answers.Text() != "PONG"; {
			if strings.HasPrefix(answers.Text(), "-ERR") {
				t.Fatal(answers.Text())
			}
		}
		return len(hostile)
	})
	letters, err := f.Store.(archive.DeadLetters).FindDeadLetters(t.Context(), deadletter.Query{Limit: 99, Bodies: true})
	if err != nil || len(letters) != len(hostile) {
		t.Fatalf("%d letters of %d, %v", len(letters), len(hostile), err)
	}
	for _, l := range letters {
		if l.Reason != persister.ReasonBadMessage || !bytes.Equal(l.Body, pack.Body) {
			t.Errorf("%+v", l)
		}
	}
	if out, _, err := deadletters(t, append([]string{"list"}, f.Args...)...); err != nil ||
		strings.ContainsAny(out, "\x00") || strings.Contains(out, "\xff") {
		t.Errorf("%q, %v", out, err)
	}
	if out, _, err := deadletters(t, append([]string{"list", "--json"}, f.Args...)...); err != nil ||
		strings.ContainsAny(out, "\x00") || strings.Contains(out, "\xff") {
		t.Errorf("%q, %v", out, err)
	}
}
