package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// examples are shown in the help of the commands, by their paths. A line is a command as it may be typed.
var examples = map[string][]string{
	"dev":     {"agentstream dev", "agentstream dev --data ./data --listen 0.0.0.0:8080", "agentstream dev --no-demo"},
	"edge":    {"agentstream edge --nats nats://nats:4222 --auth-token secret"},
	"persist": {"agentstream persist --nats nats://nats:4222 --postgres postgres://db/agentstream"},
	"worker":  {"agentstream worker --upstream openai=https://api.openai.com --models gpt-5.4"},
	"proxy": {
		"agentstream proxy --edge http://127.0.0.1:8080 --upstream anthropic=https://api.anthropic.com",
		"agentstream proxy --nats nats://nats:4222 --upstream openai=https://api.openai.com --upstream anthropic=https://api.anthropic.com",
	},
	"record": {
		"agentstream record -- python my_agent.py",
		"agentstream record --run nightly-42 --title 'Nightly tests' --tag nightly -- npm run agent",
		"agentstream record --server https://runs.example.com --token-file token -- ./agent",
	},
	"run list (ls)": {"agentstream runs --state running", "agentstream runs --json"},
	"run tail": {"agentstream tail demo", "agentstream tail demo --from 120",
		"agentstream tail demo --exit-status"},
	"run replay":            {"agentstream replay demo --speed 4"},
	"run say":               {"agentstream say demo 'and now the tests'"},
	"run answer":            {"agentstream answer demo req_1 yes"},
	"run approve":           {"agentstream approve demo"},
	"run reject":            {"agentstream reject demo --reason 'too many steps'"},
	"run pause":             {"agentstream pause demo --reason 'let me read'"},
	"run resume":            {"agentstream resume demo"},
	"run redirect":          {"agentstream redirect demo 'look at the logs first'"},
	"run update":            {"agentstream run update demo --title 'The tour' --tag demo"},
	"run cancel":            {"agentstream cancel demo"},
	"publish":               {"agentstream publish --run nightly events.ndjson", "agentstream publish recording.sse"},
	"demo":                  {"agentstream demo --script plan"},
	"export":                {"agentstream export --output runs.jsonl --since 24h"},
	"archive list":          {"agentstream archive list default/2026-11-28"},
	"archive runs":          {"agentstream archive runs", "agentstream archive runs --tenant acme --state error --since 24h"},
	"archive verify":        {"agentstream archive verify default/2026-11-28"},
	"archive run":           {"agentstream archive run nightly"},
	"archive audit":         {"agentstream archive audit"},
	"archive restore":       {"agentstream archive restore default/2026-11-28"},
	"retention run":         {"agentstream retention run"},
	"retention plan":        {"agentstream retention plan"},
	"retention show":        {"agentstream retention show"},
	"retention set":         {"agentstream retention set acme --completed 90d"},
	"retention clear":       {"agentstream retention clear acme"},
	"hold add":              {"agentstream hold add acme nightly --reason 'case 7'"},
	"hold remove":           {"agentstream hold remove acme nightly"},
	"hold list":             {"agentstream hold list acme"},
	"delete run":            {"agentstream delete run acme nightly"},
	"delete tenant":         {"agentstream delete tenant acme"},
	"migrate":               {"agentstream migrate --nats nats://nats:4222 --postgres postgres://db/agentstream"},
	"backup":                {"agentstream backup /backups/2026-11-28 --objects copy"},
	"redact":                {"agentstream redact --check rules.json", "agentstream redact --redact rules.json --dry-run", "agentstream redact --redact rules.json --apply --yes acme"},
	"keys create":           {"agentstream keys create --tenant acme --key-service file:keys"},
	"keys list":             {"agentstream keys list --key-service file:keys"},
	"keys rotate":           {"agentstream keys rotate --tenant globex --key-service file:keys"},
	"keys delete":           {"agentstream keys delete --tenant initech --yes --by ops --key-service file:keys"},
	"restore":               {"agentstream restore /backups/2026-11-28"},
	"import":                {"agentstream import ./data --nats nats://nats:4222 --postgres postgres://db/agentstream"},
	"auth new-key":          {"agentstream auth new-key --tenant acme"},
	"auth token":            {"agentstream auth token --tenant acme --hmac-secret 0123456789abcdef0123456789abcdef"},
	"healthcheck":           {"agentstream healthcheck"},
	"doctor":                {"agentstream doctor"},
	"deadletters list":      {"agentstream deadletters list"},
	"deadletters retry":     {"agentstream deadletters retry 4f2a"},
	"deadletters drop":      {"agentstream deadletters drop 4f2a"},
	"tap run":               {"agentstream tap run --name audit --to webhook+https://audit.example.com/events"},
	"tap list":              {"agentstream tap list"},
	"tap remove":            {"agentstream tap remove audit"},
	"tap deadletters list":  {"agentstream tap deadletters list audit"},
	"tap deadletters retry": {"agentstream tap deadletters retry audit 4f2a"},
	"tap deadletters drop":  {"agentstream tap deadletters drop audit 4f2a"},
	"help":                  {"agentstream help record"},
	"completion":            {"source <(agentstream completion bash)"},
	"version":               {"agentstream version"},
}

