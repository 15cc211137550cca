package record

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"agentstream/adapters/proxy"
	"agentstream/adapters/redact"
)

// variable is one of the environment that holds the base URL of an API.
type variable struct {
	name     string
	provider string // names the upstream
	base     string // where calls go when nobody has set it; "": then it stays unset
	like     string // variable whose value it has when nobody has set it; "": base
}

// The bases of the providers' APIs, as their own libraries have them.
const (
	openAI    = "https://api.openai.com/v1"
	anthropic = "https://api.anthropic.com"
	gemini    = "https://generativelanguage.googleapis.com"
)

// variables that libraries read. Of those without a base, either the address is the user's own, or programs differ in
// what they take it to be when it is not set.
var variables = []variable{
	{name: "OPENAI_BASE_URL", provider: "openai", base: openAI},
	{name: "OPENAI_API_BASE", provider: "openai", like: "OPENAI_BASE_URL"}, // openai before 1.0, LangChain, LiteLLM
	{name: "ANTHROPIC_BASE_URL", provider: "anthropic", base: anthropic},
	{name: "ANTHROPIC_API_URL", provider: "anthropic", like: "ANTHROPIC_BASE_URL"}, // LangChain
	{name: "ANTHROPIC_API_BASE", provider: "anthropic"},                            // LiteLLM
	{name: "GOOGLE_GEMINI_BASE_URL", provider: "gemini", base: gemini},
	{name: "GEMINI_BASE_URL", provider: "gemini"},
	{name: "GEMINI_API_BASE", provider: "gemini"},
	{name: "GOOGLE_VERTEX_BASE_URL", provider: "vertex"},
	{name: "AZURE_OPENAI_ENDPOINT", provider: "azure"},
	{name: "AZURE_OPENAI_BASE_URL", provider: "azure"},
	{name: "AZURE_API_BASE", provider: "azure"},
	{name: "GROQ_BASE_URL", provider: "groq", base: "https://api.groq.com"},
	{name: "GROQ_API_BASE", provider: "groq"},
	{name: "TOGETHER_BASE_URL", provider: "together", base: "https://api.together.xyz/v1"},
	{name: "CEREBRAS_BASE_URL", provider: "cerebras", base: "https://api.cerebras.ai"},
	{name: "MISTRAL_BASE_URL", provider: "mistral"},
	{name: "MISTRAL_API_BASE", provider: "mistral"},
	{name: "DEEPSEEK_BASE_URL", provider: "deepseek"},
	{name: "DEEPSEEK_API_BASE", provider: "deepseek"},
	{name: "FIREWORKS_BASE_URL", provider: "fireworks"},
	{name: "OPENROUTER_BASE_URL", provider: "openrouter"},
	{name: "OPENROUTER_API_BASE", provider: "openrouter"},
	{name: "XAI_BASE_URL", provider: "xai"},
	{name: "XAI_API_BASE", provider: "xai"},
}

// Redirect returns the environment with which a command calls the proxy, and where the proxy sends the calls on to. at
// is the proxy's address for the run, without a slash at its end; more are variables beside the known ones, NAME or
// NAME=URL.
func Redirect(environ []string, at string, more []string) (child []string, ups []proxy.Upstream, err error) {
	e := environment{values: environ, at: at}
	all := slices.Clone(variables)
	for _, text := range more {
		name, base, _ := strings.Cut(text, "=")
		if name == "" || base == "" && e.get(name) == "" {
			return nil, nil, fmt.Errorf("--base-url must be NAME=URL, or the NAME of a variable that is set, not %q", name)
		}
		all = append(all, variable{name: name, provider: "own", base: base})
	}
	for _, v := range all {
		if err := e.redirect(v); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} { // a proxy of the caller's is not on the way to this one
		e.set(name, strings.TrimPrefix(e.get(name)+",127.0.0.1,localhost", ","))
	}
	return append(slices.Clone(environ), e.added...), e.ups, nil
}

// environment is one that is being made.
type environment struct {
	values []string // as the caller has them
	added  []string // the last of a name counts
	at     string
	ups    []proxy.Upstream
}

func (e *environment) set(name, value string) { e.added = append(e.added, name+"="+value) }

// get returns what the caller has set.
func (e *environment) get(name string) (value string) {
	for _, text := range e.values {
		if v, ok := strings.CutPrefix(text, name+"="); ok {
			value = v
		}
	}
	return value
}

// redirect points a variable at the proxy.
func (e *environment) redirect(v variable) error {
	base := cmp.Or(e.get(v.name), v.base)
	if base == "" && v.like != "" {
		base = cmp.Or(e.get(v.like), baseOf(v.like))
	}
	if base == "" {
		return nil
	}
	u, err := url.Parse(strings.TrimSpace(base))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return fmt.Errorf("%s must be http://HOST or https://HOST, with a path or without, and no user or query", v.name)
	}
	e.set(v.name, e.at+"/"+e.upstream(v.provider, u)+u.EscapedPath())
	return nil
}

func baseOf(name string) string {
	i := slices.IndexFunc(variables, func(v variable) bool { return v.name == name })
	return variables[i].base
}

// upstream returns the name of the upstream at u's host, to which it adds one if there is none.
func (e *environment) upstream(provider string, u *url.URL) string {
	root := &url.URL{Scheme: u.Scheme, Host: u.Host}
	name := provider
	for n := 2; ; n++ {
		i := slices.IndexFunc(e.ups, func(up proxy.Upstream) bool { return up.Name == name })
		if i < 0 {
			e.ups = append(e.ups, proxy.Upstream{Name: name, URL: root})
			return name
		}
		if *e.ups[i].URL == *root {
			return name
		}
		name = fmt.Sprintf("%s-%d", provider, n)
	}
}

// credentialWords are in the names of variables that hold a credential.
var credentialWords = []string{"AUTH", "CRED", "KEY", "PASS", "SECRET", "TOKEN"}

// Secrets returns the filter of what may be a credential in the environment, and of what calls have shown in their
// headers.
func Secrets(environ []string, seen http.Header) *redact.Filter {
	all := seen.Clone()
	if all == nil {
		all = http.Header{}
	}
	for _, text := range environ {
		name, value, _ := strings.Cut(text, "=")
		upper := strings.ToUpper(name)
		if slices.ContainsFunc(credentialWords, func(word string) bool { return strings.Contains(upper, word) }) {
			all[name] = append(all[name], value)
		}
		if u, err := url.Parse(value); err == nil && u.User != nil {
			password, _ := u.User.Password()
			all["password"] = append(all["password"], password)
		}
	}
	return redact.Of(all, &url.URL{})
}
