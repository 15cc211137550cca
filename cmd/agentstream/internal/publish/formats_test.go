package publish

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
)

func TestEveryFormatIsOffered(t *testing.T) {
	want := []string{"auto"}
	for _, f := range formats() {
		want = append(want, f.name)
		if f.read == nil {
			t.Errorf("%s is not complete", f.name)
		}
	}
	field, _ := reflect.TypeFor[PublishCmd]().FieldByName("Format")
	if got := strings.Split(field.Tag.Get("enum"), ","); !slices.Equal(got, want) {
		t.Errorf("--format takes %v, the table has %v", got, want)
	}
}

// Every recording is known by its content alone: the name says nothing here.
func TestRecordingsAreRecognised(t *testing.T) {
	byHint := 0
	for name, files := range clitest.Recordings(t) {
		if formatNamed(name) == nil {
			t.Logf("%s is not in the table", name)
			continue
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for how, r := range map[string]io.Reader{"whole": bytes.NewReader(data),
				"by bytes": iotest.OneByteReader(bytes.NewReader(data[:min(len(data), 600)]))} {
				got, err := recognise(r, "standard input")
				if how == "by bytes" && err != nil && len(data) > 600 {
					continue // 600 bytes may be too few
				}
				if err != nil || got.kind.name != name {
					t.Errorf("%s, %s: %+v, %v", file, how, got, err)
					continue
				}
				form := map[string]string{".sse": formSSE, ".jsonl": formLines, ".json": formJSON}[filepath.Ext(file)]
				if how == "whole" && got.form != form {
					t.Errorf("%s: recognised as %s", file, got.form)
				}
				if how == "whole" {
					if all, err := io.ReadAll(got.body); err != nil || !bytes.Equal(all, data) {
						t.Errorf("%s: looking at it has changed it", file)
					}
				}
			}
			if kind := byName(file); kind == nil || kind.name != name && name != "" {
				byHint++
			}
		}
	}
	if byHint > 0 {
		t.Errorf("%d files are not known by their names", byHint)
	}
}

// Who types into a pipe does not wait for more than the first frame that tells.
func TestRecogniseWaitsForNoMoreThanItNeeds(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go io.WriteString(w, stream("msg_1", "hi", "end_turn")[:200])
	if got, err := recognise(r, "x"); err != nil || got.kind.name != "anthropic" {
		t.Errorf("%+v, %v", got, err)
	}
}

func packedWith(t *testing.T, how string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if how == "zstd" {
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPublishPackedFiles(t *testing.T) {
	plain := []byte(clitest.Text("a") + "\n" + clitest.Text("b") + "\n")
	for _, how := range []string{"gzip", "zstd"} {
		data := packedWith(t, how, plain)
		for _, in := range []string{"file", "stdin"} {
			s := clitest.NewStandIn(t)
			cmd := PublishCmd{RunID: "r1"}
			if in == "file" {
				cmd.Files = []string{clitest.WriteFile(t, "in", string(data))}
			} else {
				cmd.Streams.In = bytes.NewReader(data)
			}
			_, stderr, err := publish(t, s, cmd)
			if err != nil || len(s.Lines("r1")) != 2 || !strings.Contains(stderr, ": native, JSON lines, "+how+"\n") {
				t.Errorf("%s from %s: %v, %d events, %s", how, in, err, len(s.Lines("r1")), stderr)
			}
		}
		s := clitest.NewStandIn(t)
		file := clitest.WriteFile(t, "cut", string(data[:len(data)-5]))
		_, _, err := publish(t, s, PublishCmd{RunID: "r1", Format: "native", Files: []string{file}})
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), how) {
			t.Errorf("%s, cut: %v", how, err)
		}
	}
}

func TestPublishSaysWhatItRecognised(t *testing.T) {
	s := clitest.NewStandIn(t)
	file := clitest.WriteFile(t, "in", stream("msg_1", "hi", "end_turn"))
	_, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{file, file}})
	if err != nil || strings.Count(stderr, file+": anthropic, server-sent events\n") != 2 {
		t.Errorf("%v: %s", err, stderr)
	}
	if got := states(t, s.Lines("r1")); !slices.Equal(got, []string{"running", "done"}) {
		t.Errorf("states %q", got)
	}
}

// What cannot be recognised is refused before anything is sent, except where it comes through a pipe:
// then the run that was begun for it ends.
func TestPublishUnrecognised(t *testing.T) {
	s := clitest.NewStandIn(t)
	good, bad := clitest.WriteFile(t, "good", clitest.Text("a")), clitest.WriteFile(t, "bad", "<html>")
	_, _, err := publish(t, s, PublishCmd{Files: []string{good, bad}})
	if err == nil || !strings.Contains(err.Error(),
		bad+": cannot tell what it holds; --format says it: it begins with \"<html>\"") || len(s.Log()) != 0 {
		t.Errorf("%v, %d requests", err, len(s.Log()))
	}
	recording := clitest.WriteFile(t, "recording", stream("msg_1", "hi", "end_turn"))
	if _, _, err = publish(t, s, PublishCmd{Files: []string{good, recording}}); err == nil ||
		!strings.Contains(err.Error(), "do not make one run") || len(s.Log()) != 0 {
		t.Errorf("%v, %d requests", err, len(s.Log()))
	}
	if _, _, err = publish(t, s, PublishCmd{Format: "nonsense", Files: []string{good}}); err == nil || len(s.Log()) != 0 {
		t.Errorf("a format that does not exist: %v", err)
	}
	_, stderr, err := publish(t, s, PublishCmd{Streams: cli.Streams{In: strings.NewReader("<html>")}})
	if err == nil || !strings.Contains(stderr, "run run_minted_1") {
		t.Errorf("%v, %s", err, stderr)
	}
	want := []string{"running", "error: the file cannot be read: cannot tell what it holds; --format says it: it begins with \"<html>\""}
	if got := states(t, s.Lines("run_minted_1")); !slices.Equal(got, want) {
		t.Errorf("states %q", got)
	}
}

// A list that ends before its end is not taken for one that is whole.
func TestPublishListWithoutEnd(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"[" + clitest.Text("a") + "," + clitest.Text("b"), "unexpected EOF"},
		{"[" + clitest.Text("a") + ",\n", "unexpected EOF"},
		{"[" + clitest.Text("a") + "]\n" + clitest.Text("b"), "something follows"},
		{"[" + clitest.Text("a") + "]]", "KAI-STREAM-PROTO-0001"},
	} {
		s := clitest.NewStandIn(t)
		_, _, err := publish(t, s, PublishCmd{RunID: "r1", Format: "native",
			Files: []string{clitest.WriteFile(t, "in", c.in)}})
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.want)) {
			t.Errorf("%s: %v", c.in, err)
		}
		if n := len(s.Lines("r1")); n == 0 {
			t.Errorf("%s: what came before is not stored", c.in)
		}
	}
	s := clitest.NewStandIn(t)
	if _, _, err := publish(t, s, PublishCmd{RunID: "r1",
		Files: []string{clitest.WriteFile(t, "in", "["+clitest.Text("a")+"]\n\n ")}}); err != nil {
		t.Error(err)
	}
}
