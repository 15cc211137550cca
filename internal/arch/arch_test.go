package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the project, from this folder.
const root = "../.."

// TestArchitecture holds the whole tree to its rules. arch_proof_test.go shows that each can fail.
func TestArchitecture(t *testing.T) {
	tr, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.sources) < 50 || len(tr.texts) < len(tr.sources) {
		t.Fatalf("only %d sources and %d files were found", len(tr.sources), len(tr.texts))
	}
	for _, complaint := range judge(tr, excused) {
		t.Error(complaint)
	}
}

// judge returns what is wrong with a tree: violations without an excuse, and excuses without a
// violation.
func judge(tr tree, excused map[string]string) (out []string) {
	used := map[string]bool{}
	for _, r := range rules {
		for _, v := range r.check(tr) {
			if _, ok := excused[v.excuse]; ok {
				used[v.excuse] = true
				continue
			}
			out = append(out, fmt.Sprintf("%s: %s\n\trule: %s", v.where, v.what, r.reason))
		}
	}
	for e := range excused {
		if !used[e] {
			out = append(out, fmt.Sprintf("excuse %q excuses nothing: remove it", e))
		}
	}
	return out
}

// excused breaks a rule by name, with the reason: tables and the composition root may be long. Keys
// are "rule:file", or "length:file:function".
var excused = map[string]string{}

// module is the prefix of the project's own import paths.
const module = "agentstream"

// tree is the project as the rules see it.
type tree struct {
	sources []source
	texts   map[string]string // every file that is no binary, by path
}

// source is one Go file.
type source struct {
	path string
	dir  string // "." is the root
	test bool
	made bool // by a generator, which keeps to no rule of style
	fset *token.FileSet
	file *ast.File
}

type rule struct {
	name   string
	reason string
	check  func(tree) []violation
}

type violation struct {
	where, what string
	excuse      string // key that may excuse it
}

var rules = []rule{
	{"floors", "a package may import only what stands below it (docs/ARCHITECTURE.md)", checkFloors},
	{"clients", "a client library lives in one place, so that replacing or fixing its use is one change", checkClients},
	{"names", "a package is called after what it does; a bag for everything is where a missing decision goes to live", checkNames},
	{"words", "one word for one thing, and it is the one that the field has", checkWords},
	{"forms", "a function does or is something: a stranger's first guess at its name should be right", checkVerbForms},
	{"overworked", "a name that many functions have finds none of them", checkOverworked},
	{"types", "a type that many packages have finds none of them: its name says which", checkTypeNames},
	{"verbs", "doc comments are written as those of the standard library: it returns, reports, writes, sets, means", checkComments},
	{"init", "nothing happens by being imported: wiring is in cmd, where it can be read", checkInit},
	{"doc", "every package says in doc.go what it is and what it promises", checkDoc},
	{"length", "files of at most 600 lines and functions of at most 80 can be read at once", checkLength},
	{"sleep", "sleeping hides a missing signal and cannot be told to stop: wait on a timer and a context", checkSleep},
	{"interface", "an interface of more than four methods is a class: split it by who needs what", checkInterfaces},
	{"paths", "the project must build on any machine: no path of this one, no host name of a registry", checkPaths},
	{"lookups", "a loop that asks one object for several fields passes through all of it each time", checkLookups},
	{"rooms", "who changes a package finds its tests beside it", checkRooms},
	{"leaks", "no word of a protocol stands below the protocols: the ground serves all of them, and has a hook where it must ask one", checkLeaks},
	{"race", "what is tested without the race detector starts nothing and shares nothing", checkRace},
}

// load reads all Go files and texts below a folder. Folders that the tools make are left out.
func load(root fs.FS) (tree, error) {
	tr := tree{texts: map[string]string{}}
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch {
			case p == "bin", p == "data", p == "dist", d.Name() == "node_modules", p != "." && strings.HasPrefix(d.Name(), "."):
				return fs.SkipDir
			}
			return nil
		}
		// In a worktree .git is a file.
		if !d.Type().IsRegular() || p == ".git" || strings.HasSuffix(p, ".test") || strings.HasSuffix(p, ".out") {
			return nil
		}
		text, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		if !slices.Contains(text, 0) {
			tr.texts[p] = string(text)
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		tr.sources = append(tr.sources, source{path: p, dir: path.Dir(p), test: strings.HasSuffix(p, "_test.go"), made: ast.IsGenerated(file), fset: fset, file: file})
		return nil
	})
	return tr, err
}

// floor says what the packages of a folder may import of the project. Patterns match whole import
// paths without the module; * is one element, ** is any number. The first floor that matches counts.
type floor struct {
	dir    string
	may    []string
	reason string
}

