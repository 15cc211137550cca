package producers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// adapters are the decoders by the folder of their recordings.
var adapters = map[string]func(provider.Config) *provider.Decoder{
	"anthropic": anthropic.NewDecoder, "openai-chat": openai.NewChatDecoder,
	"openai-responses": openai.NewResponsesDecoder, "gemini": gemini.NewDecoder,
}

// recordings calls fn with every recorded answer of every provider.
func recordings(t *testing.T, fn func(t *testing.T, decoder func(provider.Config) *provider.Decoder, body string)) {
	t.Helper()
	dir, n := providertest.Dir(t), 0
	for folder, decoder := range adapters {
		files, err := filepath.Glob(filepath.Join(dir, folder, "*"))
		must(t, err)
		for _, file := range files {
			body, err := os.ReadFile(file)
			must(t, err)
			n++
			t.Run(folder+"-"+filepath.Base(file), func(t *testing.T) { fn(t, decoder, string(body)) })
		}
	}
	if n < 50 {
		t.Errorf("only %d recordings", n)
	}
}

// TestFoldSaysWhatMessagesSay: of every recorded answer the blocks that a reader sums up out of pieces are
// those of the message as it is told whole at its end.
func TestFoldSaysWhatMessagesSay(t *testing.T) {
	recordings(t, func(t *testing.T, decoder func(provider.Config) *provider.Decoder, body string) {
		checkFolds(t, answerOf(t, decoder, body))
	})
}

// checkFolds holds what a fold makes of the pieces to the content of each message.end.
func checkFolds(t *testing.T, events []schema.Event) {
	t.Helper()
	var f schema.Fold
	for i := range events {
		e := events[i]
		e.RunID, e.Seq = "run_1", schema.Seq(i+1)
		f.Add(&e)
		if e.Type != schema.TypeMessageEnd {
			continue
		}
		var p struct {
			Content []map[string]json.RawMessage
			Omitted []string
		}
		must(t, json.Unmarshal(e.Payload, &p))
		if slices.Contains(p.Omitted, "content") {
			continue
		}
		blocks := f.Messages[len(f.Messages)-1].Blocks
		if len(blocks) != len(p.Content) {
			t.Fatalf("%d blocks were told, and %d are in %s", len(blocks), len(p.Content), e.Payload)
		}
		for i, b := range blocks {
			if complaint := differ(b, p.Content[i]); complaint != "" {
				t.Errorf("block %d, %s: %s", i, b.Kind, complaint)
			}
		}
	}
	var again schema.Fold
	for i := range events { // through the snapshot, in the middle
		if i == len(events)/2 {
			g, err := schema.ParseSnapshot(again.AppendSnapshot(nil))
			must(t, err)
			again = *g
		}
		e := events[i]
		e.RunID, e.Seq = "run_1", schema.Seq(i+1)
		again.Add(&e)
	}
	if a, b := string(f.AppendSnapshot(nil)), string(again.AppendSnapshot(nil)); a != b {
		t.Errorf("through a snapshot it is\n%s\nand without\n%s", b, a)
	}
}

// differ says where a block of a fold and one of a content part.
func differ(b *schema.FoldBlock, c map[string]json.RawMessage) string {
	str := func(name string) (s string) {
		_ = json.Unmarshal(c[name], &s)
		return s
	}
	if b.Tool != "" {
		name, id := str("name"), str("id")
		for _, other := range []string{"call_id", "tool_use_id"} {
			if v := str(other); v != "" {
				id = v
			}
		}
		if name != "" && name != b.Tool || id != "" && id != b.Call {
			return fmt.Sprintf("call %s of %s, in the content %s of %s", b.Call, b.Tool, id, name)
		}
		var told, said any
		if b.Input != nil {
			must2(json.Unmarshal(b.Input, &told))
			in := c["input"]
			if in == nil {
				return fmt.Sprintf("input %s, and none in the content %v", b.Input, keys(c))
			}
			must2(json.Unmarshal(in, &said))
			if !reflect.DeepEqual(told, said) {
				return fmt.Sprintf("input %s, in the content %s", b.Input, in)
			}
			return ""
		}
		if part := str("partial_json"); part != b.Text.String() {
			return fmt.Sprintf("pieces %q, in the content %q", b.Text.String(), part)
		}
		return ""
	}
	if b.Text.Len() == 0 {
		raw := map[string]json.RawMessage{}
		if b.Raw != nil {
			must2(json.Unmarshal(b.Raw, &raw))
		}
		for name, v := range raw {
			if string(c[name]) != string(v) && string(v) != `""` && string(v) != "null" {
				return fmt.Sprintf("%s %.80s, in the content %.80s", name, v, c[name])
			}
		}
		return ""
	}
	for name := range c {
		if name != "type" && str(name) == b.Text.String() {
			return ""
		}
	}
	return fmt.Sprintf("text %.80q is in no member of the content, which has %v", b.Text.String(), keys(c))
}

func must2(err error) {
	if err != nil {
		panic(err)
	}
}

func keys(c map[string]json.RawMessage) string {
	var out []string
	for k, v := range c {
		out = append(out, fmt.Sprintf("%s: %.40s", k, v))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
