package record_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/record"
)

// lastOf returns the value of a variable in an environment.
func lastOf(environ []string, name string) (value string, set bool) {
	for _, text := range environ {
		if v, ok := strings.CutPrefix(text, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}

// TestRedirect: what libraries read points at the proxy, and calls go on to where they went before.
func TestRedirect(t *testing.T) {
	const at = "http://127.0.0.1:7/run/r"
	for name, c := range map[string]struct {
		environ, more []string
		want          map[string]string // "": not set
		ups           []string
	}{
		"nothing is set": {
			want: map[string]string{
				"OPENAI_BASE_URL": at + "/openai/v1", "OPENAI_API_BASE": at + "/openai/v1", "ANTHROPIC_BASE_URL": at + "/anthropic",
				"GOOGLE_GEMINI_BASE_URL": at + "/gemini", "GROQ_BASE_URL": at + "/groq", "AZURE_OPENAI_ENDPOINT": "",
				"MISTRAL_BASE_URL": "",
				"NO_PROXY":         "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
			},
			ups: []string{"openai=https://api.openai.com", "anthropic=https://api.anthropic.com",
				"gemini=https://generativelanguage.googleapis.com"},
		},
		"the caller's own": {
			environ: []string{"OPENAI_BASE_URL=http://gate:1/a/v1/",
				"AZURE_OPENAI_ENDPOINT=https://x.openai.azure.com/", "MISTRAL_BASE_URL=https://m.example/v1",
				"NO_PROXY=a.b", "ANTHROPIC_BASE_URL="},
			want: map[string]string{
				"OPENAI_BASE_URL": at + "/openai/a/v1/", "OPENAI_API_BASE": at + "/openai/a/v1/",
				"ANTHROPIC_BASE_URL":    at + "/anthropic",
				"AZURE_OPENAI_ENDPOINT": at + "/azure/", "MISTRAL_BASE_URL": at + "/mistral/v1",
				"NO_PROXY": "a.b,127.0.0.1,localhost",
			},
			ups: []string{"openai=http://gate:1", "azure=https://x.openai.azure.com", "mistral=https://m.example"},
		},
		"two of one provider": {
			environ: []string{"OPENAI_API_BASE=http://old/v1"},
			want:    map[string]string{"OPENAI_BASE_URL": at + "/openai/v1", "OPENAI_API_BASE": at + "/openai-2/v1"},
			ups:     []string{"openai=https://api.openai.com", "openai-2=http://old"},
		},
		"others": {
			environ: []string{"MY_URL=http://mine:5/x"}, more: []string{"MY_URL", "LLM=https://llm.example/v2"},
			want: map[string]string{"MY_URL": at + "/own/x", "LLM": at + "/own-2/v2"},
			ups:  []string{"own=http://mine:5", "own-2=https://llm.example"},
		},
	} {
		environ, ups, err := record.Redirect(c.environ, at, c.more)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for variable, want := range c.want {
			if got, set := lastOf(environ, variable); got != want || set != (want != "") {
				t.Errorf("%s: %s is %q, want %q", name, variable, got, want)
			}
		}
		var got []string
		for _, u := range ups {
			got = append(got, u.Name+"="+u.URL.String())
		}
		for _, want := range c.ups {
			if !slices.Contains(got, want) {
				t.Errorf("%s: upstreams %q lack %s", name, got, want)
			}
		}
	}
	for _, bad := range []string{"OPENAI_BASE_URL=gate/v1", "OPENAI_BASE_URL=https://me:word@gate/v1",
		"GEMINI_BASE_URL=ftp://x", "XAI_BASE_URL=https://x/?key=1"} {
		if _, _, err := record.Redirect([]string{bad}, at, nil); err == nil || strings.Contains(err.Error(), "word") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, _, err := record.Redirect(nil, at, []string{"NOBODY_SETS_IT"}); err == nil {
		t.Error("a variable without a value was taken")
	}
}

// TestLastLine: the reason of a failure is the last line that says something.
func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"a\nb\n\n":                               "b",
		"half":                                   "half",
		"50%\r100%\r\n":                          "100%",
		"\x1b[31mred\x1b[0m \a\n":                "red",
		"Traceback:\n  File x\nValueError: no\n": "ValueError: no",
		"x.mjs:1\nthrow new Error('no')\n^\n\nError: no\n    at f (x.mjs:1:7) {\n  code: 'E'\n}\n\nNode.js v22.1.0\n": "Error: no",
		"a\n  indented\n": "indented",
		"Error: no\n    at f (x.mjs:1:7)\n\nNode.js v22.1.0\n": "Error: no",
		"\xff\xfeok\n":                          "ok",
		strings.Repeat("x", 20<<10) + "\nend\n": "end",
	} {
		var tail record.Tail
		for i := 0; i < len(text); i += 100 {
			_, _ = tail.Write([]byte(text[i:min(len(text), i+100)]))
		}
		if got := tail.Line(); got != want {
			t.Errorf("%.80q: %q, want %q", text, got, want)
		}
	}
	var tail record.Tail
	_, _ = tail.Write([]byte(strings.Repeat("ж", 5000)))
	if n := len([]rune(tail.Line())); n != 501 {
		t.Errorf("a long line has %d characters", n)
	}
}

// TestSecrets: a reason shows no credential of the environment, nor of a call.
func TestSecrets(t *testing.T) {
	f := record.Secrets([]string{"MY_API_KEY=sk-environment", "HOME=/folders/somebody",
		"DB=postgres://u:dbpassword@h/x"}, http.Header{"Authorization": {"Bearer sk-from-code"}})
	got := string(f.Bytes([]byte("sk-environment dbpassword sk-from-code /folders/somebody")))
	if got != "… … … /folders/somebody" {
		t.Error(got)
	}
}