// flagGroups are the headings of the flags of servers, by the flags' names, or their beginnings with a * behind. Flags
// that are in none stand first.
var flagGroups = []struct {
	kong.Group
	flags []string
}{
	{kong.Group{Key: "demo", Title: "Demo:"}, []string{"demo*"}},
	{kong.Group{Key: "auth", Title: "Who may come in:"}, []string{
		"auth-token-*", "api-keys", "oidc-*", "jwks-url", "hmac-secret*", "issuer", "audience", "tenant-claim",
		"scope-*", "cors-origin",
		"share-secret", "ticket-ttl", "audit", "tenant", "insecure-*", "admin-host",
	}},
	{kong.Group{Key: "models", Title: "Models:"}, []string{"upstream-key", "models", "places"}},
	{kong.Group{Key: "log", Title: "The log:"}, []string{
		"nats-*", "sync", "partitions", "replicas", "blob-bytes", "window", "linger", "reap-*", "edge-token",
	}},
	{kong.Group{Key: "keep", Title: "What is kept, and how long:"},
		[]string{"blobs*", "archive-*", "keep-completed", "keep-ended", "keep-tombstones", "feeds-for", "rows-for",
			"prices"}},
	{kong.Group{Key: "limits", Title: "Limits:"}, []string{
		"ingest-*", "max-*", "tenant-*", "body-memory", "run-blobs", "memory", "memory-keeper", "call-buffer", "total-buffer",
	}},
	{kong.Group{Key: "serving", Title: "Serving:"}, []string{
		"keep-alive", "write-timeout", "drain*", "session-increments", "public-url", "console", "metis-*", "otlp", "otlp-*",
		"admin-listen", "health-listen", "tls*", "admin-tls*",
	}},
	{kong.Group{Key: "encryption", Title: "Encryption:"}, []string{"encrypt", "key-service*", "key-life"}},
	{kong.Group{Key: "calls", Title: "Calls:"}, []string{"requests", "idle-end", "retry-hold", "tool-hold"}},
}

// everywhere is the heading of the flags that all commands have.
var everywhere = &kong.Group{Key: "all", Title: "All commands:"}

// describe adds the examples and the headings of flags to the help.
func describe(app *kong.Application) {
	for _, f := range app.Flags {
		if f.Name != "help" {
			f.Group = everywhere
		}
	}
	for _, n := range app.Leaves(false) {
		path := n.Path()
		if lines := examples[path]; lines != nil {
			n.Detail = "Examples:\n\n  " + strings.Join(lines, "\n  ")
		}
		if n.Group == nil || n.Group.Key != "server" {
			continue
		}
		for _, f := range n.Flags {
			f.Group = headingOf(f.Name)
		}
	}
}

func headingOf(flag string) *kong.Group {
	for i := range flagGroups {
		is := func(pattern string) bool {
			begin, any := strings.CutSuffix(pattern, "*")
			return flag == pattern || any && strings.HasPrefix(flag, begin)
		}
		if slices.ContainsFunc(flagGroups[i].flags, is) {
			return &flagGroups[i].Group
		}
	}
	return nil
}