var floors = []floor{
	{".", nil, "the root holds no code"},
	{"internal/arch", nil, "rules read files and import nothing that they judge"},
	{"schema", []string{"schema/jsonscan", "schema/ordered", "schema/trace"}, "it is what all sides agree on"},
	{"schema/jsonscan", nil, "it reads JSON and knows no events"},
	{"schema/ordered", nil, "it holds values and knows no events"},
	{"schema/trace", nil, "a trace context is the same for whatever is sent"},
	{"schema/contracts", nil, "contracts are files"},
	{"protocols/nimi/contract/**", nil, "a contract says what is on the wire and imports nothing of the project"},
	{"schema/assemble", []string{"schema", "schema/jsonscan", "schema/ordered"}, "the reading of a run knows events, no protocol"},
	{"schema/redact", []string{"schema", "schema/jsonscan", "schema/seal"}, "rules change events and know no log"},
	{"schema/seal", []string{"schema", "schema/jsonscan"}, "content is encrypted without knowing a log or a key service"},
	{"schema/redact/redacttest", nil, "generated texts know nothing"},
	{"schema/schematest", []string{"schema"}, "scenarios are values of the ground"},
	{"producers", []string{"schema", "schema/assemble", "schema/redact", "schema/seal", "internal/backoff", "internal/fair"}, "writing must not know who reads or keeps"},
	{"producers/command", []string{"producers", "schema", "internal/backoff"}, "commands are read from the log and taken through a publisher"},
	{"producers/reaper", []string{"producers", "schema", "schema/redact", "schema/seal", "internal/backoff"}, "a run is ended by writing to it; who is there, and which runs there are, is handed in"},
	{"producers/producerstest", []string{"producers", "schema", "fanout/memory"}, "what the tests of the write side share knows no client library"},
	{"producers/natsjs", []string{"producers", "producers/command", "producers/reaper", "schema", "schema/seal", "internal/natskit"}, "an adapter knows the contracts that it satisfies and its one client library, no other adapter"},
	{"producers/worker", []string{"producers", "producers/command", "schema", "schema/redact", "schema/seal"}, "whoever answers sessions is a writer; how it hears of them is handed in"},
	{"producers/worker/workertest", []string{"internal/testkit", "producers", "producers/natsjs", "producers/worker", "schema"}, "a worker on a real log for tests of those who answer"},
	{"adapters/demo", []string{"producers", "producers/command", "producers/worker", "schema"}, "the demo is a producer like any other"},
	{"adapters/model", []string{"producers", "adapters/anthropic", "adapters/gemini", "adapters/openai", "adapters/provider", "producers/worker", "schema", "schema/trace", "internal/backoff"}, "a model answers sessions in the words of its provider's adapter"},
	{"adapters/anthropic/anthropictest", []string{"schema", "adapters/provider/providertest"}, "what a recording means is said in canonical events"},
	{"adapters/gemini/geminitest", []string{"schema", "adapters/provider/providertest"}, "what a recording means is said in canonical events"},
	{"adapters/transcript/transcripttest", []string{"schema", "adapters/gemini/geminitest", "adapters/provider/providertest"}, "what a recording means is said in canonical events"},
	{"adapters/openai/openaitest", []string{"schema", "adapters/provider/providertest"}, "what a recording means is said in canonical events"},
	{"adapters/provider/providertest", []string{"adapters/provider", "schema"}, "the checks know what all adapters share, no adapter"},
	{"adapters/provider/brokentest", []string{"adapters/provider", "schema", "schema/jsonscan"}, "streams are rewritten and compared without a decoder"},
	{"adapters/provider", []string{"schema", "schema/jsonscan"}, "what all adapters share knows none of them"},
	{"adapters/transcript", []string{"adapters/anthropic", "adapters/gemini", "adapters/provider", "schema", "schema/jsonscan"}, "transcripts hold what providers said"},
	{"adapters/redact", []string{"adapters/provider", "schema"}, "it changes events of any adapter"},
	{"adapters/proxy", []string{"producers", "adapters/*", "schema", "schema/jsonscan", "schema/trace", "internal/backoff"}, "it hands answers to the adapters and their events to a sink"},
	{"adapters/*", []string{"adapters/provider", "schema", "schema/jsonscan"}, "a provider's stream becomes events; it is not written here"},
	{"fanout", []string{"internal/fair", "schema"}, "history is a question, not a database; reading must not know who writes"},
	{"fanout/fanouttest", []string{"fanout", "producers", "schema", "schema/schematest"}, "the suite writes what it reads back"},
	{"fanout/memory", []string{"fanout", "producers", "schema"}, "the in-memory log is both sides' double"},
	{"fanout/natsjs", []string{"fanout", "internal/fair", "schema", "internal/natskit"}, "an adapter knows its parent and its one client library, no other adapter"},
	{"persister", []string{"schema", "schema/jsonscan", "internal/backoff"}, "it satisfies fanout.History by shape only"},
	{"persister/deadletter", []string{"persister", "schema"}, "what happens to dead letters afterwards knows the contract, no store"},
	{"persister/persistertest", []string{"persister", "persister/deadletter", "persister/prices", "schema", "schema/schematest"}, "the suite knows the contract, no implementation"},
	{"persister/retention", []string{"persister", "schema", "internal/backoff"}, "what is due is decided by policy alone: no store, no log"},
	{"persister/scrub", []string{"internal/backoff", "persister", "persister/deadletter", "schema", "schema/redact", "schema/seal"}, "what is stored is changed through what keeps it: no store, no log"},
	{"persister/prices", nil, "a file of prices knows no store"},
	{"persister/sqlstore", []string{"internal/fair", "persister", "persister/deadletter", "persister/prices", "schema"}, "what SQL stores have in common knows the contract and no database"},
	{"persister/blob/s3", []string{"persister/blob", "schema"}, "a store of objects knows the contract and its one client library"},
	{"persister/sqlite", []string{"internal/fair", "persister", "persister/deadletter", "persister/sqlstore", "schema", "schema/jsonscan"}, "an adapter knows its parent and its one client library, no other adapter"},
	{"persister/postgres/projection", []string{"persister", "schema", "schema/jsonscan"}, "rows of views are made of events alone"},
	{"persister/postgres/tables", []string{"persister", "persister/postgres/projection", "persister/sqlstore", "schema"}, "migrations know what is stored in the tables, not the store"},
	{"persister/postgres", []string{"internal/fair", "persister", "persister/deadletter", "persister/postgres/projection", "persister/postgres/tables", "persister/sqlstore", "schema"}, "an adapter knows its parent and its one client library, no other adapter"},
	{"persister/export", []string{"persister", "schema", "schema/jsonscan"}, "files are made of events alone"},
	{"persister/*", []string{"persister", "schema", "internal/natskit", "internal/backoff", "internal/fair"}, "an adapter knows its parent and its one client library, no other adapter"},
	{"tap", []string{"persister", "schema"}, "a tap is a persister whose store is a sink; it knows no broker and no database"},
	{"tap/stream", []string{"internal/backoff", "persister", "schema", "tap"}, "all runs of a tenant are read from the log and the archive alike; it knows no broker, no HTTP"},
	{"tap/natsjs", []string{"tap", "tap/stream", "persister", "persister/natsjs", "schema", "internal/natskit"}, "an adapter knows its parent and its one client library"},
	{"tap/otlp", []string{"tap", "persister", "schema", "schema/assemble", "schema/jsonscan", "schema/trace"}, "what a run is as spans knows no collector and no log"},
	{"tap/sink", []string{"tap", "tap/otlp", "persister", "schema", "internal/backoff", "internal/natskit"}, "a sink is one file behind one small interface, and knows no log"},
	{"edge/dialect", []string{"schema"}, "the contract of dialects is a pure translation"},
	{"protocols/sample", []string{"edge/auth", "edge/dialect", "edge/protocol", "edge/transport", "edge/transport/sse", "schema"}, "the sample knows the contract, and nothing of what serves it"},
	{"protocols/openai", []string{"edge/auth", "edge/dialect", "edge/ends", "edge/protocol", "edge/transport", "edge/transport/sse", "fanout", "producers", "schema", "schema/assemble", "schema/jsonscan", "schema/ordered"}, "a small protocol is one folder: its translation and what it serves, on the contract alone"},
	{"protocols/otlp", []string{"adapters/otlp", "edge/auth", "edge/dialect", "edge/protocol", "edge/transport", "internal/backoff", "internal/fair", "producers", "schema", "schema/jsonscan"}, "a small protocol is one folder, and what spans say is the adapter's"},
	{"protocols/native", []string{"edge/dialect", "edge/protocol", "schema", "schema/jsonscan"}, "the native routes are the edge's own, so the translation registers itself: no transport, no fanout, no other dialect"},
	{"protocols/chat", []string{"edge/auth", "edge/dialect", "edge/protocol", "fanout", "producers", "schema", "schema/assemble", "schema/jsonscan", "schema/ordered"}, "what chat protocols share knows none of them"},
	{"protocols/aisdk", []string{"edge/auth", "edge/dialect", "edge/protocol", "edge/transport", "edge/transport/sse", "fanout", "protocols/chat", "schema", "schema/jsonscan"}, "a small protocol is one folder: its translation and what it serves, on the contract alone"},
	{"protocols/agui", []string{"edge/auth", "edge/dialect", "edge/protocol", "edge/transport", "edge/transport/sse", "fanout", "protocols/chat", "schema", "schema/jsonscan", "schema/ordered"}, "a small protocol is one folder: its translation and what it serves, on the contract alone"},
	{"edge/dialect/dialecttest", []string{"edge/auth", "edge/dialect", "edge/ends", "edge/live", "edge/runs", "edge/state", "edge/transport", "fanout", "fanout/memory", "producers", "schema", "schema/schematest"}, "the suite knows the contract and what serves it, no dialect"},
	{"protocols/langgraph/langgraphtest", nil, "a client of a protocol knows its text and nothing of the server"},
	{"protocols/metis/metistest", nil, "a client of a protocol knows its text and nothing of the server"},
	{"protocols/langgraph/serve", []string{"edge/auth", "edge/dialect", "protocols/langgraph", "edge/live", "edge/protocol", "edge/transport", "edge/transport/sse", "fanout", "internal/backoff", "producers", "schema", "schema/jsonscan"}, "what a protocol answers beside its streams is written in its words and on what a call may do"},
	{"protocols/nimi", []string{"edge/dialect", "schema", "protocols/nimi/contract/runtime/v1", "schema/jsonscan"}, "a dialect is a pure translation: no transport, no fanout, no other dialect"},
	{"protocols/nimi/answer", []string{"adapters/model", "internal/backoff", "producers", "producers/worker", "protocols/nimi", "protocols/nimi/contract/runtime/v1", "schema"}, "a worker of a protocol answers with models, in the protocol's words"},
	{"protocols/nimi/*", []string{"edge/auth", "edge/dialect", "protocols/nimi", "edge/ends", "edge/protocol", "edge/transport", "fanout", "internal/backoff", "producers", "schema", "protocols/nimi/contract/runtime/v1", "schema/jsonscan"}, "what a protocol answers beside its streams is written in its words and on what a call may do"},
	{"protocols/*/*", []string{"edge/auth", "edge/dialect", "protocols/*", "edge/protocol", "fanout", "internal/backoff", "producers", "schema", "schema/jsonscan"}, "what a protocol answers beside its streams is written in its words and on what a call may do"},
	{"edge/console", nil, "the page is files, and asks what every client may ask"},
	{"edge/reference", []string{"schema/contracts"}, "the page shows the contracts, whoever keeps them"},
	{"edge/edgetest", []string{"internal/testkit/sentence", "edge", "edge/audit", "edge/auth", "edge/dialect", "edge/live", "edge/protocol", "fanout", "fanout/memory", "producers", "protocols/native", "protocols/sample", "schema", "schema/contracts", "schema/schematest"}, "the kit of tests starts an edge as cmd does, and knows no protocol but the native one and the sample"},
	{"edge/ends", []string{"edge/auth", "edge/dialect", "edge/transport/grpc", "fanout", "producers", "schema"}, "what an error means is one table over the sentinels of all packages"},
	{"edge/runs", []string{"edge/dialect", "edge/ends", "fanout", "internal/fair", "schema"}, "who asks, and in which protocol, has nothing to do with what a run says"},
	{"edge/state", []string{"edge/dialect", "edge/ends", "edge/runs", "fanout", "internal/fair", "schema"}, "what was computed from runs is kept for whoever asks next"},
	{"edge/live", []string{"edge/auth", "edge/dialect", "edge/ends", "edge/runs", "edge/shape", "edge/state", "edge/transport", "fanout", "internal/backoff", "internal/fair", "schema"}, "a stream knows no protocol and no HTTP"},
	{"edge/body", []string{"edge/dialect", "edge/ends", "internal/fair", "schema"}, "a body is read by size, time and memory, whatever it says"},
	{"edge/limits/*", []string{"edge/limits", "internal/natskit"}, "an adapter knows its parent and its one client library, no other adapter"},
	{"edge/secure", []string{"edge/transport"}, "TLS stands below whoever reads and writes, and knows no HTTP"},
	{"edge/gate", []string{"edge/ends"}, "who is counted before a caller is known has nothing to do with what is asked for"},
	{"edge/limits", []string{"edge/ends", "schema"}, "what a tenant may send has nothing to do with what it is"},
	{"edge/protocol", []string{"edge/audit", "edge/auth", "edge/body", "edge/dialect", "edge/ends", "edge/limits", "edge/live", "edge/runs", "edge/state", "edge/transport", "edge/transport/sse", "fanout", "internal/fair", "producers", "schema", "schema/trace"}, "what a route may do stands on the edge's own parts and knows no protocol"},
	{"edge/publish", []string{"edge/auth", "edge/dialect", "edge/ends", "edge/limits", "producers", "schema"}, "lines become appends whatever carries them, and however they are stored"},
	{"edge/workers", []string{"edge/ends", "producers", "producers/command", "producers/worker", "schema"}, "who answers sessions over HTTP does so as any worker, whatever carries its tasks"},
	{"edge/rest", []string{"edge/audit", "edge/auth", "edge/body", "edge/dialect", "edge/ends", "edge/limits", "edge/live", "edge/protocol", "edge/publish", "edge/runs", "edge/shape", "edge/state", "edge/transport", "edge/transport/jsonl", "edge/transport/sse", "edge/workers", "fanout", "internal/fair", "producers", "schema"}, "the native requests are routes like any others"},
	{"protocols/*", []string{"edge/dialect", "schema", "schema/assemble", "schema/jsonscan", "schema/ordered"}, "a dialect is a pure translation: no transport, no fanout, no other dialect"},
	{"edge/audit", []string{"edge/auth", "producers", "schema"}, "who did what is a line of the log, whichever protocol it was done in"},
	{"edge/auth", []string{"schema", "internal/fair"}, "who a caller is has nothing to do with what it asks for"},
	{"edge/auth/*", []string{"edge/auth", "schema", "internal/natskit"}, "an adapter knows its parent and its one client library, no other adapter"},
	{"edge/shape", []string{"schema"}, "folding happens before translation, once for all"},
	{"edge/transport/poll", nil, "it knows connections and nothing of what they carry"},
	{"edge/transport/**", []string{"edge/transport", "edge/transport/poll", "edge/dialect", "schema"}, "a transport only writes frames"},
	{"edge", []string{"fanout", "producers", "schema", "edge/audit", "edge/auth", "edge/body", "edge/dialect", "edge/ends", "edge/gate", "edge/limits", "edge/live", "edge/protocol", "edge/publish", "edge/rest", "edge/runs", "edge/state", "edge/transport/**", "edge/workers", "schema/trace"}, "dialects are handed in by cmd, and history is not a database"},
	{"clients/go", []string{"schema"}, "a client knows the events and nothing of the server"},
	{"examples/agent", []string{"clients/go", "producers", "schema"}, "an example uses what a program outside of this tree would"},
	{"examples/page", nil, "a page needs nothing but the protocol"},
	{"examples/protocol", []string{"edge", "edge/dialect", "edge/protocol", "fanout", "fanout/memory", "producers", "schema"}, "a protocol knows the contract; its program puts a server together"},
	{"examples/tap", []string{"schema", "tap", "tap/natsjs"}, "a tap stands on the package, as a program outside of this tree would"},
	{"internal/natskit", []string{"schema", "internal/backoff"}, "the one home of NATS knows nothing but subjects"},
	{"internal/keyservice", []string{"schema"}, "keys of tenants are kept without knowing what they encrypt"},
	{"internal/localpg", nil, "it finds programs"},
	{"internal/spans", []string{"schema/trace"}, "a span of a request knows no request and no run"},
	{"internal/fair", nil, "who goes first has nothing to do with what is done"},
	{"internal/backoff", nil, "waiting has nothing to do with what is waited for"},
	{"internal/testkit/sentence", nil, "what a person can read has nothing to do with who says it"},
	{"internal/testkit", []string{"schema", "internal/natskit", "internal/localpg"}, "test parts are servers, not the product"},
	{"internal/cputime", nil, "it measures and knows nothing of what"},
	{"internal/e2e", nil, "it has only tests, of the whole"},
	{"bench/**", []string{"**"}, "a benchmark wires what it measures; it is a module of its own, so nothing of the product can import it"},
	{"bench/plot", nil, "it draws and knows nothing of what"},
	{"bench/child", nil, "it starts processes and knows nothing of what"},
	{"bench/load", []string{"bench/plot", "producers", "schema"}, "a load comes from outside: over the wire, or through a publisher"},
	{"tools/otelcheck", []string{"fanout/natsjs", "schema", "tap", "tap/natsjs", "tap/sink"}, "it holds what a tap sends to a real collector"},
	{"tools/**", []string{"internal/localpg"}, "tools start programs and know none of their code"},
	{"cmd/agentstream", []string{"**", "cmd/agentstream/internal/*"}, "the composition root knows everything"},
	{"cmd/agentstream/internal/terminal", nil, "text for people has nothing to do with what is said"},
	{"cmd/agentstream/internal/cli", []string{"clients/go", "edge/secure", "internal/keyservice", "internal/natskit", "schema", "schema/seal", "cmd/agentstream/internal/terminal"}, "what all commands share knows no command"},
	{"cmd/agentstream/internal/process", []string{"**", "cmd/agentstream/internal/cli"}, "what all servers share knows no role"},
	{"cmd/agentstream/internal/archive", []string{"**", "cmd/agentstream/internal/cli", "cmd/agentstream/internal/process", "cmd/agentstream/internal/terminal"}, "the archive is opened for commands and roles and knows none"},
	{"cmd/agentstream/internal/node", []string{"**", "cmd/agentstream/internal/archive", "cmd/agentstream/internal/cli", "cmd/agentstream/internal/process"}, "what dev and edge share knows no command"},
	{"cmd/agentstream/internal/taps", []string{"**", "cmd/agentstream/internal/archive", "cmd/agentstream/internal/cli", "cmd/agentstream/internal/process"}, "a group of commands, one of which serves"},
	{"cmd/agentstream/internal/retention", []string{"**", "cmd/agentstream/internal/archive", "cmd/agentstream/internal/cli", "cmd/agentstream/internal/process"}, "a group of commands knows no other, and its parts run in roles"},
	{"cmd/agentstream/internal/*", []string{"**", "cmd/agentstream/internal/archive", "cmd/agentstream/internal/cli", "cmd/agentstream/internal/terminal"}, "a group of commands knows no other and no role"},
}

