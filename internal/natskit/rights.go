package natskit

import (
	"fmt"
	"io"
	"strings"
)

// Role is a kind of process with a NATS user of its own, which may do what it needs and nothing else.
type Role struct {
	Name      string
	Does      string   // for people
	Publish   []string // subjects
	Subscribe []string
}

// TenantTaps begins the keys of TapsBucket that edges may write: places of tenants that read over HTTP.
const TenantTaps = "tenant"

// BackupKey is the key of TapsBucket with the time of the last backup, RFC 3339.
const BackupKey = "backup"

// LimitsSubject is on which edges tell each other what tenants have used. It is below what edges may publish anyway,
// and in no partition: no stream listens there.
const LimitsSubject = "agent.limits"

// RedactedSubject is on which edges are told of runs whose stored events have another content now: TENANT/RUN. It is
// below what administrators may publish anyway, and in no partition.
const RedactedSubject = "agent.redacted"

// Subjects that many roles use.
var (
	// reads ask for messages and for what streams are.
	reads = []string{"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*",
		"$JS.API.DIRECT.GET.>"}
	// consumes make consumers, and take from them.
	consumes = []string{"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.INFO.>", "$JS.API.CONSUMER.MSG.NEXT.>",
		"$JS.API.CONSUMER.DELETE.>", "$JS.ACK.>"}
	// writes append to the log, keep keys, and ask whether the writer of a run is there.
	writes = []string{"agent.>", "$KV." + KeysBucket + ".>", "$KV." + TicketsBucket + ".>", "ask.agent.>", "_INBOX.>"}
	// own is the question which rights a user has, for doctor.
	own = "$SYS.REQ.USER.INFO"
	// listens get answers, copies of what is stored, and questions whether a writer is there.
	listens = []string{"_INBOX.>", "live.agent.>", "ask.agent.>"}
)

// Roles returns what each kind of process needs of NATS, and the question which rights it has. None but migrate can make
// or change a stream, backup can bring back one that is not there, and none can delete one. Only persist can remove
// messages of the log, because retention and deletions are its work; an edge can remove the parts of a blob.
func Roles() []Role {
	all := roles()
	for i := range all {
		all[i].Publish = append(all[i].Publish, own)
	}
	return all
}

func roles() []Role {
	return []Role{
		{"edge", "serves clients: appends, reads, live copies, tickets, blobs, events over NATS, workers over HTTP",
			list(writes, reads, []string{"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.INFO.>",
				"$JS.API.CONSUMER.MSG.NEXT.>", "$JS.ACK.>", "$KV." + TapsBucket + "." + TenantTaps + ".>",
				"$JS.API.STREAM.PURGE." + BlobStream, "_R_.>"}), list(listens, []string{"ingest.>", LimitsSubject, RedactedSubject})},
		{"persist", "stores the log in a database, archives it, and removes what is due",
			list(writes, reads, consumes, []string{"$JS.API.CONSUMER.NAMES.>", "$JS.API.CONSUMER.LIST.>",
				"$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.MSG.DELETE.>"}), listens},
		{"worker", "answers messages of sessions", list(writes, reads, consumes), listens},
		{"proxy", "records calls of models", list(writes, reads), listens},
		{"migrate", "makes and changes the streams and the buckets",
			list(reads, []string{"$JS.API.STREAM.LIST", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*",
				"_INBOX.>"}), []string{"_INBOX.>"}},
		{"tap", "reads the log by consumers of its own, and keeps its place",
			list(reads, consumes, []string{"$JS.API.CONSUMER.NAMES.>", "$KV." + TapsBucket + ".>", "_INBOX.>"}),
			[]string{"_INBOX.>"}},
		{"backup", "copies streams, and brings back those that are not there",
			list(reads, []string{"$JS.API.STREAM.SNAPSHOT.*", "$JS.API.STREAM.RESTORE.*", "$JS.SNAPSHOT.>",
				"$KV." + TapsBucket + "." + BackupKey, "_INBOX.>"}), []string{"_INBOX.>"}},
	}
}

// list joins lists.
func list(parts ...[]string) (all []string) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// WriteUsers writes the users of the roles as a NATS server's configuration has them, with passwords from variables
// such as $NATS_EDGE_PASSWORD.
func WriteUsers(w io.Writer) error {
	var b strings.Builder
	b.WriteString("users = [\n")
	for _, r := range Roles() {
		fmt.Fprintf(&b, "  # %s\n  { user: %s, password: $NATS_%s_PASSWORD, permissions: {\n", r.Does, r.Name,
			strings.ToUpper(r.Name))
		fmt.Fprintf(&b, "      publish: { allow: [\n          %s ] }\n", quoteSubjects(r.Publish))
		fmt.Fprintf(&b, "      subscribe: { allow: [\n          %s ] } } }\n", quoteSubjects(r.Subscribe))
	}
	b.WriteString("]\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// quoteSubjects writes subjects as strings, three to a line.
func quoteSubjects(subjects []string) string {
	var b strings.Builder
	for i, s := range subjects {
		switch {
		case i == 0:
		case i%3 == 0:
			b.WriteString(",\n          ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", s)
	}
	return b.String()
}