// testMay is what tests may import on top: real parts and the suites.
var testMay = []string{"internal/testkit", "internal/testkit/sentence", "internal/cputime", "internal/natskit", "schema/schematest", "fanout/memory", "fanout/fanouttest",
	"persister/persistertest", "edge/dialect/dialecttest", "protocols/sample", "edge/edgetest", "protocols/langgraph/langgraphtest", "protocols/metis/metistest", "adapters/anthropic/anthropictest", "adapters/openai/openaitest",
	"adapters/gemini/geminitest", "adapters/transcript/transcripttest", "adapters/provider/providertest", "adapters/provider/brokentest", "producers/producerstest", "producers/worker/workertest",
	"cmd/agentstream/internal/clitest", "cmd/agentstream/internal/archivetest", "schema/redact/redacttest"}

// testOnly may be imported by tests alone.
var testOnly = []string{"internal/testkit", "internal/testkit/sentence", "internal/cputime", "edge/auth/authtest", "schema/schematest", "fanout/fanouttest", "persister/persistertest", "edge/dialect/dialecttest", "protocols/sample", "edge/edgetest", "protocols/langgraph/langgraphtest", "protocols/metis/metistest",
	"adapters/anthropic/anthropictest", "adapters/gemini/geminitest", "adapters/transcript/transcripttest", "adapters/openai/openaitest",
	"adapters/provider/providertest", "adapters/provider/brokentest", "producers/producerstest", "producers/worker/workertest", "cmd/agentstream/internal/clitest", "cmd/agentstream/internal/archivetest", "schema/redact/redacttest"}

// testWires names tests of a whole: they put parts together as cmd does.
var testWires = map[string][]string{
	"edge":                         {"protocols/*", "producers/**", "adapters/**", "fanout/**"},
	"edge/live":                    {"edge", "edge/**", "protocols/*", "producers/**", "fanout/**"},
	"edge/runs":                    {"producers"},
	"edge/rest":                    {"edge", "edge/**", "protocols/*", "producers/**", "adapters/**", "fanout/**"},
	"adapters/provider/brokentest": {"adapters/**"},
	"edge/ends":                    {"producers/**"},
	"edge/state":                   {"producers", "fanout/**"},
	"protocols/langgraph/serve":    {"edge", "edge/**", "producers", "producers/**", "adapters/**", "fanout", "fanout/**", "persister/**"},
	"protocols/nimi/serve":         {"edge", "edge/**", "producers", "fanout", "fanout/**"},
	"protocols/metis/serve":        {"edge", "edge/**", "producers", "fanout", "fanout/**"},
	"protocols/qoder/serve":        {"edge", "edge/**", "producers", "producers/**", "adapters/**", "fanout", "fanout/**", "persister/**"},
	// What adapters make of recorded streams is read as increments.
	"protocols/langgraph": {"adapters/**", "producers/**"},
	"protocols/metis":     {"adapters/**", "producers/**"},
	"protocols/qoder":     {"adapters/**", "producers/**"},
	// A client is tested against the server that it is for.
	"examples/page": {"edge", "edge/*", "schema"},
	"examples/tap":  {"producers", "producers/natsjs", "schema"},
	"clients/go":    {"edge", "edge/**", "protocols/native", "producers", "fanout", "fanout/**"},
	"fanout":        {"producers", "fanout/*", "producers/natsjs"},
	// An agent's turn streams a model's answer through an adapter, and all adapters work at the same time.
	"producers": {"adapters/anthropic", "adapters/openai", "adapters/gemini", "adapters/provider", "adapters/transcript"},
	// What a recorded delta costs on its way into the log.
	"producers/natsjs": {"adapters/anthropic", "adapters/provider"},
	// The demo agent is cancelled on a real log.
	"adapters/demo":         {"producers/natsjs"},
	"adapters/model":        {"producers/natsjs"},
	"protocols/nimi/answer": {"producers/natsjs"},
	"adapters/proxy":        {"producers/natsjs"},
	// What is said in sessions is heard on a real log.
	"producers/worker": {"producers/natsjs"},
	"edge/workers":     {"producers/natsjs"},
	// What one adapter reads, another has written.
	"fanout/natsjs":           {"producers/natsjs"},
	"persister/persistertest": {"persister/**", "producers/natsjs"},
	// What has left the tables is read beside them.
	"persister/blob": {"persister/**"},
	// What is due is removed from real stores and a real log.
	"persister/retention": {"persister/**"},
	// What is hidden is hidden in real stores and a real log.
	"persister/scrub": {"persister/**"},
	// What has left the log is read from a real archive.
	"tap/natsjs": {"persister/**"},
	// A load is put on the server that it is for.
	"bench/load":   {"edge", "edge/**", "fanout", "protocols/native"},
	"internal/e2e": {"**"},
}

func checkFloors(tr tree) (out []violation) {
	for _, s := range tr.sources {
		f, ok := floorOf(s.dir)
		if !ok {
			out = append(out, violation{s.path, "no floor is named for " + s.dir, "floors:" + s.path})
			continue
		}
		kit := isTestKit(s.dir)
		for _, imp := range imports(s) {
			own, ok := strings.CutPrefix(imp, module+"/")
			if !ok && imp != module {
				continue
			}
			may := slices.Concat(f.may, []string{s.dir})
			if s.test {
				may = slices.Concat(may, testMay, testWires[s.dir], []string{s.dir + "/**"})
			} else if matchAny(testOnly, own) && !kit && !matchAny(f.may, own) || matchAny(testOnly, own) && !kit && strings.HasPrefix(s.dir, "cmd/") {
				out = append(out, violation{s.path, imp + " is for tests", "floors:" + s.path})
				continue
			}
			if own == "cmd" || strings.HasPrefix(own, "cmd/") { // all the product is no leave to import the command
				may = slices.DeleteFunc(slices.Clone(may), func(pattern string) bool { return !strings.HasPrefix(pattern, "cmd/agentstream/") })
			}
			if !matchAny(may, own) {
				out = append(out, violation{s.path, fmt.Sprintf("imports %s: %s", imp, f.reason), "floors:" + s.path})
			}
		}
	}
	return out
}

// isTestKit reports whether a folder exists for tests.
func isTestKit(dir string) bool {
	return strings.HasSuffix(dir, "test") || strings.HasSuffix(dir, "testkit")
}

func floorOf(dir string) (floor, bool) {
	for _, f := range floors {
		if f.dir == dir {
			return f, true
		}
	}
	for _, f := range floors {
		if match(f.dir, dir) {
			return f, true
		}
	}
	return floor{}, false
}

func matchAny(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pat string) bool { return match(pat, p) })
}

func match(pattern, p string) bool {
	if pattern == "**" {
		return true
	}
	if dir, ok := strings.CutSuffix(pattern, "/**"); ok {
		return p == dir || strings.HasPrefix(p, dir+"/")
	}
	ok, _ := path.Match(pattern, p)
	return ok
}

func imports(s source) (list []string) {
	for _, i := range s.file.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// clients says where a library may be imported. Keys are prefixes of import paths; everything
// else outside the standard library is free, except in closed folders.
var clients = []struct {
	lib    string
	in     []string
	inTest []string
}{
	{"github.com/nats-io/", []string{"producers/natsjs", "fanout/natsjs", "persister/natsjs", "tap/natsjs", "tap/sink", "edge/auth/natsjs", "edge/limits/natsjs", "internal/natskit", "internal/testkit", "cmd/**", "bench/**", "tools/**", "examples/tap"}, wholes},
	{"github.com/jackc/pgx", []string{"persister/postgres", "persister/postgres/tables", "tap/sink", "internal/testkit"}, wholes},
	{"github.com/twmb/", []string{"tap/sink"}, wholes},
	{"github.com/parquet-go/", []string{"persister/export"}, wholes},
	{"github.com/pressly/goose", []string{"persister/postgres/tables", "persister/sqlite"}, []string{"persister/postgres"}},
	{"modernc.org/sqlite", []string{"persister/sqlite", "bench/floor"}, nil},
	{"github.com/minio/", []string{"persister/blob/s3"}, []string{"internal/testkit", "persister/blob"}},
	{"github.com/prometheus/", []string{"cmd/**"}, nil},
	{"github.com/alecthomas/kong", []string{"cmd/**", "bench/agentstream-bench"}, nil},
	{"github.com/anthropics/", nil, []string{"internal/e2e"}},
	{"github.com/santhosh-tekuri/jsonschema", []string{"protocols/langgraph/langgraphtest", "protocols/metis/metistest", "edge/edgetest", "edge/protocol", "adapters/provider/providertest"}, []string{"edge", "schema", "schema/schematest", "adapters/**", "producers/**", "internal/e2e"}},
}

// wholes are folders whose tests break and inspect real servers from outside.
var wholes = []string{"internal/e2e", "persister/persistertest", "persister/retention", "persister/scrub", "cmd/**"}

// closed folders take no third-party import but these.
var closed = map[string][]string{
	"schema":               {"github.com/oklog/ulid/v2"},
	"schema/assemble":      nil,
	"schema/jsonscan":      nil,
	"producers":            nil,
	"fanout":               nil,
	"persister":            nil,
	"persister/deadletter": nil,
	"persister/sqlstore":   nil,
	"clients/go":           nil,
}

func checkClients(tr tree) (out []violation) {
	for _, s := range tr.sources {
		for _, imp := range imports(s) {
			first, _, _ := strings.Cut(imp, "/")
			if !strings.Contains(first, ".") { // the standard library or ours
				continue
			}
			free := true
			for _, c := range clients {
				if strings.HasPrefix(imp, c.lib) && !matchAny(c.in, s.dir) && !(s.test && matchAny(c.inTest, s.dir)) {
					free = false
				}
			}
			if allowed, ok := closed[s.dir]; ok && !s.test && !slices.Contains(allowed, imp) && !strings.HasPrefix(imp, "golang.org/x/sync/") {
				free = false
			}
			if !free {
				out = append(out, violation{s.path, "imports " + imp, "clients:" + s.path})
			}
		}
	}
	return out
}

var badNames = []string{"common", "util", "utils", "helper", "helpers", "types", "models", "misc", "base", "lib", "pkg", "shared"}

func checkNames(tr tree) (out []violation) {
	for _, s := range tr.sources {
		for _, word := range append(strings.Split(s.dir, "/"), strings.TrimSuffix(s.file.Name.Name, "_test")) {
			if slices.Contains(badNames, word) {
				out = append(out, violation{s.path, "is in " + word, "names:" + s.path})
				break
			}
		}
	}
	return out
}

func checkInit(tr tree) (out []violation) {
	for _, s := range tr.sources {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" && !s.test && !s.made {
				out = append(out, violation{at(s, f), "func init", "init:" + s.path})
			}
		}
	}
	return out
}

func at(s source, n ast.Node) string { return s.fset.Position(n.Pos()).String() }

// headings of every package comment, in this order.
var headings = []string{"# What it is", "# Contract", "# Concurrency", "# What it does not do", "# Where to look next"}

func checkDoc(tr tree) (out []violation) {
	docs, dirs := map[string]string{}, map[string]bool{}
	for _, s := range tr.sources {
		if s.test {
			continue
		}
		dirs[s.dir] = true
		if path.Base(s.path) == "doc.go" {
			docs[s.dir] = s.file.Doc.Text()
		}
	}
	for dir := range dirs {
		text, where := docs[dir], path.Join(dir, "doc.go")
		if !strings.HasPrefix(text, "Package ") && !strings.HasPrefix(text, "Command ") {
			out = append(out, violation{where, "has no package comment", "doc:" + dir})
			continue
		}
		from := 0
		for _, h := range headings {
			i := strings.Index(text[from:], "\n"+h+"\n")
			if i < 0 {
				out = append(out, violation{where, "has no heading " + h + ", or not in its place", "doc:" + dir})
				break
			}
			from += i
		}
	}
	return out
}
